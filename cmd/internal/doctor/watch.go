// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeapi"
)

const (
	// maxAddresses is how many addresses are followed, and maxEvent how large one event may be.
	maxAddresses = 100_000
	maxEvent     = 16 << 20
	// watchPart is how long one watch lasts, and watchPause what is between two.
	watchPart  = 4 * time.Minute
	watchPause = time.Second
)

// followed is an address of a Service: whether it is there, and how often it has gone.
type followed struct {
	on  bool
	off int
}

type addressKey struct {
	service string
	address
}

// flaps follows the Endpoints of all Services.
type flaps struct {
	all  map[addressKey]*followed
	of   map[string][]addressKey
	full bool
}

func newFlaps() *flaps { return &flaps{all: map[addressKey]*followed{}, of: map[string][]addressKey{}} }

// see takes what the Endpoints of a Service are now.
func (f *flaps) see(service string, ready []address) {
	now := map[address]bool{}
	for _, a := range ready {
		now[a] = true
	}
	for _, k := range f.of[service] {
		if x := f.all[k]; x.on && !now[k.address] {
			x.on = false
			x.off++
		}
	}
	for _, a := range ready {
		k := addressKey{service, a}
		x := f.all[k]
		if x == nil {
			if len(f.all) >= maxAddresses {
				f.full = true
				continue
			}
			x = &followed{}
			f.all[k] = x
			f.of[service] = append(f.of[service], k)
		}
		x.on = true
	}
}

// findings are the addresses that went at least twice.
func (f *flaps) findings(asked, took time.Duration) []finding.Finding {
	var signs []sign
	for k, x := range f.all {
		if x.off >= 2 {
			who := k.pod
			if who == "" {
				who = k.ip
			}
			signs = append(signs, sign{code: "HF603", object: "service " + k.service, text: fmt.Sprintf("addresses left, returned and left again within %s", took.Round(time.Second)),
				item: fmt.Sprintf("%s (left %d times)", who, x.off), remedy: "check the pods' probes, and what was done to the pods"})
		}
	}
	out := findings(signs)
	if f.full {
		out = append(out, finding.Of("HF603", "endpoints", fmt.Sprintf("only the first %d addresses were followed", maxAddresses), "").At(finding.Unknown))
	}
	if took < asked-watchPause {
		out = append(out, finding.Of("HF603", "endpoints", fmt.Sprintf("followed for %s of %s", took.Round(time.Second), asked), "").At(finding.Unknown))
	}
	return out
}

// follow watches the Endpoints of all namespaces for that time, or until ctx ends.
func follow(ctx context.Context, a *kubeapi.Client, long time.Duration) []finding.Finding {
	begin, f := time.Now(), newFlaps()
	watching, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	var last error
	seen := false
	for watching.Err() == nil {
		err := f.once(watching, a)
		if watching.Err() == nil {
			last = err
		}
		seen = seen || err == nil
		select {
		case <-watching.Done():
		case <-time.After(watchPause):
		}
	}
	out := f.findings(long, min(time.Since(begin), long))
	if !seen && last != nil {
		out = append(out, finding.Of("HF603", "endpoints", "not followed: "+why(last, "watch", "endpoints"), "").At(finding.Unknown))
	}
	return out
}

// once lists the Endpoints and follows them until the watch ends. It is nil if the watch began.
func (f *flaps) once(ctx context.Context, a *kubeapi.Client) error {
	there := map[string]bool{}
	_, version, err := a.List(ctx, "/api/v1/endpoints", maxList, listTimeout, func(raw json.RawMessage) error {
		o, err := decodeEndpoints(raw)
		if err != nil {
			return err
		}
		there[o.Metadata.id()] = true
		f.see(o.Metadata.id(), o.ready())
		return nil
	})
	if err != nil {
		return err
	}
	for id := range f.of {
		if !there[id] {
			f.see(id, nil)
		}
	}
	if version == "" || strings.ContainsFunc(version, func(r rune) bool { return r < '0' || r > '9' }) {
		return errors.New("the list has no resourceVersion")
	}
	path := fmt.Sprintf("/api/v1/endpoints?watch=true&resourceVersion=%s&timeoutSeconds=%d", version, int(watchPart.Seconds()))
	body, _, err := a.Stream(ctx, path)
	if err != nil {
		return err
	}
	defer body.Close()
	bounded := &io.LimitedReader{R: body}
	d := json.NewDecoder(bounded)
	for {
		bounded.N = maxEvent
		var event struct {
			Type   string
			Object json.RawMessage
		}
		if d.Decode(&event) != nil {
			return nil // the watch is over, and the next list goes on from there
		}
		o, err := decodeEndpoints(event.Object)
		switch {
		case err != nil || event.Type == "ERROR":
			return nil
		case event.Type == "DELETED":
			f.see(o.Metadata.id(), nil)
		case event.Type == "ADDED" || event.Type == "MODIFIED":
			f.see(o.Metadata.id(), o.ready())
		}
	}
}
