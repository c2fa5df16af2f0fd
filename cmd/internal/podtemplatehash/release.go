// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplatehash

import (
	"embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"hash/adler32"
	"hash/fnv"
	"sync"

	"holdfast/cmd/internal/dump"
)

//go:embed schema/*.json
var schemas embed.FS

// A Release is one minor release of Kubernetes.
type Release struct {
	// Name is the minor release, e.g. "1.9".
	Name string
	// Algorithm is "adler32" or "fnv32a".
	Algorithm string
	// Counts tells whether the status's collisionCount goes into the hash.
	Counts bool
	// layout is how the release's own binary prints. UTC is set for 1.2 alone:
	// where a time is set, how other releases print the time zone is not known.
	layout dump.Layout
	// internal: the hashed template is of the internal type, not of v1.
	internal bool

	once sync.Once
	node *dump.Node
	err  error
}

// The layouts of releases that were built with Go 1.8 and before.
var goOld = dump.Layout{SecNsecLoc: true, HexWords: true}

// Releases are those that this package knows, oldest first. The layouts are
// those of the Go release in the build image of the tag: 1.4.2 for 1.2.0, 1.6
// and 1.7 for 1.3.0 to 1.6.1, 1.8.3 for 1.7.0 and 1.8.0, 1.9.3 for 1.9.11.
var Releases = []*Release{
	{Name: "1.2", Algorithm: "adler32", layout: dump.Layout{SecNsecLoc: true, HexWords: true, DecQuantity: true, UTC: true}, internal: true},
	{Name: "1.3", Algorithm: "adler32", layout: dump.Layout{SecNsecLoc: true, HexWords: true, Milli: true}, internal: true},
	{Name: "1.4", Algorithm: "adler32", layout: dump.Layout{SecNsecLoc: true, HexWords: true, Milli: true}, internal: true},
	{Name: "1.5", Algorithm: "adler32", layout: dump.Layout{SecNsecLoc: true, HexWords: true, Milli: true}, internal: true},
	{Name: "1.6", Algorithm: "adler32", layout: goOld},
	{Name: "1.7", Algorithm: "fnv32a", Counts: true, layout: goOld},
	{Name: "1.8", Algorithm: "fnv32a", Counts: true, layout: goOld},
	{Name: "1.9", Algorithm: "fnv32a", Counts: true},
}

// Find returns the release of that name, or an error that lists the names.
func Find(name string) (*Release, error) {
	names := ""
	for _, r := range Releases {
		if r.Name == name {
			return r, nil
		}
		names += " " + r.Name
	}
	return nil, fmt.Errorf("release %q is not known; there are:%s", name, names)
}

// types compiles the release's table.
func (r *Release) types() (*dump.Node, error) {
	r.once.Do(func() {
		data, err := schemas.ReadFile("schema/" + r.Name + ".json")
		if err != nil {
			r.err = err
			return
		}
		var table struct {
			Root  string
			Types map[string]dump.Type
		}
		if r.err = json.Unmarshal(data, &table); r.err == nil {
			r.node, r.err = dump.Compile(table.Types, table.Root)
		}
	})
	return r.node, r.err
}

func (r *Release) newHash() hash.Hash32 {
	if r.Algorithm == "adler32" {
		return adler32.New()
	}
	return fnv.New32a()
}

// suffix is what a collision count adds to the hashed text. The releases write
// the count's four (1.7: eight) bytes, little-endian, in eight; it is never
// negative.
func (r *Release) suffix(count int) []byte {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(count))
	return b[:]
}

// Sum is the hash of a dump, with a collision count unless that is negative
// (nil in the status).
func (r *Release) Sum(dump []byte, count int) uint32 {
	h := r.newHash()
	h.Write(dump)
	if count >= 0 && r.Counts {
		h.Write(r.suffix(count))
	}
	return h.Sum32()
}

// Hash is the hash of a template (see Template) with a collision count, unless
// that is negative.
func (r *Release) Hash(template map[string]any, count int) (uint32, error) {
	dump, err := r.Dump(template)
	if err != nil {
		return 0, err
	}
	return r.Sum(dump, count), nil
}

const safe = "bcdfghjklmnpqrstvwxz2456789"

// Suffix is what a ReplicaSet's name ends in for a hash: the number itself, and
// from 1.8 on its digits in an alphabet that makes no words.
func (r *Release) Suffix(hash uint32) string {
	digits := fmt.Sprint(hash)
	if r.Name != "1.8" && r.Name != "1.9" {
		return digits
	}
	out := []byte(digits)
	for i := range out {
		out[i] = safe[int(out[i])%len(safe)]
	}
	return string(out)
}
