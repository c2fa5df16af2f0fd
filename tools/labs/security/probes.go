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
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
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

var probes = row{
	slug:    "probe-output-limits",
	gate:    "ProbeOutputLimits",
	summary: "a pod with a probe fills the node's memory through the kubelet",
	plan: []string{
		fmt.Sprintf("create a pod whose HTTP readiness probe gets %d MiB from a server, then one whose postStart hook prints %d MiB; in the long profile also one whose postStart hook gets the HTTP answer", bodyMiB, execMiB),
		fmt.Sprintf("oracle: by how much the kubelet's peak of resident memory (VmHWM) grows, %d MiB at most for HTTP and %d MiB for exec; absent: the whole answer was fetched and the pods became ready", bodyBound/mib, execBound/mib),
	},
	judge: judgeProbes,
}

func judgeProbes(ctx context.Context, l *lab) (outcome, error) {
	var whole atomic.Int64 // answers that were sent to the end
	listener, err := net.Listen("tcp", machine.IP+":0")
	if err != nil {
		return outcome{}, err
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
	get := fmt.Sprintf("httpGet: {host: %s, port: %d, path: /x}", machine.IP, port)

	var grown []string
	over := 0
	steps := []struct {
		name, container string
		bound           int
		done            func(int64) error
	}{
		{"probe-http", "    readinessProbe: {" + get + ", timeoutSeconds: 60, periodSeconds: 2}\n", bodyBound,
			func(before int64) error { return l.probed(ctx, "probe-http", &whole, before) }},
		{"hook-exec", fmt.Sprintf("    lifecycle: {postStart: {exec: {command: [/labpod, print, '%d']}}}\n", execMiB*mib), execBound,
			func(int64) error { return l.waitReady(ctx, "hook-exec", 90*time.Second) }},
		{"hook-http", "    lifecycle: {postStart: {" + get + "}}\n", bodyBound,
			func(before int64) error { return l.probed(ctx, "hook-http", &whole, before) }},
	}
	if l.e.Profile != labkit.Long {
		steps = steps[:2]
	}
	for i, s := range steps {
		if i > 0 {
			// The memory of the step before is still this process's.
			if err := l.restart(ctx); err != nil {
				return outcome{}, err
			}
		}
		from, err := l.peak(true)
		if err != nil {
			return outcome{}, err
		}
		before := whole.Load()
		if err := l.pods(ctx, pod(s.name, s.container, "")); err != nil {
			return outcome{}, err
		}
		if err := s.done(before); err != nil {
			return outcome{}, err
		}
		to, err := l.peak(false)
		if err != nil {
			return outcome{}, err
		}
		grown = append(grown, fmt.Sprintf("%s %d MiB", s.name, (to-from)/mib))
		if to-from > s.bound {
			over++
		}
		if err := l.metric(ctx, "holdfast_probe_output_limits_cut_total", 1); err != nil {
			return outcome{}, fmt.Errorf("%s: %w", s.name, err)
		}
		// Not again after the restart.
		if err := l.c.Client.DeleteNow(ctx, kube.Pods, ns, s.name); err != nil {
			return outcome{}, err
		}
	}
	saw := "the kubelet's peak grew by " + strings.Join(grown, ", ")
	if over > 0 && over < len(grown) && l.e.Variant != labkit.Ours {
		return outcome{}, fmt.Errorf("only %d of %d: %s", over, len(grown), saw)
	}
	return outcome{over > 0, saw}, nil
}

// probed waits until the pod is ready by an answer that was sent whole.
func (l *lab) probed(ctx context.Context, name string, whole *atomic.Int64, before int64) error {
	if err := l.waitReady(ctx, name, 90*time.Second); err != nil {
		return err
	}
	if whole.Load() <= before {
		return fmt.Errorf("pod %s is ready, and the server has sent no answer to the end", name)
	}
	return nil
}

// restart ends the kubelet and starts it again.
func (l *lab) restart(ctx context.Context) error {
	if err := l.node.StopKubelet(); err != nil {
		return err
	}
	return l.node.StartKubelet(ctx, l.e.UnderTest(base, "kubelet"))
}

// peak is the kubelet's largest resident memory in bytes, since the last reset.
func (l *lab) peak(reset bool) (int, error) {
	proc := fmt.Sprintf("/proc/%d/", l.node.Kubelet.Pid)
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
