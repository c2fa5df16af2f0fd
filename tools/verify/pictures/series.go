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

// runsPicture is a picture of what the last runs of a lab saw, stock beside Holdfast. What is kept
// of these runs is in file. P's first field is Seconds.
type runsPicture[P any] struct {
	lab, file string
	series    func(*history.History) ([]P, error)
	draw      func(stock, ours []P) (string, error)
}

// keep takes the series out of the histories of the last short run of the lab, which
// `lab NAME --keep` has left, into the file.
func (p runsPicture[P]) keep(root string) error {
	outcomes, err := run.ReadOutcomes(run.OutcomesFile(root, p.lab, labkit.Short))
	if err != nil {
		return err
	}
	runs := map[base.Variant]seriesRun[P]{}
	for _, o := range outcomes {
		if o.Variant != base.Stock && o.Variant != base.Ours {
			continue
		}
		if o.Verdict != o.Expected {
			return fmt.Errorf("lab %s, %s, answered %s and must answer %s", p.lab, o.Variant, o.Verdict, o.Expected)
		}
		f, err := os.Open(filepath.Join(root, o.Artefacts, history.File))
		if err != nil {
			return fmt.Errorf("run _output/tools/lab %s --keep: %w", p.lab, err)
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
		if r.Series, err = p.series(h); err != nil {
			return err
		}
		runs[o.Variant] = r
	}
	if len(runs) != 2 {
		return fmt.Errorf("run _output/tools/lab %s --keep: there is no run of %s and %s", p.lab, base.Stock, base.Ours)
	}
	b, err := json.Marshal(runs)
	if err != nil {
		return err
	}
	// A point on a line reads and compares well.
	text := strings.NewReplacer(`{"Seconds"`, "\n{\"Seconds\"").Replace(string(b))
	return os.WriteFile(filepath.Join(root, p.file), []byte(text+"\n"), 0o644)
}

// svg draws what keep has written.
func (p runsPicture[P]) svg(root string) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, p.file))
	if err != nil {
		return "", err
	}
	runs := map[base.Variant]seriesRun[P]{}
	if err := json.Unmarshal(b, &runs); err != nil {
		return "", fmt.Errorf("%s: %w", p.file, err)
	}
	return p.draw(runs[base.Stock].Series, runs[base.Ours].Series)
}
