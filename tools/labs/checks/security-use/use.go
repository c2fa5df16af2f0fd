// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package securityuse is the check security-use: what the series security limits is
// used as it should be, on a node with the stock kubelet and on one with ours. See
// tools/labs/checks/security-use/README.md.
package securityuse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	base = "v1.9.11"
	ns   = "default"
	mib  = 1 << 20

	// tooMuch is how many times what stock takes counts as a cost: far above what two
	// rounds of one kubelet differ by on a busy machine, far below a limit that stalls
	// a stream.
	tooMuch = 2.0
	// fewest measurements of each that a median is judged by, and the shortest that is
	// judged: a busy machine makes more of a few milliseconds than any limit.
	fewest   = 5
	shortest = 100 * time.Millisecond

	// image is labpod under the name of tar, for kubectl cp.
	image = "holdfast.test/tar:v1"
)

func init() {
	labkit.Register(labkit.Lab{
		Name:     "security-use",
		Folder:   "checks/security-use",
		LongOnly: true,
		Summary:  "gitRepo, probes, exec, attach, port-forward and cp as they should be used, stock against ours",
		Packages: []string{"git", "openssh-client", "openssh-server", "socat"},
		Plan: func(p labkit.Profile) []string {
			return []string{
				"start etcd, apiserver and controller manager of stock v1.9.11, and two nodes: one with the stock kubelet, one with the kubelet under test",
				"on each a pod with ten gitRepo volumes: http, https, git, ssh and host:path, with directory and revision, and with \".\"",
				"on each a pod whose probes get 1 B, 10 KB, 10 MB and 1 MB in chunks, and one whose probe gets 10 MB with status 500",
				fmt.Sprintf("on each exec of %d MiB, %d times in turn; cp of 100 MB both ways; attach of 1 MB both ways; port-forward of 100 MB", execSize>>20, rounds(p)),
				fmt.Sprintf("oracle: all of it works on both, and nothing that takes %v and is timed %d times takes ours %.0f times as long as stock", shortest, fewest, tooMuch),
			}
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
			labkit.StockBinary(base, "kubectl"),
			labkit.StockBinary(base, "kubelet"),
			labkit.BinaryUnderTest(base, "kubelet"),
		},
		Variants: []labkit.Variant{labkit.Ours},
		Timeout:  func(labkit.Profile) time.Duration { return 15 * time.Minute },
		Run:      run,
	})
}

// rounds is how often what is timed is repeated on each node, in turn.
func rounds(p labkit.Profile) int {
	return labkit.Pick(p, 5, 15)
}

// lab is a cluster of two nodes, named after their kubelets.
type lab struct {
	e      *labkit.Env
	c      *node.Cluster
	nodes  []*node.Node // stock, ours
	events *kube.Recorder
	costs  []string
	over   []string
}

func run(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	tar := node.Image{Ref: image, Program: node.ToolPath(e.Root, "labpod"), Path: "/bin/tar", Args: []string{"serve"}, Env: []string{"PATH=/bin"}}
	c, err := e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: e.Stock(base, "kube-controller-manager")},
		Nodes: []node.Config{
			{Name: "stock", Kubelet: e.Stock(base, "kubelet"), Images: []node.Image{tar}},
			{Name: "ours", Kubelet: e.UnderTest(base, "kubelet"), Images: []node.Image{tar}},
		},
	})
	if err != nil {
		return labkit.Result{}, err
	}
	l := &lab{e: e, c: c, nodes: c.Nodes}
	if l.events, err = c.Client.Record(ctx, kube.Events, ns); err != nil {
		return labkit.Result{}, err
	}
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{{"gitRepo", l.gitRepo}, {"probes", l.probes}, {"streams", l.streams}, {"nothing was refused", l.untouched}} {
		e.Step("%s", part.name)
		err := part.do(ctx)
		var f *failure
		if errors.As(err, &f) && f.node == "ours" && ctx.Err() == nil {
			return labkit.FailedBecause("%s: it works on stock and not on ours: %v", part.name, err), nil
		}
		if err != nil {
			return labkit.Result{}, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if len(l.over) > 0 {
		return labkit.FailedBecause("it works, and ours takes too long: %s", strings.Join(l.over, "; ")), nil
	}
	return labkit.PassedBecause("all of it works on both; stock/ours: %s", strings.Join(l.costs, ", ")), nil
}

// failure is something that does not work on a node. Each thing is tried on stock
// first, so what fails on ours worked there.
type failure struct {
	node string
	err  error
}

func (f *failure) Error() string { return "on " + f.node + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// untouched: none of it met a limit that refuses.
func (l *lab) untouched(ctx context.Context) error {
	for _, m := range []string{"holdfast_gitrepo_hardening_refused_total", "holdfast_mount_error_secrets_masked_total"} {
		n, err := kubeletlab.Metric(ctx, l.nodes[1], m)
		if err != nil {
			return err
		}
		if n != 0 {
			return &failure{l.nodes[1].Name, fmt.Errorf("%s is %v", m, n)}
		}
	}
	return nil
}

// cost compares the medians of what took so long on stock and ours. Few or short
// measurements are shown and not judged.
func (l *lab) cost(name string, stock, ours []time.Duration) error {
	if len(stock) == 0 || len(ours) == 0 {
		return fmt.Errorf("%s: %d measurements of stock and %d of ours", name, len(stock), len(ours))
	}
	s, o := median(stock), median(ours)
	l.e.Fact("%s: stock %v, ours %v (medians of %d and %d)", name, s, o, len(stock), len(ours))
	l.e.Measure(name+", stock/ours", s.Seconds()/o.Seconds(), "")
	l.costs = append(l.costs, fmt.Sprintf("%s %.2f", name, s.Seconds()/o.Seconds()))
	if len(stock) >= fewest && len(ours) >= fewest && s >= shortest && o.Seconds() > tooMuch*s.Seconds() {
		l.over = append(l.over, fmt.Sprintf("%s %v, stock %v", name, o, s))
	}
	return nil
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}

// pod is one on a node; spec is the rest of its spec, indented by two.
func pod(n *node.Node, name, spec string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s-%s}\nspec:\n  nodeName: %s\n  terminationGracePeriodSeconds: 1\n%s", n.Name, name, n.Name, spec)
}

// create makes the pod on both nodes and, if ready, waits until it is.
func (l *lab) create(ctx context.Context, name string, ready bool, spec func(*node.Node) string) error {
	for _, n := range l.nodes {
		if _, err := l.c.Client.CreateYAML(ctx, ns, pod(n, name, spec(n))); err != nil {
			return err
		}
	}
	for _, n := range l.nodes {
		if !ready {
			break
		}
		name := n.Name + "-" + name
		if _, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, name, 2*time.Minute, "is ready", func(o *kube.Object) (bool, error) {
			if !kubeletlab.PodReady(o) {
				return false, fmt.Errorf("events: %s", strings.Join(l.messages(name), "; "))
			}
			return true, nil
		}); err != nil {
			return &failure{n.Name, err}
		}
	}
	return nil
}

// messages are those of the events of a pod.
func (l *lab) messages(pod string) []string {
	var out []string
	for _, ev := range l.events.Events() {
		if ev.Object != nil && kube.String(ev.Object, "involvedObject", "name") == pod {
			out = append(out, kube.String(ev.Object, "message"))
		}
	}
	return out
}

// kubectl runs stock's kubectl as the admin.
func (l *lab) kubectl(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.e.Stock(base, "kubectl").Path, append([]string{"--kubeconfig=" + l.c.APIServer.AdminKubeconfig, "--namespace=" + ns}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+l.e.Path())
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &said
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return errors.Join(fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, said.Bytes()), context.Cause(ctx))
	}
	return nil
}
