// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlocks

import (
	"fmt"
	"net"
	"slices"
	"strings"
)

// Verdict is what an image's locks and watchers mean.
type Verdict string

// The verdicts. All but Free, InUse and Unknown are findings.
const (
	// Free: no lock and no watcher.
	Free Verdict = "free"
	// InUse: watched by the node that a pod or the node's status names.
	InUse Verdict = "in-use"
	// StaleLock: a lock of a kubelet up to 1.8, and nobody watches.
	StaleLock Verdict = "stale-lock"
	// LeakedMapping: watched by a node, or an address, that nothing in the API names.
	LeakedMapping Verdict = "leaked-mapping"
	// DoubleMount: watched by several nodes or addresses that may write.
	DoubleMount Verdict = "double-mount"
	// ForeignLock: a lock that no kubelet took, or a kubelet's while only other nodes watch.
	ForeignLock Verdict = "foreign-lock"
	// Unknown: something could not be read.
	Unknown Verdict = "unknown"
)

// Answer is one image.
type Answer struct {
	Image    string    `json:"image"`
	Monitors []string  `json:"monitors,omitempty"`
	PVs      []string  `json:"persistentVolumes,omitempty"`
	Pods     []string  `json:"pods,omitempty"`
	Nodes    []string  `json:"nodes,omitempty"` // that should hold it
	Locks    []Lock    `json:"locks,omitempty"`
	Watchers []Watcher `json:"watchers,omitempty"`
	Verdict  Verdict   `json:"verdict"`
	Note     string    `json:"note,omitempty"`
	Remedy   []string  `json:"remedy,omitempty"` // commands, none of them is run
}

const (
	magic   = "kubelet_lock_magic_"
	librbds = "auto " // locks of librbd's exclusive-lock
)

// judge says what the locks and watchers of an image mean. The options are those with which
// rbd reached the image's Ceph; a remedy has them, too.
func (c *cluster) judge(v *volume, locks []Lock, watchers []Watcher, options ...string) Answer {
	e := c.gather(v, locks, watchers)
	a := e.answer
	a.Verdict, a.Note = e.verdict()
	switch a.Verdict {
	case LeakedMapping:
		a.Remedy = e.unmaps()
	case StaleLock:
		note, remedy := e.removals(options)
		a.Note, a.Remedy = a.Note+note, remedy
	}
	return a
}

// unknown is the answer where rbd said nothing.
func (c *cluster) unknown(v *volume, note string) Answer {
	a := c.gather(v, nil, nil).answer
	a.Verdict, a.Note = Unknown, note
	return a
}

// evidence is what the API and rbd say of an image.
type evidence struct {
	c             *cluster
	v             *volume
	answer        Answer            // without a verdict
	reads, writes map[string]bool   // nodes with a pod that only reads, that may write
	running       string            // a pod that runs and may write
	ended         map[string]string // pods, by node
	holders       map[string]bool   // nodes that watch, and addresses of none
	writers       int               // of them, all but those whose pods only read
	leaks         []Watcher         // of them, the first of each that is on no node that should hold it
}

func (c *cluster) gather(v *volume, locks []Lock, watchers []Watcher) *evidence {
	e := &evidence{c: c, v: v, answer: Answer{Image: v.name(), Monitors: v.monitors, PVs: v.pvs, Locks: locks},
		reads: map[string]bool{}, writes: map[string]bool{}, ended: map[string]string{}, holders: map[string]bool{}}
	for _, u := range v.users {
		e.use(u)
	}
	for _, n := range c.nodes {
		if n.reports(v) {
			e.answer.Nodes = append(e.answer.Nodes, n.name)
		}
	}
	slices.Sort(e.answer.Nodes)
	e.answer.Nodes = slices.Compact(e.answer.Nodes)
	for _, w := range watchers {
		e.watch(w)
	}
	return e
}

func (e *evidence) use(u user) {
	if u.ended {
		e.ended[u.node] = u.pod
		return
	}
	if u.running && !u.readOnly {
		e.running = u.pod
	}
	e.answer.Pods = append(e.answer.Pods, u.pod)
	e.answer.Nodes = append(e.answer.Nodes, u.node)
	if u.readOnly {
		e.reads[u.node] = true
	} else {
		e.writes[u.node] = true
	}
}

// watch comes after all that says which nodes should hold the image.
func (e *evidence) watch(w Watcher) {
	name := hostOf(w.Address)
	if n := e.c.nodeAt(name); n != nil {
		w.Node, name = n.name, n.name
	}
	e.answer.Watchers = append(e.answer.Watchers, w)
	if e.holders[name] {
		return
	}
	e.holders[name] = true
	if w.Node == "" || e.writes[w.Node] || !e.reads[w.Node] {
		e.writers++
	}
	if !slices.Contains(e.answer.Nodes, w.Node) {
		e.leaks = append(e.leaks, w)
	}
}

// verdict is what the evidence means, and why.
func (e *evidence) verdict() (v Verdict, note string) {
	foreign := e.c.foreign(e.answer)
	switch {
	case len(e.holders) > 0 && e.c.blind():
		// Who should have it is not known.
		return Unknown, "the image is open, and " + strings.Join(e.c.unread, ", ") + " could not be read"
	case e.writers > 1:
		return DoubleMount, fmt.Sprintf("%d addresses have the image open and may write: before anything else, stop all of its pods except one", e.writers)
	case len(e.leaks) > 0:
		return e.leaked()
	case foreign != "":
		return ForeignLock, foreign
	case len(e.holders) > 0:
		return InUse, ""
	case slices.ContainsFunc(e.answer.Locks, isOld):
		return StaleLock, "no client has the image open"
	}
	return Free, ""
}

// leaked is the verdict on watchers that nothing in the API accounts for.
func (e *evidence) leaked() (v Verdict, note string) {
	var hosts []string
	for _, w := range e.leaks {
		hosts = append(hosts, hostOf(w.Address))
	}
	at := strings.Join(hosts, ", ")
	if twin := e.c.twin(e.v); twin != "" {
		return Unknown, "the image is open at " + at + "; " + twin
	}
	return LeakedMapping, "no pod and no node's status explains " + at
}

func isOld(l Lock) bool { return strings.HasPrefix(l.ID, magic) }

// foreign says which lock is not what the watchers would have.
func (c *cluster) foreign(a Answer) string {
	for _, l := range a.Locks {
		if strings.HasPrefix(l.ID, librbds) {
			continue
		}
		if !isOld(l) {
			return fmt.Sprintf("no kubelet took the lock %q of %s (%s)", l.ID, l.Locker, l.Address)
		}
		holder := c.holder(l)
		// A reader beside the holder has no lock.
		if len(a.Watchers) > 0 && !slices.ContainsFunc(a.Watchers, func(w Watcher) bool { return holder != nil && w.Node == holder.name }) {
			return fmt.Sprintf("the lock is %q, and %s has the image open", l.ID, a.Watchers[0].Address)
		}
	}
	return ""
}

// hostOf is the address of "10.0.0.1:0/123" without port and nonce.
func hostOf(address string) string {
	at, _, _ := strings.Cut(address, "/")
	if host, _, err := net.SplitHostPort(at); err == nil {
		return host
	}
	return address
}

func (c *cluster) nodeAt(ip string) *node {
	for _, n := range c.nodes {
		if slices.Contains(n.ips, ip) {
			return n
		}
	}
	return nil
}

// holder is the node whose kubelet took a lock. The lock has the host's own name, which the
// API does not if the kubelet has --hostname-override; then the lock's address tells.
func (c *cluster) holder(l Lock) *node {
	if n := c.nodeOf(strings.TrimPrefix(l.ID, magic)); n != nil {
		return n
	}
	return c.nodeAt(hostOf(l.Address))
}

// nodeOf is the node with exactly this host name.
func (c *cluster) nodeOf(host string) *node {
	for _, n := range c.nodes {
		if n.host == strings.ToLower(host) {
			return n
		}
	}
	return nil
}
