// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package auditrv

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// raw are the undecoded values that matter of an audit event. audit.k8s.io v1alpha1,
// v1beta1 (log files of 1.8 to 1.23) and v1 (since 1.12) agree on them.
type raw struct {
	stage, auditID, requestURI, verb, userAgent, user, sourceIPs, objectRef, responseStatus, responseObject []byte
	// timestamp is the only time that 1.7 and 1.8 write: when the request was
	// received, in seconds, also in the events of the later stages.
	timestamp, requestReceivedTimestamp, stageTimestamp []byte
}

func (r *raw) set(key, value []byte) {
	switch string(key) {
	case "stage":
		r.stage = value
	case "auditID":
		r.auditID = value
	case "requestURI":
		r.requestURI = value
	case "verb":
		r.verb = value
	case "userAgent":
		r.userAgent = value
	case "user":
		r.user = value
	case "sourceIPs":
		r.sourceIPs = value
	case "objectRef":
		r.objectRef = value
	case "responseStatus":
		r.responseStatus = value
	case "responseObject":
		r.responseObject = value
	case "timestamp":
		r.timestamp = value
	case "requestReceivedTimestamp":
		r.requestReceivedTimestamp = value
	case "stageTimestamp":
		r.stageTimestamp = value
	}
}

// event is a decoded event.
type event struct {
	stage, auditID, requestURI, verb, userAgent, user, source string
	ref                                                       *objectRef
	code                                                      int
	rv                                                        string // of the response object
	received, written                                         time.Time
	// coarse is set if written is not in the event, but a guess from the lines before.
	coarse bool
}

type objectRef struct {
	Resource        string `json:"resource"`
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	APIGroup        string `json:"apiGroup"`
	APIVersion      string `json:"apiVersion"`
	ResourceVersion string `json:"resourceVersion"`
	Subresource     string `json:"subresource"`
}

func (r *raw) decode() (*event, error) {
	e := &event{stage: text(r.stage), auditID: text(r.auditID), requestURI: text(r.requestURI), verb: text(r.verb), userAgent: text(r.userAgent)}
	var user struct {
		Username string `json:"username"`
	}
	var sources []string
	var status struct {
		Code int `json:"code"`
	}
	for _, v := range []struct {
		name string
		raw  []byte
		into any
	}{{"user", r.user, &user}, {"sourceIPs", r.sourceIPs, &sources}, {"objectRef", r.objectRef, &e.ref}, {"responseStatus", r.responseStatus, &status}} {
		if v.raw == nil {
			continue
		}
		if err := json.Unmarshal(v.raw, v.into); err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
	}
	e.user, e.code = user.Username, status.Code
	if len(sources) > 0 {
		e.source = sources[0]
	}
	if len(r.responseObject) > 0 && r.responseObject[0] == '{' {
		_ = fields(r.responseObject, func(key, value []byte) {
			if string(key) == "metadata" && value[0] == '{' {
				_ = fields(value, func(key, value []byte) {
					if string(key) == "resourceVersion" {
						e.rv = text(value)
					}
				})
			}
		})
	}
	var err error
	if e.received, err = firstTime(r.requestReceivedTimestamp, r.timestamp, r.stageTimestamp); err != nil {
		return nil, err
	}
	e.coarse = r.stageTimestamp == nil
	e.written, err = firstTime(r.stageTimestamp, r.timestamp, r.requestReceivedTimestamp)
	return e, err
}

func firstTime(raws ...[]byte) (time.Time, error) {
	for _, raw := range raws {
		s := text(raw)
		if s == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			return time.Time{}, err
		}
		if !t.IsZero() {
			return t, nil
		}
	}
	return time.Time{}, errors.New(`the event has neither "stageTimestamp" nor "timestamp"`)
}

// LineError is a line that is no audit event. The lines after it are still read.
type LineError struct {
	File string
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// legacy is in every line of the audit log before there were policies.
var legacy = []byte(" AUDIT: ")

// maxLine bounds a line. An event with request and response object is at most a few
// times etcd's limit for a request, 1.5 MB.
const maxLine = 64 << 20

// Read adds the audit events of r, one JSON object a line, gzip or not, to the log.
// name is for errors. bad is called for each line that is no audit event. The error
// is that of reading itself.
func (l *Log) Read(name string, r io.Reader, bad func(*LineError)) error {
	l.clock = time.Time{}
	br := bufio.NewReaderSize(r, 1<<20)
	if magic, _ := br.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		zr, err := gzip.NewReader(br)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		defer zr.Close()
		br = bufio.NewReaderSize(zr, 1<<20)
	}
	var long []byte
	wrapped := unwrapper{parts: map[string][]byte{}}
	for n := 1; ; n++ {
		line, err := br.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = long[:0]
			for errors.Is(err, bufio.ErrBufferFull) {
				if len(long) <= maxLine {
					long = append(long, line...)
				}
				line, err = br.ReadSlice('\n')
			}
			if len(long) > maxLine {
				bad(&LineError{name, n, fmt.Errorf("longer than %d bytes", maxLine)})
				line = nil
			} else {
				long = append(long, line...)
				line = long
			}
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			text, isLine, lerr := wrapped.line(line)
			switch {
			case lerr != nil:
				bad(&LineError{name, n, lerr})
			case !isLine:
			case text[0] != '{' && wrapped.any && !bytes.Contains(text, legacy):
				l.Other++ // what the server says beside the audit log
			default:
				if lerr := l.line(text); lerr != nil {
					bad(&LineError{name, n, lerr})
				}
			}
		}
		if errors.Is(err, io.EOF) {
			if wrapped.open() {
				bad(&LineError{name, n, errCut})
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: after line %d: %w", name, n, err)
		}
	}
}

func (l *Log) line(line []byte) error {
	var r raw
	if err := fields(line, r.set); err != nil {
		if bytes.Contains(line, legacy) {
			return errors.New("a line of the legacy audit format: run the apiserver with --audit-log-format=json and --audit-policy-file")
		}
		return err
	}
	if len(r.verb) == 0 || len(r.requestURI) == 0 {
		return errors.New(`not an audit event: "verb" or "requestURI" is missing`)
	}
	l.Events++
	if r.stageTimestamp == nil {
		if t, err := firstTime(r.timestamp); err == nil && t.After(l.clock) {
			l.clock = t
		}
	}
	complete := string(r.stage) == `"ResponseComplete"` || string(r.stage) == `"Panic"`
	watch := false
	switch string(r.verb) {
	case `"watch"`, `"watchlist"`:
		watch = true
	case `"list"`, `"create"`, `"update"`, `"patch"`:
		if !complete {
			return nil
		}
	default: // of others nothing is used
		return nil
	}
	e, err := r.decode()
	if err != nil {
		return err
	}
	if l.First.IsZero() || e.received.Before(l.First) {
		l.First = e.received
	}
	if e.written.After(l.Last) {
		l.Last = e.written
	}
	if e.coarse {
		// The line was written after those before it.
		l.coarse = true
		if l.clock.After(e.written) {
			e.written = l.clock
		}
	}
	switch {
	case watch:
		return l.addWatch(e, complete)
	case e.code/100 != 2, l.again(e.auditID):
		return nil
	case e.verb == "list":
		key, _, err := streamOf(e)
		if err == nil && asks(e.requestURI, "continue") == "" { // a page is no list
			s := l.stream(key)
			s.lists = append(s.lists, &list{received: e.received, answered: e.written, rv: e.rv})
		}
		return err
	default:
		l.addWrite(e)
		return nil
	}
}

// asks returns a parameter of a request.
func asks(uri, parameter string) string {
	if !strings.Contains(uri, parameter+"=") {
		return ""
	}
	u, err := url.ParseRequestURI(uri)
	if err != nil {
		return ""
	}
	return u.Query().Get(parameter)
}

func (l *Log) addWrite(e *event) {
	if e.ref == nil || e.ref.Resource == "" || e.ref.Subresource != "" || asks(e.requestURI, "dryRun") != "" {
		return // a dry run writes nothing
	}
	w := write{resource: e.ref.resource(), namespace: e.ref.Namespace, name: e.ref.Name,
		create: e.verb == "create" && e.code == 201, received: e.received, completed: e.written}
	w.rv, _ = strconv.ParseUint(e.rv, 10, 64)
	if e.verb == "update" {
		l.observe(w.resource, e.received, e.ref.ResourceVersion, nil)
	}
	l.writes = append(l.writes, w)
}

func (l *Log) addWatch(e *event, complete bool) error {
	w := l.open[e.auditID]
	if w == nil || e.auditID == "" {
		key, rv, err := streamOf(e)
		if err != nil {
			return err
		}
		w = &watch{rv: rv, start: e.received, all: rv == "" || rv == "0" || asks(e.requestURI, "sendInitialEvents") == "true"}
		s := l.stream(key)
		s.watches = append(s.watches, w)
		l.observe(key.resource, e.received, rv, w)
		l.open[e.auditID] = w
	}
	if e.received.Before(w.start) {
		w.start = e.received
	}
	if e.code == 200 {
		w.ok = true
	}
	if complete {
		w.end = e.written
	}
	return nil
}

func (l *Log) stream(key streamKey) *stream {
	s := l.streams[key]
	if s == nil {
		s = &stream{}
		l.streams[key] = s
	}
	return s
}

func (r *objectRef) resource() string {
	group := r.APIGroup
	// 1.7 has group and version in apiVersion
	if g, _, ok := strings.Cut(r.APIVersion, "/"); ok && group == "" {
		group = g
	}
	if group == "" {
		return r.Resource
	}
	return r.Resource + "." + group
}

// streamOf returns whose and which watch or list the event is of, and the
// resourceVersion that it asks for.
func streamOf(e *event) (streamKey, string, error) {
	u, err := url.ParseRequestURI(e.requestURI)
	if err != nil {
		return streamKey{}, "", fmt.Errorf("requestURI %q: %w", e.requestURI, err)
	}
	q := u.Query()
	rv := q.Get("resourceVersion")
	// What differs between a list and the watches after it, and from watch to watch.
	for _, p := range []string{"resourceVersion", "resourceVersionMatch", "timeoutSeconds", "timeout", "watch", "limit", "continue", "pretty", "allowWatchBookmarks", "sendInitialEvents", "includeUninitialized"} {
		q.Del(p)
	}
	for p, vs := range q {
		if strings.Join(vs, "") == "" {
			q.Del(p)
		}
	}
	key := streamKey{Stream: Stream{UserAgent: e.userAgent, User: e.user, Source: e.source}}
	path := strings.TrimSuffix(u.Path, "/")
	var name string
	key.resource, key.namespace, name, path = parsePath(path)
	if key.resource == "" {
		return streamKey{}, "", fmt.Errorf("requestURI %q: no resource in it", e.requestURI)
	}
	key.Resource, key.Request = key.resource, path
	if len(q) > 0 {
		key.Request += "?" + q.Encode()
	}
	key.partial = name != "" || len(q) > 0
	return key, rv, nil
}

// parsePath takes /api/v1/namespaces/NS/RESOURCE/NAME, /apis/GROUP/VERSION/…, with
// or without the old prefix "watch", and returns the resource with its group, the
// namespace, the name, and the path without that prefix.
func parsePath(path string) (resource, namespace, name, clean string) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	var prefix []string
	group := ""
	switch {
	case len(parts) > 2 && parts[0] == "api":
		prefix, parts = parts[:2], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group = parts[1]
		prefix, parts = parts[:3], parts[3:]
	default:
		return "", "", "", path
	}
	if parts[0] == "watch" && len(parts) > 1 {
		parts = parts[1:]
	}
	clean = "/" + strings.Join(append(slices.Clone(prefix), parts...), "/")
	if parts[0] == "namespaces" && len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	resource = parts[0]
	if len(parts) > 1 {
		name = parts[1]
	}
	if group != "" {
		resource += "." + group
	}
	return resource, namespace, name, clean
}
