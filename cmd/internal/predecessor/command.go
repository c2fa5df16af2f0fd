// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package predecessor

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/manifest"
	"holdfast/cmd/internal/output"
)

// Command returns the command predecessor.
func Command() *cobra.Command {
	var dirs []string
	var format output.Format
	cmd := &cobra.Command{
		Use:   "predecessor [--root-dir DIR] [METRICS...]",
		Short: "Print which kubelet Holdfast replaced on a node",
		Long: `Print which kubelet Holdfast replaced on a node. Also print the release whose hash Holdfast
records for new containers, and whether a 1.7 kubelet accepts new sandbox checkpoints (both with
all feature gates at their defaults).

METRICS is a file with the output of a kubelet's /metrics, or - for standard input. With
--root-dir, the command reads the files in a kubelet's root directory instead. This works even
while the kubelet is down, but does not show what the kubelet infers from its containers.

The exit status is 1 if a file cannot be read, does not come from a Holdfast kubelet, or has
content that the kubelet ignores.`,
		Example: `  kubectl get --raw /api/v1/nodes/node1/proxy/metrics | kubectl-holdfast predecessor -
  kubectl-holdfast predecessor --root-dir /var/lib/kubelet -o json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args)+len(dirs) == 0 {
				return exit.Usagef("name a file with a kubelet's metrics, - for standard input, or --root-dir")
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			if format == output.Table {
				fmt.Fprintln(w, "NODE\tBEFORE\tSOURCE\tHASHES\tCHECKPOINTS\tNOTE")
			}
			failed := 0
			show := func(name string, a Answer, err error) error {
				switch {
				case err != nil:
					failed++
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", name, err)
				case format == output.JSON:
					return output.Line(cmd.OutOrStdout(), a)
				default:
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", a.Node, a.Release, a.Source, a.Hash, a.Checkpoints, a.Note)
				}
				return nil
			}
			for _, dir := range dirs {
				a, err := fromRoot(dir)
				if err := show(dir, a, err); err != nil {
					return err
				}
			}
			for _, file := range args {
				a, err := metricsOf(cmd, file)
				if err := show(file, a, err); err != nil {
					return err
				}
			}
			if err := w.Flush(); err != nil {
				return err
			}
			if failed > 0 {
				return exit.Failedf("%d of %d nodes could not be answered", failed, len(args)+len(dirs))
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&dirs, "root-dir", nil, "a kubelet's root directory, usually /var/lib/kubelet")
	output.Flag(cmd, &format, "one object for each node, each on a line")
	return cmd
}

func metricsOf(cmd *cobra.Command, file string) (Answer, error) {
	r, err := manifest.Open(file, cmd.InOrStdin())
	if err != nil {
		return Answer{}, err
	}
	defer r.Close()
	return fromMetrics(file, r)
}
