// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package auditrv

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/manifest"
	"holdfast/cmd/internal/output"
)

// maxBadShown is how many bad lines are named one by one.
const maxBadShown = 20

// Command returns the command audit-rv.
func Command() *cobra.Command {
	var exitCode bool
	var format output.Format
	cmd := &cobra.Command{
		Use:   "audit-rv FILE...",
		Short: "Find in the audit log the clients whose watches restart from an older resourceVersion",
		Long: `Read audit logs of a kube-apiserver. Name the clients and resources whose watches restart from
an older resourceVersion than the client had already received.

FILE contains JSON with one event on each line. It may be compressed with gzip, and may be in
docker's log format; - is standard input. Name all rotated files of all API servers at once, in any
order.
The audit level Metadata is enough.

  back    a watch starts from an older version than the watch that it continues: a proof
  stale   a watch starts from a version before the creation of an object that the client had
          already received: a proof
  repeat  a watch starts from the same version as the previous watch, although an object was
          updated meanwhile: a hint

Exit status: with --exit-code, 3 if a watch provably restarts from an older version. Otherwise 1
if a file cannot be read, if a line is not an audit event, or if the files contain no event at
all; the command still reads all other files and lines. Otherwise 0: without --exit-code the
status is 0 even if the command found watches that restart from an older version.`,
		Example: `  kubectl-holdfast audit-rv /var/log/kube-audit/audit.log*
  docker logs kube-apiserver 2>/dev/null | kubectl-holdfast audit-rv -o json -`,
		RunE: func(cmd *cobra.Command, files []string) error {
			if len(files) == 0 {
				return exit.Usagef("name at least one audit log, or - for standard input")
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
			if format == output.JSON {
				s := l.Summary(results)
				s.BadLines, s.Unread = bad, append(s.Unread, unread...)
				if err := output.Line(cmd.OutOrStdout(), s); err != nil {
					return err
				}
			} else {
				l.Report(cmd.OutOrStdout(), results)
			}
			if bad > maxBadShown {
				fmt.Fprintf(cmd.ErrOrStderr(), "… and %d more bad lines\n", bad-maxBadShown)
			}
			switch {
			case exitCode && slices.ContainsFunc(results, func(r *Result) bool { return r.Proven() }):
				return exit.Foundf("watches restart from an older version")
			case len(unread) > 0:
				return exit.Failedf("%d of %d files could not be read to their end (%q first)", len(unread), len(files), unread[0])
			case bad > 0:
				return exit.Failedf("%d lines are no audit events and were left out", bad)
			case l.Events == 0 && l.Other > 0:
				return exit.Failedf("no audit event in %d lines: does the apiserver run with --audit-log-path=-?", l.Other)
			case l.Events == 0:
				return exit.Failedf("no audit event in what was read: every file is empty")
			}
			return nil
		},
	}
	output.Flag(cmd, &format, "one object with everything that was found")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with status 3 if a watch provably restarts from an older version")
	return cmd
}

func (l *Log) readFile(stdin io.Reader, name string, bad func(*LineError)) error {
	f, err := manifest.Open(name, stdin)
	if err != nil {
		return err
	}
	defer f.Close()
	if name == "-" {
		name = "standard input"
	}
	return l.Read(name, f, bad)
}
