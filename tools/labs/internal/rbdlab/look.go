// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlab

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
)

// LegacyLock is the lock that a kubelet up to 1.8 takes on that host.
func LegacyLock(host string) string { return "kubelet_lock_magic_" + host }

// Lock is an advisory lock on an image.
type Lock struct{ ID, Locker, Address string }

// Mount is an entry of a node's mount table.
type Mount struct {
	Node, Device, Path string
	ReadOnly           bool
}

// PodState is a pod that has the image.
type PodState struct {
	Node, Phase string
	Restarts    int64
	Container   string
}

// State is what was seen of an image at one moment: by rbd status, rbd lock list, the nodes'
// mount tables and sysfs, and the API.
type State struct {
	Image, When string
	// Seconds since Until began to look.
	Seconds float64
	// Watchers are the addresses of the clients that have it open, "10.90.0.11:0/42".
	Watchers []string
	Locks    []Lock
	// Mapped are the nodes that have it in their sysfs.
	Mapped []string
	Mounts []Mount
	// Dirs are the directories of its mount that nodes have, mounted or not: "node1:rbd-image-data".
	Dirs []string
	// InUse and Attached are the volumes of the plugin in the nodes' status, by node.
	InUse, Attached map[string][]string
	Pods            map[string]PodState
}

// Held says whether anybody has the image open or mapped.
func (s State) Held() bool { return len(s.Watchers)+len(s.Mapped) > 0 }

// InUseOn are the nodes whose status says that they use the image.
func (s State) InUseOn() []string {
	var nodes []string
	for n, all := range s.InUse {
		if slices.ContainsFunc(all, func(v string) bool { return strings.HasSuffix(v, ":"+s.Image) }) {
			nodes = append(nodes, n)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// Locked says whether there is a lock of that ID.
func (s State) Locked(id string) bool {
	return slices.ContainsFunc(s.Locks, func(l Lock) bool { return l.ID == id })
}

// WritersOn are the nodes that have the image mounted for writing.
func (s State) WritersOn() []string {
	var nodes []string
	for _, m := range s.Mounts {
		if !m.ReadOnly && !slices.Contains(nodes, m.Node) {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

// Runs says whether a pod runs.
func (s State) Runs(pod string) bool { return s.Pods[pod].Phase == "Running" }

// Free is for Until: nobody has the image open or mapped.
func Free(s State) bool { return !s.Held() }

// FreeUnlocked is for Until: the same, and there is no lock.
func FreeUnlocked(s State) bool { return !s.Held() && len(s.Locks) == 0 }

// Watchers are the addresses of an image's watchers.
func (c *Ceph) Watchers(ctx context.Context, image string) ([]string, error) {
	var answer struct{ Watchers []struct{ Address string } }
	if err := c.ask(ctx, &answer, "status", image); err != nil {
		return nil, err
	}
	var all []string
	for _, w := range answer.Watchers {
		all = append(all, w.Address)
	}
	return all, nil
}

// Locks are the advisory locks on an image.
func (c *Ceph) Locks(ctx context.Context, image string) ([]Lock, error) {
	var all []Lock
	return all, c.ask(ctx, &all, "lock", "list", image)
}

func (c *Ceph) ask(ctx context.Context, answer any, words ...string) error {
	out, err := c.Run(ctx, "rbd", append(words, "--format", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), answer); err != nil {
		return fmt.Errorf("rbd %s: %w: %s", strings.Join(words, " "), err, out)
	}
	return nil
}

// Look is the state of an image now.
func (r *Rig) Look(ctx context.Context, image, when string) (State, error) {
	s := State{Image: image, When: when, InUse: map[string][]string{}, Attached: map[string][]string{}, Pods: map[string]PodState{}}
	var err error
	if s.Watchers, err = r.Ceph.Watchers(ctx, image); err != nil {
		return s, err
	}
	if s.Locks, err = r.Ceph.Locks(ctx, image); err != nil {
		return s, err
	}
	for _, n := range r.nodes {
		devices, err := n.Devices(image)
		if err != nil {
			return s, err
		}
		if len(devices) > 0 {
			s.Mapped = append(s.Mapped, n.Name)
		}
		mounts, err := n.MountsOf(image)
		if err != nil {
			return s, err
		}
		s.Mounts = append(s.Mounts, mounts...)
		dirs, err := filepath.Glob(filepath.Join(n.Dir, "kubelet/plugins/kubernetes.io/rbd/rbd/*-image-"+image))
		if err != nil {
			return s, err
		}
		for _, d := range dirs {
			s.Dirs = append(s.Dirs, n.Name+":"+filepath.Base(d))
		}
	}
	nodes, err := r.Client.List(ctx, kube.Nodes, "", "")
	if err != nil {
		return s, err
	}
	for i := range nodes {
		o := &nodes[i]
		for _, v := range kube.Slice(o, "status", "volumesInUse") {
			if name, _ := v.(string); strings.HasPrefix(name, "kubernetes.io/rbd/") {
				s.InUse[o.GetName()] = append(s.InUse[o.GetName()], name)
			}
		}
		for _, v := range kube.Slice(o, "status", "volumesAttached") {
			m, _ := v.(map[string]any)
			if name, _ := m["name"].(string); strings.HasPrefix(name, "kubernetes.io/rbd/") {
				s.Attached[o.GetName()] = append(s.Attached[o.GetName()], name)
			}
		}
	}
	pods, err := r.Client.List(ctx, kube.Pods, NS, "")
	if err != nil {
		return s, err
	}
	for i := range pods {
		if podImage(&pods[i]) == image {
			s.Pods[pods[i].GetName()] = podState(&pods[i])
		}
	}
	return s, nil
}

func podImage(o *kube.Object) string {
	for _, v := range kube.Slice(o, "spec", "volumes") {
		m, _ := v.(map[string]any)
		if rbd, ok := m["rbd"].(map[string]any); ok {
			image, _ := rbd["image"].(string)
			return image
		}
		if claim, ok := m["persistentVolumeClaim"].(map[string]any); ok {
			name, _ := claim["claimName"].(string)
			return name
		}
	}
	return ""
}

func podState(o *kube.Object) PodState {
	p := PodState{Node: kube.String(o, "spec", "nodeName"), Phase: kube.String(o, "status", "phase"), Container: kube.ContainerIDs(o)["c"]}
	for _, c := range kube.Slice(o, "status", "containerStatuses") {
		n, _ := c.(map[string]any)["restartCount"].(int64)
		p.Restarts += n
	}
	return p
}

// lookPause is between two looks, each of which starts rbd twice: with the usual pause the
// looks take a processor for themselves.
const lookPause = 400 * time.Millisecond

// Until looks at an image until ok says so or the bound is over, and records and returns the
// last look: the judge tells which it was. An error is the lab's.
func (r *Rig) Until(ctx context.Context, image, when string, bound time.Duration, ok func(State) bool) (State, error) {
	start := time.Now()
	var s State
	seen := false
	err := wait.Every(ctx, image+": "+when, lookPause, bound, func(c context.Context) (bool, error) {
		now, err := r.Look(c, image, when)
		if err != nil {
			return false, err
		}
		s, seen = now, true
		s.Seconds = time.Since(start).Seconds()
		return ok(s), nil
	})
	switch {
	case ctx.Err() != nil || !seen:
		return s, err
	case err != nil:
		// A look that failed at the very end must not hide what came meanwhile.
		last, lookErr := r.Look(ctx, image, when)
		if lookErr != nil {
			return s, lookErr
		}
		last.Seconds = time.Since(start).Seconds()
		s = last
	}
	r.e.Record(s)
	r.e.Logf("%s, %s: after %.1f s: watchers %v, locks %v, mapped on %v, mounts %d, pods %v", image, when, s.Seconds, s.Watchers, s.Locks, s.Mapped, len(s.Mounts), s.Pods)
	return s, nil
}

// See is one look that is recorded.
func (r *Rig) See(ctx context.Context, image, when string) (State, error) {
	s, err := r.Look(ctx, image, when)
	if err == nil {
		r.e.Record(s)
	}
	return s, err
}
