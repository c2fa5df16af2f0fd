// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
)

// leastBinds is how many binds must have been made while the directory was exchanged.
const leastBinds = 50

var subPath = row{
	fix:     "subpath-symlink-race",
	gate:    "SubpathMountByFD",
	summary: "a container that replaces a directory with a symlink gets files of the node mounted",
	needs:   func(base string) []labkit.Binary { return []labkit.Binary{labkit.BinaryUnderTest(base, "subpathrace")} },
	starts:  "create a pod with four subPaths: a directory, a file, a read-only one, and one behind a symlink inside the volume",
	does:    "bind a subPath again and again with the kubelet's code, on a file system of its own, while a thread swaps its parent directory with a symlink that leads out of the volume",
	oracle:  fmt.Sprintf("a bind shows the directory outside of the volume; absent: at least %d binds were made, and the pod is ready", leastBinds),
	start:   startSubPath,
	look:    lookSubPath,
	judge:   judgeSubPath,
}

// raced is a run of hack/tests/subpathrace: with subpath-rollback's check off, with it, or with
// nothing exchanged.
type raced struct {
	How  string
	Race race
}

const (
	alone = "alone"
	both  = "with the check of subpath-rollback"
	still = "with nothing exchanged"
)

// subPathsReady: the pod has all of its subPaths.
type subPathsReady struct{ Pod string }

func startSubPath(ctx context.Context, l *lab) error {
	dir := l.e.Path("subpath-volume")
	if err := os.MkdirAll(filepath.Join(dir, "dir"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "dir", "file"), []byte("x"), 0o644); err != nil {
		return err
	}
	if err := os.Symlink("dir", filepath.Join(dir, "link")); err != nil {
		return err
	}
	// ready: all four are there. labpod looks at one file, so it is a container each.
	var containers []corev1.Container
	for _, m := range []corev1.VolumeMount{
		{Name: "dir", MountPath: "/m", SubPath: "dir"},
		{Name: "ro", MountPath: "/m", SubPath: "dir", ReadOnly: true},
		{Name: "file", MountPath: "/m/file", SubPath: "dir/file"},
		{Name: "link", MountPath: "/m/file", SubPath: "link/file"},
	} {
		c := node.Web(m.Name, "sleep")
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: kube.Exec("/labpod", "probe", "/m/file"), PeriodSeconds: 1}
		m.Name = "data"
		c.VolumeMounts = []corev1.VolumeMount{m}
		containers = append(containers, c)
	}
	p := pod("subpaths", nil, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}})
	p.Spec.Containers = append(p.Spec.Containers, containers...)
	return l.pods(ctx, p)
}

// race is what hack/tests/subpathrace prints.
type race struct {
	Tries, Mounted, Escaped, Refused, Exchanged int
	Seconds, Counted                            float64
	Errors                                      map[string]int
}

func (r race) String() string {
	return fmt.Sprintf("%d binds in %d tries and %d exchanges, %d of them outside of the volume, %.1f s", r.Mounted, r.Tries, r.Exchanged, r.Escaped, r.Seconds)
}

func (l *lab) race(ctx context.Context, args ...string) (race, error) {
	var r race
	dir, err := os.MkdirTemp(l.e.Path(""), "race")
	if err != nil {
		return r, err
	}
	p := l.e.UnderTest(l.base, "subpathrace")
	cmd := exec.CommandContext(ctx, p.Path, append(append([]string{"--dir=" + dir}, p.GateArgs()...), args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs // the kubelet's code logs each refusal
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		text := errs.String()
		return r, fmt.Errorf("subpathrace %s: %w: …%s", strings.Join(args, " "), err, text[max(0, len(text)-400):])
	}
	return r, nil
}

func lookSubPath(ctx context.Context, l *lab) error {
	bound := labkit.Pick(l.e.Profile, 20*time.Second, time.Minute)
	limits := []string{fmt.Sprintf("--mounted=%d", leastBinds), "--escaped=3", "--tries=1000000", "--time=" + bound.String(), "--most=1m30s"}
	runs := []struct {
		how  string
		args []string
	}{{alone, append(limits, "--alone")}, {still, []string{"--still", "--tries=100"}}}
	if l.e.Variant == labkit.Ours {
		limits[1] = "--escaped=1" // there is none, so it goes on to the end
		if l.e.Profile != labkit.Long {
			limits[3] = "--time=8s"
		}
		runs[0].args = append(slices.Clone(limits), "--alone")
		runs = append(runs, struct {
			how  string
			args []string
		}{both, limits})
	}
	for _, run := range runs {
		r, err := l.race(ctx, run.args...)
		if err != nil {
			return err
		}
		l.e.Record(raced{run.how, r})
	}
	if err := l.waitReady(ctx, "subpaths", patience); err != nil {
		return fmt.Errorf("legitimate subPaths: %w", err)
	}
	l.e.Record(subPathsReady{"subpaths"})
	return nil
}

func judgeSubPath(h *history.History) finding {
	history.One[subPathsReady](h)
	runs := map[string]race{}
	for _, r := range history.Of[raced](h) {
		runs[r.How] = r.Race
	}
	r, quiet, ours := runs[alone], runs[still], h.Variant == string(labkit.Ours)
	with := runs[both]
	escaped := r.Escaped
	if ours {
		escaped += with.Escaped
	}
	switch {
	case ours && escaped > 0: // nothing makes up for that
	case r.Mounted < leastBinds:
		return cannotTell("too few: %v; refused: %v", r, r.Errors)
	case quiet.Mounted != quiet.Tries || quiet.Tries == 0:
		return cannotTell("without an exchange: %v; refused: %v", quiet, quiet.Errors)
	case ours && r.Counted < 1:
		return cannotTell("holdfast_subpath_symlink_race_exchanged_total is %v: %v", r.Counted, r)
	// The check of subpath-rollback must find nothing.
	case ours && (with.Errors["the path was changed meanwhile"] > 0 || with.Mounted < leastBinds):
		return cannotTell("%s: %v; it refused %d", both, with, with.Errors["the path was changed meanwhile"])
	}
	bind := quiet.Seconds / float64(max(1, quiet.Tries)) * 1000
	saw := fmt.Sprintf("%v; %.2f ms for a bind and its removal", r, bind)
	if ours && with.Escaped > 0 {
		saw += fmt.Sprintf("; %s: %v", both, with)
	}
	return finding{happened: escaped > 0, saw: saw}.
		measure("binds outside of the volume", float64(escaped), "").
		measure("binds", float64(r.Mounted), "").
		measure("a bind and its removal", bind, "ms")
}
