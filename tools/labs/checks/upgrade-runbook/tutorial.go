// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upgraderunbook

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/unitlab"
)

// tutorialPage is the page whose blocks the lab tutorial types, tutorialPod the manifest that it names.
const (
	tutorialPage = "docs/user/tutorial.md"
	tutorialPod  = "docs/user/tutorial-pod.yaml"
	// tutorialImage is pulled by who follows the page; the lab has no registry, and takes its own.
	tutorialImage = "image: nginx:1.13\n"
)

func tutorialLab() labkit.Lab {
	return labkit.Lab{
		Name:     "tutorial",
		Folder:   "checks/upgrade-runbook",
		Summary:  "the command blocks of " + tutorialPage + " print what the page shows",
		Packages: []string{node.SystemdPackage},
		Steps: func(e *labkit.Env) []labkit.Step {
			r := &runbook{e: e}
			return []labkit.Step{
				{Text: "start the control plane v1.9.11 and a node whose kubelet v1.9.11 is a systemd unit", Do: func(ctx context.Context) (err error) {
					if r.Unit, err = unitlab.Start(ctx, e, e.Stock(base, "kubelet")); err != nil {
						return err
					}
					r.dir = e.Path("admin")
					return r.machines()
				}},
				{Text: "run the page's blocks in order: admin blocks on a machine with an administrator's kubeconfig, node blocks inside the node", Do: r.typeTutorial},
			}
		},
		Oracle: labkit.Oracle{Text: []string{"every block succeeds and prints what the page shows below it; a restart of the stock kubelet removes the Service's address, and a restart of Holdfast does not"},
			Judge: judgeTutorial},
		Needs: labkit.KubeletNeeds(base, labkit.StockBinary(base, "kubelet"), labkit.StockBinary(base, "kubectl")),

		Variants: []labkit.Variant{labkit.Ours},
		Timeout:  func(labkit.Profile) time.Duration { return 15 * time.Minute },
	}
}

// typed is a block of the tutorial that was run. Shown is what the page shows below it.
type typed struct {
	ran
	Shown string
}

func (r *runbook) typeTutorial(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(r.e.Root, tutorialPage))
	if err != nil {
		return err
	}
	bs, err := blocks(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", tutorialPage, err)
	}
	pod, err := os.ReadFile(filepath.Join(r.e.Root, tutorialPod))
	if err != nil {
		return err
	}
	if !strings.Contains(string(pod), tutorialImage) {
		return fmt.Errorf("%s has no line %q", tutorialPod, tutorialImage)
	}
	own := fmt.Sprintf("image: %s\n    env: [{name: LABPOD_LISTEN, value: ':80'}]\n", node.WebImage("v1"))
	if err := os.WriteFile(filepath.Join(r.dir, filepath.Base(tutorialPod)), []byte(strings.Replace(string(pod), tutorialImage, own, 1)), 0o644); err != nil {
		return err
	}
	if err := os.Symlink(r.e.Stock(base, "kubectl").Path, filepath.Join(r.dir, "shims", "kubectl")); err != nil {
		return err
	}
	r.e.Record(readPage{len(bs)})
	for _, b := range bs {
		seen, err := r.do(ctx, tutorialPage, b)
		if err != nil {
			return err
		}
		r.e.Record(typed{seen, b.shown})
		if seen.Error != "" {
			return labkit.Enough
		}
	}
	return nil
}

// bare says whether kubectl shows the Service without an address for a time: a line has its name and its age only.
func bare(text string) bool {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "web" {
			return true
		}
	}
	return false
}

func judgeTutorial(h *history.History) labkit.Outcome {
	seen, watches := history.Of[typed](h), []string{}
	for _, b := range seen {
		if b.Error != "" && strings.Contains(b.Output, "HF511") {
			// On a busy machine a kubelet takes longer than the 20 s that a swap gives it; the swap is undone.
			return labkit.InconclusiveBecause("the block of line %d (%s): a kubelet was not healthy in time\n%s", b.Line, b.Where, b.Output)
		}
		if b.Error != "" {
			return labkit.FailedBecause("the block of line %d (%s) failed: %s\n%s", b.Line, b.Where, b.Error, b.Output)
		}
		for line := range strings.Lines(b.Shown) {
			if !shows(b.Output, line) {
				return labkit.FailedBecause("the block of line %d (%s) does not print %q:\n%s", b.Line, b.Where, line, b.Output)
			}
		}
		if strings.Contains(b.Output, "ENDPOINTS") {
			went := bare(b.Output)
			if went != bare(b.Shown) {
				return labkit.FailedBecause("the block of line %d (%s): that the Service has no address for a time is %t:\n%s", b.Line, b.Where, went, b.Output)
			}
			watches = append(watches, fmt.Sprint(went))
		}
	}
	if want := history.One[readPage](h).Blocks; len(seen) != want || want == 0 {
		return labkit.InconclusiveBecause("%d blocks of %d were run", len(seen), want)
	}
	if got := strings.Join(watches, ", "); got != "true, false" {
		return labkit.InconclusiveBecause("the page watches the Service first with upstream, then with Holdfast: without an address %s", got)
	}
	return labkit.PassedBecause("%d blocks ran and printed what the page shows", len(seen))
}

// shows says whether a line of the page is in the output: its parts between "…" one after another in
// one line, whatever the spaces.
func shows(output, line string) bool {
	for had := range strings.Lines(output) {
		had, found := strings.Join(strings.Fields(had), " "), true
		for _, part := range strings.Split(strings.Join(strings.Fields(line), " "), "…") {
			_, rest, ok := strings.Cut(had, part)
			had, found = rest, found && ok
		}
		if found {
			return true
		}
	}
	return line == "\n"
}
