// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/podtemplatehash"
)

// The bounds of one answer. A list is read object by object, so its bound is none of memory.
const (
	listTimeout  = 2 * time.Minute
	shortTimeout = 20 * time.Second
	maxList      = 1 << 30
	maxMetrics   = 16 << 20
	maxCmdline   = 1 << 20
	maxVersion   = 1 << 20
)

// release is a version of Kubernetes: "v1.9.11+holdfast.2".
type release struct {
	text         string
	minor, patch int
	holdfast     bool
}

var releaseForm = regexp.MustCompile(`^v?1\.([0-9]{1,4})\.([0-9]{1,5})([-+][0-9A-Za-z.+_~-]{0,60})?$`)

// parseRelease reads a version; what does not have the form of one is not shown either.
func parseRelease(s string) (release, bool) {
	m := releaseForm.FindStringSubmatch(s)
	if m == nil {
		return release{text: "unknown"}, false
	}
	r := release{text: s, holdfast: strings.Contains(m[3], "+holdfast")}
	r.minor, _ = strconv.Atoi(m[1])
	r.patch, _ = strconv.Atoi(m[2])
	return r, true
}

// sum stands for a pod template: two are the same if their JSON is.
type sum [sha256.Size]byte

type owner struct {
	Kind, Name, UID string
	Controller      *bool
}

type meta struct {
	Name, Namespace, UID string
	Generation           int64
	DeletionTimestamp    *string
	Annotations          map[string]string
	Labels               map[string]string
	OwnerReferences      []owner
}

func (m *meta) id() string { return m.Namespace + "/" + m.Name }

// controller is who controls the object; the zero value if nobody does.
func (m *meta) controller() owner {
	for _, o := range m.OwnerReferences {
		if o.Controller != nil && *o.Controller {
			return owner{Kind: o.Kind, Name: o.Name, UID: o.UID}
		}
	}
	return owner{}
}

type condition struct {
	Type, Status       string
	LastTransitionTime time.Time
}

type node struct {
	name    string
	kubelet release
	known   bool // kubelet is
	// ready is the status of the condition Ready, since when is since.
	ready string
	since time.Time
}

type pod struct {
	name, uid, ip, node string
	ready, deleting     bool
	since               time.Time // of ready
	labels              map[string]string
	ports               []string // "name/TCP"
}

type port struct {
	name     string // of the target, "" for a number
	protocol string
}

type service struct {
	id, namespace string
	selector      map[string]string
	ports         []port
	headless      bool
	// unready: it publishes addresses of pods that are not ready.
	unready bool
}

type address struct{ ip, pod, uid string }

type endpoints struct {
	ready []address
	rules bool // endpoints-rules writes them
}

// workload is a Deployment, ReplicaSet, DaemonSet or ControllerRevision.
type workload struct {
	name, namespace, uid string
	template             sum
	owner                owner
	deleting             bool
	// seen: the controller has seen the spec, and works on it.
	seen bool
	// wants is the name that its next ReplicaSet or ControllerRevision would get, "" if that was not
	// asked for (cluster.stuck) or the release's hash is not known.
	wants    string
	revision int64
}

type statefulSet struct {
	name, namespace, uid string
	collisions           int64
	rolls                bool // an update of it would replace pods
}

type lease struct {
	component, holder string
	renewed           time.Time
}

// manager is a pod of the controller manager.
type manager struct {
	pod, port string
	gates     map[string]bool
}

// cluster is what the API server said of the objects.
type cluster struct {
	server      release
	serverKnown bool
	now         time.Time // the server's clock, at the first answer
	read        time.Time // ours, then

	nodes       []node
	pods        map[string][]pod // by namespace
	podCount    int
	services    []service
	endpoints   map[string]endpoints
	deployments []workload
	replicaSets []workload
	daemonSets  []workload
	revisions   []workload
	sets        []statefulSet
	leases      []lease
	managers    []manager
	rbd         int // volumes in pods and PersistentVolumes

	// missing says why a kind was not read.
	missing map[string]string
	// stuck are the Deployments of the first look, by UID, whose wants the second look makes.
	stuck map[string]bool
	// keys are the labels that a Service selects by; no other label of a pod is kept.
	keys map[string]bool
}

// kind is a list of the API, and how an object of it is taken.
type kind struct {
	name string
	path func(minor int) string // "" where the release does not have it
	take func(c *cluster, raw json.RawMessage) error
}

func core(name string) func(int) string {
	return func(int) string { return "/api/v1/" + name }
}

// apps is where a kind of workload is: in extensions until that went, or in apps from 1.9 on.
func apps(name string, first int) func(int) string {
	return func(minor int) string {
		switch {
		case minor < first:
			return ""
		case minor >= 9:
			return "/apis/apps/v1/" + name
		case name == "statefulsets" || name == "controllerrevisions":
			return "/apis/apps/v1beta1/" + name
		}
		return "/apis/extensions/v1beta1/" + name
	}
}

// kinds are in the order in which they are read: Services before pods, whose labels they choose;
// what owns before what is owned, so that something new has what it needs.
var kinds = []kind{
	{"nodes", core("nodes"), (*cluster).takeNode},
	{"services", core("services"), (*cluster).takeService},
	{"pods", core("pods"), (*cluster).takePod},
	{"endpoints", core("endpoints"), (*cluster).takeEndpoints},
	{"persistentvolumes", core("persistentvolumes"), (*cluster).takeVolume},
	{"deployments", apps("deployments", 2), (*cluster).takeDeployment},
	{"replicasets", apps("replicasets", 2), (*cluster).takeReplicaSet},
	{"daemonsets", apps("daemonsets", 2), (*cluster).takeDaemonSet},
	{"statefulsets", apps("statefulsets", 7), (*cluster).takeStatefulSet},
	{"controllerrevisions", apps("controllerrevisions", 7), (*cluster).takeRevision},
}

// readVersion asks which release the API server is. An error is that of the connection, too.
func (c *cluster) readVersion(ctx context.Context, a *kubeapi.Client) error {
	b, err := a.Ask(ctx, http.MethodGet, "/version", "", maxVersion, shortTimeout)
	if err != nil {
		return err
	}
	var v struct{ GitVersion string }
	if json.Unmarshal(b, &v) != nil {
		return errors.New("the answer is not the JSON that was expected")
	}
	c.server, c.serverKnown = parseRelease(v.GitVersion)
	return nil
}

// readKinds reads the lists of these names, all without any.
func (c *cluster) readKinds(ctx context.Context, a *kubeapi.Client, names ...string) {
	c.missing, c.keys = map[string]string{}, map[string]bool{}
	c.pods, c.endpoints = map[string][]pod{}, map[string]endpoints{}
	c.read = time.Now()
	for _, k := range kinds {
		path := k.path(c.server.minor)
		switch {
		case len(names) > 0 && !slices.Contains(names, k.name):
			continue
		case path == "" && !c.serverKnown:
			c.missing[k.name] = k.name + ": the API server's release is not known, so their path is not known either"
			continue
		case path == "":
			continue
		}
		at, _, err := a.List(ctx, path, maxList, listTimeout, func(raw json.RawMessage) error { return k.take(c, raw) })
		if err != nil {
			c.missing[k.name] = k.name + ": " + why(err, "list", k.name)
			continue
		}
		if c.now.IsZero() {
			if c.now = at; c.now.IsZero() {
				c.now = time.Now()
			}
		}
	}
}

// lacks says why one of these kinds is not known, "" if all are.
func (c *cluster) lacks(names ...string) string {
	var out []string
	for _, n := range names {
		if w := c.missing[n]; w != "" {
			out = append(out, w)
		}
	}
	return strings.Join(out, "; ")
}

// why says why there is no answer, without a word of what was answered: nobody knows what is in it.
func why(err error, verb, resource string) string {
	var status *kubeapi.StatusError
	var request *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &request):
		var dial *net.OpError
		var refused *tls.CertificateVerificationError
		if errors.As(err, &dial) || errors.As(err, &refused) {
			return request.Err.Error()
		}
		return "the connection failed"
	case !errors.As(err, &status):
		return err.Error()
	}
	switch status.Code {
	case http.StatusUnauthorized:
		return "401: the API server does not accept the user's credentials"
	case http.StatusForbidden:
		return fmt.Sprintf("403: the user needs the verb %s on %s", verb, resource)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return fmt.Sprintf("%d: not found", status.Code)
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Sprintf("%d: the API server cannot reach it", status.Code)
	}
	return strconv.Itoa(status.Code)
}

// templateLabel is of a ReplicaSet's template, and not of its Deployment's.
const templateLabel = "pod-template-hash"

// sumOf is the sum of a pod template without what a controller adds to it; it changes the template.
func sumOf(template map[string]any) sum {
	delete(template, "$patch")
	if m, _ := template["metadata"].(map[string]any); m != nil {
		if labels, _ := m["labels"].(map[string]any); labels != nil {
			delete(labels, templateLabel)
			if len(labels) == 0 {
				delete(m, "labels")
			}
		}
	}
	b, err := json.Marshal(template) // keys in order
	if err != nil {
		return sum{}
	}
	return sha256.Sum256(b)
}

// wants is the name of the next ReplicaSet or ControllerRevision of an object.
func (c *cluster) wants(name string, template map[string]any, collisions *int64) string {
	r, err := podtemplatehash.Find(fmt.Sprintf("1.%d", c.server.minor))
	if err != nil {
		return ""
	}
	count := -1
	if collisions != nil && *collisions >= 0 {
		count = int(*collisions)
	}
	hash, err := r.Hash(template, count)
	if err != nil {
		return ""
	}
	return name + "-" + r.Suffix(hash)
}
