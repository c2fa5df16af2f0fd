// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/node"
)

// apiServer has the lock and the Nodes. It compares resource versions as the API server does.
type apiServer struct {
	*httptest.Server
	mu      sync.Mutex
	version int
	data    map[string]string
	puts    int
	// notReady are nodes whose condition is so, down makes each request fail.
	notReady map[string]string
	down     bool
	release  string // what /version says
	// before is called before each request is answered.
	before func(method, path string)
}

func newAPI(t testing.TB) *apiServer {
	s := &apiServer{notReady: map[string]string{}, release: "v1.9.11"}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.before != nil {
		s.before(r.Method, r.URL.Path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		http.Error(w, "no etcd", http.StatusInternalServerError)
		return
	}
	if r.URL.Path == "/version" {
		fmt.Fprintf(w, `{"major":"1","gitVersion":%q}`, s.release)
		return
	}
	if n, ok := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/"); ok {
		status := "True"
		if s.notReady[n] != "" {
			status = "False"
		}
		fmt.Fprintf(w, `{"status":{"conditions":[{"type":"OutOfDisk","status":"False"},{"type":"Ready","status":%q,"reason":"KubeletNotReady","message":%q,"lastHeartbeatTime":%q}]}}`,
			status, s.notReady[n], time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
		return
	}
	type object struct {
		APIVersion, Kind string
		Metadata         map[string]any
		Data             map[string]string `json:"data,omitempty"`
	}
	if r.URL.Path != "/api/v1/namespaces/ns/configmaps/"+lockName {
		http.NotFound(w, r)
		return
	}
	if r.Method == http.MethodPut {
		var o object
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Kind != "ConfigMap" || o.Metadata["uid"] != "u1" {
			http.Error(w, "bad object", http.StatusBadRequest)
			return
		}
		if o.Metadata["resourceVersion"] != fmt.Sprint(s.version) {
			http.Error(w, "the object has been modified", http.StatusConflict)
			return
		}
		s.version++
		s.puts++
		s.data = o.Data
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": s.data,
		"metadata": map[string]any{"name": lockName, "uid": "u1", "resourceVersion": fmt.Sprint(s.version)}})
}

func (s *apiServer) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data[keyHolder]
}

func (s *apiServer) client(t testing.TB, node string) *api {
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("{current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: '%s'}}], users: [{name: u, user: {}}]}", s.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := kubeapi.Load(file, "")
	if err != nil {
		t.Fatal(err)
	}
	return &api{client: c, namespace: "ns", node: node}
}

// killed is what a step panics with where a test ends the agent.
type killed struct{ at string }

// machine is a node: a kubelet, and the unit that swaps. It outlives its agents.
type machine struct {
	mu      sync.Mutex
	pid     int
	runs    string // the sum of what runs
	kept    string
	job     job
	active  bool // the unit
	swaps   int
	bad     string // a kubelet that is put back, with this reason
	swapFor time.Duration
	// fleet watches over all nodes.
	fleet *fleetWatch
	// lookErr makes looks fail, ill is what healthz says.
	lookErr error
	ill     string
	// step is called before each thing that changes; it may panic.
	step func(at string)
}

// fleetWatch sees how many nodes swap at once.
type fleetWatch struct {
	mu        sync.Mutex
	now, most int
}

func (w *fleetWatch) add(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now += n
	w.most = max(w.most, w.now)
}

const (
	oldSum = "sum-of-1.7.0"
	newSum = "sum-of-holdfast"
)

func newMachine(w *fleetWatch) *machine {
	return &machine{pid: 100, runs: oldSum, fleet: w, swapFor: 5 * time.Millisecond}
}

func kubeletOf(sum string) *node.Kubelet {
	if sum == newSum {
		return &node.Kubelet{Release: "v1.9.11+holdfast.2", Sum: sum, Holdfast: true}
	}
	return &node.Kubelet{Release: "v1.7.0", Sum: sum}
}

func (m *machine) at(s string) {
	if m.step != nil {
		m.step(s)
	}
}

func (m *machine) check(context.Context) (node.Checked, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return node.Checked{Now: kubeletOf(m.runs), New: kubeletOf(newSum), Kept: m.kept}, nil
}

func (m *machine) look(context.Context, node.Running) (looked, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lookErr != nil {
		return looked{}, m.lookErr
	}
	return looked{Running: node.Running{PID: m.pid, Started: 1, Sum: m.runs, Ill: m.ill}, Job: m.job, UnitActive: m.active}, nil
}

func (m *machine) start(_ context.Context, t target) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.active {
		return errors.New("it runs already")
	}
	m.at("before the job is written")
	m.job = job{Version: 1, Target: t.name, Attempt: t.attempt, Phase: jobRunning}
	m.at("before the unit starts")
	m.active = true
	m.fleet.add(1)
	go m.unit(t)
	m.at("after the unit starts")
	return nil
}

// unit swaps. The process is another afterwards, whatever comes of it.
func (m *machine) unit(t target) {
	time.Sleep(m.swapFor)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.swaps++
	m.pid++
	m.job.Phase = jobDone
	switch {
	case t.back():
		m.runs = oldSum
	case m.bad != "":
		m.job.Phase, m.job.Why = jobFailed, m.bad
	default:
		m.kept, m.runs = oldSum, newSum
	}
	m.active = false
	m.fleet.add(-1)
}

// pod is an agent on a machine, with what its probe says.
type pod struct {
	*agent
	mu    sync.Mutex
	ready bool
	why   string
	log   bytes.Buffer
	stop  func()
	done  chan struct{}
}

func newPod(m *machine, c cluster, target string, attempt int) *pod {
	p := &pod{done: make(chan struct{})}
	t, err := parseTarget(target, attempt)
	if err != nil {
		panic(err)
	}
	p.agent = &agent{target: t, host: m, cluster: c, settle: 3 * time.Millisecond, poll: time.Millisecond, log: &lockedWriter{p: p}, tell: func(ready bool, why string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ready, p.why = ready, why
	}}
	return p
}

type lockedWriter struct{ p *pod }

func (w *lockedWriter) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return w.p.log.Write(b)
}

var _ io.Writer = (*lockedWriter)(nil)

// begin runs the agent until end. An agent that is killed just ends.
func (p *pod) begin() *pod {
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	go func() {
		defer close(p.done)
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(killed); !ok {
					panic(r)
				}
			}
		}()
		p.agent.run(ctx)
	}()
	return p
}

func (p *pod) end() {
	p.stop()
	<-p.done
}

func (p *pod) state() (bool, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready, p.why
}

// wait waits until the pod is ready, or is not and says why.
func (p *pod) wait(t testing.TB, ready bool, why string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		is, says := p.state()
		if is == ready && strings.Contains(says, why) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("ready=%t: %s, want %t and %q\n%s", is, says, ready, why, p.log.String())
		}
	}
}
