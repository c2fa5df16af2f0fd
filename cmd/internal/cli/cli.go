// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of kubectl-holdfast.
package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/auditrv"
	"holdfast/cmd/internal/containerhash"
	"holdfast/cmd/internal/doctor"
	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/fleet"
	"holdfast/cmd/internal/forecast"
	"holdfast/cmd/internal/kcm"
	"holdfast/cmd/internal/node"
	"holdfast/cmd/internal/podtemplatehash"
	"holdfast/cmd/internal/predecessor"
	"holdfast/cmd/internal/rbdlocks"
	"holdfast/cmd/internal/symptoms"
)

const long = `Commands for operators of clusters that run, or upgrade through, an old Kubernetes
release. Most commands read only files and standard input. doctor, forecast and verify send
requests to an API server and its kubelets, kcm sends requests to an API server, and rbd-locks
to an API server and Ceph. node works on the machine on which it runs. Only node swap, node back,
node keep, kcm manifest and fleet agent change anything, and only on the machine on which they
run. fleet manifests prints objects for kubectl apply.

If the program is on PATH as kubectl-holdfast, it is also the plugin "kubectl holdfast".

Exit status: 0 if the command printed all results. 1 if it could not read or compute something (it
printed all other results), or if a precondition is not met. 2 if the command line is wrong; then
the command read nothing. 3 if the command found a problem; these commands use this status: doctor,
forecast, kcm, node, verify, rbd-locks, container-hash explain, and audit-rv with --exit-code.`

const example = `  kubectl get pods -o json | kubectl-holdfast container-hash -
  kubectl get deployments --all-namespaces -o yaml | kubectl-holdfast pod-template-hash -
  kubectl-holdfast audit-rv /var/log/kube-audit/audit.log*
  source <(kubectl-holdfast completion bash)`

// Command is the root command.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "kubectl-holdfast",
		Short:         "Programs for operators of old Kubernetes releases",
		Long:          long,
		Example:       example,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			var names []string
			for _, c := range cmd.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, c.Name())
				}
			}
			return exit.Usagef("unknown command %q: use one of %s", args[0], strings.Join(names, ", "))
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.Usagef("%w", err) })
	cmd.AddCommand(auditrv.Command(), containerhash.Command(), doctor.Command(), fleet.Command(), forecast.Command(), forecast.VerifyCommand(), kcm.Command(), node.Command(), podtemplatehash.Command(), predecessor.Command(), rbdlocks.Command(), symptoms.Command())
	return cmd
}

// Main runs the command line and returns the exit status. version is what --version prints.
func Main(version string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cmd := Command()
	cmd.Version = version
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	ran, err := cmd.ExecuteC()
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", ran.CommandPath(), err)
		if exit.Code(err) == exit.Usage {
			fmt.Fprintf(stderr, "%s --help shows the usage\n", ran.CommandPath())
		}
	}
	return exit.Code(err)
}
