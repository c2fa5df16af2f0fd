// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

import (
	"k8s.io/api/core/v1"
)

// Supported reports whether the table and the types agree. If not (see Drift)
// only the newest generation is known: Match never matches, Oldest is Native.
func Supported() bool {
	return rootNode != nil
}

// Match reports whether a kubelet of an older generation would have recorded
// this hash for this container, and the newest such generation. It does not
// try Native: the caller compares the native hash first.
func Match(c *v1.Container, recorded uint64) (Generation, bool) {
	if rootNode == nil {
		return Native, false
	}
	d := newDump(c, false)
	defer d.release()
	oldest := d.oldest()
	for g := Native - 1; g >= oldest; g-- {
		// Without a field between two generations they have one hash.
		if (g == Native-1 || d.adds(g+1)) && d.records(g, recorded) {
			return g, true
		}
		if g == Gen16 {
			break
		}
	}
	return Native, false
}

// Hash returns the hash that a kubelet of generation g records for the
// container, and false if the container sets a field that g does not know.
func Hash(c *v1.Container, g Generation) (uint64, bool) {
	if rootNode == nil {
		return 0, false
	}
	d := newDump(c, false)
	defer d.release()
	if !d.expressible(g) {
		return 0, false
	}
	return d.hash(g), true
}

// Oldest returns the generation whose hash a new container is to record: the
// oldest, not before OldestWritten, that knows every field which is set. Any
// kubelet from that release on that can accept older generations keeps the
// container, and so does that release itself.
func Oldest(c *v1.Container) Generation {
	if rootNode == nil {
		return Native
	}
	d := newDump(c, false)
	defer d.release()
	return d.written()
}

func (d *dump) written() Generation {
	if g := d.oldest(); g > OldestWritten {
		return g
	}
	return OldestWritten
}

// OldestHash returns the oldest generation, not before from and not before
// OldestWritten, that knows every field which is set, and its hash. ok is false
// if only the native hash is known.
func OldestHash(c *v1.Container, from Generation) (g Generation, hash uint64, ok bool) {
	if rootNode == nil {
		return Native, 0, false
	}
	d := newDump(c, false)
	defer d.release()
	if g = d.written(); g < from {
		g = from
	}
	return g, d.hash(g), true
}

// RecordedBy returns the generations of kubelets, from oldest to newest, that
// record this hash for this container and for no other reason than that they are
// of that generation. ok is false if none does, or if each does.
//
// A hash of the oldest generation that knows all fields is that of an older
// kubelet's successor as well, see OldestHash: then oldest is OldestWritten.
func RecordedBy(c *v1.Container, recorded uint64) (oldest, newest Generation, ok bool) {
	if rootNode == nil {
		return 0, 0, false
	}
	d := newDump(c, false)
	defer d.release()
	knows := d.oldest()
	for g := Native; ; g-- {
		if d.records(g, recorded) {
			if !ok {
				newest, ok = g, true
			}
			oldest = g
		}
		if g == knows {
			break
		}
	}
	if ok && oldest == knows && oldest > OldestWritten {
		oldest = OldestWritten
	}
	return oldest, newest, ok && !(oldest <= OldestWritten && newest == Native)
}

// Hashes are the hashes of one container in all generations.
type Hashes struct {
	hash    [generations]uint64
	known   [generations]bool
	records Generation
}

// All computes all hashes of a container. It needs Supported.
func All(c *v1.Container) Hashes {
	d := newDump(c, false)
	defer d.release()
	h := Hashes{records: d.written()}
	oldest := d.oldest()
	for g := Native; g >= oldest; g-- {
		h.known[g] = true
		if g < Native && !d.adds(g+1) {
			h.hash[g] = h.hash[g+1]
		} else {
			h.hash[g] = d.hash(g)
		}
		if g == Gen16 {
			break
		}
	}
	return h
}

// Get returns the hash in g, and false if g cannot express the container.
func (h *Hashes) Get(g Generation) (uint64, bool) {
	return h.hash[g], h.known[g]
}

// Records returns the generation that Oldest returns.
func (h *Hashes) Records() Generation {
	return h.records
}

// Unknown returns the fields that are set and that generation g does not know,
// as paths from the container, for example "volumeMounts[0].mountPropagation".
func Unknown(c *v1.Container, g Generation) []string {
	if rootNode == nil {
		return nil
	}
	d := newDump(c, true)
	defer d.release()
	return d.unknown(g)
}

func (d *dump) unknown(g Generation) []string {
	var paths []string
	for _, s := range d.spans {
		if s.set && s.since > g {
			paths = append(paths, s.path)
		}
	}
	return paths
}

// Explanation says where a recorded hash can come from.
type Explanation struct {
	// Recorded lists the generations that would have recorded the hash for
	// this container, newest first. Empty: no generation explains it.
	Recorded []Generation
	// Ignoring is set if Recorded is empty but a kubelet of generation
	// IgnoringGeneration, not knowing the fields in Ignoring, would have
	// recorded the hash. The container runs without them.
	Ignoring           []string
	IgnoringGeneration Generation
	// Tried has an entry for every generation.
	Tried []Attempt
}

// Attempt is one generation that was compared with a recorded hash.
type Attempt struct {
	Generation Generation
	// Hash is what the generation records, or would if it knew Unknown.
	Hash uint64
	// Unknown are the fields that are set and that the generation lacks; if
	// there are any, Hash is no reason to keep the container.
	Unknown []string
}

// Explain compares a recorded hash with all generations.
func Explain(c *v1.Container, recorded uint64) Explanation {
	var e Explanation
	if rootNode == nil {
		return e
	}
	d := newDump(c, true)
	defer d.release()
	for _, g := range Generations() {
		a := Attempt{Generation: g, Hash: d.hash(g), Unknown: d.unknown(g)}
		e.Tried = append(e.Tried, a)
		switch {
		case !d.records(g, recorded):
		case len(a.Unknown) == 0:
			e.Recorded = append(e.Recorded, g)
		case e.Ignoring == nil:
			e.Ignoring, e.IgnoringGeneration = a.Unknown, g
		}
	}
	if e.Recorded != nil {
		e.Ignoring, e.IgnoringGeneration = nil, 0
	}
	return e
}
