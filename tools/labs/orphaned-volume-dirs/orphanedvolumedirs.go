// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package orphanedvolumedirs is the lab orphaned-volume-dirs: what a kubelet does with the volume
// directories of pods that are gone. See tools/labs/orphaned-volume-dirs/README.md.
package orphanedvolumedirs

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

const (
	base = "v1.9.11"
	// patience is for what takes seconds on an idle machine.
	patience = time.Minute
	// enough is for what Holdfast does a minute after it first sees it.
	enough = 100 * time.Second
	// plugin is that of the volumes. There is none of that name, as after a driver was
	// removed, so the volume manager cannot make volumes of what is left.
	plugin = "example.com~gone"
	data   = "somebody's data"
)

// The pods that are gone. Their names are in the order in which the kubelet finds them.
const (
	empty     = "0-empty"
	beside    = "1-beside-data"
	bound     = "2-bound"
	boundNone = "3-bound-empty"
)

var pods = []string{empty, beside, bound, boundNone}

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "orphaned-volume-dirs",
		Summary: "because of an empty volume directory, the directory of a deleted pod remains, and so does an error in the log",
		Test:    []labkit.Variant{labkit.Ours},
		Steps:   steps,
		Oracle:  oracle,
		Needs:   []labkit.Binary{labkit.BinaryUnderTest(base, "kubelet")},
	}}
}

type lab struct {
	e    *labkit.Env
	node *node.Node
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	return []labkit.Step{
		{Text: "start a node without a kubelet, with the directories of four deleted pods: " +
			"one empty volume; one beside a volume with data; a bind mount of the same filesystem with data; one of an empty directory", Do: l.leave},
		{Text: "start the kubelet under test, and wait until it has found all four", Do: l.start},
		{Text: "wait until the directory of the first pod is gone, at most 100 s; read all directories", Do: l.look},
		labkit.AllRun(func(context.Context) error { return l.node.Kubelet.Err() }),
	}
}

// host is a directory on the filesystem of the kubelet's.
func (l *lab) host(name string) string { return filepath.Join(l.node.Dir, "host", name) }

func (l *lab) pod(name string, more ...string) string {
	return filepath.Join(append([]string{l.node.Dir, "kubelet", "pods", name}, more...)...)
}

func (l *lab) leave(ctx context.Context) error {
	var err error
	if l.node, err = l.e.StartNode(ctx, nil, node.Config{Name: "node1"}); err != nil {
		return err
	}
	for _, p := range pods {
		if err := os.MkdirAll(l.pod(p, "volumes", plugin, "pv"), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(l.pod(p, "etc-hosts"), nil, 0o644); err != nil {
			return err
		}
	}
	for _, d := range []string{l.host(bound), l.host(boundNone), l.pod(beside, "volumes", plugin, "other")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	for _, d := range []string{l.host(bound), l.pod(beside, "volumes", plugin, "other")} {
		if err := os.WriteFile(filepath.Join(d, "file"), []byte(data), 0o644); err != nil {
			return err
		}
	}
	for _, p := range []string{bound, boundNone} {
		if err := l.node.Run(ctx, "mount", "--bind", l.host(p), mountPoint(p)); err != nil {
			return err
		}
	}
	return nil
}

// mountPoint of a pod's volume, as programs of the node see it.
func mountPoint(pod string) string {
	return filepath.Join("/var/lib/kubelet/pods", pod, "volumes", plugin, "pv")
}

// found is how many pods the kubelet's last message says to be kept by volume paths.
type found struct {
	When string // start or end
	Pods int
}

// left is what there is of a pod at the end. Data is what the file of its volume says, on the
// host, if it has one.
type left struct {
	Pod          string
	Dir, Mounted bool
	Volumes      int
	Data         string
}

var message = regexp.MustCompile(`Orphaned pod "[^"]*" found, but volume paths are still present on disk : There were a total of (\d+) errors`)

// said is the number in the last message of the log from offset on, 0 without one, and where the log
// ends.
func said(log string, from int) (int, int) {
	all := message.FindAllStringSubmatch(log[min(from, len(log)):], -1)
	if len(all) == 0 {
		return 0, len(log)
	}
	n, err := strconv.Atoi(all[len(all)-1][1])
	if err != nil {
		return 0, len(log)
	}
	return n, len(log)
}

func (l *lab) start(ctx context.Context) error {
	if err := l.node.StartKubelet(ctx, l.e.UnderTest(base, "kubelet")); err != nil {
		return err
	}
	n := 0
	err := wait.Until(ctx, "the kubelet finds orphaned pods", patience, func(context.Context) (bool, error) {
		log, err := l.node.Kubelet.LastRunLog()
		n, _ = said(log, 0)
		return n > 0, err
	})
	l.e.Record(found{When: "start", Pods: n})
	return err
}

func (l *lab) look(ctx context.Context) error {
	since := time.Now()
	if err := wait.Until(ctx, "the first is gone, or time passes", 2*enough, func(context.Context) (bool, error) {
		_, err := os.Stat(l.pod(empty))
		return os.IsNotExist(err) || time.Since(since) > enough, nil
	}); err != nil {
		return err
	}
	log, err := l.node.Kubelet.LastRunLog()
	if err != nil {
		return err
	}
	_, from := said(log, 0)
	// Whole syncs later, of which each has the message while there is one to be said.
	var n int
	if err := wait.Until(ctx, "the kubelet completes another cleanup", patience, func(context.Context) (bool, error) {
		log, err := l.node.Kubelet.LastRunLog()
		n, _ = said(log, from)
		return n > 0 && time.Since(since) > enough/10 && len(message.FindAllString(log[from:], -1)) > 2, err
	}); err != nil {
		return err
	}
	l.e.Record(found{When: "end", Pods: n})
	mounts, err := l.node.Mounts()
	if err != nil {
		return err
	}
	for _, p := range pods {
		o := left{Pod: p}
		_, err := os.Stat(l.pod(p))
		o.Dir = err == nil
		if vs, err := os.ReadDir(l.pod(p, "volumes", plugin)); err == nil {
			o.Volumes = len(vs)
		}
		for _, m := range mounts {
			o.Mounted = o.Mounted || m.Mountpoint == mountPoint(p)
		}
		file := map[string]string{beside: l.pod(p, "volumes", plugin, "other", "file"), bound: filepath.Join(l.host(p), "file")}[p]
		if b, err := os.ReadFile(file); err == nil {
			o.Data = string(b)
		}
		l.e.Record(o)
		if slices.Contains([]string{bound, boundNone}, p) && o.Mounted {
			if err := l.node.Run(ctx, "umount", mountPoint(p)); err != nil {
				return err
			}
		}
	}
	return nil
}
