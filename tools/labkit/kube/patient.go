// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// patience bounds how long a request is repeated.
	patience = 20 * time.Second
	// patientPause is the pause between two tries.
	patientPause = 100 * time.Millisecond
)

// patient repeats requests while a kill test has a component down: reads, and those that had no
// effect, or have the same one only once. Without a kill test, disturbed is never true and every
// answer is passed on.
type patient struct {
	next      http.RoundTripper
	disturbed func() bool
}

func (p *patient) RoundTrip(r *http.Request) (*http.Response, error) {
	until := time.Now().Add(patience)
	unknown := false // whether an earlier try had an effect
	for {
		resp, err := p.next.RoundTrip(r)
		if err == nil && unknown {
			return p.done(r, resp)
		}
		if !p.disturbed() || time.Now().After(until) || !repeatable(r, resp, err) {
			return resp, err
		}
		unknown = unknown || !read(r) && err != nil && !refusedBy(err)
		if r.Body != nil && r.Body != http.NoBody {
			if r.GetBody == nil {
				return resp, err
			}
			body, bodyErr := r.GetBody()
			if bodyErr != nil {
				return resp, err
			}
			r = r.Clone(r.Context())
			r.Body = body
		}
		if resp != nil {
			resp.Body.Close()
		}
		select {
		case <-time.After(patientPause):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// done is the answer to a write that was sent again, and may have had its effect at once: what
// it makes is there then.
func (p *patient) done(r *http.Request, resp *http.Response) (*http.Response, error) {
	if r.Method != http.MethodPost || resp.StatusCode != http.StatusConflict {
		return resp, nil
	}
	get, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.URL.String()+"/"+nameIn(r), nil)
	if err != nil {
		return resp, nil
	}
	get.Header = r.Header.Clone()
	get.Header.Del("Content-Type")
	made, err := p.RoundTrip(get)
	if err != nil || made.StatusCode != http.StatusOK {
		return resp, nil
	}
	resp.Body.Close()
	made.StatusCode, made.Status = http.StatusCreated, "201 Created"
	return made, nil
}

// nameIn is that of the object that r makes, "" if the server is to choose it.
func nameIn(r *http.Request) string {
	if r.GetBody == nil {
		return ""
	}
	body, err := r.GetBody()
	if err != nil {
		return ""
	}
	defer body.Close()
	var o struct {
		Metadata struct{ Name string } `json:"metadata"`
	}
	if json.NewDecoder(body).Decode(&o) != nil {
		return ""
	}
	return o.Metadata.Name
}

func read(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// refusedBy says whether nobody has got the request.
func refusedBy(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// twice says whether a request that may have had its effect can be sent again: it has the same
// effect only once. That is not so of a deletion, as a controller may have made the object
// again, nor of what is posted to an object, as a rollback is.
func twice(r *http.Request) bool {
	switch r.Method {
	case http.MethodPost:
		name := nameIn(r)
		return name != "" && !strings.Contains(r.URL.Path, "/"+name+"/")
	case http.MethodPatch:
		kind := types.PatchType(r.Header.Get("Content-Type"))
		return kind == types.MergePatchType || kind == types.StrategicMergePatchType
	}
	return read(r)
}

// repeatable says whether a request that got this answer can be sent again.
func repeatable(r *http.Request, resp *http.Response, err error) bool {
	if err != nil {
		return r.Context().Err() == nil && (refusedBy(err) || twice(r))
	}
	if resp.StatusCode < http.StatusInternalServerError && resp.StatusCode != http.StatusForbidden {
		return false
	}
	if read(r) && resp.StatusCode != http.StatusForbidden {
		return true
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(b))
	if err != nil {
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(b), failing{err}))
		return false
	}
	for _, text := range unsent {
		if strings.Contains(string(b), text) {
			return true
		}
	}
	return false
}

// unsent are answers of an API server that has not done anything yet: etcd is away, or its
// own caches are not filled.
var unsent = []string{"grpc: the connection is unavailable", "not yet ready to handle request"}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
