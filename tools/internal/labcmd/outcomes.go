// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labcmd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/outcomes"
	"holdfast/tools/internal/proof"
	"holdfast/tools/internal/slugs"
	"holdfast/tools/internal/trackrecord"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/run"
)

// outcomesCmd prints what the last runs answered, and keeps the record of it.
func outcomesCmd() *cobra.Command {
	var profile, format string
	var write, check bool
	c := &cobra.Command{
		Use: "outcomes [NAME...]", Short: "Print the last outcomes of labs, or take them into the record; without a name of all",
		Long: `Print the last outcomes of labs, which are kept in _output/lab; without a name of all labs.

With --write, take them into ` + outcomes.File + ` and README's track record instead. Without a name these are
all labs of make test, and each must have answered as expected in every variant. With --check,
compare them with ` + outcomes.File + `.`,
		Example: `  lab outcomes
  lab outcomes hash-collision --format markdown
  lab outcomes --write
  lab outcomes --check`,
		RunE: func(c *cobra.Command, names []string) error {
			root, err := base.FindRoot(rootFlag(c))
			if err != nil {
				return err
			}
			if !slices.Contains(run.Formats, format) {
				return exit.Usagef("--format %q: it is one of %s", format, strings.Join(run.Formats, ", "))
			}
			if p := labkit.Profile(profile); p != labkit.Short && p != labkit.Long {
				return exit.Usagef("--profile %q: it is short or long", profile)
			}
			if write && check {
				return exit.Usagef("--write and --check: give one of them")
			}
			if err := useTable(c); err != nil {
				return err
			}
			all := len(names) == 0
			names = labkit.Expand(names)
			for _, n := range names {
				if _, err := labkit.Find(n); err != nil {
					return exit.Usagef("%v", err)
				}
			}
			if all && (write || check) {
				names = run.SuiteNames()
			} else if all {
				for _, l := range labkit.Labs() {
					names = append(names, l.Name)
				}
			}
			last, err := run.LastOutcomes(root, names, labkit.Profile(profile))
			if err != nil {
				return err
			}
			if !write && !check {
				return run.PrintOutcomes(c.OutOrStdout(), last, format)
			}
			fresh, err := forRecord(last)
			if err != nil {
				return err
			}
			if check {
				record, err := outcomes.Load(root)
				if err != nil {
					return err
				}
				for _, n := range names {
					if !slices.ContainsFunc(fresh, func(o outcomes.Outcome) bool { return o.Lab == n }) {
						return exit.Preconditionf("lab %s has no outcome in profile %s: run make lab LAB=%s", n, profile, n)
					}
				}
				if err := outcomes.Error(record.Faults(fresh, nil)); err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "%d outcomes of %d labs are as %s says\n", len(fresh), len(names), outcomes.File)
				return nil
			}
			return writeRecord(root, profile, names, all, fresh)
		},
	}
	c.Flags().StringVar(&profile, "profile", "short", "short or long")
	c.Flags().StringVar(&format, "format", "text", strings.Join(run.Formats, ", "))
	c.Flags().BoolVar(&write, "write", false, "take the outcomes into "+outcomes.File+" and "+trackrecord.Page)
	c.Flags().BoolVar(&check, "check", false, "fail if the outcomes are not what "+outcomes.File+" says")
	return c
}

// forRecord reads outcomes as the record does, by what both call them in JSON.
// Those of variants that the labs do not run by themselves are left out.
func forRecord(last []run.Outcome) ([]outcomes.Outcome, error) {
	var runs []run.Outcome
	for _, o := range last {
		l, err := labkit.Find(o.Lab)
		if err != nil {
			return nil, err
		}
		if slices.Contains(l.Runs(), o.Variant) {
			runs = append(runs, o)
		}
	}
	raw, err := json.Marshal(runs)
	if err != nil {
		return nil, err
	}
	var out []outcomes.Outcome
	return out, json.Unmarshal(raw, &out)
}

// writeRecord puts the outcomes of the named labs into the record and README. If
// those are all labs, what else is in the record goes, but for other labs that
// there still are.
func writeRecord(root, profile string, names []string, all bool, fresh []outcomes.Outcome) error {
	table, err := slugs.Load(root)
	if err != nil {
		return err
	}
	record, err := outcomes.Load(root)
	if err != nil {
		return err
	}
	if record.Profile != "" && record.Profile != profile && !all {
		return exit.Usagef("--profile %s: %s has the profile %s: name no lab, so that all are replaced", profile, outcomes.File, record.Profile)
	}
	for lab := range record.Labs {
		if _, err := labkit.Find(lab); all && (err != nil || record.Profile != profile) {
			delete(record.Labs, lab)
		}
	}
	for _, n := range names {
		release, err := releaseOf(root, table, n)
		if err != nil {
			return err
		}
		l, err := labkit.Find(n)
		if err != nil {
			return err
		}
		var variants, leftOut []string
		for _, v := range l.Runs() {
			variants = append(variants, string(v))
		}
		for _, v := range l.LeftOut {
			leftOut = append(leftOut, string(v))
		}
		if err := record.Put(n, release, profile, variants, leftOut, fresh); err != nil {
			return err
		}
	}
	proved, err := proof.LoadRecord(root)
	if err != nil {
		return err
	}
	if err := writeTrackRecord(root, table, record, proved); err != nil {
		return err
	}
	return record.Save(root)
}

// releaseOf is the release of the base whose slugs a lab shows; a check's is that
// of the default base.
func releaseOf(root string, table *slugs.Table, lab string) (string, error) {
	name, err := base.Default(root)
	if err != nil {
		return "", err
	}
	for _, s := range table.Slugs {
		for _, f := range s.Forms {
			if _, ok := f.Labs[lab]; ok {
				name = f.Bases[0]
			}
		}
	}
	b, err := base.Load(root, name)
	if err != nil {
		return "", err
	}
	return b.Release, nil
}
