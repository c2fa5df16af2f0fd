// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upgraderunbook

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

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

func unitsLabs() []labkit.Lab {
	needs := labkit.KubeletNeeds(base, labkit.StockBinary(old, "kubelet"), labkit.StockBinary(base, "kubelet"))
	later := labkit.StockBinary(middle, "kubelet")
	return []labkit.Lab{{
		Name:    "kubelet-units",
		Folder:  "checks/upgrade-runbook",
		Summary: "with the flags that the runbook recommends, every kubelet from 1.7.0 on uses the API server and keeps its pods",
		Steps:   unitSteps,
		Test:    []labkit.Variant{labkit.Ours},
		Oracle: labkit.Oracle{Text: []string{"node check accepts and refuses the flags as it must; every container survives the swaps between v1.7.0 and Holdfast; stock v1.9.11, and in the long profile v1.8.15, reports the node, and all pods are ready"},
			Judge: judgeUnits},
		Needs: needs, LongNeeds: []labkit.Binary{later},
		Variants: []labkit.Variant{labkit.Ours},
		Timeout:  func(labkit.Profile) time.Duration { return 8 * time.Minute },
	}, {
		Name:     "kubelet-units-standalone",
		Folder:   "checks/upgrade-runbook",
		Summary:  "with kubeadm's unit of 1.8, a kubelet 1.7.0 kills every pod of its node, or exits; without --kubeconfig, every release kills them",
		Steps:    standaloneSteps,
		Oracle:   labkit.Oracle{Text: standaloneText(), Judge: judgeStandalone},
		Needs:    append(slices.Clone(needs), later),
		Variants: []labkit.Variant{labkit.Ours},
		Timeout:  func(labkit.Profile) time.Duration { return 15 * time.Minute },
	}}
}

// units is a node whose kubelets are started with the flags of units.
type units struct {
	e    *labkit.Env
	c    *node.Cluster
	node *node.Node
	// swaps, once the node has the recommended unit.
	swaps *kubeletlab.Swaps
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
		return "it exits with “" + r.ends + "”, and the pods keep running"
	}
	return "no API client, and no container of a pod is left"
}

// startUnits is a cluster of one node with three ready pods.
func (r *units) startUnits(ctx context.Context, first kube.Program, unit func(*kube.APIServer) []string) error {
	e := r.e
	c, err := e.StartStockCluster(ctx, base)
	if err != nil {
		return err
	}
	e.Step("start node node1: kubelet %s (%s)", first.Base, first.Variant)
	n, err := e.StartNode(ctx, c.APIServer, node.Config{Name: "node1", Kubelet: first, Unit: unit(c.APIServer)})
	if err != nil {
		return err
	}
	c.Nodes = append(c.Nodes, n)
	if err := c.WaitNodeReady(ctx, n.Name, time.Minute); err != nil {
		return err
	}
	r.c, r.node = c, n
	return r.pods(ctx)
}

// pods makes three pods with probes and waits until they are ready.
func (r *units) pods(ctx context.Context) error {
	for i := range 3 {
		web := node.Web("web")
		web.ReadinessProbe = &corev1.Probe{ProbeHandler: kube.HTTPGet("/ready", 8080), PeriodSeconds: 2}
		if err := r.c.Client.Make(ctx, ns, node.Pod(fmt.Sprintf("web-%d", i), "node1", web)); err != nil {
			return err
		}
	}
	return r.ready(ctx)
}

func (r *units) ready(ctx context.Context) error { return allReady(ctx, r.c) }

// check asks node check for a kubelet with the flags of the process that runs, and records what it
// says of them. There is no systemd on this node: what would start the kubelet is not asked.
func (r *units) check(ctx context.Context, kubelet, unit string) error {
	p := r.program(kubelet)
	holdfast, err := r.e.Holdfast()
	if err != nil {
		return err
	}
	out, err := r.node.Output(ctx, holdfast, "node", "check", "--new", p.Path, "--start-command", "true", "--stop-command", "true", "--keep-in", r.e.Path("keep"), "-o", "json")
	r.e.Logf("check of %s: %v\n%s", p.Path, err, out)
	var status *exec.ExitError
	if ctx.Err() != nil || err != nil && !errors.As(err, &status) {
		return err
	}
	if !strings.Contains(out, `"kind":"sum"`) {
		return fmt.Errorf("the check did not end: %w\n%s", err, out)
	}
	// It refuses an upstream kubelet in any case (HF505): the flags are what this is about.
	r.e.Record(checked{Kubelet: kubelet, Unit: unit, Yes: !strings.Contains(out, `"HF101"`) && !strings.Contains(out, `"HF102"`), Output: out})
	return nil
}

// program is the stock kubelet of a release, or the one under test.
func (r *units) program(release string) kube.Program {
	if release == underTest {
		return r.e.UnderTest(base, "kubelet")
	}
	return r.e.Stock(release, "kubelet")
}

// swap puts another kubelet and another unit in.
func (r *units) swap(ctx context.Context, p kube.Program, unit []string) error {
	if k := r.node.Kubelet; k != nil {
		if err := r.node.StopKubelet(); err != nil {
			return err
		}
	}
	r.node.Unit = unit
	return r.node.StartKubelet(ctx, p)
}

// byProgram swaps to a kubelet with the recommended unit as an operator does: the first time the unit
// is changed and the kubelet restarted, and from then on kubectl-holdfast swaps to Holdfast and back.
func (r *units) byProgram(ctx context.Context, release string) (by *kubeletlab.Swapped, err error) {
	if r.swaps != nil {
		return r.swaps.Swap(ctx, r.program(release), 5*time.Second, nil)
	}
	if err := r.node.StopKubelet(); err != nil {
		return nil, err
	}
	r.node.Unit = recommended
	r.swaps, err = kubeletlab.NewSwaps(ctx, r.e, r.node, r.program(release))
	return nil, err
}

// swapAndSync waits until the new kubelet has looked at the three pods, and
// until nothing changes any more.
func (r *units) swapAndSync(ctx context.Context, p kube.Program, unit []string) (kubeletlab.Snapshot, error) {
	if err := r.swap(ctx, p, unit); err != nil {
		return nil, err
	}
	return r.synced(ctx)
}

func (r *units) synced(ctx context.Context) (kubeletlab.Snapshot, error) {
	if err := kubeletlab.WaitSynced(ctx, r.node, 3, time.Minute); err != nil {
		return nil, err
	}
	return kubeletlab.WaitStable(ctx, r.node, 5*time.Second, time.Minute)
}

// census waits until so many containers run on the node, sandboxes counted.
func (r *units) census(ctx context.Context, want int, bound time.Duration) (s kubeletlab.Snapshot, err error) {
	err = wait.Until(ctx, fmt.Sprintf("%d containers on the node", want), bound, func(ctx context.Context) (bool, error) {
		if s, err = kubeletlab.Take(ctx, r.node); err == nil && len(s) != want {
			err = fmt.Errorf("%d run", len(s))
		}
		return err == nil, err
	})
	return s, err
}
