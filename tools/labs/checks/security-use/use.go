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
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	ns  = "default"
	mib = 1 << 20

	// stock and ours are the nodes, named after their kubelets.
	stock, ours = "stock", "ours"

	// image is labpod under the name of tar, for kubectl cp.
	image = "holdfast.test/tar:v1"
)

func useLab(base string) labkit.Lab {
	return labkit.Lab{
		Name:     "security-use",
		Folder:   "checks/security-use",
		Summary:  "legitimate use of gitRepo, probes, exec, attach, port-forward and cp, stock compared with Holdfast",
		Packages: []string{"git", "openssh-client", "openssh-server", "socat"},
		Steps:    func(e *labkit.Env) []labkit.Step { return steps(e, base) },
		Oracle:   oracle,
		Needs:    labkit.KubeletNeeds(base, labkit.StockBinary(base, "kubectl"), labkit.StockBinary(base, "kubelet")),
		Variants: []labkit.Variant{labkit.Ours},
		Timeout:  func(labkit.Profile) time.Duration { return 15 * time.Minute },
	}
}

// rounds is how often what is timed is repeated on each node, in turn.
func rounds(p labkit.Profile) int {
	return labkit.Pick(p, 5, 15)
}

// lab is a cluster of two nodes.
type lab struct {
	e      *labkit.Env
	base   string
	c      *node.Cluster
	nodes  []*node.Node // stock, ours
	events *kube.Recorder
}

func steps(e *labkit.Env, base string) []labkit.Step {
	l := &lab{e: e, base: base}
	return []labkit.Step{
		{Text: "start etcd, apiserver and controller manager of stock " + base + ", and two nodes: one with the stock kubelet, one with the kubelet under test", Do: l.start},
		{Text: "on each node create a pod with ten gitRepo volumes: http, https, git, ssh and host:path, with directory and revision, and with \".\"", Do: l.part(partGit, l.gitRepo)},
		{Text: "on each node create pods whose probes get 1 B, 10 KB, 10 MB and 1 MB in chunks, and one whose probe gets 10 MB with status 500", Do: l.part(partProbes, l.probes)},
		{Text: fmt.Sprintf("on each node run exec of %d MiB, %d times in turn; cp of 100 MB both ways; attach of 1 MB both ways; port-forward of 100 MB", execSize>>20, rounds(e.Profile)), Do: l.part(partStreams, l.streams)},
		{Text: "read the counters of what Holdfast refused", Do: l.counters},
		labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }),
	}
}

// part records whether a part works. Each thing is tried on stock first, so what fails on
// ours worked there, and is enough.
func (l *lab) part(name string, do func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := do(ctx)
		var f *failure
		if errors.As(err, &f) && f.node == ours && ctx.Err() == nil {
			l.e.Record(broken{name, err.Error()})
			return labkit.Enough
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		l.e.Record(worked{name})
		return nil
	}
}

func (l *lab) start(ctx context.Context) error {
	tar := node.Image{Ref: image, Program: node.ToolPath(l.e.Root, "labpod"), Path: "/bin/tar", Args: []string{"serve"}, Env: []string{"PATH=/bin"}}
	c, err := l.e.StartStockCluster(ctx, l.base,
		node.Config{Name: stock, Kubelet: l.e.Stock(l.base, "kubelet"), Images: []node.Image{tar}},
		node.Config{Name: ours, Kubelet: l.e.UnderTest(l.base, "kubelet"), Images: []node.Image{tar}})
	if err != nil {
		return err
	}
	l.c, l.nodes = c, c.Nodes
	l.events, err = c.Client.Record(ctx, kube.Events, ns)
	return err
}

// failure is something that does not work on a node.
type failure struct {
	node string
	err  error
}

func (f *failure) Error() string { return "on " + f.node + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// counters are those of what ours refuses.
func (l *lab) counters(ctx context.Context) error {
	for _, m := range refusals {
		n, err := kubeletlab.Metric(ctx, l.nodes[1], m)
		if err != nil {
			return err
		}
		l.e.Record(counted{m, n})
	}
	return nil
}

// create makes a pod of these containers and volumes on each node and, if ready, waits
// until it is.
func (l *lab) create(ctx context.Context, name string, ready bool, spec func(*node.Node) ([]corev1.Container, []corev1.Volume)) error {
	for _, n := range l.nodes {
		containers, volumes := spec(n)
		p := node.Pod(n.Name+"-"+name, n.Name, containers...)
		p.Spec.Volumes = volumes
		if err := l.c.Client.Make(ctx, ns, p); err != nil {
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
	cmd := exec.CommandContext(ctx, l.e.Stock(l.base, "kubectl").Path, append([]string{"--kubeconfig=" + l.c.APIServer.AdminKubeconfig, "--namespace=" + ns}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+l.e.Path())
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &said
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return errors.Join(fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, said.Bytes()), context.Cause(ctx))
	}
	return nil
}
