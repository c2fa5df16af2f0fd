// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upgraderunbook holds the checks of the page that operators follow from
// 1.7 to 1.9: upgrade-runbook runs its command blocks, kubelet-units what it says
// of a unit's flags. See README.md and kubelet-units.md here.
package upgraderunbook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	base = "v1.9.11"
	old  = "v1.7.0"
	ns   = "default"
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return append(unitsLabs(), runbookLab())
}

func runbookLab() labkit.Lab {
	return labkit.Lab{
		Name:    "upgrade-runbook",
		Folder:  "checks/upgrade-runbook",
		Summary: "the command blocks of " + runbookPage + " do what the page says",
		Steps:   runbookSteps,
		Test:    []labkit.Variant{labkit.Ours},
		Oracle: labkit.Oracle{Text: []string{"every block succeeds, the node runs what the page says, no container was recreated, and when v1.7.0 has removed the pod with a subPath its file is there"},
			Judge: judgeRunbook},
		Needs:    labkit.KubeletNeeds(base, labkit.StockBinary(base, "kubectl"), labkit.StockBinary(old, "kubelet")),
		Variants: []labkit.Variant{labkit.Ours},
	}
}

type runbook struct {
	e       *labkit.Env
	c       *node.Cluster
	node    *node.Node
	dir     string // of the admin's machine: shims/, and what the blocks write
	env     []string
	kubelet string   // what the unit file starts
	unit    []string // the flags of the unit file

	mu  sync.Mutex
	err error // of the kubelet's start or stop
}

// ran is a block of the page that was run.
type ran struct {
	Line          int
	Where         string
	Error, Output string // Error is "" if the block ended with status 0
	// Without are the names of the setup without which it ended with status 0 too.
	Without []string
}

// readPage says how many blocks there are to run.
type readPage struct{ Blocks int }

// returned is the node at the end.
type returned struct {
	Kubelet       string // its release
	Before, After kubeletlab.Snapshot
}

// fileLeft is what is behind the subPath when the old kubelet has removed the pod.
type fileLeft struct{ Text, Error string }

func runbookSteps(e *labkit.Env) []labkit.Step {
	r := &runbook{e: e}
	return []labkit.Step{
		{Text: "start the control plane v1.9.11 and a node with the stock kubelet v1.7.0 and a few pods", Do: r.start},
		{Text: "run the page's blocks in order, each first in fresh shells that lack one of its names, those that swap ours in twice, " +
			"and the check of the way back also while no kubelet runs: admin with kubectl, node inside the node, with a systemctl that starts and stops the lab's kubelet; " +
			"before the block that goes back, ours is started with gates off, so that it keeps subPath mounts as a stock 1.9 does, and starts a pod with one", Do: r.runBlocks},
		{Text: "delete the pod with a subPath under v1.7.0", Do: r.deleteFiles},
	}
}

func (r *runbook) start(ctx context.Context) error {
	// One unit file for both kubelets, as the page tells to have before the swap.
	c, err := r.e.StartStockCluster(ctx, base, node.Config{Name: "node1", Kubelet: r.e.Stock(old, "kubelet"), Unit: recommended})
	if err != nil {
		return err
	}
	r.on(c)
	if err := r.pods(ctx); err != nil {
		return err
	}
	return r.shims(ctx, old)
}

// pageBlocks are the blocks of the runbook's page.
func (r *runbook) pageBlocks() ([]block, error) {
	page, err := os.ReadFile(filepath.Join(r.e.Root, runbookPage))
	if err != nil {
		return nil, err
	}
	bs, err := blocks(string(page))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", runbookPage, err)
	}
	return bs, nil
}

func (r *runbook) runBlocks(ctx context.Context) error {
	bs, err := r.pageBlocks()
	if err != nil {
		return err
	}
	setup := names(bs[slices.IndexFunc(bs, func(b block) bool { return b.where == "setup" })])
	if bs, err = order(bs); err != nil {
		return err
	}
	r.e.Record(readPage{len(bs)})
	o := returned{}
	if o.Before, err = kubeletlab.Take(ctx, r.node); err != nil {
		return err
	}
	for _, b := range bs {
		if b.goesBack() {
			if err := r.startFiles(ctx); err != nil {
				return err
			}
		}
		if b.down {
			if err := r.node.StopKubelet(); err != nil {
				return err
			}
		}
		r.e.Step("%s line %d, %s", filepath.Base(runbookPage), b.line, b.where)
		seen := ran{Line: b.line, Where: b.where}
		for _, name := range b.needs(setup) {
			if out, err := r.run(ctx, b, name); err == nil {
				r.e.Logf("without %s:\n%s", name, out)
				seen.Without = append(seen.Without, name)
			}
		}
		out, err := r.run(ctx, b)
		r.e.Logf("output:\n%s", out)
		r.mu.Lock()
		err = errors.Join(err, r.err)
		r.mu.Unlock()
		if ctx.Err() != nil {
			return err
		}
		seen.Output = out
		if err != nil {
			seen.Error = err.Error()
		}
		r.e.Record(seen)
		if err != nil {
			return labkit.Enough
		}
		if b.down {
			if err := r.node.StartKubelet(ctx, r.node.KubeletProgram()); err != nil {
				return err
			}
		}
	}
	o.Kubelet = r.node.KubeletProgram().Base
	if o.After, err = kubeletlab.Take(ctx, r.node); err != nil {
		return err
	}
	r.e.Record(o)
	return nil
}

func judgeRunbook(h *history.History) labkit.Outcome {
	seen := history.Of[ran](h)
	for _, b := range seen {
		if b.Error != "" {
			return labkit.FailedBecause("the block of line %d (%s) failed: %s\n%s", b.Line, b.Where, b.Error, b.Output)
		}
		if len(b.Without) > 0 {
			return labkit.FailedBecause("the block of line %d (%s) succeeds in a shell without %s", b.Line, b.Where, strings.Join(b.Without, ", or "))
		}
	}
	if want := history.One[readPage](h).Blocks; len(seen) != want || want == 0 {
		return labkit.InconclusiveBecause("%d blocks of %d were run", len(seen), want)
	}
	o, f := history.One[returned](h), history.One[fileLeft](h)
	if o.Kubelet != old {
		return labkit.FailedBecause("at the end the node runs %s, the page goes back to %s", o.Kubelet, old)
	}
	d := kubeletlab.Compare(o.Before, o.After, func(string, kubeletlab.Container) bool { return true })
	switch n := len(d.Recreated) + len(d.Gone); {
	case n > 0:
		return labkit.FailedBecause("%d of %d containers were recreated", n, len(o.Before))
	case len(d.Kept) == 0:
		return labkit.InconclusiveBecause("no container ran")
	case f.Text != precious || f.Error != "":
		return labkit.FailedBecause("the file behind the subPath of pod %s is %q, %s", filesPod, f.Text, f.Error)
	}
	return labkit.PassedBecause("%d blocks ran, there and back; all %d containers are the same", len(seen), len(o.Before))
}

// on is the runbook on the cluster's first node.
func (r *runbook) on(c *node.Cluster) {
	r.c, r.node, r.dir, r.kubelet = c, c.Nodes[0], r.e.Path("admin"), r.e.Path("node1", "usr-bin-kubelet")
}

// pods makes three pods with probes and waits until they are ready.
func (r *runbook) pods(ctx context.Context) error {
	for i := range 3 {
		web := node.Web("web")
		web.ReadinessProbe = &corev1.Probe{ProbeHandler: kube.HTTPGet("/ready", 8080), PeriodSeconds: 2}
		p := node.Pod(fmt.Sprintf("web-%d", i), "node1", web)
		p.Spec.TerminationGracePeriodSeconds = nil // as most pods
		if err := r.c.Client.Make(ctx, ns, p); err != nil {
			return err
		}
	}
	return r.ready(ctx)
}

func (r *runbook) ready(ctx context.Context) error {
	_, err := r.c.Client.WaitList(ctx, kube.Pods, ns, "", 2*time.Minute, "ready", func(pods []kube.Object) (bool, error) {
		for i := range pods {
			if !kubeletlab.PodReady(&pods[i]) {
				return false, nil
			}
		}
		return len(pods) == 3, nil
	})
	return err
}

// shims makes what the blocks find on the two machines: kubectl, systemctl, the
// kubelet of release at its path, and the names of the setup block.
func (r *runbook) shims(ctx context.Context, release string) error {
	shims := filepath.Join(r.dir, "shims")
	if err := os.MkdirAll(shims, 0o755); err != nil {
		return err
	}
	if err := os.Symlink(r.e.Stock(base, "kubectl").Path, filepath.Join(shims, "kubectl")); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "cp", r.e.Stock(release, "kubelet").Path, r.kubelet).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	// systemctl asks the lab over HTTP, from inside the node, with nothing but bash.
	l, err := net.Listen("tcp", machine.IP+":0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		out, err := r.systemctl(ctx, strings.TrimPrefix(req.URL.Path, "/"))
		if err != nil {
			r.mu.Lock()
			r.err = err
			r.mu.Unlock()
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, out)
	})}
	go func() { _ = srv.Serve(l) }()
	r.e.OnStop("systemctl", func(context.Context) error { return srv.Close() })
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return err
	}
	shim := fmt.Sprintf(systemctlShim, host, port)
	if err := os.WriteFile(filepath.Join(shims, "systemctl"), []byte(shim), 0o755); err != nil {
		return err
	}
	version, err := exec.CommandContext(ctx, r.e.UnderTest(base, "kubelet").Path, "--version").Output()
	if err != nil {
		return err
	}
	r.env = []string{"NODE=node1", "RELEASE=" + strings.TrimPrefix(strings.TrimSpace(string(version)), "Kubernetes "), "KUBELET=" + r.kubelet, "NEW=" + r.e.UnderTest(base, "kubelet").Path,
		// Three pods need no longer.
		"ROOT_DIR=/var/lib/kubelet", "SETTLE=20", "KUBECONFIG=" + r.c.APIServer.AdminKubeconfig, "PATH=" + shims + ":" + os.Getenv("PATH"), "HOME=" + r.dir, "LC_ALL=C"}
	return nil
}

// systemctlShim takes the verb first and the unit last, and prints the answer. The unit of
// the page's check it starts itself, as systemd would: the kubelet's flags have no quotes.
const systemctlShim = `#!/bin/bash
case "$*" in
daemon-reload) exit ;;
"start kubelet-flags-ok")
  read -ra words <<< "$(sed -n 's/^ExecStart=//p' /run/systemd/system/kubelet-flags-ok.service)"
  exec "${words[@]}" ;;
esac
[ "${!#}" = kubelet ] || { echo "systemctl: $*: only kubelet" >&2; exit 1; }
exec 3<>/dev/tcp/%s/%s
printf 'GET /%%s HTTP/1.0\r\n\r\n' "$1" >&3
read -r _ code _ <&3
while IFS= read -r line <&3 && [ "$line" != $'\r' ]; do :; done
cat <&3
[ "$code" = 200 ]
`

// systemctl starts or stops the node's kubelet, as the unit file would: what is
// at the path now, with the flags of the node's unit.
func (r *runbook) systemctl(ctx context.Context, verb string) (string, error) {
	switch verb {
	case "stop":
		return "", r.node.StopKubelet()
	case "start":
		out, err := exec.CommandContext(ctx, r.kubelet, "--version").Output()
		if err != nil {
			return "", err
		}
		p := kube.Program{Path: r.kubelet, Base: old}
		if strings.Contains(string(out), " "+base) {
			p.Base = base
		}
		return "", r.node.StartKubelet(ctx, p)
	case "cat":
		if err := r.readUnit(); err != nil {
			return "", err
		}
		return "# the lab's unit\n[Service]\nExecStart=" + strings.Join(append([]string{r.kubelet}, r.unit...), " ") + "\n", nil
	case "show":
		pid := 0
		if k := r.node.Kubelet; k != nil && k.Alive() {
			pid = k.PID()
		}
		return fmt.Sprintf("MainPID=%d\n", pid), nil
	}
	return "", fmt.Errorf("systemctl %s: the lab knows start, stop, show and cat", verb)
}

// run runs one block in a fresh shell, without the environment's names that are given.
func (r *runbook) run(ctx context.Context, b block, without ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // a swap waits for 60 s, twice where it goes back
	defer cancel()
	env := slices.DeleteFunc(slices.Clone(r.env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(without, name)
	})
	// No option of the shell: the page's reader has none, either.
	if b.where == "node" {
		return r.node.Output(ctx, "env", append(append([]string{"-i"}, env...), "bash", "-c", b.script)...)
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", b.script)
	cmd.Dir, cmd.Env = r.dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w (%s)", err, strings.Join(quoted(env), " "))
	}
	return string(out), err
}

// readUnit takes the unit's flags from the kubelet that runs: the lab kit adds to them. The
// gates with which the lab makes ours keep its mounts are in no unit. While none runs, they
// are those of the last one.
func (r *runbook) readUnit() error {
	k := r.node.Kubelet
	if k == nil || !k.Alive() {
		return nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", k.PID()))
	if err != nil {
		return err
	}
	args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")[1:]
	r.unit = slices.DeleteFunc(args, func(a string) bool { return strings.Contains(a, keepMounts) })
	return nil
}

func quoted(l []string) []string {
	var out []string
	for _, s := range l {
		out = append(out, fmt.Sprintf("%q", s))
	}
	return out
}
