// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashoracle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// PodReport is what RunPods found.
type PodReport struct {
	Pods int
	// UIDs are equal; Withheld are rightly not given, because the release lacks a field that
	// is set; Undecoded are manifests that the release cannot read. Refused is how many of
	// the UIDs are of pods that the release's kubelet does not run, as its gates are here.
	UIDs, Withheld, Undecoded, Refused int
	// Mismatches are the first of the pods that differ, Differ is how many do.
	Mismatches []string
	Differ     int
}

// podPrograms are the processes that are compared.
type podPrograms struct {
	ours *process
	// releases are podReleases, as upstream's builds of them are, and later as with today's Go
	// (nil where that prints the same).
	releases, later []*process
}

func (b *builder) startPods() (*podPrograms, error) {
	dir := filepath.Join(b.dir, "static-pod")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	source, out := filepath.Join(dir, "main.go"), filepath.Join(dir, "staticpod")
	if err := os.WriteFile(source, []byte(podTyped), 0o644); err != nil {
		return nil, err
	}
	if err := goBuild(b.root, "-o", out, source); err != nil {
		return nil, err
	}
	p := &podPrograms{}
	var err error
	if p.ours, err = start(out); err != nil {
		return nil, err
	}
	for _, r := range podReleases {
		program, err := b.podProgramOf(r)
		if err != nil {
			return nil, errors.Join(err, p.stop())
		}
		release, err := start(program)
		if err != nil {
			return nil, errors.Join(err, p.stop())
		}
		p.releases = append(p.releases, release)
		var later *process
		if r.oldGo {
			if later, err = start(program, "newgo"); err != nil {
				return nil, errors.Join(err, p.stop())
			}
		}
		p.later = append(p.later, later)
	}
	return p, nil
}

func (p *podPrograms) stop() error {
	var errs []error
	for _, one := range append(append([]*process{p.ours}, p.releases...), p.later...) {
		if one != nil {
			errs = append(errs, one.stop())
		}
	}
	return errors.Join(errs...)
}

// podAnswer is what all programs say of one manifest.
type podAnswer struct {
	// ours maps a release to the UIDs that package staticpod says it gives.
	ours map[string][]string
	// uids has for each of podReleases the UIDs of upstream's build and of one with today's
	// Go, which may be the same; nil if it cannot decode the manifest. runs is whether its
	// kubelet runs the pod.
	uids [][]string
	runs []bool
}

func (p *podPrograms) ask(manifests [][]byte) ([]podAnswer, error) {
	in := append(bytes.Join(manifests, []byte("\n")), '\n')
	answers := make([]podAnswer, len(manifests))
	lines, err := p.ours.ask(in)
	if err != nil {
		return nil, err
	}
	for i, line := range lines {
		words := strings.Fields(string(line))
		answers[i].ours = map[string][]string{}
		for ; len(words) >= 2; words = words[2:] {
			answers[i].ours[words[0]] = append(answers[i].ours[words[0]], words[1])
		}
	}
	for n := range podReleases {
		own, err := p.releases[n].ask(in)
		if err != nil {
			return nil, err
		}
		today := own
		if p.later[n] != nil {
			if today, err = p.later[n].ask(in); err != nil {
				return nil, err
			}
		}
		for i := range answers {
			uid, valid, _ := strings.Cut(string(today[i]), " ")
			ownUID, _, _ := strings.Cut(string(own[i]), " ")
			var uids []string
			if uid != "!" {
				uids = []string{ownUID, uid}
			}
			answers[i].uids = append(answers[i].uids, uids)
			answers[i].runs = append(answers[i].runs, valid == "valid")
		}
	}
	return answers, nil
}

// judge compares one manifest. oldest is the oldest minor release that knows all its fields.
func (r *PodReport) judge(name string, manifest []byte, oldest int, a podAnswer) {
	var wrong []string
	for n, release := range podReleases[1:] {
		minor, _ := strconv.Atoi(strings.TrimPrefix(release.name, "1."))
		real, runs, ours := a.uids[n+1], a.runs[n+1], a.ours[release.name]
		switch {
		case minor < oldest:
			r.Withheld++
			if ours != nil {
				wrong = append(wrong, release.name+": a UID is given, but the release does not know all fields")
			}
			for other, uids := range a.ours {
				for _, uid := range uids {
					if slices.Contains(real, uid) {
						wrong = append(wrong, fmt.Sprintf("%s gives %s without knowing all fields, and it is taken for one of %s", release.name, uid, other))
					}
				}
			}
		case real == nil:
			r.Undecoded++
		case !slices.Equal(ours, real):
			wrong = append(wrong, fmt.Sprintf("%s: %v, the release gives %v", release.name, ours, real))
		default:
			r.UIDs += len(real)
			if !runs {
				r.Refused += len(real)
			}
		}
	}
	r.Pods++
	if wrong == nil {
		return
	}
	r.Differ++
	if len(r.Mismatches) < maxMismatches {
		r.Mismatches = append(r.Mismatches, fmt.Sprintf("%s: %s\n%s", name, strings.Join(wrong, "; "), manifest))
	}
}

// RunPods compares what package staticpod says of n random static pods with what the code of
// the releases gives them.
func RunPods(root string, n int, seed int64, log io.Writer) (r PodReport, err error) {
	b, err := newBuilder(root, log)
	if err != nil {
		return r, err
	}
	p, err := b.startPods()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	for from := 0; from < n; from += chunk {
		to := min(from+chunk, n)
		pods := make([]Container, to-from)
		manifests := make([][]byte, to-from)
		for i := range pods {
			pods[i] = GeneratePod(seed, from+i)
			manifests[i] = pods[i].JSON
		}
		answers, err := p.ask(manifests)
		if err != nil {
			return r, err
		}
		for i, a := range answers {
			r.judge(fmt.Sprintf("pod %d of seed %d", from+i, seed), manifests[i], pods[i].Oldest, a)
		}
		if to%20_000 == 0 {
			fmt.Fprintf(log, "%d pods, %d differ\n", to, r.Differ)
		}
	}
	return r, nil
}

// podRow is a line of the golden data of static pods.
type podRow struct {
	ID string `json:"id"`
	// Oldest is the oldest release that knows all fields which are set, "1.7".
	Oldest   string          `json:"oldest"`
	Manifest json.RawMessage `json:"manifest"`
	// UID has for each release what upstream's build of it gives, and what one with today's
	// Go does.
	UID map[string][]string `json:"uid"`
}

// GoldenPods computes the UIDs of a file of golden data again, and returns the file as it
// should be, and the report of a comparison with package staticpod.
func GoldenPods(root, file string, log io.Writer) (want []byte, r PodReport, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, r, err
	}
	var rows []podRow
	var manifests [][]byte
	for i, line := range bytes.Split(bytes.TrimSpace(data), []byte("\n")) {
		var row podRow
		if err := json.Unmarshal(line, &row); err != nil {
			return nil, r, fmt.Errorf("%s, line %d: %v", file, i+1, err)
		}
		rows = append(rows, row)
		manifests = append(manifests, row.Manifest)
	}
	b, err := newBuilder(root, log)
	if err != nil {
		return nil, r, err
	}
	p, err := b.startPods()
	if err != nil {
		return nil, r, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	answers, err := p.ask(manifests)
	if err != nil {
		return nil, r, err
	}
	var out bytes.Buffer
	for i, a := range answers {
		oldest, err := strconv.Atoi(strings.TrimPrefix(rows[i].Oldest, "1."))
		if err != nil {
			return nil, r, fmt.Errorf("%s, line %d: oldest is %q, want 1.7 to 1.9", file, i+1, rows[i].Oldest)
		}
		r.judge(rows[i].ID, manifests[i], oldest, a)
		rows[i].UID = map[string][]string{}
		for n, release := range podReleases {
			if a.uids[n] == nil {
				return nil, r, fmt.Errorf("%s, line %d: %s cannot decode it", file, i+1, release.name)
			}
			rows[i].UID[release.name] = a.uids[n]
		}
		line, err := json.Marshal(rows[i])
		if err != nil {
			return nil, r, err
		}
		out.Write(append(line, '\n'))
	}
	return out.Bytes(), r, nil
}
