// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/kubeapi"
)

type object = map[string]any

// secret stands wherever a secret can.
const secret = "hunter2secret"

const (
	ours   = "v1.9.11+holdfast.2"
	closed = "--anonymous-auth=false --read-only-port=0"
)

// fakeNode is what a kubelet answers.
type fakeNode struct {
	argv, metrics string
	status        int // instead of any answer
}

// fake is an API server with a cluster that is well.
type fake struct {
	version string
	lists   map[string][]object // by the kind's name
	nodes   map[string]*fakeNode
	manager string // its metrics
	allowed bool
	account bool // the service account of the endpoints controller is there
	// raw are answers by path, with a status if they begin with one: "403 …".
	raw map[string]string
	// second changes the cluster before the second look.
	second func(f *fake)
	// watched gets the events of a watch of Endpoints.
	watched func(send func(kind string, o object))

	mu   sync.Mutex
	took map[string]int // requests by path
	asks []string       // "verb group resource namespace"
}

func ago(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339) }

func named(ns, name string) object {
	return object{"name": name, "namespace": ns, "uid": "uid-" + ns + "-" + name, "generation": 2, "annotations": object{"password": secret, "kubectl.kubernetes.io/last-applied-configuration": secret}}
}

// template is a pod template with secrets in it, as an API server returns it.
func template(image string) object {
	return object{"metadata": object{"creationTimestamp": nil, "labels": object{"app": "web"}, "annotations": object{"a": secret}}, "spec": object{
		"containers": []any{object{"name": "web", "image": image, "command": []any{"/run", "--password=" + secret}, "env": []any{object{"name": "PASSWORD", "value": secret}}, "resources": object{},
			"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"}},
		"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "securityContext": object{}, "schedulerName": "default-scheduler",
	}}
}

func fakePod(ns, name, node, ip string, ready bool) object {
	m, status := named(ns, name), "True"
	m["labels"] = object{"app": "web", "secret": secret}
	if !ready {
		status = "False"
	}
	spec := template("app:1")["spec"].(object)
	spec["nodeName"] = node
	spec["containers"].([]any)[0].(object)["ports"] = []any{object{"name": "http", "containerPort": 8080, "protocol": "TCP"}}
	return object{"metadata": m, "spec": spec, "status": object{"phase": "Running", "podIP": ip, "message": secret,
		"conditions": []any{object{"type": "Ready", "status": status, "lastTransitionTime": ago(time.Hour)}}}}
}

func fakeService(ns, name string) object {
	m := named(ns, name)
	return object{"metadata": m, "spec": object{"selector": object{"app": "web"}, "clusterIP": "10.0.0.1", "ports": []any{object{"protocol": "TCP", "port": 80, "targetPort": "http"}}}}
}

func fakeEndpoints(ns, name string, pods ...object) object {
	var list []any
	for _, p := range pods {
		m := p["metadata"].(object)
		list = append(list, object{"ip": p["status"].(object)["podIP"], "targetRef": object{"kind": "Pod", "name": m["name"], "namespace": ns, "uid": m["uid"]}})
	}
	return object{"metadata": named(ns, name), "subsets": []any{object{"addresses": list, "ports": []any{object{"port": 8080}}}}}
}

func ownedBy(m object, kind string, by object) object {
	b := by["metadata"].(object)
	m["ownerReferences"] = []any{object{"kind": kind, "name": b["name"], "uid": b["uid"], "controller": true}}
	return m
}

func fakeWorkload(ns, name, image string) object {
	return object{"metadata": named(ns, name), "spec": object{"template": template(image)}, "status": object{"observedGeneration": 2}}
}

// replicaSet is one of a Deployment, with the label that the controller adds.
func replicaSet(of object, name, image string) object {
	ns := of["metadata"].(object)["namespace"].(string)
	t := template(image)
	t["metadata"].(object)["labels"].(object)["pod-template-hash"] = "123"
	return object{"metadata": ownedBy(named(ns, name), "Deployment", of), "spec": object{"template": t}}
}

func revision(of object, kind, name, image string, number int) object {
	ns := of["metadata"].(object)["namespace"].(string)
	t := template(image)
	t["$patch"] = "replace"
	return object{"metadata": ownedBy(named(ns, name), kind, of), "revision": number, "data": object{"spec": object{"template": t}}}
}

func leaseOf(component string, age time.Duration) object {
	m := named("kube-system", component)
	m["annotations"] = object{leaderAnnotation: fmt.Sprintf(`{"holderIdentity":"master1","leaseDurationSeconds":15,"renewTime":%q}`, ago(age))}
	return object{"metadata": m}
}

func fakeKubelet(name, version, ready string, since time.Duration) object {
	return object{"metadata": object{"name": name, "labels": object{"x": secret}, "annotations": object{"a": secret}}, "status": object{"nodeInfo": object{"kubeletVersion": version},
		"conditions": []any{object{"type": "Ready", "status": ready, "lastTransitionTime": ago(since)}}}}
}

const nodeMetrics = "# HELP x\nholdfast_subpath_rollback_failed_total 0\nholdfast_predecessor_override_refused 0\nholdfast_unready_before_replace_waits_total{outcome=\"acknowledged\"} 3\nother{a=\"" + secret + "\"} 7\n"

// well is a cluster in which nothing is wrong.
func well() *fake {
	p := fakePod("shop", "web-1", "node1", "10.1.0.1", true)
	dep, set, ds := fakeWorkload("shop", "web", "app:1"), fakeWorkload("shop", "db", "db:1"), fakeWorkload("shop", "agent", "agent:1")
	set["spec"].(object)["updateStrategy"] = object{"type": "RollingUpdate"}
	m := fakePod("kube-system", "kube-controller-manager-master1", "node1", "10.0.0.1", true)
	m["metadata"].(object)["labels"] = object{"component": "kube-controller-manager"}
	m["spec"].(object)["containers"].([]any)[0].(object)["command"] = []any{"kube-controller-manager", "--port=10252", "--root-ca-file=" + secret}
	return &fake{
		version: "v1.9.11", allowed: true, raw: map[string]string{}, took: map[string]int{},
		manager: "kubernetes_build_info{buildDate=\"x\",gitVersion=\"" + ours + "\"} 1\nholdfast_dead_node_pods_retry_failed_total 0\n",
		nodes:   map[string]*fakeNode{"node1": {argv: "/usr/bin/kubelet " + closed + " --kubeconfig=" + secret, metrics: nodeMetrics}},
		lists: map[string][]object{
			"nodes": {fakeKubelet("node1", ours, "True", time.Hour)}, "services": {fakeService("shop", "web")}, "pods": {p, m},
			"endpoints":         {fakeEndpoints("shop", "web", p), leaseOf("kube-controller-manager", time.Second), leaseOf("kube-scheduler", time.Second)},
			"persistentvolumes": {{"metadata": named("", "pv"), "spec": object{"nfs": object{}}}},
			"deployments":       {dep}, "replicasets": {replicaSet(dep, "web-1", "app:1"), replicaSet(dep, "web-0", "app:0")},
			"daemonsets": {ds}, "statefulsets": {set},
			"controllerrevisions": {revision(ds, "DaemonSet", "agent-1", "agent:1", 1), revision(set, "StatefulSet", "db-1", "db:1", 1), revision(set, "StatefulSet", "db-2", "db:2", 2)},
		},
	}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	f.mu.Lock()
	f.took[path]++
	f.note(r)
	if again := f.second; again != nil && f.took["/api/v1/nodes"]+f.took["/api/v1/services"]+f.took["/apis/apps/v1/deployments"]+f.took["/apis/apps/v1/daemonsets"] > 4 {
		f.second = nil
		again(f)
	}
	raw, isRaw := f.raw[path]
	f.mu.Unlock()
	send := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	if isRaw {
		var status int
		if n, _ := fmt.Sscanf(raw, "%3d ", &status); n == 1 && status >= 100 {
			w.WriteHeader(status)
		}
		fmt.Fprint(w, raw)
		return
	}
	switch name := path[strings.LastIndex(path, "/")+1:]; {
	case path == "/version":
		send(object{"major": "1", "gitVersion": f.version})
	case r.FormValue("watch") != "":
		f.events(w, r)
	case strings.HasSuffix(path, "/serviceaccounts/endpoint-controller"):
		if !f.account {
			http.NotFound(w, r)
			return
		}
		send(object{"secrets": []any{object{"name": secret}}})
	case strings.HasSuffix(path, "/subjectaccessreviews"):
		w.WriteHeader(http.StatusCreated) // as 1.9.11 does
		send(object{"status": object{"allowed": f.allowed, "reason": secret}})
	case strings.HasPrefix(path, "/api/v1/nodes/"):
		node, what, _ := strings.Cut(strings.TrimPrefix(path, "/api/v1/nodes/"), "/proxy/")
		n := f.nodes[node]
		switch {
		case n == nil:
			http.NotFound(w, r)
		case n.status != 0:
			http.Error(w, secret, n.status)
		case what == "metrics":
			fmt.Fprint(w, n.metrics)
		default:
			fmt.Fprint(w, strings.ReplaceAll(n.argv, " ", "\x00"))
		}
	case strings.HasSuffix(path, "/proxy/metrics"):
		fmt.Fprint(w, f.manager)
	case f.lists[name] != nil:
		f.mu.Lock()
		items := f.lists[name]
		f.mu.Unlock()
		send(object{"kind": "List", "apiVersion": "v1", "metadata": object{"resourceVersion": "7"}, "items": items})
	default:
		http.NotFound(w, r)
	}
}

func (f *fake) events(w http.ResponseWriter, r *http.Request) {
	if f.watched != nil {
		f.watched(func(kind string, o object) {
			_ = json.NewEncoder(w).Encode(object{"type": kind, "object": o})
			w.(http.Flusher).Flush()
		})
	}
	<-r.Context().Done()
}

// note keeps what a role must allow for this request.
func (f *fake) note(r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group := ""
	switch {
	case parts[0] == "apis":
		group, parts = parts[1], parts[3:]
	case parts[0] == "api":
		parts = parts[2:]
	default:
		return
	}
	ns, verb := "", "list"
	if parts[0] == "namespaces" {
		ns, parts = parts[1], parts[2:]
	}
	switch {
	case r.Method == http.MethodPost:
		verb = "create"
	case r.FormValue("watch") != "":
		verb = "watch"
	case len(parts) > 1:
		verb = "get"
	}
	resource := parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	f.asks = append(f.asks, verb+" "+group+" "+resource+" "+ns)
}

func kubeconfig(t testing.TB, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	text := "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: '" + server + "'}}]\nusers: [{name: u, user: {token: " + secret + "}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// doctor runs the command against the cluster, and fails where it shows a secret.
func (f *fake) doctor(t testing.TB, args ...string) (out, errs string, status int) {
	t.Helper()
	s := httptest.NewServer(f)
	defer s.Close()
	return execute(t, t.Context(), append(args, "--kubeconfig", kubeconfig(t, s.URL))...)
}

func execute(t testing.TB, ctx context.Context, args ...string) (out, errs string, status int) {
	t.Helper()
	cmd := command(&options{between: 50 * time.Millisecond})
	var stdout, stderr bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetContext(ctx)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.Execute()
	if err != nil {
		fmt.Fprintln(&stderr, err)
	}
	if strings.Contains(stdout.String()+stderr.String(), secret) {
		t.Errorf("%q shows a secret:\n%s%s", args, &stdout, &stderr)
	}
	return stdout.String(), stderr.String(), exit.Code(err)
}

// found are the lines of a kind in -o json.
func found(t testing.TB, out, kind string) []object {
	t.Helper()
	var all []object
	for l := range strings.Lines(out) {
		var v object
		if err := json.Unmarshal([]byte(l), &v); err != nil || v["version"] != 1.0 {
			t.Fatalf("%v: %s", err, l)
		}
		if v["kind"] == kind {
			all = append(all, v)
		}
	}
	return all
}

// codes are "STOP HF613 object" of all findings, in order.
func codes(t testing.TB, out string) []string {
	var all []string
	for _, v := range found(t, out, "finding") {
		all = append(all, fmt.Sprintf("%s %s %s", v["level"], v["code"], v["object"]))
	}
	return all
}

func client(t testing.TB, server string) *kubeapi.Client {
	t.Helper()
	a, err := kubeapi.Load(kubeconfig(t, server), "")
	if err != nil {
		t.Fatal(err)
	}
	return a
}
