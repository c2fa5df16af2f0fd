// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/finding"
)

// Command is the command node.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Check and swap this machine's kubelet, and go back",
		Long: `Run this on a node as root: check the kubelet and its unit, swap the kubelet for Holdfast, and go
back.

The commands replace the file that the unit starts; the unit stays. The old kubelet is saved
in /usr/lib/holdfast/kept. Containers keep running.`,
		Example: `  kubectl-holdfast node check --new ./kubelet
  kubectl-holdfast node swap --new ./kubelet
  kubectl-holdfast node back`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usagef("unknown command %q: use check, swap, back or keep", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(checkCommand(), swapCommand(), backCommand(), keepCommand())
	return cmd
}

type settings struct {
	o      Options
	lib    string
	settle string
	format finding.Format
	failOn finding.FailOn
}

// common are the flags of all three.
func (s *settings) common(cmd *cobra.Command) {
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return exit.Usagef("%q: the command takes only flags", args[0])
		}
		return nil
	}
	f := cmd.Flags()
	f.StringVar(&s.o.Unit, "unit", "kubelet.service", "the kubelet's unit")
	f.StringVar(&s.lib, "keep-in", DefaultLib, "folder of the saved kubelet, the state and the journal")
	f.StringVar(&s.o.StartCommand, "start-command", "", "without systemd: the command that starts the kubelet, for sh -c")
	f.StringVar(&s.o.StopCommand, "stop-command", "", "without systemd: the command that stops the kubelet, for sh -c")
	f.StringVar(&s.o.Program, "program", "", "without systemd: the kubelet's file, if no kubelet runs")
	finding.Flags(cmd, &s.format, &s.failOn)
}

func (s *settings) changing(cmd *cobra.Command) {
	s.common(cmd)
	f := cmd.Flags()
	f.StringVar(&s.settle, "settle", "auto", "wait before the containers are compared; auto: 60 s + 2 s per 5 pods")
	f.DurationVar(&s.o.HealthTimeout, "health-timeout", 20*time.Second, "how long the new kubelet may take to answer /healthz with ok")
	f.BoolVar(&s.o.DryRun, "dry-run", false, "check, and change nothing")
}

// complete makes the options of the flags.
func (s *settings) complete(needsNew bool) error {
	s.o.Unit = fullName(s.o.Unit)
	for _, file := range []*string{&s.lib, &s.o.New, &s.o.Program} {
		if *file == "" {
			continue
		}
		var err error
		if *file, err = filepath.Abs(*file); err != nil {
			return err
		}
	}
	switch {
	case needsNew && s.o.New == "":
		return exit.Usagef("--new FILE is needed: a kubelet of Holdfast")
	case (s.o.StartCommand == "") != (s.o.StopCommand == ""):
		return exit.Usagef("--start-command and --stop-command go together")
	case s.settle == "" || s.settle == "auto":
		s.o.Settle = -1
	default:
		d, err := time.ParseDuration(s.settle)
		if n, e := strconv.Atoi(s.settle); e == nil {
			d, err = time.Duration(n)*time.Second, nil
		}
		if err != nil || d < 0 {
			return exit.Usagef("--settle is %q: use auto, or a time such as 90s", s.settle)
		}
		s.o.Settle = d
	}
	return nil
}

// print writes the rows of the check, or findings and what became of the containers.
func (s *settings) print(cmd *cobra.Command) show {
	return func(rows []row, findings []finding.Finding, sum string) error {
		w := cmd.OutOrStdout()
		if s.format == finding.JSON || rows == nil {
			if err := finding.Write(w, findings, s.failOn, s.format, sum); err != nil {
				return err
			}
			return finding.Err(findings, s.failOn)
		}
		var table [][]string
		for _, r := range rows {
			if f := r.finding; f != nil {
				table = append(table, []string{r.check, string(f.Level) + " " + f.Code, f.Text + prefixed("\n-> ", f.Remedy)})
			} else {
				table = append(table, []string{r.check, "ok", r.ok})
			}
		}
		if err := finding.WriteTable(w, s.format, []string{"CHECK", "RESULT", "WHAT WAS FOUND, AND WHAT TO DO"}, table); err != nil {
			return err
		}
		if sum != "" {
			sum += ": "
		}
		if _, err := fmt.Fprintf(w, "\n%s%s\n", sum, finding.Sum(findings)); err != nil {
			return err
		}
		return finding.Err(findings, s.failOn)
	}
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// checkTimeout bounds a check whatever hangs.
const checkTimeout = 30 * time.Second

func checkCommand() *cobra.Command {
	s := &settings{}
	cmd := &cobra.Command{
		Use:   "check [--new FILE]",
		Short: "Check the kubelet's unit, command line and node; change nothing",
		Long: `Check whether a swap of this machine's kubelet would succeed. check changes nothing. It runs the
old and the new kubelet only for a moment, to print their versions and to check the flags.

check does not use the command line of the running kubelet. It uses the command line that
systemd would start now, from the unit's files and its environment files as they are on disk.
check never prints the values of environment variables.`,
		Example: `  kubectl-holdfast node check
  kubectl-holdfast node check --new ./kubelet -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.complete(false); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), checkTimeout)
			defer cancel()
			m, err := look(ctx, thisHost(s.lib), s.o, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			m.judge(ctx, s.o.New, false)
			return s.print(cmd)(m.rows, m.findings(), "")
		},
	}
	cmd.Flags().StringVar(&s.o.New, "new", "", "the kubelet of Holdfast to swap in")
	cmd.Flags().BoolVar(&s.o.Probe, "probe", false, "also send the HTTP probes of the node's pods once, and check the responses")
	s.common(cmd)
	return cmd
}

func (s *settings) run(cmd *cobra.Command, back bool) error {
	if err := s.complete(!back); err != nil {
		return err
	}
	// Between stop and start an interrupt is not followed.
	ctx, cancel := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	return run(ctx, thisHost(s.lib), s.o, back, cmd.ErrOrStderr(), s.print(cmd))
}

func swapCommand() *cobra.Command {
	s := &settings{}
	cmd := &cobra.Command{
		Use:   "swap --new FILE",
		Short: "Swap this machine's kubelet for Holdfast",
		Long: `Swap the kubelet that the unit starts for FILE, a kubelet of Holdfast.

swap first runs node check. If node check finds a STOP, swap changes nothing. Otherwise swap saves the
old kubelet and its unit in /usr/lib/holdfast/kept, unless a kubelet is already saved there; swap
never saves a Holdfast kubelet. Then swap stops, replaces and starts the kubelet. The new kubelet
must run with the unit's flags, must not run standalone, and must answer /healthz. If it does not,
or if it exits during the time of --settle, swap puts the old kubelet back and starts it. At the
end, swap compares the containers with those from before the swap.

If a swap was killed, the next swap or back first starts the previous kubelet. A second swap with
the same FILE changes nothing. After a second swap with a later Holdfast, the saved kubelet is
still the kubelet from before the first swap.`,
		Example: `  kubectl-holdfast node swap --new ./kubelet --dry-run
  kubectl-holdfast node swap --new ./kubelet`,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd, false) },
	}
	cmd.Flags().StringVar(&s.o.New, "new", "", "the kubelet of Holdfast")
	s.changing(cmd)
	return cmd
}

func backCommand() *cobra.Command {
	s := &settings{}
	cmd := &cobra.Command{
		Use:   "back",
		Short: "Put the saved kubelet back",
		Long: `Put the kubelet back that node swap saved, in the same way as node swap puts in the new kubelet.

If the unit has a flag or gate that the saved kubelet does not accept, back changes nothing,
reports a STOP, and prints a command line that the saved kubelet accepts. If the saved kubelet
would delete files through mounts of subPaths, back unmounts these mounts after it has stopped
Holdfast and before it starts the saved kubelet. If a mount is busy, back names the process that
uses the mount, and starts Holdfast again.`,
		Example: `  kubectl-holdfast node back --dry-run
  kubectl-holdfast node back`,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd, true) },
	}
	s.changing(cmd)
	return cmd
}
