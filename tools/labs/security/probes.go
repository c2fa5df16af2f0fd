// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	mib = 1 << 20
	// bodyMiB is what the server answers to a probe. It is bounded: a stock kubelet
	// keeps about three times as much.
	bodyMiB = 128
	// execMiB is what a command prints.
	execMiB = 64
	// What a kubelet may grow by. The 16 MiB of a command's output that are kept are
	// copied several times, through a buffer that doubles and the runtime's socket.
	bodyBound, execBound = 50 * mib, 200 * mib
)

// From 1.10 on dockershim answers in a message of 8 MiB: upstream keeps what a hook prints, and then
// fails the hook.
var probes, probesSince12 = probesRow(false), probesRow(true)

// probesRow is the row of a release in which upstream fails a hook that prints so much, or does not.
func probesRow(fails bool) row {
	return row{
		fix:     "probe-output-limits",
		gate:    "ProbeOutputLimits",
		summary: "a pod with a probe fills the node's memory through the kubelet",
		does:    fmt.Sprintf("create a pod whose HTTP readiness probe gets %d MiB from a server, then one whose postStart hook prints %d MiB; in the long profile also one whose postStart hook gets the HTTP answer", bodyMiB, execMiB),
		oracle:  fmt.Sprintf("the kubelet's peak of resident memory (VmHWM) grows by more than %d MiB for HTTP or %d MiB for exec; absent: the whole answer was sent, and the pods became ready", bodyBound/mib, execBound/mib),
		look:    func(ctx context.Context, l *lab) error { return lookProbes(ctx, l, fails) },
		judge:   func(h *history.History) finding { return judgeProbes(h, fails) },
	}
}

// grown is the kubelet's peak of resident memory in bytes before a pod and after it was
// ready, or its hook had failed because it printed too much. Whole says whether an answer was sent
// to it to its end.
type grown struct {
	Pod      string
	From, To int
	Whole    bool
	Counted  float64
	Failed   bool
}

// probePods are the pods, those of the short profile first, with what each may cost.
var probePods = []struct {
	name  string
	http  bool
	bound int
}{{"probe-http", true, bodyBound}, {"hook-exec", false, execBound}, {"hook-http", true, bodyBound}}

func probed(p labkit.Profile) int { return labkit.Pick(p, 2, len(probePods)) }

func lookProbes(ctx context.Context, l *lab, fails bool) error {
	var whole atomic.Int64 // answers that were sent to the end
	listener, err := net.Listen("tcp", machine.IP+":0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chunk := make([]byte, mib)
		for range bodyMiB {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
		whole.Add(1)
	})}
	go func() { _ = server.Serve(listener) }()
	l.e.OnStop("server of large answers", func(context.Context) error { return server.Close() })
	port := listener.Addr().(*net.TCPAddr).Port
	get := kube.HTTPGet("/x", port).HTTPGet
	get.Host = machine.IP
	change := map[string]func(*corev1.Container){
		"probe-http": func(c *corev1.Container) {
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: get}, TimeoutSeconds: 60, PeriodSeconds: 2}
		},
		"hook-exec": func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: kube.Exec("/labpod", "print", fmt.Sprint(execMiB*mib)).Exec}}
		},
		"hook-http": func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: get}}
		},
	}
	for i, p := range probePods[:probed(l.e.Profile)] {
		if i > 0 {
			// The memory of the step before is still this process's.
			if err := l.restart(ctx); err != nil {
				return err
			}
		}
		o := grown{Pod: p.name}
		if o.From, err = l.peak(true); err != nil {
			return err
		}
		before := whole.Load()
		if err := l.pods(ctx, pod(p.name, change[p.name])); err != nil {
			return err
		}
		if o.Failed, err = l.readyOrFailed(ctx, p.name, fails && !p.http); err != nil {
			return err
		}
		o.Whole = whole.Load() > before
		if o.To, err = l.peak(false); err != nil {
			return err
		}
		if o.Counted, err = l.counted(ctx, "holdfast_probe_output_limits_cut_total"); err != nil {
			return err
		}
		l.e.Record(o)
		// Not again after the restart.
		if err := l.c.Client.DeleteNow(ctx, kube.Pods, ns, p.name); err != nil {
			return err
		}
	}
	return nil
}

// readyOrFailed waits until the pod is ready, or, where its hook may fail, until an event says that
// it printed too much.
func (l *lab) readyOrFailed(ctx context.Context, name string, fails bool) (bool, error) {
	if !fails {
		return false, l.waitReady(ctx, name, patience)
	}
	failed := false
	err := wait.Until(ctx, "pod "+name+" is ready or its hook has failed", patience, func(context.Context) (bool, error) {
		text := strings.Join(l.messages(name, "FailedPostStartHook"), "\n")
		if failed = strings.Contains(text, tooLarge); failed {
			return true, nil
		}
		o, err := l.c.Client.Get(ctx, kube.Pods, ns, name)
		if err != nil || kubeletlab.PodReady(o) {
			return err == nil, err
		}
		return false, fmt.Errorf("events: %.300q", text)
	})
	return failed, err
}

// tooLarge is what the event says of a hook whose output is above dockershim's limit.
const tooLarge = "trying to send message larger than max"

func judgeProbes(h *history.History, fails bool) finding {
	var f finding
	var how []string
	all, n, over := history.Of[grown](h), probed(labkit.Profile(h.Profile)), 0
	if len(all) != n {
		return cannotTell("%d pods with large answers were ready, want %d", len(all), n)
	}
	for i, o := range all {
		p := probePods[i]
		if o.Pod != p.name || o.From == 0 || p.http && !o.Whole {
			return cannotTell("pod %s is ready, but the server has not sent a whole answer: %+v", p.name, o)
		}
		if o.Failed && (!fails || p.http || h.Variant == string(labkit.Ours)) {
			return cannotTell("the hook of pod %s failed", p.name)
		}
		grew := o.To - o.From
		how = append(how, fmt.Sprintf("%s %d MiB", o.Pod, grew/mib))
		f = f.measure("the kubelet's peak grew by, "+o.Pod, float64(grew)/mib, "MiB").
			counting(h, o.Pod+": holdfast_probe_output_limits_cut_total", o.Counted, 1)
		if grew > p.bound {
			over++
		}
	}
	f.happened, f.saw = over > 0, "the kubelet's peak grew by "+strings.Join(how, ", ")
	if over > 0 && over < n && h.Variant != string(labkit.Ours) && f.untold == "" {
		f.untold = fmt.Sprintf("only %d of %d: %s", over, n, f.saw)
	}
	return f
}

// restart ends the kubelet and starts it again.
func (l *lab) restart(ctx context.Context) error {
	if err := l.node.StopKubelet(); err != nil {
		return err
	}
	return l.node.StartKubelet(ctx, l.e.UnderTest(l.base, "kubelet"))
}

// peak is the kubelet's largest resident memory in bytes, since the last reset.
func (l *lab) peak(reset bool) (int, error) {
	proc := fmt.Sprintf("/proc/%d/", l.node.Kubelet.PID())
	if reset {
		// proc(5): 5 resets the peak to what is resident now.
		if err := os.WriteFile(proc+"clear_refs", []byte("5\n"), 0o200); err != nil {
			return 0, err
		}
	}
	b, err := os.ReadFile(proc + "status")
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(b), "VmHWM:")
	if f := strings.Fields(rest); ok && len(f) > 1 && f[1] == "kB" {
		n, err := strconv.Atoi(f[0])
		return n << 10, err
	}
	return 0, fmt.Errorf("%sstatus has no VmHWM", proc)
}
