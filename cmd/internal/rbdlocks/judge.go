// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlocks

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
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
	a := Answer{Image: v.name(), Monitors: v.monitors, PVs: v.pvs, Locks: locks}
	reads, writes := map[string]bool{}, map[string]bool{} // by node
	running := ""                                         // a pod that runs and may write
	ended := map[string]string{}                          // pods, by node
	for _, u := range v.users {
		if u.ended {
			ended[u.node] = u.pod
			continue
		}
		if u.running && !u.readOnly {
			running = u.pod
		}
		a.Pods = append(a.Pods, u.pod)
		a.Nodes = append(a.Nodes, u.node)
		if u.readOnly {
			reads[u.node] = true
		} else {
			writes[u.node] = true
		}
	}
	for _, n := range c.nodes {
		if n.reports(v) {
			a.Nodes = append(a.Nodes, n.name)
		}
	}
	slices.Sort(a.Nodes)
	a.Nodes = slices.Compact(a.Nodes)
	holders := map[string]bool{} // nodes that watch, and addresses of none
	writers := 0                 // of them, all but those whose pods only read
	var leaked []string
	for _, w := range watchers {
		name := hostOf(w.Address)
		if n := c.nodeAt(name); n != nil {
			w.Node, name = n.name, n.name
		}
		a.Watchers = append(a.Watchers, w)
		if holders[name] {
			continue
		}
		holders[name] = true
		if w.Node == "" || writes[w.Node] || !reads[w.Node] {
			writers++
		}
		if !slices.Contains(a.Nodes, w.Node) {
			leaked = append(leaked, hostOf(w.Address))
			if w.Node != "" {
				a.Remedy = append(a.Remedy, fmt.Sprintf("on node %s, when nothing has it mounted: rbd unmap %s", w.Node, word("/dev/rbd/"+v.name())))
			}
		}
	}
	foreign := c.foreign(a)
	switch {
	case len(holders) > 0 && c.blind():
		// Who should have it is not known.
		a.Verdict, a.Note, a.Remedy = Unknown, "it is open, and "+strings.Join(c.unread, ", ")+" could not be read", nil
	case writers > 1:
		a.Verdict, a.Note = DoubleMount, fmt.Sprintf("%d addresses have it open and may write: stop all but one of its pods before anything else", writers)
		a.Remedy = nil
	case len(leaked) > 0:
		at := strings.Join(leaked, ", ")
		if twin := c.twin(v); twin != "" {
			a.Verdict, a.Note, a.Remedy = Unknown, "it is open at "+at+"; "+twin, nil
		} else {
			a.Verdict, a.Note = LeakedMapping, "no pod and no node's status accounts for "+at
		}
	case foreign != "":
		a.Verdict, a.Note = ForeignLock, foreign
	case len(holders) > 0:
		a.Verdict = InUse
	case slices.ContainsFunc(locks, isOld):
		a.Verdict, a.Note = StaleLock, "nobody has it open"
		twin := c.twin(v)
		for _, l := range locks {
			if !isOld(l) {
				continue
			}
			// These kubelets lock, and map later. And Ceph forgets the watch of a node that it
			// does not reach for 30 s, while that node still has the image mounted.
			switch n := c.holder(l); {
			case c.blind():
				a.Note += "; who may have it mounted is not known: " + strings.Join(c.unread, ", ") + " could not be read"
			case n != nil && (writes[n.name] || n.reports(v)):
				a.Note += fmt.Sprintf("; %[1]s has a pod for it or reports it: %[1]s is mounting it now, or is cut off from Ceph with it mounted. Remove the lock only after %[1]s has unmounted it or is powered off", n.name)
			case n == nil && running != "":
				a.Note += fmt.Sprintf("; no node has the lock's name or address, and %s runs: make sure that it is not its node's lock", running)
			case strings.ContainsFunc(v.name()+l.ID+l.Locker, unicode.IsControl):
				a.Note += "; its name has control characters, so no command is printed"
			case twin != "":
				a.Note += "; " + twin
			case n == nil || !n.ready:
				// No kubelet there has unmounted it when its pod was deleted.
				host := strings.TrimPrefix(l.ID, magic)
				a.Note += fmt.Sprintf("; %s, whose lock it is, is no node that is Ready, and may have it mounted", host)
				a.Remedy = append(a.Remedy, fmt.Sprintf("when %s is powered off, or has not mounted it: %s", word(host), removal(v, l, options)))
			default:
				// Also a kubelet that is Ready may not have unmounted it yet, or may fail to.
				if pod := ended[n.name]; pod != "" {
					a.Note += fmt.Sprintf("; %s, which has ended on %s, had it, and it may be mounted there still", pod, n.name)
				}
				a.Remedy = append(a.Remedy, fmt.Sprintf("when %s has it not in /proc/mounts: %s", word(n.name), removal(v, l, options)))
			}
		}
	default:
		a.Verdict = Free
	}
	return a
}

// removal is the command that removes a lock, if nobody has the image open when it is run:
// that may be long after the verdict. Every rbd from hammer to reef prints this line, alone,
// and to its standard output, to which nothing is logged. The locker is part of the command,
// so a lock that was taken after the verdict stays. Both ask the Ceph that the verdict is of.
func removal(v *volume, l Lock, options []string) string {
	rbd, image := "rbd", word(v.name())
	for _, o := range options {
		rbd += " " + word(o)
	}
	return fmt.Sprintf("%s status %s | grep -qx 'Watchers: none' && %s lock remove --rbd_blocklist_on_break_lock=false %s %s %s", rbd, image, rbd, image, word(l.ID), word(l.Locker))
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

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=@%+,-]+$`)

// word is s as one word of a shell's command line. Names of images and locks are others'
// text, and a remedy is there to be copied.
func word(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// plain is s without what would move a terminal's cursor.
func plain(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
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
