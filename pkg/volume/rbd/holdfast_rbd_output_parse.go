// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// What these functions read is what rbd wrote to its standard output and error together:
// Ceph's libraries log to the latter, so lines of theirs stand before, between and after
// the answer (kubernetes/kubernetes#75581). What cannot be read is an error, never an
// empty answer.

// rbdLock is an advisory lock on an image, a row of "rbd lock list".
type rbdLock struct {
	// id is the lock's name, with blanks if it has some ("auto 18446462598732840961" is
	// librbd's own); locker the client that took it, "client.4277".
	id, locker string
	// address of that client, "10.0.0.1:0/1582627961".
	address string
}

func (l rbdLock) String() string {
	return fmt.Sprintf("%s (%s, %s)", shownName(l.id), shownName(l.locker), shownName(l.address))
}

// rbdWatcher is a client that has an image open, a row of "rbd status".
type rbdWatcher struct {
	// address is "10.0.0.1:0/710245699", client "client.14163"; client is empty where a row is
	// of a form that we do not know, and address then all of it.
	address, client string
}

func (w rbdWatcher) String() string {
	return strings.TrimSpace("watcher=" + w.address + " " + w.client)
}

// rbdImage is what "rbd info" says.
type rbdImage struct {
	// size in bytes; from text with decimals ("1.1 GiB") the smallest that prints so.
	size int64
	// features by their names, "layering"; nil if the answer names none.
	features []string
}

var (
	lockCountRE = regexp.MustCompile(`There (?:is|are) (\d+) (?:exclusive|shared) locks? on this image`)
	// Columns are separated by one blank up to Ceph 14 and by two since 15, and padded.
	lockRowRE = regexp.MustCompile(`^\s*(client\.\d+)\s+(\S.*?)\s+(\S+)\s*$`)
	// lockTraceRE is what a lock leaves in an answer of whatever form.
	lockTraceRE = regexp.MustCompile(`\bclient\.\d+\b|` + kubeLockMagic)
	statusRowRE = regexp.MustCompile(`watcher=(\S+)\s+(client\.\d+)\b`)
	statusNone  = regexp.MustCompile(`Watchers: none\s*$`)
	infoSizeRE  = regexp.MustCompile(`\bsize (\d+)(\.\d+)? ?([kKMGTPE]i?)?B in \d+ objects?`)
	infoFeatRE  = regexp.MustCompile(`^\s*features: *(.*?)\s*$`)
)

// outputLines are the lines of an output without their ends.
func outputLines(output []byte) []string {
	return strings.Split(strings.Replace(string(output), "\r", "", -1), "\n")
}

// decodeWithin decodes the first JSON text in output that is a T for accept. Log lines
// may hold brackets, so each one is tried.
func decodeWithin(output []byte, open string, into func() interface{}, accept func(interface{}) bool) bool {
	for at := 0; ; {
		next := bytes.IndexAny(output[at:], open)
		if next < 0 {
			return false
		}
		at += next
		v := into()
		if json.NewDecoder(bytes.NewReader(output[at:])).Decode(v) == nil && accept(v) {
			return true
		}
		at++
	}
}

// parseLockList reads the answer of "rbd lock list", text or JSON. An image without locks
// prints nothing.
func parseLockList(output []byte) ([]rbdLock, error) {
	var locks []rbdLock
	want := -1
	for _, line := range outputLines(output) {
		if m := lockCountRE.FindStringSubmatch(line); m != nil {
			n, err := strconv.Atoi(m[1])
			if err != nil || want >= 0 {
				return nil, fmt.Errorf("rbd: cannot read the list of locks: %q", shownOutput(output))
			}
			want = n
		} else if m := lockRowRE.FindStringSubmatch(line); m != nil {
			locks = append(locks, rbdLock{id: m[2], locker: m[1], address: m[3]})
		}
	}
	if want < 0 && len(locks) == 0 {
		if locks = parseLockJSON(output); len(locks) == 0 && lockTraceRE.Match(output) {
			return nil, fmt.Errorf("rbd: cannot read the list of locks: %q", shownOutput(output))
		}
		return locks, nil
	}
	if want >= 0 && want != len(locks) {
		return nil, fmt.Errorf("rbd: the list of locks announces %d and has %d: %q", want, len(locks), shownOutput(output))
	}
	return locks, nil
}

// parseLockJSON reads the JSON of a list of locks: an object by lock ID up to jewel and
// in luminous, a list since.
func parseLockJSON(output []byte) []rbdLock {
	type row struct{ ID, Locker, Address string }
	var locks []rbdLock
	if decodeWithin(output, "[", func() interface{} { return &[]row{} }, func(v interface{}) bool {
		for _, r := range *v.(*[]row) {
			if r.ID == "" || r.Locker == "" {
				locks = nil
				return false
			}
			locks = append(locks, rbdLock{r.ID, r.Locker, r.Address})
		}
		return len(locks) > 0
	}) {
		return locks
	}
	decodeWithin(output, "{", func() interface{} { return &map[string]row{} }, func(v interface{}) bool {
		for id, r := range *v.(*map[string]row) {
			if id == "" || r.Locker == "" {
				locks = nil
				return false
			}
			locks = append(locks, rbdLock{id, r.Locker, r.Address})
		}
		return len(locks) > 0
	})
	sort.Slice(locks, func(i, j int) bool { return locks[i].id < locks[j].id })
	return locks
}

// findLocker returns the client that has the lock with exactly this ID, "" if nobody has.
// Stock looked for the last line with the ID in it, so node1 found node10's.
func findLocker(output []byte, lockID string) (string, error) {
	locks, err := parseLockList(output)
	if err != nil {
		return "", err
	}
	for _, l := range locks {
		if l.id == lockID {
			return l.locker, nil
		}
	}
	return "", nil
}

// parseStatus reads the answer of "rbd status", text or JSON. Anything that may be a
// watcher is one; that there is none is believed only if the answer says so.
func parseStatus(output []byte) ([]rbdWatcher, error) {
	var watchers []rbdWatcher
	none := false
	for _, line := range outputLines(output) {
		if m := statusRowRE.FindStringSubmatch(line); m != nil {
			watchers = append(watchers, rbdWatcher{m[1], m[2]})
		} else if at := strings.Index(line, imageWatcherStr); at >= 0 {
			watchers = append(watchers, rbdWatcher{address: strings.TrimSpace(line[at+len(imageWatcherStr):])})
		} else if statusNone.MatchString(line) {
			none = true
		}
	}
	if len(watchers) > 0 || none {
		return watchers, nil
	}
	type row struct {
		Address string
		Client  int64
	}
	var answer struct{ Watchers json.RawMessage }
	if !decodeWithin(output, "{", func() interface{} { answer.Watchers = nil; return &answer }, func(interface{}) bool { return len(answer.Watchers) > 0 && string(answer.Watchers) != "null" }) {
		return nil, fmt.Errorf("rbd: cannot read the list of watchers: %q", shownOutput(output))
	}
	var rows []row
	byKey := map[string]row{} // jewel: {"watcher":{…}}
	if json.Unmarshal(answer.Watchers, &rows) != nil {
		if err := json.Unmarshal(answer.Watchers, &byKey); err != nil {
			return nil, fmt.Errorf("rbd: cannot read the list of watchers: %v", err)
		}
	}
	for _, r := range byKey {
		rows = append(rows, r)
	}
	for _, r := range rows {
		watchers = append(watchers, rbdWatcher{r.Address, fmt.Sprintf("client.%d", r.Client)})
	}
	return watchers, nil
}

// parseInfo reads the answer of "rbd info", JSON or text. Sizes in text count by 1024 in
// every release, whether they are called MB (up to Ceph 12) or MiB (since 13).
func parseInfo(output []byte) (*rbdImage, error) {
	var answer struct {
		Size     *float64
		Features []string
	}
	if decodeWithin(output, "{", func() interface{} { answer.Size, answer.Features = nil, nil; return &answer }, func(interface{}) bool {
		return answer.Size != nil && *answer.Size >= 0 && *answer.Size < math.MaxInt64
	}) {
		return &rbdImage{int64(*answer.Size), answer.Features}, nil
	}
	var image *rbdImage
	var features []string
	for _, line := range outputLines(output) {
		if m := infoSizeRE.FindStringSubmatch(line); m != nil && image == nil {
			size, err := textSize(m[1], m[2], m[3])
			if err != nil {
				return nil, fmt.Errorf("rbd: cannot read the image's size %q: %v", shownName(m[0]), err)
			}
			image = &rbdImage{size: size}
		} else if m := infoFeatRE.FindStringSubmatch(line); m != nil {
			features = []string{}
			for _, f := range strings.Split(m[1], ",") {
				if f = strings.TrimSpace(f); f != "" {
					features = append(features, f)
				}
			}
		}
	}
	if image == nil {
		return nil, fmt.Errorf("rbd: cannot read the image's size: %q", shownOutput(output))
	}
	image.features = features
	return image, nil
}

// textSize is a size in bytes from its whole part, its decimals with the point, and its
// unit. Decimals are rounded, so that the smallest size that prints so is returned: what
// is too small is asked for again, what is too large would be believed to be there.
func textSize(whole, decimals, unit string) (int64, error) {
	v, err := strconv.ParseFloat(whole+decimals, 64)
	if err != nil {
		return 0, err
	}
	if len(decimals) > 1 {
		v -= math.Pow(10, -float64(len(decimals)-1)) / 2
	}
	if unit != "" {
		v *= math.Pow(1024, float64(strings.IndexByte("kMGTPE", strings.Replace(unit, "K", "k", 1)[0])+1))
	}
	if v < 0 || v >= math.MaxInt64 {
		return 0, fmt.Errorf("out of range")
	}
	return int64(v), nil
}

// imageSizeMB is the size in MB, as ExpandImage compares it, from "rbd info".
func imageSizeMB(image string, output []byte) (int, error) {
	info, err := parseInfo(output)
	if err != nil {
		return 0, fmt.Errorf("can not get image size info %s: %v", shownName(image), err)
	}
	return int(info.size >> 20), nil
}
