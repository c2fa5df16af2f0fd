// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbdattach has the lab rbd-attach: whether an RBD image is mounted where it should
// be. See tools/labs/rbd-attach/README.md.
package rbdattach

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/rbdlab"
)

const (
	// old is the release of the kubelet that takes locks.
	old = "v1.7.0"
	// bound is for what ours has in seconds, and stock never.
	bound = time.Minute
	// deathBound is for a pod of a dead node: its watcher lasts 27 to 31 s.
	deathBound = 3 * time.Minute
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{moveLab(), rbdAttachLab()}
}

func rbdAttachLab() labkit.Lab {
	return labkit.Lab{
		Name:     "rbd-attach",
		Summary:  "an RBD image is not mounted although it could be, or its lock stays",
		Steps:    steps,
		Oracle:   oracle,
		Needs:    rbdlab.Needs(old),
		Packages: rbdlab.Packages,
		Timeout:  func(labkit.Profile) time.Duration { return 25 * time.Minute },
		Test:     []labkit.Variant{labkit.Ours},
	}
}

type lab struct {
	e *labkit.Env
	r *rbdlab.Rig
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	s := []labkit.Step{{Text: "start Ceph (one monitor, one OSD), etcd, apiserver and controller manager v1.9.11, node1 with kubelet 1.7.0 " +
		"whose rbd prints one blank between columns, node2 and node3 with the kubelet under test", Do: l.start}}
	lanes := map[bool][]row{}
	text := map[bool][]string{}
	for _, x := range rowsOf(e.Profile) {
		lanes[x.old] = append(lanes[x.old], x)
		text[x.old] = append(text[x.old], x.name+": "+x.text)
	}
	s = append(s, labkit.Step{Text: strings.Join(text[false], "; ") + ". In parallel: " + strings.Join(text[true], "; "), Do: func(ctx context.Context) error {
		var g errgroup.Group
		for _, lane := range lanes {
			g.Go(func() error { return l.lane(ctx, lane) })
		}
		return g.Wait()
	}})
	return append(s, labkit.AllRun(func(ctx context.Context) error { return l.r.Alive(ctx) }))
}

// lane drives rows one after the other.
func (l *lab) lane(ctx context.Context, rows []row) error {
	for _, x := range rows {
		l.e.Step("%s: %s", x.name, x.text)
		if err := l.r.Image(ctx, x.name); err != nil {
			return err
		}
		if err := x.do(l, ctx); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
	}
	return nil
}

func (l *lab) start(ctx context.Context) (err error) {
	l.r, err = rbdlab.Start(ctx, l.e, rbdlab.Config{Nodes: []rbdlab.NodeConfig{
		{Name: "node1", Kubelet: l.e.Stock(old, "kubelet"), Columns: 1},
		{Name: "node2", Kubelet: rbdlab.UnderTest(l.e)},
		{Name: "node3", Kubelet: rbdlab.UnderTest(l.e)},
	}})
	return err
}

// run creates a pod and waits until it runs.
func (l *lab) run(ctx context.Context, p rbdlab.Pod) error {
	if err := l.r.Create(ctx, p); err != nil {
		return err
	}
	_, err := l.r.Running(ctx, p.Name, 2*time.Minute)
	return err
}

// end deletes pods, waits until nobody has the image, and looks what it holds.
func (l *lab) end(ctx context.Context, image string, files []string, pods ...string) error {
	for _, p := range pods {
		if err := l.r.Delete(ctx, p); err != nil {
			return err
		}
	}
	if _, err := l.r.Until(ctx, image, atEnd, bound, rbdlab.Free); err != nil {
		return err
	}
	_, err := l.r.Contents(ctx, image, atEnd, files...)
	return err
}

// readers has two nodes mount an image read-only.
func (l *lab) readers(ctx context.Context) error {
	if _, err := l.r.Contents(ctx, "readers", atStart); err != nil {
		return err
	}
	if err := l.run(ctx, rbdlab.Pod{Name: "reader-1", Node: "node2", Image: "readers", ReadOnly: true}); err != nil {
		return err
	}
	if _, err := l.r.See(ctx, "readers", atStart); err != nil {
		return err
	}
	if err := l.r.Create(ctx, rbdlab.Pod{Name: "reader-2", Node: "node3", Image: "readers", ReadOnly: true}); err != nil {
		return err
	}
	if _, err := l.r.Until(ctx, "readers", wanted, bound, func(s rbdlab.State) bool { return s.Runs("reader-2") }); err != nil {
		return err
	}
	return l.end(ctx, "readers", nil, "reader-1", "reader-2")
}

// journal is whether the image's filesystem has a journal that a mount would replay.
type journal struct{ Dirty bool }

// beside has a node mount an image read-only that another one has mounted for writing and
// does not write to meanwhile.
func (l *lab) beside(ctx context.Context) error {
	if err := l.run(ctx, rbdlab.Pod{Name: "writer", Node: "node2", Image: "beside"}); err != nil {
		return err
	}
	if err := l.r.Node("node2").Write(ctx, "beside", "written", "before"); err != nil {
		return err
	}
	if err := l.still(ctx, "beside"); err != nil {
		return err
	}
	if _, err := l.r.Contents(ctx, "beside", atStart, "written"); err != nil {
		return err
	}
	if err := l.journal(ctx, "beside"); err != nil {
		return err
	}
	if _, err := l.r.See(ctx, "beside", atStart); err != nil {
		return err
	}
	if err := l.r.Create(ctx, rbdlab.Pod{Name: "beside", Node: "node3", Image: "beside", ReadOnly: true}); err != nil {
		return err
	}
	if _, err := l.r.Until(ctx, "beside", wanted, bound, func(s rbdlab.State) bool { return s.Runs("beside") }); err != nil {
		return err
	}
	if err := l.r.Delete(ctx, "beside"); err != nil {
		return err
	}
	if _, err := l.r.Until(ctx, "beside", readerGone, bound, func(s rbdlab.State) bool { return len(s.Watchers) == 1 }); err != nil {
		return err
	}
	if _, err := l.r.Contents(ctx, "beside", readerGone, "written"); err != nil {
		return err
	}
	if err := l.r.Node("node2").Write(ctx, "beside", "later", "after"); err != nil {
		return err
	}
	return l.end(ctx, "beside", []string{"written", "later"}, "writer")
}

// still waits until an image has not changed for 40 s: the kernel writes back within 30 s
// what it has in memory, also after a sync.
func (l *lab) still(ctx context.Context, image string) error {
	last, same := "", 0
	return wait.Every(ctx, "image "+image+" that is written to no more", 5*time.Second, 4*time.Minute, func(ctx context.Context) (bool, error) {
		file, err := l.export(ctx, image)
		if err != nil {
			return false, err
		}
		out, err := exec.CommandContext(ctx, "sha256sum", file).Output()
		if err != nil {
			return false, err
		}
		if sum, _, _ := strings.Cut(string(out), " "); sum == last {
			same++
		} else {
			last, same = sum, 0
		}
		return same >= 8, nil
	})
}

// export writes an image to a file, anew.
func (l *lab) export(ctx context.Context, image string) (string, error) {
	file := l.e.Path("export-" + image)
	if err := exec.CommandContext(ctx, "rm", "-f", file).Run(); err != nil {
		return "", err
	}
	_, err := l.r.Ceph.Run(ctx, "rbd", "export", "--no-progress", image, file)
	return file, err
}

func (l *lab) journal(ctx context.Context, image string) error {
	file, err := l.export(ctx, image)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "dumpe2fs", "-h", file).Output()
	if err != nil {
		return fmt.Errorf("dumpe2fs -h %s: %w", file, err)
	}
	l.e.Record(journal{Dirty: strings.Contains(string(out), "needs_recovery")})
	return nil
}

// keyring gives the key in a file that Ceph does not look for by itself.
func (l *lab) keyring(ctx context.Context) error {
	file := "/etc/rbd-keys/keyring"
	if err := l.r.Node("node2").Run(ctx, "bash", "-euc", `mkdir -p "${1%/*}"; printf '[client.admin]\nkey = %s\n' "$2" > "$1"; chmod 600 "$1"`, "-", file, l.r.Ceph.Key); err != nil {
		return err
	}
	if err := l.r.Create(ctx, rbdlab.Pod{Name: "keyring", Node: "node2", Image: "keyring", Keyring: file}); err != nil {
		return err
	}
	if _, err := l.r.Until(ctx, "keyring", wanted, bound, func(s rbdlab.State) bool { return s.Runs("keyring") }); err != nil {
		return err
	}
	return l.end(ctx, "keyring", nil, "keyring")
}

// blocked is Ceph's list of barred addresses.
type blocked struct{ When, List string }

func (l *lab) blocklist(ctx context.Context, when string) error {
	out, err := l.r.Ceph.Run(ctx, "ceph", "osd", "blocklist", "ls")
	if err == nil {
		l.e.Record(blocked{when, strings.TrimSpace(out)})
	}
	return err
}

// user detaches what 1.7 has mounted and locked, with a Ceph user that may bar nobody.
func (l *lab) user(ctx context.Context) error {
	key, err := l.r.Ceph.User(ctx, "low", "mon", "allow r", "osd", "allow rwx pool=rbd")
	if err != nil {
		return err
	}
	if err := l.r.Secret(ctx, "low", key); err != nil {
		return err
	}
	if err := l.run(ctx, rbdlab.Pod{Name: "user", Node: "node1", Image: "user", User: "low", Secret: "low"}); err != nil {
		return err
	}
	n := l.r.Node("node1")
	if err := n.Write(ctx, "user", "written", "by 1.7"); err != nil {
		return err
	}
	if _, err := l.r.See(ctx, "user", atStart); err != nil {
		return err
	}
	if err := l.blocklist(ctx, atStart); err != nil {
		return err
	}
	before, err := l.r.MountedEvents(ctx)
	if err != nil {
		return err
	}
	if err := n.SwapKubelet(ctx, rbdlab.UnderTest(l.e)); err != nil {
		return err
	}
	if err := l.r.WaitNodeReady(ctx, "node1", 2*time.Minute); err != nil {
		return err
	}
	// A stock kubelet recreates the container at the swap, which is not what is looked at.
	if _, err := l.r.Running(ctx, "user", 2*time.Minute); err != nil {
		return err
	}
	// Without it stock leaves the image for another reason than the lock.
	if err := l.r.Learn(ctx, before, "user"); err != nil {
		return err
	}
	if err := l.r.Delete(ctx, "user"); err != nil {
		return err
	}
	if _, err := l.r.Until(ctx, "user", wanted, bound, func(s rbdlab.State) bool {
		return rbdlab.FreeUnlocked(s) && len(s.InUse["node1"]) == 0
	}); err != nil {
		return err
	}
	if err := l.blocklist(ctx, atEnd); err != nil {
		return err
	}
	_, err = l.r.Contents(ctx, "user", atEnd, "written")
	return err
}
