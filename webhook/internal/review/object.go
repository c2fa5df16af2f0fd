// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package review answers admission reviews of Endpoints: it takes the object
// apart as JSON, asks for the place of each address, and makes a patch that
// kube-apiserver 1.9.11 applies as it is meant.
package review

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// tree is a JSON object with its numbers as they were written.
type tree = map[string]any

// decode reads one JSON value.
func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

// Address is what decides about one address.
type Address struct {
	IP, Hostname, NodeName string
	// PodName, UID and ResourceVersion are of targetRef; UID is "" where that is
	// no Pod.
	PodName, UID, ResourceVersion string
}

func text(t tree, key string) string { s, _ := t[key].(string); return s }

func addressOf(t tree) Address {
	a := Address{IP: text(t, "ip"), Hostname: text(t, "hostname"), NodeName: text(t, "nodeName")}
	if ref, ok := t["targetRef"].(tree); ok && text(ref, "kind") == "Pod" {
		a.PodName, a.UID, a.ResourceVersion = text(ref, "name"), text(ref, "uid"), text(ref, "resourceVersion")
	}
	return a
}

// subset is one element of .subsets. The lists are those of the object; what is
// changed is put into new ones.
type subset struct {
	whole           tree
	ready, notReady []tree
}

// object is an Endpoints object.
type object struct {
	whole   tree
	subsets []subset
}

// list reads a list of objects; a missing or null one is empty.
func list(t tree, key string) ([]tree, error) {
	v, ok := t[key]
	if !ok || v == nil {
		return nil, nil
	}
	l, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("%q is no list", key)
	}
	out := make([]tree, len(l))
	for i := range l {
		if out[i], ok = l[i].(tree); !ok {
			return nil, fmt.Errorf("%q has an element that is no object", key)
		}
	}
	return out, nil
}

func parseObject(raw []byte) (*object, error) {
	v, err := decode(raw)
	if err != nil {
		return nil, err
	}
	t, ok := v.(tree)
	if !ok {
		return nil, errors.New("it is no object")
	}
	o := &object{whole: t}
	subsets, err := list(t, "subsets")
	if err != nil {
		return nil, err
	}
	for _, s := range subsets {
		ready, err := list(s, "addresses")
		if err != nil {
			return nil, err
		}
		notReady, err := list(s, "notReadyAddresses")
		if err != nil {
			return nil, err
		}
		o.subsets = append(o.subsets, subset{s, ready, notReady})
	}
	return o, nil
}

func (o *object) meta() tree { m, _ := o.whole["metadata"].(tree); return m }

func (o *object) annotations() tree { a, _ := o.meta()["annotations"].(tree); return a }

// places are where the pods of an object are; a pod in both lists of different
// subsets counts as not ready.
func (o *object) places() map[string]bool {
	out := map[string]bool{}
	for _, s := range o.subsets {
		for _, a := range s.ready {
			if uid := addressOf(a).UID; uid != "" {
				if _, ok := out[uid]; !ok {
					out[uid] = true
				}
			}
		}
		for _, a := range s.notReady {
			if uid := addressOf(a).UID; uid != "" {
				out[uid] = false
			}
		}
	}
	return out
}

// order sorts addresses as the endpoints controller does: by IP, then by UID.
func order(l []tree) {
	slices.SortStableFunc(l, func(a, b tree) int {
		if c := strings.Compare(text(a, "ip"), text(b, "ip")); c != 0 {
			return c
		}
		return strings.Compare(addressOf(a).UID, addressOf(b).UID)
	})
}
