// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kube is the control plane: certificates, etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler of any release from 1.2 to 1.9, and a
// client that reads, writes, waits and records.
package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"holdfast/tools/labkit/wait"
)

// Object is an API object as the server sent it.
type Object = unstructured.Unstructured

// GVR names a resource.
type GVR = schema.GroupVersionResource

// Resources that labs use. Deployments and ReplicaSets are of
// extensions/v1beta1, which every release from 1.2 to 1.15 serves.
var (
	Pods                   = GVR{Version: "v1", Resource: "pods"}
	Services               = GVR{Version: "v1", Resource: "services"}
	Endpoints              = GVR{Version: "v1", Resource: "endpoints"}
	Nodes                  = GVR{Version: "v1", Resource: "nodes"}
	Events                 = GVR{Version: "v1", Resource: "events"}
	Namespaces             = GVR{Version: "v1", Resource: "namespaces"}
	ConfigMaps             = GVR{Version: "v1", Resource: "configmaps"}
	Secrets                = GVR{Version: "v1", Resource: "secrets"}
	PersistentVolumeClaims = GVR{Version: "v1", Resource: "persistentvolumeclaims"}
	ServiceAccounts        = GVR{Version: "v1", Resource: "serviceaccounts"}
	ReplicationControllers = GVR{Version: "v1", Resource: "replicationcontrollers"}
	Deployments            = GVR{Group: "extensions", Version: "v1beta1", Resource: "deployments"}
	ReplicaSets            = GVR{Group: "extensions", Version: "v1beta1", Resource: "replicasets"}
	DaemonSets             = GVR{Group: "extensions", Version: "v1beta1", Resource: "daemonsets"}
	StatefulSets           = GVR{Group: "apps", Version: "v1beta1", Resource: "statefulsets"} // from 1.5 on
	ControllerRevisions    = GVR{Group: "apps", Version: "v1beta1", Resource: "controllerrevisions"}
)

// Client talks to one kube-apiserver as a cluster administrator. Errors are
// those of k8s.io/apimachinery/pkg/api/errors.
type Client struct {
	dynamic.Interface
	// HTTP carries the same credentials, for what the dynamic client lacks.
	HTTP *http.Client
	// URL is the apiserver's.
	URL string
	// etcd is where a Recorder asks what it may have missed; "" for nowhere.
	etcd string
}

// NewClient makes a client for a, without client-side rate limiting.
func NewClient(a *APIServer) (*Client, error) {
	cfg := &rest.Config{Host: a.URL, QPS: -1}
	if a.AdminKubeconfig != "" {
		pki := filepath.Dir(a.AdminKubeconfig)
		base := strings.TrimSuffix(a.AdminKubeconfig, ".conf")
		cfg.TLSClientConfig = rest.TLSClientConfig{CAFile: filepath.Join(pki, "ca.crt"), CertFile: base + ".crt", KeyFile: base + ".key"}
	}
	if a.Proc != nil {
		disturbed := a.Supervisor().Disturbed
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &patient{next, disturbed} })
	}
	c, err := NewClientForConfig(cfg)
	if err == nil {
		c.etcd = a.etcd
	}
	return c, err
}

// NewClientForConfig makes a client for any configuration.
func NewClientForConfig(cfg *rest.Config) (*Client, error) {
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	d, err := dynamic.NewForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, err
	}
	return &Client{Interface: d, HTTP: hc, URL: cfg.Host}, nil
}

// in is the resource in ns, or the cluster-wide one if ns is "".
func (c *Client) in(r GVR, ns string) dynamic.ResourceInterface {
	if ns == "" {
		return c.Resource(r)
	}
	return c.Resource(r).Namespace(ns)
}

// Get reads one object.
func (c *Client) Get(ctx context.Context, r GVR, ns, name string) (*Object, error) {
	return c.in(r, ns).Get(ctx, name, metav1.GetOptions{})
}

// List reads all objects, of all namespaces if ns is "". selector is a label
// selector or "".
func (c *Client) List(ctx context.Context, r GVR, ns, selector string) ([]Object, error) {
	l, err := c.in(r, ns).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return l.Items, nil
}

// Create creates o.
func (c *Client) Create(ctx context.Context, r GVR, ns string, o *Object) (*Object, error) {
	return c.in(r, ns).Create(ctx, o, metav1.CreateOptions{})
}

// Update replaces o.
func (c *Client) Update(ctx context.Context, r GVR, ns string, o *Object) (*Object, error) {
	return c.in(r, ns).Update(ctx, o, metav1.UpdateOptions{})
}

// PatchMerge applies a JSON merge patch; subresources like "status" may follow.
func (c *Client) PatchMerge(ctx context.Context, r GVR, ns, name, patch string, sub ...string) (*Object, error) {
	return c.in(r, ns).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, sub...)
}

// PatchStrategic applies a strategic merge patch (lists merge by key), as
// kubectl set image and kubectl patch do.
func (c *Client) PatchStrategic(ctx context.Context, r GVR, ns, name, patch string, sub ...string) (*Object, error) {
	return c.in(r, ns).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, sub...)
}

// Delete deletes one object and, in the background, its dependents.
func (c *Client) Delete(ctx context.Context, r GVR, ns, name string) error {
	bg := metav1.DeletePropagationBackground
	return c.in(r, ns).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &bg})
}

// DeleteNow is Delete without a grace period.
func (c *Client) DeleteNow(ctx context.Context, r GVR, ns, name string) error {
	bg, zero := metav1.DeletePropagationBackground, int64(0)
	return c.in(r, ns).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &bg, GracePeriodSeconds: &zero})
}

// clusterScoped are the kinds without a namespace that labs create.
var clusterScoped = map[string]bool{"Namespace": true, "Node": true, "PersistentVolume": true, "ClusterRole": true,
	"ClusterRoleBinding": true, "StorageClass": true, "CustomResourceDefinition": true, "PodSecurityPolicy": true,
	"MutatingWebhookConfiguration": true, "ValidatingWebhookConfiguration": true, "APIService": true}

// ResourceFor guesses the resource of a kind by the plural rules that all
// kinds of 1.2–1.9 follow.
func ResourceFor(apiVersion, kind string) (GVR, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return GVR{}, err
	}
	r := strings.ToLower(kind)
	switch {
	case r == "endpoints":
	case strings.HasSuffix(r, "s"):
		r += "es"
	case strings.HasSuffix(r, "y"):
		r = strings.TrimSuffix(r, "y") + "ies"
	default:
		r += "s"
	}
	return gv.WithResource(r), nil
}

// CreateYAML creates every document of a YAML (or JSON) text. Objects without
// a namespace get ns.
func (c *Client) CreateYAML(ctx context.Context, ns, text string) ([]*Object, error) {
	var out []*Object
	for i, doc := range strings.Split("\n"+text, "\n---") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		o := &Object{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			return out, fmt.Errorf("YAML document %d: %w", i+1, err)
		}
		if len(o.Object) == 0 {
			continue
		}
		r, err := ResourceFor(o.GetAPIVersion(), o.GetKind())
		if err != nil {
			return out, fmt.Errorf("YAML document %d: %w", i+1, err)
		}
		in := o.GetNamespace()
		if in == "" && !clusterScoped[o.GetKind()] {
			in = ns
		}
		made, err := c.Create(ctx, r, in, o)
		if err != nil {
			return out, fmt.Errorf("create %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		out = append(out, made)
	}
	return out, nil
}

// Raw sends one request and returns status and body, also of failures.
// contentType may be "". The error is about the transport only.
func (c *Client) Raw(ctx context.Context, method, path, contentType string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("Accept", "application/json, */*")
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}

// WaitFor polls one object until ok says yes and returns it. what ends the
// sentence "<resource> <name> …".
func (c *Client) WaitFor(ctx context.Context, r GVR, ns, name string, bound time.Duration, what string, ok func(*Object) (bool, error)) (*Object, error) {
	var last *Object
	err := wait.Until(ctx, strings.TrimSpace(r.Resource+" "+name+" "+what), bound, func(ctx context.Context) (bool, error) {
		o, err := c.Get(ctx, r, ns, name)
		if err != nil {
			return false, err
		}
		last = o
		return ok(o)
	})
	return last, err
}

// WaitList polls a list until ok says yes and returns it.
func (c *Client) WaitList(ctx context.Context, r GVR, ns, selector string, bound time.Duration, what string, ok func([]Object) (bool, error)) ([]Object, error) {
	var last []Object
	err := wait.Until(ctx, r.Resource+" "+what, bound, func(ctx context.Context) (bool, error) {
		l, err := c.List(ctx, r, ns, selector)
		if err != nil {
			return false, err
		}
		last = l
		return ok(l)
	})
	return last, err
}

// WaitGone waits until the object is not found.
func (c *Client) WaitGone(ctx context.Context, r GVR, ns, name string, bound time.Duration) error {
	return wait.Until(ctx, r.Resource+" "+name+" gone", bound, func(ctx context.Context) (bool, error) {
		_, err := c.Get(ctx, r, ns, name)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
}

// DumpAll writes dir/<resource>.json for what helps to judge a failure, and
// the component's metrics that begin with holdfast_ are left to the lab.
func (c *Client) DumpAll(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var errs []error
	for _, r := range []GVR{Nodes, Pods, Services, Endpoints, Events, Deployments, ReplicaSets, DaemonSets, StatefulSets, ReplicationControllers, ConfigMaps} {
		path := "/apis/" + r.Group + "/" + r.Version + "/" + r.Resource
		if r.Group == "" {
			path = "/api/v1/" + r.Resource
		}
		code, b, err := c.Raw(ctx, http.MethodGet, path, "", nil)
		if err != nil {
			return errors.Join(append(errs, err)...) // the server is gone, so are the rest
		}
		if code == http.StatusNotFound {
			continue // a resource that this release lacks
		}
		var pretty bytes.Buffer
		if json.Indent(&pretty, b, "", "  ") != nil {
			pretty = *bytes.NewBuffer(b)
		}
		errs = append(errs, os.WriteFile(filepath.Join(dir, r.Resource+".json"), pretty.Bytes(), 0o644))
	}
	return errors.Join(errs...)
}

// Field reads a nested field, like Field(o, "spec", "nodeName"); nil if absent.
func Field(o *Object, path ...string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	return v
}

// String is Field as a string, "" if absent.
func String(o *Object, path ...string) string { s, _ := Field(o, path...).(string); return s }

// Int is Field as an integer, 0 if absent.
func Int(o *Object, path ...string) int64 {
	switch n := Field(o, path...).(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}

// Slice is Field as a list, nil if absent.
func Slice(o *Object, path ...string) []any { l, _ := Field(o, path...).([]any); return l }

// Condition is the status ("True", "False", "Unknown") of a condition of
// o.status.conditions, "" if absent.
func Condition(o *Object, kind string) string {
	for _, c := range Slice(o, "status", "conditions") {
		if m, ok := c.(map[string]any); ok && m["type"] == kind {
			s, _ := m["status"].(string)
			return s
		}
	}
	return ""
}

// ReadyAddresses are "ip:port" of an Endpoints object's ready addresses, in
// its order; NotReadyAddresses the others.
func ReadyAddresses(ep *Object) []string    { return addresses(ep, "addresses") }
func NotReadyAddresses(ep *Object) []string { return addresses(ep, "notReadyAddresses") }

func addresses(ep *Object, field string) []string {
	var out []string
	eachAddress(ep, field, func(_, address string) { out = append(out, address) })
	return out
}

// EachReadyAddress calls f with the pod, "" if there is none, and "ip:port" of
// every ready address of an Endpoints object, in its order.
func EachReadyAddress(ep *Object, f func(pod, address string)) { eachAddress(ep, "addresses", f) }

// EachNotReadyAddress is EachReadyAddress for those that are not.
func EachNotReadyAddress(ep *Object, f func(pod, address string)) {
	eachAddress(ep, "notReadyAddresses", f)
}

func eachAddress(ep *Object, field string, f func(pod, address string)) {
	for _, s := range Slice(ep, "subsets") {
		m, _ := s.(map[string]any)
		ips, _ := m[field].([]any)
		ports, _ := m["ports"].([]any)
		for _, ip := range ips {
			im, _ := ip.(map[string]any)
			ref, _ := im["targetRef"].(map[string]any)
			pod, _ := ref["name"].(string)
			for _, port := range ports {
				pm, _ := port.(map[string]any)
				f(pod, fmt.Sprintf("%v:%v", im["ip"], pm["port"]))
			}
		}
	}
}

// WaitPodsAdmitted waits until the namespace's ServiceAccount has a token: the admission
// plug-in ServiceAccount refuses pods before that.
func (c *Client) WaitPodsAdmitted(ctx context.Context, ns string, bound time.Duration) error {
	_, err := c.WaitFor(ctx, ServiceAccounts, ns, "default", bound, "with a token", func(o *Object) (bool, error) {
		return len(Slice(o, "secrets")) > 0, nil
	})
	return err
}

// ContainerIDs are the runtime IDs of a pod's containers by name, without the
// "docker://".
func ContainerIDs(pod *Object) map[string]string {
	ids := map[string]string{}
	for _, c := range Slice(pod, "status", "containerStatuses") {
		m, _ := c.(map[string]any)
		n, _ := m["name"].(string)
		id, _ := m["containerID"].(string)
		if _, short, ok := strings.Cut(id, "://"); ok {
			id = short
		}
		ids[n] = id
	}
	return ids
}
