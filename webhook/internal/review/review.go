// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"holdfast/webhook/internal/names"
	"holdfast/webhook/internal/rules"
)

// Decision is the place of one address.
type Decision struct {
	Place rules.Place
	Rule  string
	// Behind: the program knows an older state of the pod than the address is of.
	// Such an address is never moved to ready, and stays where it was.
	Behind bool
	// Known is false where there is no verdict, and the address stays as it came.
	Known bool
}

// Judge knows the verdicts. It must not call an API server.
type Judge interface {
	// Skip is why the Endpoints of that name are none of the program's business;
	// "" where they are.
	Skip(namespace, name string) string
	// Decide is the place of an address of Endpoints that are not skipped.
	Decide(namespace, name string, a Address) Decision
}

// Request is the part of an AdmissionRequest that is read.
type Request struct {
	UID             string
	Group, Kind     string
	Namespace, Name string
	Operation       string
	// Object and OldObject are JSON as it came; "" where there is none.
	Object, OldObject string
}

// Review is an AdmissionReview as it comes in.
type Review struct {
	APIVersion string
	Request    Request
}

// The versions that are answered; 1.9 asks in the first.
const (
	V1beta1 = "admission.k8s.io/v1beta1"
	V1      = "admission.k8s.io/v1"
)

// texts reads members that are texts; a missing or null one is "".
func texts(n *node, to map[string]*string) error {
	for key, s := range to {
		switch v := n.get(key); {
		case v == nil || v.kind == null:
		case v.kind == str:
			*s = unquote(v.raw)
		default:
			return fmt.Errorf("not an AdmissionReview: %q is no text", key)
		}
	}
	return nil
}

// Parse reads an AdmissionReview. The texts of the result are parts of body.
func Parse(body string) (*Review, error) {
	// Request, its members, and theirs: the objects are not taken apart yet.
	n, err := parseJSON(body, 3)
	if err != nil {
		return nil, fmt.Errorf("not an AdmissionReview: %w", err)
	}
	r, kind := &Review{}, ""
	q := &r.Request
	in := n.get("request")
	if err := errors.Join(
		texts(n, map[string]*string{"apiVersion": &r.APIVersion, "kind": &kind}),
		texts(in, map[string]*string{"uid": &q.UID, "namespace": &q.Namespace, "name": &q.Name, "operation": &q.Operation}),
		texts(in.get("kind"), map[string]*string{"group": &q.Group, "kind": &q.Kind})); err != nil {
		return nil, err
	}
	for key, s := range map[string]*string{"object": &q.Object, "oldObject": &q.OldObject} {
		if v := in.get(key); v != nil && v.kind != null {
			*s = v.raw
		}
	}
	switch {
	case kind != "AdmissionReview" || r.APIVersion != V1beta1 && r.APIVersion != V1:
		return nil, fmt.Errorf("%q of %q: it is an AdmissionReview of %s or %s", kind, r.APIVersion, V1beta1, V1)
	case q.UID == "":
		return nil, errors.New("an AdmissionReview without a request or its uid")
	}
	return r, nil
}

// Answer is the body of an answer in the version of the question; patch may be nil.
// Every answer allows.
func Answer(version, uid string, patch []byte) []byte {
	out := make([]byte, 0, 200+len(version)+len(uid)+base64.StdEncoding.EncodedLen(len(patch)))
	out = append(out, `{"apiVersion":`+quote(version)+`,"kind":"AdmissionReview","response":{"uid":`+quote(uid)+`,"allowed":true`...)
	if patch != nil {
		out = append(out, `,"patch":"`...)
		out = base64.StdEncoding.AppendEncode(out, patch)
		out = append(out, `","patchType":"JSONPatch"`...)
	}
	return append(out, "}}"...)
}

// Move is one address that was placed elsewhere, or would be.
type Move struct {
	Pod, IP  string
	From, To rules.Place
	Rule     string
}

// Result is what was decided of a request.
type Result struct {
	// Patch is nil where the object stays as it is; then Skipped may say why.
	Patch   []byte
	Skipped string
	Moves   []Move
	// Behind counts addresses that stayed where they were, because the program
	// knows too old a state of their pods.
	Behind int
	// Unpatchable is why a patch was thrown away; the object stays as it is.
	Unpatchable error
}

// Do judges one request.
func Do(req *Request, j Judge) (Result, error) {
	if req.Kind != "Endpoints" || req.Group != "" || req.Operation != "CREATE" && req.Operation != "UPDATE" {
		return Result{Skipped: "no create or update of Endpoints"}, nil
	}
	name := req.Name
	o, err := parseObject(req.Object)
	if err != nil {
		return Result{}, fmt.Errorf("the object: %w", err)
	}
	if name == "" {
		name = o.root.get("metadata").text("name") // a create may leave it out of the request
	}
	if o.annotations().get(names.Leader) != nil {
		return Result{Skipped: "it is a lock"}, nil
	}
	if why := j.Skip(req.Namespace, name); why != "" {
		return Result{Skipped: why}, nil
	}
	var old map[string]bool
	res := Result{}
	c := &change{o: o}
	counts := map[string]int{}
	place := func(a *node, ready bool) rules.Place {
		was := rules.NotReady
		if ready {
			was = rules.Ready
		}
		addr := addressOf(a)
		if addr.UID == "" {
			return was
		}
		d := j.Decide(req.Namespace, name, addr)
		if !d.Known {
			return was
		}
		to := d.Place
		if d.Behind {
			res.Behind++
			if old == nil {
				old = oldPlaces(req.OldObject)
			}
			to = was
			if r, ok := old[addr.UID]; ready && (!ok || !r) {
				to = rules.NotReady
			}
		}
		if to == rules.Leave {
			to = was
		}
		if d.Rule != "" && !d.Behind && d.Place != rules.Leave {
			counts[d.Rule]++
		}
		if to != was {
			res.Moves = append(res.Moves, Move{Pod: addr.PodName, IP: addr.IP, From: was, To: to, Rule: d.Rule})
		}
		return to
	}
	for _, s := range o.subsets {
		n := subset{node: s.node, ready: make([]*node, 0, len(s.ready)), notReady: make([]*node, 0, len(s.notReady))}
		put := func(a *node, to rules.Place) {
			switch to {
			case rules.Ready:
				n.ready = append(n.ready, a)
			case rules.NotReady:
				n.notReady = append(n.notReady, a)
			}
		}
		for _, a := range s.ready {
			put(a, place(a, true))
		}
		before := len(n.notReady)
		for _, a := range s.notReady {
			put(a, place(a, false))
		}
		if before > 0 || len(n.ready)+len(n.notReady) != len(s.ready)+len(s.notReady) || len(n.ready) != len(s.ready) {
			order(n.ready)
			order(n.notReady)
		}
		c.subsets = append(c.subsets, n)
	}
	c.note = Note(counts)
	if res.Patch, res.Unpatchable = c.patch(); res.Unpatchable != nil {
		res.Patch = nil
	}
	return res, nil
}

// oldPlaces is empty where there is no old object that can be read.
func oldPlaces(raw string) map[string]bool {
	if raw == "" {
		return map[string]bool{}
	}
	o, err := parseObject(raw)
	if err != nil {
		return map[string]bool{}
	}
	return o.places()
}

// maxNote keeps the annotation small whatever rules there are.
const maxNote = 4 << 10

// Note is the value of the annotation names.Rules: "a=1,b=3" by names, "" for none.
func Note(counts map[string]int) string {
	var parts []string
	for _, r := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, r+"="+strconv.Itoa(counts[r]))
	}
	s := strings.Join(parts, ",")
	if len(s) > maxNote {
		s = s[:strings.LastIndexByte(s[:maxNote-4], ',')] + ",..."
	}
	return s
}
