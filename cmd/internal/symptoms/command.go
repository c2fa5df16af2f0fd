// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package symptoms

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/output"
)

// maxText is how much of a pasted text is searched for, in bytes.
const maxText = 64 << 10

// Command returns the command explain.
func Command() *cobra.Command {
	var format output.Format
	cmd := &cobra.Command{
		Use:   "explain TEXT...",
		Short: "Name the page that explains a message, an event, a metric or a code",
		Long: `Search the table of docs/user/symptoms.md. TEXT is a line of a log, the reason of an event, the
name of a metric, or a code such as HF201. The command prints each row whose symptom is
contained in TEXT, and each row that contains TEXT. It ignores case, quotes and the number of
spaces, and contacts no cluster.

The exit status is 1 if no row was found.`,
		Example: `  kubectl-holdfast explain RBDLockKept
  kubectl-holdfast explain HF201
  kubectl-holdfast explain 'Container spec hash changed (77 vs 88). Container will be killed and recreated.'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef("name what you see: a message, an event, a metric or a code")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text := strings.Join(args, " ")
			if len(text) > maxText {
				return exit.Usagef("the text has %d bytes, %d is the limit: give one line of the log", len(text), maxText)
			}
			all, err := All()
			if err != nil {
				return err
			}
			found := Find(all, text)
			for _, s := range found {
				if format == output.JSON {
					if err := output.Line(cmd.OutOrStdout(), s); err != nil {
						return err
					}
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", s.Kind, s.Text)
				if s.Means != "" {
					fmt.Fprintf(cmd.OutOrStdout(), "  %s\n", s.Means)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "  page: %s\n", s.Page)
			}
			if len(found) == 0 {
				return exit.Failedf("no row of the table matches this text: try fewer words, or look at %s", Page)
			}
			return nil
		},
	}
	output.Flag(cmd, &format, "one object for each row, each on a line")
	return cmd
}
