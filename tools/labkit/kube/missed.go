// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// An API server of 1.9 that starts, or whose etcd does, forgets what its watchers have
// missed meanwhile. etcd has not: each of its revisions is a change of one object. An object
// that changed once is in the list after it as it was then, so that nothing is missing.

// stored are the folders of resources below /registry/ that are not called as the resource.
var stored = map[string]string{"endpoints": "services/endpoints", "services": "services/specs", "nodes": "minions", "replicationcontrollers": "controllers"}

const missedBound = 10 * time.Second

// change is what etcd tells of one revision of one object.
type change struct {
	ns, name string
	revision int64
	created  bool
	deleted  bool
}

// missed are the events after rec.last up to l. The error says why they cannot be told.
func (rec *Recorder) missed(ctx context.Context, l *unstructured.UnstructuredList) ([]RecordedEvent, error) {
	if rec.c.etcd == "" {
		return nil, errors.New("etcd cannot be asked")
	}
	from, err := strconv.ParseInt(rec.last, 10, 64)
	if err != nil {
		return nil, err
	}
	to, err := strconv.ParseInt(l.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, missedBound)
	defer cancel()
	folder := rec.r.Resource
	if f, ok := stored[folder]; ok {
		folder = f
	}
	folder = "/registry/" + folder + "/"
	if rec.ns != "" {
		folder += rec.ns + "/"
	}
	changes, err := changesIn(ctx, rec.c.etcd, folder, rec.ns, from, to)
	if err != nil {
		return nil, err
	}
	return eventsOf(changes, l.Items, rec.Latest)
}

// eventsOf makes events of changes, each of another object of those listed after them, or
// gone.
func eventsOf(changes []change, listed []Object, latest func(ns, name string) *Object) ([]RecordedEvent, error) {
	now := time.Now()
	seen := map[string]bool{}
	var out []RecordedEvent
	for _, c := range changes {
		if seen[c.ns+"/"+c.name] {
			return nil, fmt.Errorf("%s/%s changed more than once", c.ns, c.name)
		}
		seen[c.ns+"/"+c.name] = true
		revision := strconv.FormatInt(c.revision, 10)
		ev := RecordedEvent{Time: now, Type: string(watch.Modified)}
		if c.deleted {
			was := latest(c.ns, c.name)
			if was == nil {
				return nil, fmt.Errorf("%s/%s was deleted and is not known", c.ns, c.name)
			}
			ev.Type, ev.Object = string(watch.Deleted), was.DeepCopy()
			ev.Object.SetResourceVersion(revision)
			out = append(out, ev)
			continue
		}
		if c.created {
			ev.Type = string(watch.Added)
		}
		for i := range listed {
			if o := &listed[i]; o.GetNamespace() == c.ns && o.GetName() == c.name && o.GetResourceVersion() == revision {
				ev.Object = o
			}
		}
		if ev.Object == nil {
			return nil, fmt.Errorf("%s/%s at revision %d is not in the list", c.ns, c.name, c.revision)
		}
		out = append(out, ev)
	}
	return out, nil
}

// changesIn reads etcd's history after the revision from up to to, and keeps what is in the
// folder. ns is that of the folder, "" if the namespace follows it, or if there is none.
func changesIn(ctx context.Context, url, folder, ns string, from, to int64) ([]change, error) {
	if from >= to {
		return nil, nil
	}
	// All keys, as the last revision is of any: that ends the reading.
	all := base64.StdEncoding.EncodeToString([]byte{0})
	body := fmt.Sprintf(`{"create_request":{"key":%q,"range_end":%q,"start_revision":"%d"}}`, all, all, from+1)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v3/watch", bytes.NewBufferString(body))
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("etcd answers %s", resp.Status)
	}
	var out []change
	for dec := json.NewDecoder(resp.Body); ; {
		var a watchAnswer
		if err := dec.Decode(&a); err != nil {
			return nil, fmt.Errorf("etcd's history: %w", err)
		}
		if a.Result.Canceled {
			return nil, fmt.Errorf("etcd's history begins at %s: %s", cmp.Or(a.Result.CompactRevision, "?"), a.Result.CancelReason)
		}
		for _, ev := range a.Result.Events {
			rev, err := strconv.ParseInt(ev.KV.ModRevision, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("etcd's history: %w", err)
			}
			if rev > to {
				return sorted(out), nil
			}
			name, in := strings.CutPrefix(string(ev.KV.Key), folder)
			if in {
				c := change{ns: ns, name: name, revision: rev, deleted: ev.Type == "DELETE", created: ev.KV.CreateRevision == ev.KV.ModRevision}
				if n, rest, ok := strings.Cut(name, "/"); ok {
					c.ns, c.name = n, rest
				}
				out = append(out, c)
			}
			if rev == to && ev == a.Result.Events[len(a.Result.Events)-1] {
				return sorted(out), nil
			}
		}
	}
}

func sorted(cs []change) []change {
	slices.SortStableFunc(cs, func(a, b change) int { return cmp.Compare(a.revision, b.revision) })
	return cs
}

// watchAnswer is a line of etcd's JSON gateway, which writes 64-bit numbers as strings.
type watchAnswer struct {
	Result struct {
		Canceled        bool         `json:"canceled"`
		CancelReason    string       `json:"cancel_reason"`
		CompactRevision string       `json:"compact_revision"`
		Events          []*etcdEvent `json:"events"`
	} `json:"result"`
}

type etcdEvent struct {
	Type string `json:"type"` // "DELETE", or nothing for PUT
	KV   struct {
		Key            []byte `json:"key"`
		CreateRevision string `json:"create_revision"`
		ModRevision    string `json:"mod_revision"`
	} `json:"kv"`
}
