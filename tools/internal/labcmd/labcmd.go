// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package labcmd has the commands lab, up and down.
package labcmd

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/labbuild"
	"holdfast/tools/labkit"
	_ "holdfast/tools/labs" // every lab registers itself
)

// Commands are lab, up and down, and the hidden ones by which they start
// themselves again. Their errors are for exit.Code.
func Commands() []*cobra.Command {
	return []*cobra.Command{labCmd(), upCmd(), downCmd(), innerCmd(), upServeCmd()}
}

func labCmd() *cobra.Command {
	o := labkit.Options{}
	var profile string
	var variants []string
	var all bool
	c := &cobra.Command{
		Use:   "lab [NAME…]",
		Short: "Run labs: each incident on stock and on our binaries; without a name list them",
		Example: `  holdfast lab cluster-smoke
  holdfast lab cluster-smoke --profile long --seed 7 --keep
  holdfast lab --all
  holdfast lab cluster-smoke --variant stock --bin v1.9.11/stock=/some/bin`,
		SilenceUsage: true,
		RunE: func(c *cobra.Command, args []string) error {
			o.Out, o.Root = c.OutOrStdout(), rootFlag(c)
			if all {
				for _, l := range labkit.Labs() {
					args = append(args, l.Name)
				}
			}
			if len(args) == 0 {
				w := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
				for _, l := range labkit.Labs() {
					fmt.Fprintf(w, "%s\t%s\n", l.Name, l.Summary)
				}
				return w.Flush()
			}
			args = labkit.Expand(args)
			o.Profile = labkit.Profile(profile)
			for _, v := range variants {
				o.Only = append(o.Only, labkit.Variant(v))
			}
			if err := buildFor(c, args, o); err != nil {
				return err
			}
			ctx, cancel := signalled()
			defer cancel()
			return labkit.RunLabs(ctx, args, o)
		},
	}
	f := c.Flags()
	f.StringVar(&profile, "profile", "short", "short or long")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of everything that a lab leaves to chance")
	f.BoolVar(&o.Keep, "keep", false, "keep the artefacts also of runs that answered as expected")
	f.StringSliceVar(&variants, "variant", nil, "run only these variants: stock, ours, ours-gate-off")
	f.StringArrayVar(&o.Bins, "bin", nil, "base/variant=directory or base/variant/name=file; else _output/bin/<base>/<variant>/<name>")
	f.DurationVar(&o.Timeout, "timeout", 0, "bound of one variant's run (default: the lab's own)")
	f.BoolVar(&all, "all", false, "run every lab")
	return c
}

// buildFor brings the binaries of the labs up to date.
func buildFor(c *cobra.Command, names []string, o labkit.Options) error {
	root, err := base.FindRoot(rootFlag(c))
	if err != nil {
		return err
	}
	_, err = labbuild.Build(root, names, o.Only, o.Bins)
	return err
}

func innerCmd() *cobra.Command {
	return &cobra.Command{
		Use: labkit.InnerCommand + " REQUEST", Hidden: true, Args: cobra.ExactArgs(1), SilenceUsage: true,
		RunE: func(_ *cobra.Command, args []string) error { return labkit.RunInner(args[0]) },
	}
}

func upCmd() *cobra.Command {
	o := labkit.UpOptions{}
	var variant string
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster of our binaries and leave it running; end it with down",
		Args:  exit.NoArgs, SilenceUsage: true,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Out, o.Root, o.Variant = c.OutOrStdout(), rootFlag(c), labkit.Variant(variant)
			root, err := base.FindRoot(o.Root)
			if err != nil {
				return err
			}
			if _, err := labbuild.Binaries(root, labkit.UpNeeds(o.Variant), o.Bins); err != nil {
				return err
			}
			ctx, cancel := signalled()
			defer cancel()
			return labkit.Up(ctx, o)
		},
	}
	c.Flags().StringVar(&variant, "variant", "ours", "whose kube-controller-manager and kubelet: ours or stock")
	c.Flags().IntVar(&o.Nodes, "nodes", 1, "number of nodes")
	c.Flags().StringArrayVar(&o.Bins, "bin", nil, "as for lab")
	return c
}

func downCmd() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Stop the cluster that up started and prove that nothing is left",
		Args: exit.NoArgs, SilenceUsage: true,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			defer cancel()
			return labkit.Down(ctx, rootFlag(c), c.OutOrStdout())
		},
	}
}

func upServeCmd() *cobra.Command {
	return &cobra.Command{
		Use: labkit.UpServeCommand + " REQUEST", Hidden: true, Args: cobra.ExactArgs(1), SilenceUsage: true,
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, cancel := signalled()
			defer cancel()
			return labkit.UpServe(ctx, args[0])
		},
	}
}

// rootFlag is the command's persistent --root, "." if it has none.
func rootFlag(c *cobra.Command) string {
	if f := c.Flags().Lookup("root"); f != nil {
		return f.Value.String()
	}
	return "."
}

func signalled() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
}
