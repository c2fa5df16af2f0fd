// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplatehash

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// mark stands for the tag while a template is dumped. It cannot be part of an
// image's name.
const mark = "\x00tag\x00"

// WithMark returns a copy of template in which the tag of an image is replaced
// by a mark that Pieces finds. The container is named, or "" for the first.
func WithMark(template map[string]any, container string) (map[string]any, error) {
	template = clone(template)
	spec, ok := template["spec"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("spec: missing, or not an object")
	}
	spec = clone(spec)
	template["spec"] = spec
	items, _ := spec["containers"].([]any)
	items = append([]any(nil), items...)
	spec["containers"] = items
	names := []string{}
	for i, item := range items {
		c, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("spec.containers[%d]: not an object", i)
		}
		name, _ := c["name"].(string)
		names = append(names, name)
		if container != "" && name != container {
			continue
		}
		image, _ := c["image"].(string)
		if image == "" {
			return nil, fmt.Errorf("spec.containers[%d].image: missing", i)
		}
		if strings.Contains(image, "@") {
			return nil, fmt.Errorf("spec.containers[%d].image: %s is named by digest, and has no tag to replace", i, image)
		}
		if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
			image = image[:colon]
		}
		c = clone(c)
		c["image"] = image + ":" + mark
		items[i] = c
		return template, nil
	}
	return nil, fmt.Errorf("spec.containers: no container %q; there are: %s", container, strings.Join(names, ", "))
}

// Pieces is the dump of a template made by WithMark, cut where the tag goes.
func (r *Release) Pieces(template map[string]any) ([][]byte, error) {
	dump, err := r.Dump(template)
	if err != nil {
		return nil, err
	}
	pieces := bytes.Split(dump, []byte(mark))
	if len(pieces) < 2 {
		return nil, fmt.Errorf("the template has no tag to replace")
	}
	return pieces, nil
}

// SumTag is the hash of the template with that tag.
func (r *Release) SumTag(pieces [][]byte, tag string, count int) uint32 {
	return r.Sum(bytes.Join(pieces, []byte(tag)), count)
}

const adlerMod = 65521

// state is what a checksum has come to before its last bytes. Adler-32 keeps
// two sums in it.
type state uint32

func adler(s state, b []byte) state {
	lo, hi := uint32(s)&0xffff, uint32(s)>>16
	for len(b) > 0 {
		part := b
		if len(part) > 5552 { // so that hi stays below 2^32
			part = part[:5552]
		}
		for _, c := range part {
			lo += uint32(c)
			hi += lo
		}
		lo %= adlerMod
		hi %= adlerMod
		b = b[len(part):]
	}
	return state(hi<<16 | lo)
}

func fnv1a(s state, b []byte) state {
	for _, c := range b {
		s = (s ^ state(c)) * 16777619
	}
	return s
}

// A Group is tags that make one hash, by their indices, ascending.
type Group []int32

// Collide returns the groups of two or more tags whose templates have one hash,
// by their first tag. pieces are those of Pieces.
//
// Each step of either checksum is a one-to-one map of its state, so that tags
// collide if and only if the states after the last place of the tag are the
// same: what follows need not be read, nor the collision count. What comes
// before the first place is read once.
func (r *Release) Collide(pieces [][]byte, tags []string) []Group {
	step, first := fnv1a, state(2166136261)
	if r.Algorithm == "adler32" {
		step, first = adler, 1
	}
	first = step(first, pieces[0])
	between := pieces[1 : len(pieces)-1]
	return group(len(tags), func(i int) uint64 {
		s := step(first, []byte(tags[i]))
		for _, p := range between {
			s = step(step(s, p), []byte(tags[i]))
		}
		return uint64(s)
	})
}

// group puts the indices below n with one key together. The table is open
// addressed: a map of a million keys takes most of a second.
func group(n int, key func(int) uint64) []Group {
	bits := 4
	for 1<<bits < 2*n {
		bits++
	}
	var (
		mask   = uint64(1)<<bits - 1
		slots  = make([]int32, 1<<bits) // 0 free, else 1 + the first index with that key
		keys   = make([]uint64, n)
		member = map[int32]int32{} // first index -> its group, once there are two
		groups []Group
	)
	for i := range keys {
		keys[i] = key(i)
		for at := keys[i] * 0x9e3779b97f4a7c15 >> (64 - bits); ; at = (at + 1) & mask {
			if slots[at] == 0 {
				slots[at] = int32(i) + 1
				break
			}
			first := slots[at] - 1
			if keys[first] != keys[i] {
				continue
			}
			g, ok := member[first]
			if !ok {
				g = int32(len(groups))
				member[first] = g
				groups = append(groups, Group{first})
			}
			groups[g] = append(groups[g], int32(i))
			break
		}
	}
	// In the order of their first tags, not of their second.
	slices.SortFunc(groups, func(a, b Group) int { return int(a[0]) - int(b[0]) })
	return groups
}

// Pairs is how many pairs of tags the groups hold.
func Pairs(groups []Group) int {
	n := 0
	for _, g := range groups {
		n += len(g) * (len(g) - 1) / 2
	}
	return n
}
