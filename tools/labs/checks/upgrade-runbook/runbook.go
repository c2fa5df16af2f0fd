// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upgraderunbook holds the checks of the page that operators follow from
// 1.7 to 1.9: upgrade-runbook runs its command blocks, kubelet-units what it says
// of a unit's flags. See README.md and kubelet-units.md here.
package upgraderunbook

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/unitlab"
)

const (
	base = "v1.9.11"
	old  = "v1.7.0"
	ns   = "default"
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return append(unitsLabs(), runbookLab(), tutorialLab())
}

func runbookLab() labkit.Lab {
	return labkit.Lab{
		Name:     "upgrade-runbook",
		Folder:   "checks/upgrade-runbook",
		Summary:  "the command blocks of " + runbookPage + " do what the page says",
		Packages: []string{node.SystemdPackage},
		Steps:    runbookSteps,
		Test:     []labkit.Variant{labkit.Ours},
		Oracle: labkit.Oracle{Text: []string{"every block succeeds, verify finds nothing, the node ends with the kubelet that the page says, only the container that forecast had named was recreated, and the file behind the subPath still exists after v1.7.0 has removed its pod"},
			Judge: judgeRunbook},
		Needs:    labkit.KubeletNeeds(base, labkit.StockBinary(old, "kubelet")),
		Variants: []labkit.Variant{labkit.Ours},
		Timeout:  func(labkit.Profile) time.Duration { return 12 * time.Minute },
	}
}

type runbook struct {
	e *labkit.Env
	*unitlab.Unit
	dir string   // of the admin's machine: shims/, and what the blocks write
	env []string // of both machines
}

// ran is a block of the page that was run.
type ran struct {
	Line          int
	Where         string
	Error, Output string // Error is "" if the block ended with status 0
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

// newContainer is the one container whose spec has a field that 1.7 does not know: it is recreated by
// each of the swaps, as forecast tells.
const newContainer = "default/web-0/proxy"

func runbookSteps(e *labkit.Env) []labkit.Step {
	r := &runbook{e: e}
	return []labkit.Step{
		{Text: "start the control plane v1.9.11, a node whose kubelet v1.7.0 is a systemd unit, and three pods", Do: r.start},
		{Text: "run the page's blocks in order, and the block that swaps a second time: admin blocks on a machine with an administrator's kubeconfig, node blocks inside the node; " +
			"before the block that goes back, start a pod with a subPath, and mount its file once more below volume-subpaths", Do: r.runBlocks},
		{Text: "delete the pod with a subPath under v1.7.0", Do: r.deleteFiles},
	}
}

func (r *runbook) start(ctx context.Context) error {
	var err error
	if r.Unit, err = unitlab.Start(ctx, r.e, r.e.Stock(old, "kubelet")); err != nil {
		return err
	}
	r.dir = r.e.Path("admin")
	for i := range 3 {
		web := node.Web("web")
		web.ReadinessProbe = &corev1.Probe{ProbeHandler: kube.HTTPGet("/ready", 8080), PeriodSeconds: 2}
		p := node.Pod(fmt.Sprintf("web-%d", i), r.Node.Name, web)
		p.Spec.TerminationGracePeriodSeconds = nil // as most pods
		if i == 0 {
			no := false
			proxy := node.Web("proxy")
			proxy.Command = []string{"/labpod", "sleep"}
			proxy.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: &no}
			p.Spec.Containers = append(p.Spec.Containers, proxy)
		}
		if err := r.Cluster.Client.Make(ctx, ns, p); err != nil {
			return err
		}
	}
	if err := allReady(ctx, r.Cluster); err != nil {
		return err
	}
	return r.machines()
}

// machines makes what the blocks find on the two machines: kubectl-holdfast, the new kubelet in the
// node's folder, and the kubeconfig. The folder that node swap keeps things in is the lab's.
func (r *runbook) machines() error {
	shims := filepath.Join(r.dir, "shims")
	if err := os.MkdirAll(shims, 0o755); err != nil {
		return err
	}
	shim := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = node ]; then exec %q \"$@\" --keep-in %q; fi\nexec %q \"$@\"\n", r.Holdfast, r.Keep, r.Holdfast)
	if err := os.WriteFile(filepath.Join(shims, "kubectl-holdfast"), []byte(shim), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(r.e.UnderTest(base, "kubelet").Path, filepath.Join(r.dir, "kubelet")); err != nil {
		return err
	}
	r.env = []string{"KUBECONFIG=" + r.Kubeconfig, "PATH=" + shims + ":" + os.Getenv("PATH"), "HOME=" + r.dir, "LC_ALL=C"}
	return nil
}

func (r *runbook) runBlocks(ctx context.Context) error {
	page, err := os.ReadFile(filepath.Join(r.e.Root, runbookPage))
	if err != nil {
		return err
	}
	bs, err := blocks(string(page))
	if err != nil {
		return fmt.Errorf("%s: %w", runbookPage, err)
	}
	if bs, err = order(bs); err != nil {
		return err
	}
	r.e.Record(readPage{len(bs)})
	o := returned{}
	if o.Before, err = kubeletlab.WaitStable(ctx, r.Node, 3*time.Second, time.Minute); err != nil {
		return err
	}
	for _, b := range bs {
		if b.does(backCommand) {
			if err := r.startFiles(ctx); err != nil {
				return err
			}
		}
		seen, err := r.do(ctx, runbookPage, b)
		if err != nil {
			return err
		}
		r.e.Record(seen)
		if seen.Error != "" {
			return labkit.Enough
		}
	}
	if o.Kubelet, err = r.Release(ctx); err != nil {
		return err
	}
	if o.After, err = kubeletlab.WaitStable(ctx, r.Node, 5*time.Second, time.Minute); err != nil {
		return err
	}
	r.e.Record(o)
	return nil
}

// do runs one block of a page and says how it went. Its error is that the run as a whole was ended.
func (r *runbook) do(ctx context.Context, page string, b block) (ran, error) {
	r.e.Step("%s line %d, %s", filepath.Base(page), b.line, b.where)
	seen := ran{Line: b.line, Where: b.where}
	var err error
	seen.Output, err = r.run(ctx, b)
	r.e.Logf("output:\n%s", seen.Output)
	if err != nil {
		seen.Error = err.Error()
	}
	return seen, ctx.Err()
}

// run runs one block in a fresh shell.
func (r *runbook) run(ctx context.Context, b block) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // a swap waits for 60 s
	defer cancel()
	// No option of the shell: the page's reader has none, either. But each command must succeed.
	script := "set -e\n" + b.script
	if b.where == "node" {
		return r.Node.Output(ctx, "env", append(append([]string{"-i"}, r.env...), "sh", "-c", "cd \"$HOME\"\n"+script)...)
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func judgeRunbook(h *history.History) labkit.Outcome {
	seen := history.Of[ran](h)
	for _, b := range seen {
		if b.Error != "" {
			return labkit.FailedBecause("the block of line %d (%s) failed: %s\n%s", b.Line, b.Where, b.Error, b.Output)
		}
		if strings.Contains(b.Output, "HF60") {
			return labkit.FailedBecause("the block of line %d (%s): verify finds something\n%s", b.Line, b.Where, b.Output)
		}
	}
	if want := history.One[readPage](h).Blocks; len(seen) != want || want == 0 {
		return labkit.InconclusiveBecause("%d blocks of %d were run", len(seen), want)
	}
	o, f := history.One[returned](h), history.One[fileLeft](h)
	if o.Kubelet != old {
		return labkit.FailedBecause("at the end the node runs %s, but the page goes back to %s", o.Kubelet, old)
	}
	var other []string
	for _, key := range slices.Sorted(maps.Keys(o.Before)) {
		if same := o.After[key].ID == o.Before[key].ID; same == (key == newContainer) {
			other = append(other, key)
		}
	}
	switch {
	case o.Before[newContainer].ID == "":
		return labkit.InconclusiveBecause("the forecast names no container that will be recreated")
	case len(other) > 0:
		return labkit.FailedBecause("not as forecast: %s", strings.Join(other, ", "))
	case f.Text != precious || f.Error != "":
		return labkit.FailedBecause("the file behind the subPath of pod %s is %q, %s", filesPod, f.Text, f.Error)
	}
	return labkit.PassedBecause("%d blocks ran, there and back; of %d containers only the one that forecast had named was recreated", len(seen), len(o.Before))
}

// allReady waits until the three pods are ready.
func allReady(ctx context.Context, c *node.Cluster) error {
	_, err := c.Client.WaitList(ctx, kube.Pods, ns, "", 2*time.Minute, "ready", func(pods []kube.Object) (bool, error) {
		for i := range pods {
			if !kubeletlab.PodReady(&pods[i]) {
				return false, nil
			}
		}
		return len(pods) == 3, nil
	})
	return err
}
