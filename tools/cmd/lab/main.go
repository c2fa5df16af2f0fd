// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// The lab command builds what labs run and runs them: each is an incident on stock and on
// ours. It also starts clusters to try things on.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"holdfast/tools/build/base"
	"holdfast/tools/build/builder"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/flagtable"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
	"holdfast/tools/labs"
)

func main() { os.Exit(Main(os.Args[1:])) }

// Main runs the command line and returns its exit status.
func Main(args []string) int {
	cmd := labCmd()
	cmd.SetArgs(args)
	err := cmd.Execute()
	if err != nil {
		fmt.Fprintf(os.Stderr, "lab: %v\n", err)
	}
	return exit.Code(err)
}

func labCmd() *cobra.Command {
	o := run.Options{}
	var profile string
	var variants []string
	var all bool
	c := &cobra.Command{
		Use:   "lab [NAME...]",
		Short: "Run labs: each incident on stock and on Holdfast's binaries; without a name: list the labs",
		Example: `  lab cluster-smoke
  lab cluster-smoke --profile long --seed 7 --keep
  lab --all
  lab container-hash-compat --variant "ours -container-hash-compat"
  lab cluster-smoke --variant stock --bin v1.9.11/stock=/some/bin`,
		Args:         cobra.ArbitraryArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, args []string) error {
			o.Out, o.Root = c.OutOrStdout(), rootFlag(c)
			_, _, known, err := checkout(c)
			if err != nil {
				return err
			}
			if len(args) == 0 && !all {
				w := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
				for _, l := range known {
					fmt.Fprintf(w, "%s\t%s\n", l.Name, l.Summary)
				}
				return w.Flush()
			}
			chosen, err := known.Named(args)
			if err != nil {
				return err
			}
			if all {
				chosen = known
			}
			o.Profile = labkit.Profile(profile)
			for _, s := range variants {
				v, err := base.ParseVariant(s)
				if err != nil {
					return err
				}
				o.Only = append(o.Only, v)
			}
			needs, err := run.NeedsOf(chosen, o.Profile, o.Only)
			if err != nil {
				return exit.Usagef("%v", err)
			}
			ctx, cancel := signalled()
			defer cancel()
			if err := build(ctx, c, needs, o.Bins); err != nil {
				return err
			}
			if err := buildChanged(ctx, c, chosen, o.Profile); err != nil {
				return err
			}
			_, err = run.Labs(ctx, chosen, o)
			return err
		},
	}
	c.PersistentFlags().String("root", ".", "the Holdfast checkout, or a folder inside it")
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.Usagef("%v", err) })
	f := c.Flags()
	f.StringVar(&profile, "profile", "short", "short or long")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of all random choices of a lab")
	f.BoolVar(&o.Keep, "keep", false, "also keep the artefacts of runs that answered as expected")
	f.StringSliceVar(&variants, "variant", nil, "run only these variants: stock, ours, ours-gate-off, \"ours -FIX\"")
	f.StringArrayVar(&o.Bins, "bin", nil, "base/variant=directory or base/variant/name=file; else _output/bin/<base>/<variant>/<name>")
	f.DurationVar(&o.Timeout, "timeout", 0, "time limit of one variant's run (default: the lab's own)")
	f.BoolVar(&all, "all", false, "run every lab")
	c.AddCommand(suiteCmd(), allCmd(), outcomesCmd(), sweepCmd(), rejudgeCmd(), buildCmd(), upCmd(), downCmd(), innerCmd(), upServeCmd())
	return c
}

// checkout is that of the command: its root, its fixes, and the labs with what these say of them.
func checkout(c *cobra.Command) (root string, table *fixes.Table, all labkit.Labs, err error) {
	if root, err = base.FindRoot(rootFlag(c)); err != nil {
		return "", nil, nil, err
	}
	if table, err = fixes.Load(root); err != nil {
		return "", nil, nil, err
	}
	all, err = labkit.NewLabs(labs.All(), table)
	return root, table, all, err
}

// build brings binaries up to date. Those that rules (see labkit.NewBinaries) take from elsewhere
// are left alone.
func build(ctx context.Context, c *cobra.Command, needs []labkit.Binary, rules []string) error {
	root, err := base.FindRoot(rootFlag(c))
	if err != nil {
		return err
	}
	bins, err := labkit.NewBinaries(root, rules)
	if err != nil {
		return exit.Usagef("%v", err)
	}
	type tree struct {
		base    string
		variant labkit.Variant
	}
	var order []tree
	names := map[tree][]string{}
	for _, n := range needs {
		t := tree{n.Base, n.Variant}
		if !bins.OurBuild(n) || slices.Contains(names[t], n.Name) {
			continue
		}
		if names[t] == nil {
			order = append(order, t)
		}
		names[t] = append(names[t], n.Name)
	}
	for _, t := range order {
		b, err := base.Load(root, t.base)
		if err != nil {
			return err
		}
		if _, err := builder.Build(ctx, b, builder.Options{Variant: t.variant, Binaries: names[t]}); err != nil {
			return err
		}
	}
	return nil
}

// buildCmd builds what make test runs.
func buildCmd() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "build", Short: "Build the product (stock and Holdfast), and every binary that the labs of make test run", Args: exit.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			root, _, known, err := checkout(c)
			if err != nil {
				return err
			}
			b, err := base.LoadDefault(root)
			if err != nil {
				return err
			}
			var needs []labkit.Binary
			for _, v := range []labkit.Variant{labkit.Ours, labkit.Stock} {
				for _, name := range b.BinaryNames(true) {
					needs = append(needs, labkit.Binary{Base: b.Name, Variant: v, Name: name})
				}
			}
			runs := run.TestRuns(known)
			if all {
				flagtable.Asked(func(release string, v base.Variant, binary string) {
					needs = append(needs, labkit.Binary{Base: release, Variant: v, Name: binary})
				})
				runs = nil
				for _, l := range known {
					if !l.OnRequest {
						runs = append(runs, run.Chosen{Lab: l, Variants: l.Runs()})
					}
				}
			}
			ofLabs, err := run.NeedsOfChosen(runs, labkit.Short)
			if err != nil {
				return err
			}
			ctx, cancel := signalled()
			defer cancel()
			return build(ctx, c, append(needs, ofLabs...), nil)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "build what make test-all needs, except the builds without a fix")
	return c
}

// rejudgeCmd judges again what runs recorded.
func rejudgeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "rejudge DIR", Short: "Judge again the histories that runs left below a directory",
		Long: "Judge again the histories (history.jsonl) that runs left below a directory, after a failure or with --keep.\n" +
			"No component runs. Exit status 1: a verdict is not the expected one.",
		Example: "  lab rejudge _output/lab/cluster-smoke",
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Usagef("rejudge: want one directory, got %d arguments", len(args))
			}
			_, _, known, err := checkout(c)
			if err != nil {
				return err
			}
			_, err = run.Rejudge(c.OutOrStdout(), known, args[0])
			return err
		},
	}
}

func suiteCmd() *cobra.Command {
	o := run.Options{Profile: labkit.Short}
	c := &cobra.Command{
		Use: "suite", Short: "Run the labs of make test side by side; lab build builds what they run", Args: exit.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, _, known, err := checkout(c)
			if err := errors.Join(notMapped(), err); err != nil {
				return err
			}
			o.Out, o.Root = c.OutOrStdout(), rootFlag(c)
			ctx, cancel := signalled()
			defer cancel()
			runs := run.TestRuns(known)
			run.PrintTestRuns(o.Out, runs)
			all, err := run.Suite(ctx, runs, o)
			printCounts(o.Out, all)
			return err
		},
	}
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of all random choices of a lab")
	return c
}

// notMapped refuses an environment in which labs run other binaries than the checkout's.
func notMapped() error {
	const mapped = "HOLDFAST_BIN_MAP"
	if os.Getenv(mapped) != "" {
		return exit.Preconditionf("%s is set, so the labs would not run what this checkout builds: unset it, or run the lab by hand", mapped)
	}
	return nil
}

// printCounts closes a run of labs as the parts of make test close theirs.
func printCounts(w io.Writer, all []labkit.Outcome) {
	passed := 0
	for _, o := range all {
		if o.AsExpected() {
			passed++
			continue
		}
		fmt.Fprintf(w, "lab %s (%s) answered %s, want %s\n", o.Lab, o.Variant, o.Verdict, o.Expected)
	}
	fmt.Fprintf(w, "labs: %d passed, %d failed\n", passed, len(all)-passed)
}

func innerCmd() *cobra.Command {
	return &cobra.Command{
		Use: run.InnerCommand + " REQUEST", Hidden: true, Args: cobra.ExactArgs(1), SilenceUsage: true,
		RunE: func(_ *cobra.Command, args []string) error { return run.Inner(args[0], labs.All()) },
	}
}

func upCmd() *cobra.Command {
	o := run.UpOptions{}
	var variant string
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster of Holdfast's binaries and leave it running; end it with down",
		Args:  exit.NoArgs, SilenceUsage: true,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Out, o.Root, o.Variant = c.OutOrStdout(), rootFlag(c), labkit.Variant(variant)
			root, err := base.FindRoot(o.Root)
			if err != nil {
				return err
			}
			if o.Base, err = base.Default(root); err != nil {
				return err
			}
			ctx, cancel := signalled()
			defer cancel()
			if err := build(ctx, c, run.UpNeeds(o.Base, o.Variant), o.Bins); err != nil {
				return err
			}
			return run.Up(ctx, o)
		},
	}
	c.Flags().StringVar(&variant, "variant", "ours", "which kube-controller-manager and kubelet: ours or stock")
	c.Flags().IntVar(&o.Nodes, "nodes", 1, "number of nodes")
	c.Flags().StringArrayVar(&o.Bins, "bin", nil, "as for lab")
	return c
}

func downCmd() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Stop the cluster that up started, and check that nothing is left",
		Args: exit.NoArgs, SilenceUsage: true,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			defer cancel()
			return run.Down(ctx, rootFlag(c), c.OutOrStdout())
		},
	}
}

func upServeCmd() *cobra.Command {
	return &cobra.Command{
		Use: run.UpServeCommand + " REQUEST", Hidden: true, Args: cobra.ExactArgs(1), SilenceUsage: true,
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, cancel := signalled()
			defer cancel()
			return run.UpServe(ctx, args[0])
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
