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
	// DoubleMount: watched by several addresses, and a pod may write.
	DoubleMount Verdict = "double-mount"
	// ForeignLock: a lock that no kubelet took, or a kubelet's that another node watches under.
	ForeignLock Verdict = "foreign-lock"
	// Unknown: something could not be read.
	Unknown Verdict = "unknown"
)

// Answer is one image.
type Answer struct {
	Image    string    `json:"image"`
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

// judge says what the locks and watchers of an image mean.
func (c *cluster) judge(v *volume, locks []Lock, watchers []Watcher) Answer {
	a := Answer{Image: v.name(), PVs: v.pvs, Locks: locks}
	writer := false
	for _, u := range v.users {
		a.Pods = append(a.Pods, u.pod)
		a.Nodes = append(a.Nodes, u.node)
		writer = writer || !u.readOnly
	}
	for _, n := range c.nodes {
		if n.reports(v) {
			a.Nodes = append(a.Nodes, n.name)
		}
	}
	slices.Sort(a.Nodes)
	a.Nodes = slices.Compact(a.Nodes)
	hosts := map[string]bool{} // addresses that watch
	var leaked []string
	for _, w := range watchers {
		host := hostOf(w.Address)
		if n := c.nodeAt(host); n != nil {
			w.Node = n.name
		}
		if !hosts[host] && !slices.Contains(a.Nodes, w.Node) {
			leaked = append(leaked, host)
			if w.Node != "" {
				a.Remedy = append(a.Remedy, fmt.Sprintf("on node %s, when nothing has it mounted: rbd unmap /dev/rbd/%s", w.Node, v.name()))
			}
		}
		hosts[host] = true
		a.Watchers = append(a.Watchers, w)
	}
	foreign := c.foreign(a)
	switch {
	case len(hosts) > 1 && (writer || len(v.users) == 0):
		a.Verdict, a.Note = DoubleMount, fmt.Sprintf("%d addresses have it open: stop all but one of its pods before anything else", len(hosts))
		a.Remedy = nil
	case len(leaked) > 0:
		a.Verdict, a.Note = LeakedMapping, "no pod and no node's status accounts for "+strings.Join(leaked, ", ")
	case foreign != "":
		a.Verdict, a.Note = ForeignLock, foreign
	case len(hosts) > 0:
		a.Verdict = InUse
	case slices.ContainsFunc(locks, isOld):
		a.Verdict, a.Note = StaleLock, "nobody has it open"
		for _, l := range locks {
			if isOld(l) {
				a.Remedy = append(a.Remedy, fmt.Sprintf("rbd lock remove --rbd_blocklist_on_break_lock=false %s %s %s", v.name(), l.ID, l.Locker))
			}
		}
	default:
		a.Verdict = Free
	}
	return a
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
		holder := c.nodeOf(strings.TrimPrefix(l.ID, magic))
		for _, w := range a.Watchers {
			if holder == nil || w.Node != holder.name {
				return fmt.Sprintf("the lock is %q, and %s has the image open", l.ID, w.Address)
			}
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

// nodeOf is the node with exactly this host name.
func (c *cluster) nodeOf(host string) *node {
	for _, n := range c.nodes {
		if n.host == strings.ToLower(host) {
			return n
		}
	}
	return nil
}
