// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package review answers admission reviews of Endpoints: it takes the object
// apart as JSON, asks for the place of each address, and makes a patch that
// kube-apiserver 1.9.11 applies as it is meant.
package review

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Address is what decides about one address.
type Address struct {
	IP, Hostname, NodeName string
	// PodName, UID and ResourceVersion are of targetRef; UID is "" where that is
	// no Pod.
	PodName, UID, ResourceVersion string
}

func addressOf(n *node) Address {
	a := Address{IP: n.text("ip"), Hostname: n.text("hostname"), NodeName: n.text("nodeName")}
	if ref := n.get("targetRef"); ref.text("kind") == "Pod" {
		a.PodName, a.UID, a.ResourceVersion = ref.text("name"), ref.text("uid"), ref.text("resourceVersion")
	}
	return a
}

// subset is one element of .subsets. The addresses are those of the object; what is
// changed is put into new lists.
type subset struct {
	node            *node
	ready, notReady []*node
}

// endpointsObject is an Endpoints object.
type endpointsObject struct {
	root    *node
	subsets []subset
}

// objects are the elements of a list of objects; a missing or null one is empty.
func objects(n *node, key string) ([]*node, error) {
	v := n.get(key)
	if v == nil || v.kind == null {
		return nil, nil
	}
	if v.kind != list {
		return nil, fmt.Errorf("%q is no list", key)
	}
	out := make([]*node, len(v.kids))
	for i := range v.kids {
		if out[i] = &v.kids[i]; out[i].kind != object {
			return nil, fmt.Errorf("%q has an element that is no object", key)
		}
	}
	return out, nil
}

// addresses are those of a list. What is no object would be lost in their patch.
func addresses(n *node, key string) ([]*node, error) {
	l, err := objects(n, key)
	for _, a := range l {
		if ref := a.get("targetRef"); ref != nil && ref.kind != object && ref.kind != null {
			return nil, fmt.Errorf("%q has an element whose targetRef is no object", key)
		}
	}
	return l, err
}

func parseObject(raw string) (*endpointsObject, error) {
	n, err := parseJSON(raw, whole)
	if err != nil {
		return nil, err
	}
	if n.kind != object {
		return nil, errors.New("it is no object")
	}
	o := &endpointsObject{root: n}
	subsets, err := objects(n, "subsets")
	if err != nil {
		return nil, err
	}
	for _, s := range subsets {
		ready, err := addresses(s, "addresses")
		if err != nil {
			return nil, err
		}
		notReady, err := addresses(s, "notReadyAddresses")
		if err != nil {
			return nil, err
		}
		o.subsets = append(o.subsets, subset{s, ready, notReady})
	}
	return o, nil
}

// annotations are nil where there are none.
func (o *endpointsObject) annotations() *node {
	if a := o.root.get("metadata").get("annotations"); a != nil && a.kind == object {
		return a
	}
	return nil
}

// places are where the pods of an object are; a pod in both lists of different
// subsets counts as not ready.
func (o *endpointsObject) places() map[string]bool {
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
func order(l []*node) {
	type keyed struct {
		ip, uid string
		n       *node
	}
	by := make([]keyed, len(l))
	for i, n := range l {
		a := addressOf(n)
		by[i] = keyed{a.IP, a.UID, n}
	}
	slices.SortStableFunc(by, func(a, b keyed) int {
		if c := strings.Compare(a.ip, b.ip); c != 0 {
			return c
		}
		return strings.Compare(a.uid, b.uid)
	})
	for i := range by {
		l[i] = by[i].n
	}
}
