// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	labmetrics "holdfast/tools/labkit/metrics"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

func protobufLab(base string) labkit.Lab {
	return labkit.Lab{
		Name:    "protobuf-decode-guard",
		Folder:  "security",
		Summary: "one malformed protobuf message in place of the API server's answer ends the process",
		Test:    []labkit.Variant{labkit.Ours},
		Needs:   labkit.ManagerNeeds(base, labkit.BinaryUnderTest(base, "kubelet")),
		Steps: func(e *labkit.Env) []labkit.Step {
			m := &malformed{e: e, base: base}
			steps := []labkit.Step{
				{Text: "start etcd, kube-apiserver of stock " + base + ", a proxy before it, and behind the proxy the controller manager under test", Do: m.start},
				{Text: fmt.Sprintf("let the proxy answer %d requests of the controller manager for its leader-election lock with a protobuf message whose unknown field claims an excessive length; wait until the controller manager has ended, or until the API server has answered the next such request", malformedAnswers), Do: m.feedManager},
			}
			if e.Profile == labkit.Long {
				steps = append(steps, labkit.Step{Text: "start a node with the kubelet under test behind the proxy, and do the same with its requests for its Node", Do: m.feedKubelet})
			}
			return append(steps, labkit.Step{Text: "check that etcd and kube-apiserver run", Always: true, Do: m.alive})
		},
		Oracle: labkit.Oracle{
			Text:  []string{"a component ends in a panic of the generated decoder; absent: each component got the messages, names them in its log, has counted them, and accepts the next answer"},
			Judge: judgeMalformed,
		},
	}
}

// malformedAnswers is how many answers in a row are malformed: more than one, to show
// that an earlier one does no harm, and fewer than cost a leader its lock.
const malformedAnswers = 2

// malformed is a control plane behind a proxy.
type malformed struct {
	e     *labkit.Env
	base  string
	c     *node.Cluster
	proxy *kube.Proxy
}

// fed is what became of a component that was given malformed messages.
type fed struct {
	Component string
	Given     int    // malformed answers
	After     int    // answers of the API server to the same request, later
	Exit      string // how it ended, "" if it runs
	Panicked  bool   // its log has a panic in generated.pb.go that was not caught
	Named     int    // lines of its log that name a malformed message
	Counted   float64
}

func (m *malformed) start(ctx context.Context) error {
	var err error
	if m.c, m.proxy, err = m.e.StartProxied(ctx, m.base); err != nil {
		return err
	}
	return m.startManager(ctx, "kube-controller-manager")
}

func (m *malformed) startManager(ctx context.Context, name string) (err error) {
	m.c.ControllerManager, err = m.e.StartControllerManager(ctx, m.proxy.Before(m.c.APIServer),
		kube.ControllerManagerConfig{Program: m.e.UnderTest(m.base, "kube-controller-manager"), Name: name})
	return err
}

func (m *malformed) feedManager(ctx context.Context) error {
	starts := 1
	return m.feed(ctx, "kube-controller-manager", "/api/v1/namespaces/kube-system/endpoints/kube-controller-manager", "Endpoints",
		func() (*process.Proc, string, error) {
			// With a kill test that kills the API server it ends while it starts its controllers, as stock's does.
			if !m.c.ControllerManager.Alive() {
				starts++
				if err := m.startManager(ctx, fmt.Sprintf("kube-controller-manager-%d", starts)); err != nil {
					return nil, "", err
				}
			}
			return m.c.ControllerManager.Proc, m.c.ControllerManager.URL + "/metrics", nil
		})
}

func (m *malformed) feedKubelet(ctx context.Context) error {
	n, err := m.e.StartNode(ctx, m.proxy.Before(m.c.APIServer), node.Config{Name: "node1", Kubelet: m.e.UnderTest(m.base, "kubelet")})
	if err != nil {
		return err
	}
	if err := m.c.WaitNodeReady(ctx, n.Name, time.Minute); err != nil {
		return err
	}
	return m.feed(ctx, "kubelet", "/api/v1/nodes/"+n.Name, "Node", func() (*process.Proc, string, error) { return n.Kubelet, n.KubeletURL + "/metrics", nil })
}

// feed answers GETs of path by a malformed message of kind and records what the component
// does. component gives its process, which runs, and the address of its metrics.
func (m *malformed) feed(ctx context.Context, name, path, kind string, component func() (*process.Proc, string, error)) error {
	body, err := malformedMessage(kind)
	if err != nil {
		return err
	}
	var o fed
	// A new process has counted nothing, and one without its API server ends for another reason.
	if err := m.e.Sweep.Undisturbed(ctx, func() error {
		if o.Panicked {
			return nil // is enough
		}
		p, metricsURL, err := component()
		if err != nil {
			return err
		}
		o, err = m.given(ctx, name, p, path, body, metricsURL)
		return err
	}); err != nil {
		return err
	}
	m.e.Record(o)
	return nil
}

// given has a component get body for its next GETs of path.
func (m *malformed) given(ctx context.Context, name string, p *process.Proc, path string, body []byte, metricsURL string) (fed, error) {
	o := fed{Component: name}
	good := func() int {
		return m.proxy.Count(func(r kube.ProxyRequest) bool {
			return r.Method == http.MethodGet && r.Path == path && r.Status == http.StatusOK
		})
	}
	earlier := good()
	if err := wait.Until(ctx, name+" gets "+path, time.Minute, func(context.Context) (bool, error) {
		return good() > earlier, process.AllAlive(p)
	}); err != nil {
		return o, err
	}
	given := m.proxy.Answer(malformedAnswers, func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Path == path },
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
			_, _ = w.Write(body) // a client that went away is seen below
		})
	before := -1
	if err := wait.Until(ctx, name+" has ended or continues", time.Minute, func(context.Context) (bool, error) {
		if o.Given = given(); o.Given == malformedAnswers && before < 0 {
			before = good()
		}
		if before >= 0 {
			o.After = good() - before
		}
		return !p.Alive() || o.After > 0, nil
	}); err != nil {
		return o, err
	}
	o.Given = given()
	if !p.Alive() {
		o.Exit = process.DescribeExit(p.Err())
	}
	log, err := p.LastRunLog()
	if err != nil {
		return o, err
	}
	o.readLog(log)
	if p.Alive() {
		page, err := labmetrics.Get(ctx, metricsURL)
		if err != nil {
			return o, err
		}
		o.Counted, _ = page.Sum("holdfast_protobuf_decode_guard_malformed_total")
	}
	return o, nil
}

// readLog takes from a component's log what it says of malformed messages. The decoder's panic
// stands there too if it was caught: those lines say so, and are left out.
func (o *fed) readLog(log string) {
	index := false
	for _, line := range strings.Split(log, "\n") {
		switch {
		case strings.Contains(line, "malformed protobuf message of "):
			o.Named++
		case strings.Contains(line, "The decoder of a protobuf message of "):
		default:
			index = index || strings.Contains(line, "index out of range")
		}
	}
	// Not "panic: ": what is deferred may end the process first ("leaderelection lost").
	o.Panicked = index && strings.Contains(log, "generated.pb.go")
}

func (m *malformed) alive(context.Context) error {
	return process.AllAlive(m.c.Etcd.Proc, m.c.APIServer.Proc)
}

// malformedMessage is an object of kind of v1 with empty metadata and an unknown field
// whose length makes the place behind it more than an int holds (CVE-2021-3121).
func malformedMessage(kind string) ([]byte, error) {
	raw := append([]byte{1<<3 | 2, 0}, 15<<3|2)
	raw = binary.AppendUvarint(raw, math.MaxInt64-10)
	b, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: raw}).Marshal()
	return append([]byte("k8s\x00"), b...), err
}

func judgeMalformed(h *history.History) labkit.Outcome {
	want := []string{"kube-controller-manager"}
	if h.Profile == string(labkit.Long) {
		want = append(want, "kubelet")
	}
	seen := map[string]fed{}
	for _, o := range history.Of[fed](h) {
		seen[o.Component] = o
	}
	var ended, facts []string
	for _, name := range want {
		o, ok := seen[name]
		switch {
		case !ok || o.Given == 0:
			return labkit.InconclusiveBecause("%s got no malformed message", name)
		case o.Exit != "" && !o.Panicked:
			return labkit.InconclusiveBecause("%s ended without a panic of the decoder: %s", name, o.Exit)
		case o.Exit != "":
			ended = append(ended, name)
			facts = append(facts, fmt.Sprintf("%s ended after %d malformed messages: %s", name, o.Given, o.Exit))
		case o.Given < malformedAnswers || o.After == 0:
			return labkit.InconclusiveBecause("%s runs: %d malformed messages of %d, %d answers after them", name, o.Given, malformedAnswers, o.After)
		case o.Named < malformedAnswers || o.Counted < malformedAnswers:
			return labkit.InconclusiveBecause("%s runs and got %d malformed messages, but names %d of them and has counted %v", name, o.Given, o.Named, o.Counted)
		default:
			facts = append(facts, fmt.Sprintf("%s got %d malformed messages, named %d, counted %v, and continued", name, o.Given, o.Named, o.Counted))
		}
	}
	res := labkit.AbsentBecause("%s: an error for each malformed message, and the next answer is accepted", strings.Join(want, ", "))
	if len(ended) > 0 {
		res = labkit.ReproducedBecause("one malformed message ended %s", strings.Join(ended, ", "))
	}
	res.Facts = facts
	return res
}
