// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/cmd/internal/containerhash"
)

// The answers for a container.
const (
	kept    = "kept"
	isNew   = "new"
	unknown = "?"
)

// answer is what becomes of one container.
type answer struct {
	is string
	// why is for new and ?; by is who recorded the hash, for all.
	why, by string
}

// judge decides by hashes. It is one for a whole run.
type judge struct {
	set      *containerhash.Set
	releases []*containerhash.Release // 1.9 to 1.6
}

func newJudge() (*judge, error) {
	set, err := containerhash.All()
	if err != nil {
		return nil, err
	}
	releases, err := set.Find([]string{"1.6", "1.7", "1.8", "1.9"})
	return &judge{set, releases}, err
}

// tried is a container's hashes, by minor number from 6 to 9.
type tried map[int]containerhash.Attempt

func (j *judge) try(spec map[string]any) tried {
	out := tried{}
	for i, a := range j.set.Try(j.releases, spec, containerhash.Options{Wire: true}) {
		out[9-i] = a
	}
	return out
}

func is(h *uint32, want uint32) bool { return h != nil && *h == want }

// by names the release that recorded a hash, "" if none of 1.6 to 1.9 does for this spec.
func (t tried) by(recorded uint32) string {
	for m := 9; m >= 6; m-- {
		if a := t[m]; len(a.Unknown) == 0 && (is(a.Hash, recorded) || is(a.NewerGo, recorded)) {
			return fmt.Sprintf("1.%d", m)
		}
	}
	for m := 9; m >= 6; m-- {
		if is(t[m].Hash, recorded) || is(t[m].NewerGo, recorded) {
			return fmt.Sprintf("1.%d", m)
		}
	}
	return ""
}

// ask tells what a target does with a container that records a hash. compat is the gate
// ContainerHashCompat, which only Holdfast has. now is the spec's hash by the kubelet that runs.
func (t tried) ask(to target, recorded uint32, compat bool) answer {
	by := t.by(recorded)
	minor := to.minor
	if minor < 6 || minor > 9 {
		return answer{is: unknown, by: by, why: fmt.Sprintf("it is not known which hash 1.%d records", minor)}
	}
	own := t[minor]
	if own.Error != "" {
		return answer{is: unknown, by: by, why: "its hash cannot be computed from this spec"}
	}
	switch {
	case is(own.Hash, recorded):
		return answer{is: kept, by: by}
	case !to.holdfast && is(own.NewerGo, recorded):
		return answer{is: unknown, by: by, why: fmt.Sprintf("kept only if that 1.%d was built with Go 1.9 or later (the spec has a very large quantity)", minor)}
	}
	if to.holdfast && compat {
		for m := 8; m >= 6; m-- {
			if a := t[m]; a.Error == "" && len(a.Unknown) == 0 && (is(a.Hash, recorded) || is(a.NewerGo, recorded)) {
				return answer{is: kept, by: by}
			}
		}
	}
	return answer{is: isNew, by: by, why: t.why(to, recorded, by)}
}

// why says what makes the hashes differ.
func (t tried) why(to target, recorded uint32, by string) string {
	if by == "" {
		return "no kubelet of 1.6 to 1.9 records its hash for this spec: the spec has changed since"
	}
	for m := 9; m >= 6; m-- {
		a := t[m]
		if fmt.Sprintf("1.%d", m) == by && len(a.Unknown) > 0 {
			return fmt.Sprintf("its hash is that of a %s kubelet, which does not support %s", by, fields(a.Unknown))
		}
	}
	if to.holdfast {
		return fmt.Sprintf("its hash is that of a %s kubelet, and ContainerHashCompat is off", by)
	}
	if u := t[to.minor].Unknown; len(u) > 0 {
		return fmt.Sprintf("its hash is that of a %s kubelet, and 1.%d does not support %s", by, to.minor, fields(u))
	}
	return fmt.Sprintf("its hash is that of a %s kubelet, and 1.%d hashes the fields of its own release", by, to.minor)
}

// fields names fields; their names are those of the API, never values.
func fields(list []string) string {
	list = slices.Clone(list)
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// records is the hash that a kubelet records for a new container: an upstream one its own, Holdfast
// that of the kubelet before it (before; 0: none) unless the container sets what that does not know.
func (t tried) records(k version, before int, legacy bool) (uint32, bool) {
	m := k.minor
	if k.holdfast && legacy && before > 0 && before < 9 {
		for m = max(before, 7); m < 9 && len(t[m].Unknown) > 0; m++ {
		}
	}
	a, ok := t[m]
	if !ok || a.Hash == nil {
		return 0, false
	}
	return *a.Hash, true
}
