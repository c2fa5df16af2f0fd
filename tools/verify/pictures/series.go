// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package pictures

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/run"
)

// seriesRun is what one variant's run saw, and which run that was.
type seriesRun[P any] struct {
	Commit string `json:"commit"`
	Date   string `json:"date"`
	Seed   uint64 `json:"seed"`
	Series []P    `json:"series"`
}

// keepSeries takes a series out of the histories of the last short run of a lab, which
// `lab NAME --keep` has left, into a file. P's first field is Seconds.
func keepSeries[P any](root, lab, file string, series func(*history.History) ([]P, error)) error {
	outcomes, err := run.ReadOutcomes(run.OutcomesFile(root, lab, labkit.Short))
	if err != nil {
		return err
	}
	runs := map[base.Variant]seriesRun[P]{}
	for _, o := range outcomes {
		if o.Variant != base.Stock && o.Variant != base.Ours {
			continue
		}
		if o.Verdict != o.Expected {
			return fmt.Errorf("lab %s, %s, answered %s and must answer %s", lab, o.Variant, o.Verdict, o.Expected)
		}
		f, err := os.Open(filepath.Join(root, o.Artefacts, history.File))
		if err != nil {
			return fmt.Errorf("run _output/tools/lab %s --keep: %w", lab, err)
		}
		h, err := history.Read(f)
		f.Close()
		if err == nil {
			err = h.Whole()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		r := seriesRun[P]{Commit: o.Commit, Date: o.Date, Seed: o.Seed}
		if r.Series, err = series(h); err != nil {
			return err
		}
		runs[o.Variant] = r
	}
	if len(runs) != 2 {
		return fmt.Errorf("run _output/tools/lab %s --keep: there is no run of %s and %s", lab, base.Stock, base.Ours)
	}
	b, err := json.Marshal(runs)
	if err != nil {
		return err
	}
	// A point on a line reads and compares well.
	text := strings.NewReplacer(`{"Seconds"`, "\n{\"Seconds\"").Replace(string(b))
	return os.WriteFile(filepath.Join(root, file), []byte(text+"\n"), 0o644)
}

// keptSeries is what keepSeries has written.
func keptSeries[P any](root, file string) (stock, ours []P, err error) {
	b, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, nil, err
	}
	runs := map[base.Variant]seriesRun[P]{}
	if err := json.Unmarshal(b, &runs); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return runs[base.Stock].Series, runs[base.Ours].Series, nil
}
