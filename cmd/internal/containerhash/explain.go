// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package containerhash

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Attempt is what one release records for a container.
type Attempt struct {
	Release string `json:"release"`
	// Hash is what it records, or would if it knew the fields in Unknown. It is
	// nil if Error says why it is not known.
	Hash *uint32 `json:"hash,omitempty"`
	// NewerGo is what a build of the release with Go 1.9 or later records, if that
	// is another hash.
	NewerGo *uint32  `json:"newerGo,omitempty"`
	Unknown []string `json:"unknown,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// Try computes the hash of a container in each release.
func (s *Set) Try(releases []*Release, container map[string]any, o Options) []Attempt {
	var out []Attempt
	for _, r := range releases {
		a := Attempt{Release: r.Name, Unknown: s.Unknown(r, container)}
		if h, err := r.Hash(container, o); err != nil {
			a.Error = err.Error()
		} else {
			a.Hash = &h
			o.NewerGo = true
			if n, err := r.Hash(container, o); err == nil && n != h {
				a.NewerGo = &n
			}
			o.NewerGo = false
		}
		out = append(out, a)
	}
	return out
}

// Explanation says where a recorded hash can come from.
type Explanation struct {
	// Recorded lists the releases that record the hash for this spec, newest
	// first. Empty: none does.
	Recorded []string `json:"recorded,omitempty"`
	// NewerGo: builds of Recorded with Go 1.9 or later record it, and so does
	// v1.9.11+holdfast.1 for 1.7. Upstream's builds do not.
	NewerGo bool `json:"newerGo,omitempty"`
	// Ignoring is set if Recorded is empty but kubelets of IgnoringRelease, not
	// knowing the fields in Ignoring, record the hash.
	Ignoring        []string `json:"ignoring,omitempty"`
	IgnoringRelease string   `json:"ignoringRelease,omitempty"`
	// Hash is the number that Recorded or Ignoring is about: the recorded text
	// can be read as hexadecimal and as decimal.
	Hash  uint32    `json:"hash,omitempty"`
	Tried []Attempt `json:"tried"`
}

// explain compares what was recorded, in all its readings, with what was tried.
func explain(tried []Attempt, readings []uint32) Explanation {
	e := Explanation{Tried: tried}
	for _, h := range readings {
		for _, a := range tried {
			if a.Hash != nil && *a.Hash == h && len(a.Unknown) == 0 {
				e.Recorded, e.Hash = append(e.Recorded, a.Release), h
			}
		}
		if e.Recorded != nil {
			return e
		}
		for _, a := range tried {
			if a.NewerGo != nil && *a.NewerGo == h && len(a.Unknown) == 0 {
				e.Recorded, e.Hash, e.NewerGo = append(e.Recorded, a.Release), h, true
			}
		}
		if e.Recorded != nil {
			return e
		}
	}
	for _, h := range readings {
		for _, a := range tried {
			if a.Hash != nil && *a.Hash == h {
				e.Ignoring, e.IgnoringRelease, e.Hash = a.Unknown, a.Release, h
				return e
			}
		}
	}
	return e
}

// parseRecorded returns the numbers that text can mean: hexadecimal as in the
// container's label, decimal as in events and logs, hexadecimal with 0x.
func parseRecorded(text string) ([]uint32, error) {
	if text == "" {
		return nil, errors.New("no hash given")
	}
	digits, bases := text, []int{16, 10}
	if hex := strings.TrimPrefix(strings.ToLower(text), "0x"); hex != strings.ToLower(text) {
		digits, bases = hex, []int{16}
	}
	var readings []uint32
	for _, base := range bases {
		h, err := strconv.ParseUint(digits, base, 64)
		if err == nil && h <= math.MaxUint32 && !slices.Contains(readings, uint32(h)) {
			readings = append(readings, uint32(h))
		}
	}
	if len(readings) == 0 {
		return nil, fmt.Errorf("%q is not a 32 bit number, hexadecimal as in the label io.kubernetes.container.hash or decimal as in events", text)
	}
	return readings, nil
}

// both is a hash as it is in events and as it is in the label.
func both(h uint32) string {
	return fmt.Sprintf("%d (label %x)", h, h)
}

// run is a run of releases that answer the same.
type run struct {
	newest, oldest string
	Attempt
}

// releases names the run: "1.9", "1.12-1.13".
func (r run) releases() string {
	if r.newest == r.oldest {
		return r.newest
	}
	return r.oldest + "-" + r.newest
}

// runs puts neighbours that answer the same together.
func runs(attempts []Attempt) []run {
	var out []run
	for _, a := range attempts {
		if n := len(out); n > 0 {
			l := &out[n-1]
			same := l.Error == a.Error && slices.Equal(l.Unknown, a.Unknown) && (l.Hash == nil) == (a.Hash == nil)
			if same && follows(a.Release, l.oldest) && (a.Hash == nil || *a.Hash == *l.Hash || len(a.Unknown) > 0) {
				l.oldest = a.Release
				continue
			}
		}
		out = append(out, run{a.Release, a.Release, a})
	}
	return out
}

// follows says whether older is the minor release before newer: a run has no gap, as
// there may be with --release.
func follows(older, newer string) bool {
	var a, b int
	_, errA := fmt.Sscanf(older, "1.%d", &a)
	_, errB := fmt.Sscanf(newer, "1.%d", &b)
	return errA == nil && errB == nil && a+1 == b
}

// text is the explanation for people.
func (e Explanation) text(name string, readings []uint32) string {
	if e.Recorded != nil {
		built := ""
		if e.NewerGo {
			built = ", built with Go 1.9 or later"
		}
		return fmt.Sprintf("%s: %s is the hash of %s%s for this spec\n", name, both(e.Hash), strings.Join(e.Recorded, ", "), built)
	}
	if e.Ignoring != nil {
		return fmt.Sprintf("%s: %s is what a %s kubelet records for this spec without %s, which it does not support and ignores; the container has to be recreated\n",
			name, both(e.Hash), e.IgnoringRelease, strings.Join(e.Ignoring, ", "))
	}
	var tried []string
	for _, h := range readings {
		tried = append(tried, both(h))
	}
	out := fmt.Sprintf("%s: none of the releases records %s for this spec\n", name, strings.Join(tried, " or "))
	for _, r := range runs(e.Tried) {
		switch {
		case r.Error != "":
			out += fmt.Sprintf("  %s: not known: %s\n", r.releases(), r.Error)
		case len(r.Unknown) > 0:
			out += fmt.Sprintf("  %s: does not support %s\n", r.releases(), strings.Join(r.Unknown, ", "))
		default:
			out += fmt.Sprintf("  %s: records %s\n", r.releases(), both(*r.Hash))
		}
	}
	return out
}
