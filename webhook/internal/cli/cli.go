// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of endpoints-rules. Command and Main are much like those
// of cmd/internal/cli, and package exit is too. That is another module, which builds alone
// with libraries of its own releases: one package for both would tie their builds together.
package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"holdfast/webhook/internal/cluster"
	"holdfast/webhook/internal/exit"
	"holdfast/webhook/internal/scenario"
	"holdfast/webhook/rulesets"
)

const long = `A mutating admission webhook for Endpoints, for clusters of 1.9.3 and later. It
moves addresses between ready and not ready, or drops them, by rules that are
read live; and it puts stored Endpoints right when a rule's reason ends.

Exit status: 0; 1, a precondition is missing or a test differs; 2, wrong usage.`

const example = `  endpoints-rules check rules.yaml
  endpoints-rules test scenario.yaml
  kubectl get pods,services,nodes -o yaml | endpoints-rules explain --rules rules.yaml -
  endpoints-rules manifests --image IMAGE --rule-set image-pending --output DIR`

// Command is the root command.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "endpoints-rules",
		Short:         "Mark addresses in Endpoints as ready or not ready by rules",
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
	cmd.AddCommand(serveCommand(), breakerCommand(), checkCommand(), testCommand(), explainCommand(), manifestsCommand())
	return cmd
}

// Main runs the command line and returns the exit status. version is what --version prints.
func Main(version string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := Command()
	cmd.Version = version
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	ran, err := cmd.ExecuteContextC(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", ran.CommandPath(), err)
		if exit.Code(err) == exit.Usage {
			fmt.Fprintf(stderr, "%s --help shows the usage\n", ran.CommandPath())
		}
	}
	return exit.Code(err)
}

// args wants a number of arguments that are named.
func args(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, got []string) error {
		if len(got) != len(names) {
			return exit.Usagef("the command needs the arguments %q, but got %d", names, len(got))
		}
		return nil
	}
}

// logger writes JSON lines to standard error.
func logger(cmd *cobra.Command, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, exit.Usagef("--log-level %q: it is debug, info, warn or error", level)
	}
	return slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: l})), nil
}

// restConfig is the cluster's, from a file or as a pod has it.
func restConfig(kubeconfig string) (*rest.Config, error) {
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	c.QPS, c.Burst = 50, 100
	c.UserAgent = "endpoints-rules"
	return c, nil
}

func checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE...",
		Short: "Read rules files and name every mistake with its line and column",
		RunE: func(cmd *cobra.Command, files []string) error {
			if len(files) == 0 {
				return exit.Usagef("name the files to read as arguments")
			}
			bad := 0
			for _, f := range files {
				s, err := scenario.LoadRules(f, "")
				if err != nil {
					bad++
					fmt.Fprintln(cmd.OutOrStdout(), err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %d rules\n", f, len(s.Rules))
			}
			if bad > 0 {
				return fmt.Errorf("%d of %d files are wrong", bad, len(files))
			}
			return nil
		},
	}
}

// ruleFlags are how a command is told the rules.
type ruleFlags struct{ file, set string }

func (r *ruleFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.file, "rules", "", "rules file")
	cmd.Flags().StringVar(&r.set, "rule-set", "", "one of the program's own rule sets: "+strings.Join(rulesets.Names(), ", "))
}

// judge reads a file of objects, - for standard input, and judges them by the rules.
func (r *ruleFlags) judge(cmd *cobra.Command, name string) (*scenario.File, []cluster.Row, error) {
	f, err := scenario.Read(name, cmd.InOrStdin())
	if err != nil {
		return nil, nil, err
	}
	set, err := f.Set(r.file, r.set)
	if err != nil {
		return nil, nil, err
	}
	rows, err := f.Rows(set)
	return f, rows, err
}

func testCommand() *cobra.Command {
	var r ruleFlags
	cmd := &cobra.Command{
		Use:   "test FILE",
		Short: "Apply rules to the objects of a file and compare the addresses with those that the file expects",
		Args:  args("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, rows, err := r.judge(cmd, args[0])
			if err != nil {
				return err
			}
			if err := scenario.Print(cmd.OutOrStdout(), rows, false); err != nil {
				return err
			}
			bad, err := f.Compare(rows)
			if err != nil {
				return err
			}
			if len(bad) > 0 {
				return fmt.Errorf("%s: %d addresses differ:\n%s", args[0], len(bad), strings.Join(bad, "\n"))
			}
			return nil
		},
	}
	r.add(cmd)
	return cmd
}

func explainCommand() *cobra.Command {
	var r ruleFlags
	cmd := &cobra.Command{
		Use:   "explain FILE",
		Short: "Show the result of each rule for each address of the objects in a file",
		Args:  args("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, rows, err := r.judge(cmd, args[0])
			if err != nil {
				return err
			}
			return scenario.Print(cmd.OutOrStdout(), rows, true)
		},
	}
	r.add(cmd)
	return cmd
}
