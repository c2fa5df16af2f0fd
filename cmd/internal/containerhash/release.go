// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package containerhash computes the hashes that kubelets of 1.6 and later
// record for a container, from the container's spec in JSON, and says which
// release recorded a given hash.
//
// The hash is fnv32a of a text, and the text depends on the release:
//
//   - up to 1.15 it is go-spew's dump of the v1.Container, which names every
//     field of the release's type, set or not;
//   - from 1.16 on it is go-spew's dump of the bytes of the container's JSON;
//   - from 1.31 on it is the same of an object with name and image only.
//
// Releases before 1.6 recorded adler32 of other fields and are not known.
package containerhash

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	"holdfast/cmd/internal/dump"
)

// form is how a release makes the text that it hashes.
type form int

const (
	spewForm form = iota
	jsonForm
	nameAndImageForm
)

// The minor releases with which the form changed.
const (
	firstJSON         = 16
	firstNameAndImage = 31
)

// Release is one minor release.
type Release struct {
	// Name is "1.9".
	Name  string
	minor int
	form  form
	node  *dump.Node
	// hexWords: the release was built with Go 1.8 or before, see dump.Layout.
	hexWords bool
}

// Set is all releases, newest first.
type Set struct {
	Releases []*Release
	newest   *dump.Node
}

// All returns the releases that this program knows. It fails only if the table
// in it is broken.
var All = sync.OnceValues(func() (*Set, error) {
	table, err := load()
	if err != nil {
		return nil, err
	}
	s := &Set{}
	for m := Last; m >= First; m-- {
		node, err := table.compile(m)
		if err != nil {
			return nil, fmt.Errorf("table.json, 1.%d: %w", m, err)
		}
		r := &Release{Name: fmt.Sprintf("1.%d", m), minor: m, node: node, hexWords: m <= 8}
		switch {
		case m >= firstNameAndImage:
			r.form = nameAndImageForm
		case m >= firstJSON:
			r.form = jsonForm
		}
		s.Releases = append(s.Releases, r)
	}
	s.newest = s.Releases[0].node
	return s, nil
})

// Find returns the releases named, or an error that says which there are.
func (s *Set) Find(names []string) ([]*Release, error) {
	for _, n := range names {
		if !slices.ContainsFunc(s.Releases, func(r *Release) bool { return r.Name == n }) {
			return nil, fmt.Errorf("release %q is unknown: use 1.%d to 1.%d", n, First, Last)
		}
	}
	// In the order of all, whatever the order of names: newest first, each once.
	var out []*Release
	for _, r := range s.Releases {
		if slices.Contains(names, r.Name) {
			out = append(out, r)
		}
	}
	return out, nil
}

// Options say how a container came to the kubelet.
type Options struct {
	// Wire: through the API, that is as protobuf, and not from a JSON file.
	Wire bool
	// NewerGo: the kubelet was built with Go 1.9 or later, also where upstream's was
	// built with an older one. 1.6 to 1.8 have builds of both kinds.
	NewerGo bool
}

// Text is what r hashes for the container.
func (r *Release) Text(container map[string]any, o Options) ([]byte, error) {
	l := dump.Layout{Wire: o.Wire, HexWords: r.hexWords && !o.NewerGo}
	switch r.form {
	case spewForm:
		return r.node.Spew(container, l)
	case jsonForm:
		text, err := r.node.JSON(container, l)
		return dump.SpewBytes(text), err
	}
	// What else is in the spec must be decoded, too.
	if _, err := r.node.Spew(container, l); err != nil {
		return nil, err
	}
	name, _ := container["name"].(string)
	image, _ := container["image"].(string)
	text, err := json.Marshal(map[string]string{"image": image, "name": name})
	return dump.SpewBytes(text), err
}

// Hash is the hash that r records for the container.
func (r *Release) Hash(container map[string]any, o Options) (uint32, error) {
	text, err := r.Text(container, o)
	if err != nil {
		return 0, err
	}
	h := fnv.New32a()
	_, _ = h.Write(text)
	return h.Sum32(), nil
}

// Unknown lists the fields that are set and that r does not know; what it
// records then is not the hash of this spec. A release that hashes only name
// and image has none.
func (s *Set) Unknown(r *Release, container map[string]any) []string {
	if r.form == nameAndImageForm {
		return nil
	}
	unknown, _ := r.node.Unknown(s.newest, container)
	return unknown
}

// Stray lists the fields of the container that no release knows.
func (s *Set) Stray(container map[string]any) []string {
	_, stray := s.newest.Unknown(s.newest, container)
	return stray
}
