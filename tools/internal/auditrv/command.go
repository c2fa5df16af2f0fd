// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package auditrv

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"holdfast/tools/internal/exit"
)

// maxBadShown is how many bad lines are named one by one.
const maxBadShown = 20

// Command returns the subcommand audit-rv.
func Command() *cobra.Command {
	var asJSON, exitCode bool
	cmd := &cobra.Command{
		Use:   "audit-rv FILE...",
		Short: "Find, in a kube-apiserver's audit log, the clients whose watches restart from the past",
		Long: `Read audit logs of a kube-apiserver (JSON, one event a line, also gzip; "-" is standard
input) and name the clients and resources whose watches restart from a resourceVersion
that they had passed. Give all rotated files of all the apiservers at once, in any order.

  back    a watch starts before the one that it continues: a proof
  stale   a watch starts before an object whose creation the client had seen: a proof
  repeat  a watch starts where the last one did though an object was updated: a hint

Level Metadata is enough. Status 0: the logs were read, whatever was found (see
--exit-code); 1: a file cannot be read or has lines that are no audit events, after
all the rest was read; 2: wrong usage.`,
		RunE: func(cmd *cobra.Command, files []string) error {
			if len(files) == 0 {
				return exit.Usagef("audit-rv: name at least one audit log, or - for standard input")
			}
			l := NewLog()
			bad := 0
			complain := func(e *LineError) {
				if bad++; bad <= maxBadShown {
					fmt.Fprintln(cmd.ErrOrStderr(), e)
				}
			}
			var unread []string
			for _, name := range files {
				if err := l.readFile(cmd.InOrStdin(), name, complain); err != nil {
					fmt.Fprintln(cmd.ErrOrStderr(), err)
					unread = append(unread, name)
				}
			}
			results := l.Results()
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				for _, r := range results {
					if err := enc.Encode(r); err != nil {
						return err
					}
				}
			} else {
				l.Report(cmd.OutOrStdout(), results)
			}
			if bad > maxBadShown {
				fmt.Fprintf(cmd.ErrOrStderr(), "… and %d more bad lines\n", bad-maxBadShown)
			}
			switch {
			case len(unread) > 0:
				return exit.Preconditionf("audit-rv: %d of %d files could not be read to their end (%q first)", len(unread), len(files), unread[0])
			case bad > 0:
				return exit.Preconditionf("audit-rv: %d lines are no audit events and were left out", bad)
			case exitCode:
				for _, r := range results {
					if r.Proven() {
						return exit.Preconditionf("audit-rv: watches restart from the past")
					}
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object for each client and resource with findings")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "end with status 1 if a watch provably restarts from the past")
	return cmd
}

func (l *Log) readFile(stdin io.Reader, name string, bad func(*LineError)) error {
	if name == "-" {
		return l.Read("standard input", stdin, bad)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return l.Read(name, f, bad)
}
