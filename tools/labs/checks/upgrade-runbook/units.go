// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upgraderunbook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

// middle is the release between old and base.
const middle = "v1.8.15"

// underTest stands for the kubelet under test where a release is expected.
const underTest = "under test"

// What kubeadm's own 10-kubeadm.conf gives the kubelet, less what does not
// concern the API server: CNI's folders, DNS, the cgroup driver, and the folder
// of static pods, all of which the kit sets.
var (
	authz = []string{"--authorization-mode=Webhook", "--client-ca-file=" + node.UnitCA}
	// kubeadmPre18 is that of kubeadm 1.6 and 1.7 (kubernetes/release,
	// rpm/10-kubeadm-pre-1.8.conf), and what the runbook recommends.
	kubeadmPre18 = append([]string{"--kubeconfig=" + node.UnitKubeconfig, "--require-kubeconfig=true"}, authz...)
	recommended  = kubeadmPre18
	// kubeadmPost18 is that of 1.8 (debian/xenial/kubeadm/channel/stable), and
	// kubeadmPost18Rotate the later one (rpm/10-kubeadm-post-1.8.conf).
	post18              = []string{"--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf", "--kubeconfig=" + node.UnitKubeconfig}
	kubeadmPost18       = append(append([]string{}, post18...), authz...)
	kubeadmPost18Rotate = append(append([]string{}, kubeadmPost18...), "--cadvisor-port=0", "--rotate-certificates=true")
	// post18NoWebhook is the same without KUBELET_AUTHZ_ARGS.
	post18NoWebhook = post18
	// none does not name an API server at all.
	none = []string{}
)

func init() {
	needs := []labkit.Binary{
		labkit.StockBinary(base, "kube-apiserver"),
		labkit.StockBinary(base, "kube-controller-manager"),
		labkit.StockBinary(base, "kubectl"),
		labkit.StockBinary(old, "kubelet"),
		labkit.StockBinary(middle, "kubelet"),
		labkit.StockBinary(base, "kubelet"),
		labkit.BinaryUnderTest(base, "kubelet"),
	}
	labkit.Register(labkit.Lab{
		Name:    "kubelet-units",
		Folder:  "checks/upgrade-runbook",
		Summary: "with the flags that the runbook recommends every kubelet from 1.7.0 on talks to the API server and keeps its pods",
		Plan: func(labkit.Profile) []string {
			return []string{
				"start the control plane v1.9.11 and a node whose kubelet v1.7.0 has --api-servers; three pods",
				"oracle: the runbook's check refuses to go on, as ours does not know the flag",
				"restart the old kubelet with --kubeconfig=… --require-kubeconfig=true in its place; oracle: the check says yes to both kubelets",
				"swap v1.7.0 → under test → v1.7.0 → under test with that one unit; oracle: every container is the one from before",
				"the same unit with a gate of ours; oracle: the check says yes to ours and no to v1.7.0",
				"swap to the stock kubelets v1.8.15 and v1.9.11 with that unit; oracle: they report the node, and all pods are ready",
			}
		},
		Needs:    needs,
		Variants: []labkit.Variant{labkit.Ours},
		Timeout:  func(labkit.Profile) time.Duration { return 8 * time.Minute },
		Run:      runUnits,
	})
	labkit.Register(labkit.Lab{
		Name:    "kubelet-units-standalone",
		Folder:  "checks/upgrade-runbook",
		Summary: "with kubeadm's unit of 1.8 a kubelet 1.7.0 kills every pod of its node, or does not start; without --kubeconfig all do",
		Plan: func(labkit.Profile) []string {
			plan := []string{"start the control plane v1.9.11 and a node with the kubelet under test; three pods",
				"for each row: the kubelet under test with the row's unit, pods ready, the runbook's check (must refuse), then the swap"}
			for _, r := range unitRows {
				plan = append(plan, fmt.Sprintf("row: %s, %s; oracle: %s", r.kubelet, r.unit, r.want()))
			}
			return plan
		},
		Needs:    needs,
		Variants: []labkit.Variant{labkit.Ours},
		Expect:   map[labkit.Variant]labkit.Verdict{labkit.Ours: labkit.Reproduced},
		Timeout:  func(labkit.Profile) time.Duration { return 15 * time.Minute },
		Run:      runStandalone,
	})
}

// unitRow is one kubelet with one unit.
type unitRow struct {
	kubelet, unit string
	flags         []string
	// ends is in the log of a kubelet that does not start; empty: it starts, runs
	// standalone and kills every pod.
	ends string
}

var unitRows = []unitRow{
	{old, "kubeadm's unit of 1.8 without webhook authorization", post18NoWebhook, ""},
	{old, "kubeadm's unit of 1.8", kubeadmPost18, "no client provided, cannot use webhook authorization"},
	{old, "kubeadm's later unit with --rotate-certificates", kubeadmPost18Rotate, "unknown flag: --rotate-certificates"},
	{middle, "no --kubeconfig", none, ""},
	{base, "no --kubeconfig", none, ""},
	{underTest, "no --kubeconfig", none, ""},
}

func (r unitRow) want() string {
	if r.ends != "" {
		return "it ends with “" + r.ends + "”, and the pods go on"
	}
	return "no API client, and no container of a pod is left"
}

// startUnits is a cluster of one node with three ready pods.
func startUnits(ctx context.Context, e *labkit.Env, first kube.Program, unit func(*kube.APIServer) []string) (*runbook, error) {
	c, err := e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: e.Stock(base, "kube-controller-manager")},
	})
	if err != nil {
		return nil, err
	}
	e.Step("start node node1: kubelet %s (%s)", first.Base, first.Variant)
	n, err := e.StartNode(ctx, c.APIServer, node.Config{Name: "node1", Kubelet: first, Unit: unit(c.APIServer)})
	if err != nil {
		return nil, err
	}
	c.Nodes = append(c.Nodes, n)
	if err := c.WaitNodeReady(ctx, n.Name, time.Minute); err != nil {
		return nil, err
	}
	r := newRunbook(e, c)
	if err := r.pods(ctx); err != nil {
		return nil, err
	}
	if err := r.shims(ctx, old); err != nil {
		return nil, err
	}
	return r, r.writeCheck(ctx)
}

// checkBlock is how the page's block begins that writes the check.
const checkBlock = `cat > "$KUBELET.flags-ok"`

// writeCheck runs the page's own block that writes the check beside the kubelet.
func (r *runbook) writeCheck(ctx context.Context) error {
	page, err := os.ReadFile(filepath.Join(r.e.Root, runbookPage))
	if err != nil {
		return err
	}
	bs, err := blocks(string(page))
	if err != nil {
		return fmt.Errorf("%s: %w", runbookPage, err)
	}
	for _, b := range bs {
		if b.where == "node" && strings.HasPrefix(b.script, checkBlock) {
			out, err := r.run(ctx, b)
			if err != nil {
				return fmt.Errorf("%s line %d: %w\n%s", runbookPage, b.line, err, out)
			}
			return nil
		}
	}
	return fmt.Errorf("%s has no node block that begins with %s", runbookPage, checkBlock)
}

// check asks the runbook's check for a kubelet with the flags of the one that
// runs. It answers its output, and whether it said yes.
func (r *runbook) check(ctx context.Context, p kube.Program) (string, bool) {
	out, err := r.run(ctx, block{where: "node", script: fmt.Sprintf("\"$KUBELET.flags-ok\" %q\n", p.Path)})
	r.e.Logf("check of %s: %v\n%s", p.Path, err, out)
	return out, err == nil
}

// program is the stock kubelet of a release, or the one under test.
func (r *runbook) program(release string) kube.Program {
	if release == underTest {
		return r.e.UnderTest(base, "kubelet")
	}
	return r.e.Stock(release, "kubelet")
}

// swap puts another kubelet and another unit in.
func (r *runbook) swap(ctx context.Context, p kube.Program, unit []string) error {
	if k := r.node.Kubelet; k != nil {
		if err := r.node.StopKubelet(); err != nil {
			return err
		}
	}
	r.node.Unit = unit
	return r.node.StartKubelet(ctx, p)
}

// swapAndSync waits until the new kubelet has looked at the three pods, and
// until nothing changes any more.
func (r *runbook) swapAndSync(ctx context.Context, p kube.Program, unit []string) (kubeletlab.Snapshot, error) {
	if err := r.swap(ctx, p, unit); err != nil {
		return nil, err
	}
	if err := kubeletlab.WaitSynced(ctx, r.node, 3, time.Minute); err != nil {
		return nil, err
	}
	return kubeletlab.WaitStable(ctx, r.node, 5*time.Second, time.Minute)
}

func runUnits(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	r, err := startUnits(ctx, e, e.Stock(old, "kubelet"), func(a *kube.APIServer) []string {
		return append([]string{"--api-servers=" + a.URL, "--kubeconfig=" + node.UnitKubeconfig}, authz...)
	})
	if err != nil {
		return labkit.Result{}, err
	}
	ours := r.program(underTest)
	e.Step("the runbook's check with --api-servers")
	if out, ok := r.check(ctx, ours); ok || !strings.Contains(out, "unknown flag: --api-servers") {
		return labkit.ReproducedBecause("the check does not refuse --api-servers for ours: %s", out), nil
	}
	before, err := kubeletlab.Take(ctx, r.node)
	if err != nil {
		return labkit.Result{}, err
	}
	for i, release := range []string{old, underTest, old, underTest} {
		e.Step("swap %d: %s with the recommended flags", i, release)
		after, err := r.swapAndSync(ctx, r.program(release), recommended)
		if err != nil {
			return labkit.Result{}, err
		}
		d := kubeletlab.Compare(before, after, func(string, kubeletlab.Container) bool { return true })
		if n := len(d.Recreated) + len(d.Gone); n > 0 {
			return labkit.ReproducedBecause("swap %d, to %s: %d of %d containers are not the ones from before", i, release, n, len(before)), nil
		}
		for _, p := range []kube.Program{r.program(old), ours} {
			if out, ok := r.check(ctx, p); !ok {
				return labkit.ReproducedBecause("the check refuses the recommended flags for %s: %s", p.Base, out), nil
			}
		}
	}
	e.Step("ours with a gate of its own in the unit")
	if err := r.swap(ctx, ours, append([]string{"--feature-gates=LegacyContainerHashWrite=true,AppArmor=true"}, recommended...)); err != nil {
		return labkit.Result{}, err
	}
	if out, ok := r.check(ctx, ours); !ok {
		return labkit.ReproducedBecause("the check refuses ours its own gate: %s", out), nil
	}
	if out, ok := r.check(ctx, r.program(old)); ok || !strings.Contains(out, "does not know the feature gate LegacyContainerHashWrite") {
		return labkit.ReproducedBecause("the check does not refuse a gate of ours for %s: %s", old, out), nil
	}
	for _, release := range []string{middle, base} {
		e.Step("stock %s with the recommended flags", release)
		if err := r.swap(ctx, r.program(release), recommended); err != nil {
			return labkit.Result{}, err
		}
		if _, err := r.c.Client.WaitFor(ctx, kube.Nodes, "", "node1", 30*time.Second, "reported by "+release, func(o *kube.Object) (bool, error) {
			return kube.String(o, "status", "nodeInfo", "kubeletVersion") == release, nil
		}); err != nil {
			return labkit.ReproducedBecause("%s does not talk to the API server: %v", release, err), nil
		}
		if err := kubeletlab.WaitSynced(ctx, r.node, 3, time.Minute); err != nil {
			return labkit.Result{}, err
		}
		if err := r.ready(ctx); err != nil {
			return labkit.ReproducedBecause("with %s the pods are not ready: %v", release, err), nil
		}
		// What the API says may be from before.
		if _, err := r.census(ctx, 6, time.Minute); err != nil {
			return labkit.ReproducedBecause("with %s: %v", release, err), nil
		}
	}
	return labkit.AbsentBecause("one unit for v1.7.0, ours, v1.8.15 and v1.9.11; all %d containers outlived %s → ours → %s → ours", len(before), old, old), nil
}

func runStandalone(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	r, err := startUnits(ctx, e, e.UnderTest(base, "kubelet"), func(*kube.APIServer) []string { return recommended })
	if err != nil {
		return labkit.Result{}, err
	}
	for _, row := range unitRows {
		e.Step("%s with %s", row.kubelet, row.unit)
		if why, err := r.row(ctx, row); err != nil {
			return labkit.Result{}, fmt.Errorf("%s with %s: %w", row.kubelet, row.unit, err)
		} else if why != "" {
			return labkit.AbsentBecause("%s with %s: %s", row.kubelet, row.unit, why), nil
		}
		e.Step("back to the kubelet under test with the recommended flags")
		if err := r.swap(ctx, r.program(underTest), recommended); err != nil {
			return labkit.Result{}, err
		}
		if err := kubeletlab.WaitSynced(ctx, r.node, 3, time.Minute); err != nil {
			return labkit.Result{}, err
		}
		if err := r.ready(ctx); err != nil {
			return labkit.Result{}, err
		}
	}
	return labkit.ReproducedBecause("%d rows, each as the runbook says", len(unitRows)), nil
}

// row does one row. It answers what is not as the runbook says, if anything.
func (r *runbook) row(ctx context.Context, row unitRow) (string, error) {
	p := r.program(row.kubelet)
	if len(row.flags) > 0 {
		// The way back as it comes about: ours runs with this unit.
		if _, err := r.swapAndSync(ctx, r.program(underTest), row.flags); err != nil {
			return "", err
		}
		if err := r.ready(ctx); err != nil {
			return "", err
		}
		if out, ok := r.check(ctx, p); ok {
			return "the runbook's check says yes: " + out, nil
		}
	}
	before, err := r.census(ctx, 6, 2*time.Minute)
	if err != nil {
		return "", err
	}
	began := time.Now()
	log, err := os.ReadFile(r.e.Path("node1-kubelet.log"))
	if err != nil {
		return "", err
	}
	err = r.swap(ctx, p, row.flags)
	if row.ends != "" {
		return r.ended(ctx, row, err, len(log), before)
	}
	if err != nil {
		return "", err
	}
	if len(row.flags) == 0 {
		if out, ok := r.check(ctx, p); ok {
			return "the runbook's check says yes: " + out, nil
		}
	}
	text, err := r.node.Kubelet.LastRunLog()
	if err != nil {
		return "", err
	}
	if !strings.Contains(text, "No API client") && !strings.Contains(text, "standalone mode") {
		return "its log does not say that it has no API client", nil
	}
	if _, err := r.census(ctx, 0, 90*time.Second); err != nil {
		return err.Error(), nil
	}
	r.e.Fact("%s, %s: standalone, no container left %.0f s after the swap began", row.kubelet, row.unit, time.Since(began).Seconds())
	return "", nil
}

// ended judges a row whose kubelet must not start: err is of its start, logged
// the size of its log before that.
func (r *runbook) ended(ctx context.Context, row unitRow, err error, logged int, before kubeletlab.Snapshot) (string, error) {
	if err == nil {
		return "it starts", nil
	}
	// The help text follows an unknown flag, so the end of the log does not say.
	if log, lerr := os.ReadFile(r.e.Path("node1-kubelet.log")); lerr != nil || !strings.Contains(string(log[logged:]), row.ends) {
		return "", errors.Join(err, lerr)
	}
	after, err := kubeletlab.Take(ctx, r.node)
	if err != nil {
		return "", err
	}
	if d := kubeletlab.Compare(before, after, func(string, kubeletlab.Container) bool { return true }); len(d.Kept) != len(before) {
		return fmt.Sprintf("only %d of %d containers go on", len(d.Kept), len(before)), nil
	}
	r.e.Fact("%s, %s: ends at its start, all %d containers go on", row.kubelet, row.unit, len(before))
	return "", nil
}

// census waits until so many containers run on the node, sandboxes counted.
func (r *runbook) census(ctx context.Context, want int, bound time.Duration) (s kubeletlab.Snapshot, err error) {
	err = wait.Until(ctx, fmt.Sprintf("%d containers on the node", want), bound, func(ctx context.Context) (bool, error) {
		if s, err = kubeletlab.Take(ctx, r.node); err == nil && len(s) != want {
			err = fmt.Errorf("%d run", len(s))
		}
		return err == nil, err
	})
	return s, err
}
