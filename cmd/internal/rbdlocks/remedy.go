// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlocks

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// unmaps are the remedies of a leaked mapping: one for each node that watches and should not.
func (e *evidence) unmaps() []string {
	var out []string
	for _, w := range e.leaks {
		if w.Node != "" {
			out = append(out, fmt.Sprintf("on node %s, when no process has it mounted: rbd unmap %s", w.Node, word("/dev/rbd/"+e.v.name())))
		}
	}
	return out
}

// removals are the remedies of stale locks, and what the note says of them. A lock that may be
// of a node that has the image mounted has no remedy.
func (e *evidence) removals(options []string) (note string, remedies []string) {
	twin := e.c.twin(e.v)
	for _, l := range e.answer.Locks {
		if !isOld(l) {
			continue
		}
		if why := e.keep(l, twin); why != "" {
			note += "; " + why
			continue
		}
		why, when := e.precaution(l)
		note += why
		remedies = append(remedies, fmt.Sprintf("when %s: %s", when, removal(e.v, l, options)))
	}
	return note, remedies
}

// keep says why a stale lock is not to be removed, "" if it may be. Kubelets up to 1.8 lock, and
// map later. And Ceph forgets the watch of a node that it does not reach for 30 s, while that
// node still has the image mounted.
func (e *evidence) keep(l Lock, twin string) string {
	switch n := e.c.holder(l); {
	case e.c.blind():
		return "it is not known who may have the image mounted: " + strings.Join(e.c.unread, ", ") + " could not be read"
	case n != nil && (e.writes[n.name] || n.reports(e.v)):
		return fmt.Sprintf("%[1]s has a pod with the image or reports the image: %[1]s is mounting it now, or has it mounted and is cut off from Ceph. Remove the lock only after %[1]s has unmounted the image or is powered off", n.name)
	case n == nil && e.running != "":
		return fmt.Sprintf("no node has the lock's name or address, and %s runs: make sure that the lock does not belong to the node of this pod", e.running)
	case strings.ContainsFunc(e.v.name()+l.ID+l.Locker, unicode.IsControl):
		return "its name has control characters, so no command is printed"
	}
	return twin
}

// precaution says when a stale lock may be removed, and with a leading "; " what to know before,
// if there is anything.
func (e *evidence) precaution(l Lock) (why, when string) {
	n := e.c.holder(l)
	if n == nil || !n.ready {
		// No kubelet there has unmounted it when its pod was deleted.
		host := strings.TrimPrefix(l.ID, magic)
		return fmt.Sprintf("; the lock belongs to %s, which is not a Ready node and may have the image mounted", host), word(host) + " is powered off, or has not mounted it"
	}
	// Also a kubelet that is Ready may not have unmounted it yet, or may fail to.
	if pod := e.ended[n.name]; pod != "" {
		why = fmt.Sprintf("; %s, which has ended on %s, used the image, which may still be mounted there", pod, n.name)
	}
	return why, word(n.name) + " does not have the image in /proc/mounts"
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
