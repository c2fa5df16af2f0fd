// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/node"
)

// Command is the command fleet.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Swap the kubelets of a cluster by the rollout of a DaemonSet",
		Long: `Swap the kubelets of a cluster, one node at a time, by the rollout of a DaemonSet. kubectl
rollout status, pause and undo work as for any DaemonSet.

fleet manifests prints the DaemonSet and the objects that it needs. The DaemonSet's pods run
fleet agent, which swaps the kubelet of the pod's node as node swap and node back do. See
docs/user/fleet.md.`,
		Example: `  kubectl-holdfast fleet manifests --image REGISTRY/fleet:2 | kubectl apply -f -
  kubectl-holdfast fleet manifests --image REGISTRY/fleet:2 --target holdfast-2 | kubectl apply -f -`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usagef("unknown command %q: use manifests or agent", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(manifestsCommand(), agentCommand(), probeCommand(), onHostCommand())
	return cmd
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exit.Usagef("%q: the command takes only flags", args[0])
	}
	return nil
}

func (f *agentFlags) add(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&f.Lib, "keep-in", node.DefaultLib, "folder on the nodes for the saved kubelet and the state")
	s.StringVar(&f.Unit, "unit", "kubelet.service", "the kubelet's unit")
	s.StringVar(&f.Settle, "settle", "auto", "wait before the containers are compared; auto: 60 s + 2 s per 5 pods")
	f.failOn, _ = finding.ParseFailOn(string(finding.New))
	s.Var(&f.failOn, "fail-on", "a swap fails from this level on: STOP, new (a recreated container) or warn")
}

func manifestsCommand() *cobra.Command {
	m := &manifests{}
	cmd := &cobra.Command{
		Use:   "manifests --image IMAGE",
		Short: "Print the objects that swap the kubelets of a cluster",
		Long: `Print a DaemonSet, its ServiceAccount, roles and PodSecurityPolicy, and the ConfigMap that serves
as the lock, for kubectl apply. The command contacts no cluster and changes nothing.

Each revision of the DaemonSet has a target: --target original is the kubelet before Holdfast;
--target holdfast-2 is the kubelet whose version ends with +holdfast.2, which the image contains
as /kubelet. First apply the manifests with --target original: this changes no kubelet, and each
pod logs what node check finds. To retry after a failure, use a higher --attempt than before.`,
		Example: `  kubectl-holdfast fleet manifests --image REGISTRY/fleet:2 > original.yaml
  kubectl-holdfast fleet manifests --image REGISTRY/fleet:2 --target holdfast-2 > swap.yaml
  kubectl-holdfast fleet manifests --image REGISTRY/fleet:2 --target holdfast-2 --attempt 2`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return m.write(cmd.OutOrStdout()) },
	}
	f := cmd.Flags()
	f.StringVar(&m.Image, "image", "", "an image with /kubectl-holdfast and /kubelet")
	f.StringVar(&m.Namespace, "namespace", name, "the namespace of all objects")
	f.StringVar(&m.Target, "target", original, "original, or holdfast-X")
	f.IntVar(&m.Attempt, "attempt", 1, "number of the attempt; a higher number than before retries failed nodes")
	f.DurationVar(&m.MinReady, "min-ready", 10*time.Second, "how long a node must be ready before the next node begins")
	f.StringSliceVar(&m.NodeSelector, "node-selector", nil, "LABEL=VALUE: only nodes with this label; may be repeated")
	m.add(cmd)
	return cmd
}

func agentCommand() *cobra.Command {
	flags := &agentFlags{}
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "The command of the DaemonSet's pods: swap this node's kubelet to the target's, and verify it",
		Long: `Do not run this command by hand. fleet manifests prints a DaemonSet whose pods run it: privileged,
with hostPID, and with TARGET, ATTEMPT, NAMESPACE and NODE in their environment. A pod becomes
ready when the kubelet that TARGET names runs on its node and has been verified.`,
		Example: "  TARGET=holdfast-2 ATTEMPT=1 NAMESPACE=holdfast-fleet NODE=node1 kubectl-holdfast fleet agent",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			settle, _ := flags.settleTime()
			attempt, err := strconv.Atoi(os.Getenv("ATTEMPT"))
			if err != nil {
				return exit.Usagef("ATTEMPT is %q: fleet manifests --attempt sets it", os.Getenv("ATTEMPT"))
			}
			t, err := parseTarget(os.Getenv("TARGET"), attempt)
			if err != nil {
				return err
			}
			client, err := kubeapi.InCluster()
			if err != nil {
				return err
			}
			c := &api{client: client, namespace: os.Getenv("NAMESPACE"), node: os.Getenv("NODE")}
			if c.namespace == "" || c.node == "" {
				return exit.Usagef("NAMESPACE or NODE is not set: fleet manifests sets them")
			}
			ctx, cancel := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer cancel()
			a := &agent{target: t, namespace: c.namespace, cluster: c, settle: verifyTime, poll: 2 * time.Second, log: cmd.OutOrStdout(), tell: tellProbe(stateDir),
				host: &hostPrograms{lib: flags.Lib, unit: flags.Unit, settle: settle, failOn: flags.failOn, namespace: c.namespace}}
			a.say("target %s, node %s", t, c.node)
			a.run(ctx)
			return nil
		},
	}
	flags.add(cmd)
	return cmd
}

// verifyTime is how long the kubelet must run as one process, after the swap has settled.
const verifyTime = 10 * time.Second

func probeCommand() *cobra.Command {
	return &cobra.Command{Use: "probe", Hidden: true, Short: "The readiness probe of the agent's pod", Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return probe(stateDir) }}
}
