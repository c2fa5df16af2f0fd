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
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/node"
)

// leastBinds is how many binds must have been made while the directory was exchanged.
const leastBinds = 50

var subPath = row{
	slug:    "subpath-symlink-race",
	gate:    "SubpathMountByFD",
	summary: "a container that exchanges a directory for a symlink gets files of the node mounted",
	needs:   []labkit.Binary{labkit.BinaryUnderTest(base, "subpathrace")},
	plan: []string{
		"create a pod with subPaths that are a directory, a file, read-only, and behind a symlink inside the volume",
		"bind a subPath by the kubelet's code, again and again, on a file system of its own, while a thread exchanges its parent directory and a symlink out of the volume",
		fmt.Sprintf("oracle: binds that show the directory outside of the volume; absent: at least %d binds were made, and the pod is ready", leastBinds),
	},
	start: startSubPath,
	judge: judgeSubPath,
}

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
	containers := ""
	for name, mount := range map[string]string{
		"dir":  "mountPath: /m, subPath: dir",
		"ro":   "mountPath: /m, subPath: dir, readOnly: true",
		"file": "mountPath: /m/file, subPath: dir/file",
		"link": "mountPath: /m/file, subPath: link/file",
	} {
		containers += fmt.Sprintf(`  - name: %s
    image: %s
    imagePullPolicy: IfNotPresent
    command: [/labpod, sleep]
    readinessProbe: {exec: {command: [/labpod, probe, /m/file]}, periodSeconds: 1}
    volumeMounts: [{name: data, %s}]
`, name, node.WebImage("v1"), mount)
	}
	return l.pods(ctx, pod("subpaths", containers, fmt.Sprintf("  volumes: [{name: data, hostPath: {path: %s}}]\n", dir)))
}

// race is what tests/subpathrace prints.
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
	p := l.e.UnderTest(base, "subpathrace")
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

func judgeSubPath(ctx context.Context, l *lab) (outcome, error) {
	bound := 10 * time.Second
	if l.e.Profile == labkit.Long {
		bound = time.Minute
	}
	limits := []string{fmt.Sprintf("--mounted=%d", leastBinds), "--escaped=3", "--tries=1000000", "--time=" + bound.String()}
	if l.e.Variant == labkit.Ours {
		limits[1] = "--escaped=1" // there is none, so it goes on to the end
		if l.e.Profile != labkit.Long {
			limits[3] = "--time=4s"
		}
	}
	r, err := l.race(ctx, append(limits, "--alone")...)
	if err != nil {
		return outcome{}, err
	}
	if r.Mounted < leastBinds {
		return outcome{}, fmt.Errorf("too few: %v; refused: %v", r, r.Errors)
	}
	if l.e.Variant == labkit.Ours {
		if r.Counted < 1 {
			return outcome{}, fmt.Errorf("holdfast_subpath_symlink_race_exchanged_total is %v: %v", r.Counted, r)
		}
		// Together with subpath-rollback's check, which must find nothing.
		both, err := l.race(ctx, limits...)
		if err != nil {
			return outcome{}, err
		}
		if n := both.Errors["the path was changed meanwhile"]; n > 0 || both.Escaped > 0 || both.Mounted < leastBinds {
			return outcome{}, fmt.Errorf("with the check of subpath-rollback: %v; it refused %d", both, n)
		}
	}
	still, err := l.race(ctx, "--still", "--tries=100")
	if err != nil {
		return outcome{}, err
	}
	if still.Mounted != still.Tries {
		return outcome{}, fmt.Errorf("with nothing exchanged: %v; refused: %v", still, still.Errors)
	}
	l.e.Fact("subpath-symlink-race: %.2f ms for a bind and its removal", still.Seconds/float64(still.Tries)*1000)
	if err := l.waitReady(ctx, "subpaths", 60*time.Second); err != nil {
		return outcome{}, fmt.Errorf("legitimate subPaths: %w", err)
	}
	return outcome{r.Escaped > 0, r.String()}, nil
}
