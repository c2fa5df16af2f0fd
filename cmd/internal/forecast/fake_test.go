// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"holdfast/cmd/internal/containerhash"
	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/kubeletflags"
)

type object = map[string]any

// fakeNode is a node as its kubelet answers. The shapes are those of kubelets 1.7.0, 1.8.15 and
// 1.9.11 behind an API server's proxy.
type fakeNode struct {
	name, version string
	labels        map[string]string
	conditions    []object
	pods          []object
	cgroups       map[string]any // stats/container
	argv          []string
	fs, imagefs   object
	memory        float64
	metrics       string
	// refuse are the parts of the proxy that answer with a status.
	refuse map[string]int
	// raw are answers instead of the right ones; once are those that are given but once.
	raw  map[string]string
	once map[string]string
}

// fakeCluster is an API server.
type fakeCluster struct {
	version   string
	nodes     []*fakeNode
	endpoints []object
	volumes   []object
	// extra are answers by path, with a status if it begins with one: "403 …".
	extra map[string]string

	mu       sync.Mutex
	requests map[string]int // by node, "" for the API server's own
	most     int            // in flight
	now      int
}

// secret stands wherever a secret can.
const secret = "hunter2secret"

func newNode(name, version string) *fakeNode {
	return &fakeNode{
		name: name, version: version, labels: map[string]string{"disk": "ssd", "cpus": "8"}, cgroups: map[string]any{},
		argv:    []string{"/usr/bin/kubelet", "--kubeconfig=/etc/kubelet.conf", "--require-kubeconfig=true", "--v=2"},
		fs:      object{"availableBytes": 50e9, "capacityBytes": 100e9, "inodesFree": 5e6, "inodes": 10e6},
		imagefs: object{"availableBytes": 50e9, "capacityBytes": 100e9, "inodesFree": 5e6, "inodes": 10e6}, memory: 8e9,
		conditions: []object{{"type": "OutOfDisk", "status": "False"}, {"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}},
		metrics:    "# x\nholdfast_predecessor_info{release=\"1.7.16\",source=\"api\"} 1\n",
		refuse:     map[string]int{}, raw: map[string]string{},
	}
}

// container is a spec with secrets in it.
func newContainer(name string) object {
	return object{
		"name": name, "image": "registry/app:1", "command": []any{"/run", "--password=" + secret}, "args": []any{secret},
		"env":          []any{object{"name": "PASSWORD", "value": secret}},
		"volumeMounts": []any{object{"name": "token", "readOnly": true, "mountPath": "/var/run/secrets"}},
		"resources":    object{}, "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
	}
}

// hashOf is what a release records.
func hashOf(t testing.TB, release string, spec object) uint32 {
	t.Helper()
	set, err := containerhash.All()
	if err != nil {
		t.Fatal(err)
	}
	r, err := set.Find([]string{release})
	if err != nil {
		t.Fatal(err)
	}
	h, err := r[0].Hash(asRead(t, spec), containerhash.Options{Wire: true})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// asRead is a spec with json.Number for its numbers.
func asRead(t testing.TB, spec object) object {
	t.Helper()
	b, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	out := object{}
	if err := kubeapi.Decode(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// add puts a running pod on the node, with the hash that a release records for each container. An
// empty release: the kubelet knows no cgroup of it.
func (n *fakeNode) add(t testing.TB, name, release string, containers ...object) object {
	t.Helper()
	uid := fmt.Sprintf("aaaaaaaa-%s-%s", n.name, name)
	var specs, statuses []any
	for i, c := range containers {
		specs = append(specs, c)
		statuses = append(statuses, object{"name": c["name"], "image": c["image"], "state": object{"running": object{"startedAt": "2018-01-01T00:00:00Z"}}})
		if release == "" {
			continue
		}
		labels := map[string]string{
			labelKind: "container", labelUID: uid, labelContainer: c["name"].(string), "annotation." + labelHash: fmt.Sprintf("%x", hashOf(t, release, c)),
			"annotation.io.kubernetes.pod.secret": secret,
		}
		id := fmt.Sprintf("/kubepods/burstable/pod%s/%064x", uid, i+1)
		n.cgroups[id] = object{"name": id, "labels": labels, "stats": []any{}, "spec": object{
			"creation_time": "2018-01-01T00:00:00Z", "labels": labels, "envs": map[string]string{"PASSWORD": secret}, "image": "registry/app:1"}}
	}
	pause := map[string]string{labelKind: "podsandbox", labelUID: uid, labelContainer: "POD"}
	n.cgroups["/kubepods/burstable/pod"+uid] = object{"name": "/kubepods/burstable/pod" + uid, "spec": object{}}
	n.cgroups["/kubepods/burstable/pod"+uid+"/pause"] = object{"name": "x", "spec": object{"labels": pause}}
	p := object{
		"metadata": object{"name": name, "namespace": "default", "uid": uid, "annotations": object{"kubernetes.io/config.source": "api", "password": secret}},
		"spec":     object{"nodeName": n.name, "containers": specs, "volumes": []any{object{"name": "token", "secret": object{"secretName": "x"}}}},
		"status":   object{"phase": "Running", "containerStatuses": statuses},
	}
	n.pods = append(n.pods, p)
	return p
}

// static makes a pod a static one.
func static(p object) {
	m := p["metadata"].(object)
	m["uid"] = "0123456789abcdef0123456789abcdef"
	m["annotations"] = object{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": m["uid"]}
}

func (n *fakeNode) object() object {
	return object{"metadata": object{"name": n.name, "labels": n.labels, "annotations": object{"a": secret}},
		"status": object{"conditions": n.conditions, "nodeInfo": object{"kubeletVersion": n.version}}}
}

// asItKnows are the pods as the kubelet decoded them: 1.7 does not know allowPrivilegeEscalation.
func (n *fakeNode) asItKnows() []object {
	if !strings.HasPrefix(n.version, "v1.7.") {
		return n.pods
	}
	var out []object
	b, _ := json.Marshal(n.pods)
	_ = json.Unmarshal(b, &out)
	for _, p := range out {
		spec, _ := p["spec"].(object)
		list, _ := spec["containers"].([]any)
		for _, c := range list {
			if c, _ := c.(object); c != nil {
				if s, _ := c["securityContext"].(object); s != nil {
					delete(s, "allowPrivilegeEscalation")
				}
			}
		}
	}
	return out
}

func (n *fakeNode) answer(w http.ResponseWriter, r *http.Request, part string) {
	if code := n.refuse[part]; code != 0 {
		http.Error(w, secret, code)
		return
	}
	if text, ok := n.once[part]; ok {
		delete(n.once, part)
		_, _ = w.Write([]byte(text))
		return
	}
	if raw, ok := n.raw[part]; ok {
		_, _ = w.Write([]byte(raw))
		return
	}
	send := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch part {
	case "pods":
		send(object{"kind": "PodList", "apiVersion": "v1", "metadata": object{}, "items": n.asItKnows()})
	case "stats/container":
		var q object
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&q) != nil || q["subcontainers"] != true || q["num_stats"] != 1.0 {
			http.Error(w, "", http.StatusBadRequest)
			return
		}
		send(n.cgroups)
	case "debug/pprof/cmdline":
		_, _ = w.Write([]byte(strings.Join(n.argv, "\x00")))
	case "stats/summary":
		send(object{"node": object{"nodeName": n.name, "memory": object{"availableBytes": n.memory}, "fs": n.fs, "runtime": object{"imageFs": n.imagefs}}, "pods": []any{}})
	case "metrics":
		_, _ = w.Write([]byte(n.metrics))
	default:
		http.NotFound(w, r)
	}
}

func (c *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/")
	name, proxied := "", false
	if rest, ok := strings.CutPrefix(path, "nodes/"); ok {
		name, path, proxied = strings.Cut(rest, "/proxy/")
	}
	c.mu.Lock()
	c.requests[name]++
	c.now++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	defer func() { c.mu.Lock(); c.now--; c.mu.Unlock() }()
	if raw, ok := c.extra[r.URL.Path]; ok {
		if strings.HasPrefix(raw, "403") {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = w.Write([]byte(raw))
		return
	}
	if name == "" && (path == "nodes" || path == "endpoints" || path == "pods" || path == "persistentvolumes") {
		var items []object
		switch path {
		case "nodes":
			for _, n := range c.nodes {
				if s := r.URL.Query().Get("labelSelector"); s == "" || s == "name="+n.name {
					items = append(items, n.object())
				}
			}
		case "endpoints":
			items = c.endpoints
		case "persistentvolumes":
			items = c.volumes
		case "pods":
			for _, n := range c.nodes {
				if r.URL.Query().Get("fieldSelector") == "spec.nodeName="+n.name {
					items = n.pods
				}
			}
		}
		if items == nil {
			items = []object{}
		}
		_ = json.NewEncoder(w).Encode(object{"kind": "List", "metadata": object{}, "items": items})
		return
	}
	if path == "/version" {
		_ = json.NewEncoder(w).Encode(object{"major": "1", "gitVersion": c.version})
		return
	}
	for _, n := range c.nodes {
		if n.name != name {
			continue
		}
		if proxied {
			n.answer(w, r, path)
		} else {
			_ = json.NewEncoder(w).Encode(n.object())
		}
		return
	}
	http.NotFound(w, r)
}

func newCluster(nodes ...*fakeNode) *fakeCluster {
	return &fakeCluster{version: "v1.9.11", nodes: nodes, extra: map[string]string{}, requests: map[string]int{}}
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

// forecastOf runs the command against the cluster, and fails where it shows a secret.
func (c *fakeCluster) forecast(t testing.TB, args ...string) (out, errs string, status int) {
	t.Helper()
	s := httptest.NewServer(c)
	defer s.Close()
	return execute(t, append(args, "--kubeconfig", kubeconfig(t, s.URL))...)
}

func execute(t testing.TB, args ...string) (out, errs string, status int) {
	t.Helper()
	cmd := Command()
	var stdout, stderr bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
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

// lines are the lines of -o json of a kind.
func lines(t testing.TB, out, kind string) []object {
	t.Helper()
	var all []object
	for l := range strings.Lines(out) {
		var v object
		if err := json.Unmarshal([]byte(l), &v); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		if v["version"] != 1.0 {
			t.Errorf("no version: %s", l)
		}
		if v["kind"] == kind {
			all = append(all, v)
		}
	}
	return all
}

func tableOf(t testing.TB) *kubeletflags.Table {
	t.Helper()
	table, err := kubeletflags.Load()
	if err != nil {
		t.Fatal(err)
	}
	return table
}
