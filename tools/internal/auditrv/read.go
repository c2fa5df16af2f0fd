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

// event is the part that matters of an audit event: audit.k8s.io v1alpha1 (1.7),
// v1beta1 (1.8 to 1.23) and v1 (since 1.12) agree on it.
type event struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Stage      string `json:"stage"`
	AuditID    string `json:"auditID"`
	RequestURI string `json:"requestURI"`
	Verb       string `json:"verb"`
	UserAgent  string `json:"userAgent"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	SourceIPs []string `json:"sourceIPs"`
	ObjectRef *struct {
		Resource        string `json:"resource"`
		Namespace       string `json:"namespace"`
		Name            string `json:"name"`
		APIGroup        string `json:"apiGroup"`
		APIVersion      string `json:"apiVersion"`
		ResourceVersion string `json:"resourceVersion"`
		Subresource     string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus *struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	ResponseObject *struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	} `json:"responseObject"`
	// Timestamp is the only time of v1alpha1, that of the reception.
	Timestamp                *time.Time `json:"timestamp"`
	RequestReceivedTimestamp *time.Time `json:"requestReceivedTimestamp"`
	StageTimestamp           *time.Time `json:"stageTimestamp"`
}

// LineError is a line that is no audit event. The lines after it are still read.
type LineError struct {
	File string
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// wanted are the verbs whose lines are decoded; of others nothing is used.
var wanted = [][]byte{
	[]byte(`"verb":"watch"`), []byte(`"verb":"watchlist"`), []byte(`"verb":"list"`),
	[]byte(`"verb":"create"`), []byte(`"verb":"update"`), []byte(`"verb":"patch"`),
}

// anyVerb is in every event as apiservers write them.
var anyVerb = []byte(`"verb":"`)

// maxLine bounds a line. An event with request and response object is at most a few
// times etcd's limit for a request, 1.5 MB.
const maxLine = 64 << 20

// Read adds the audit events of r, one JSON object a line, gzip or not, to the log.
// name is for errors. bad is called for each line that is no audit event. The error
// is that of reading itself.
func (l *Log) Read(name string, r io.Reader, bad func(*LineError)) error {
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
			if lerr := l.line(line); lerr != nil {
				bad(&LineError{name, n, lerr})
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: after line %d: %w", name, n, err)
		}
	}
}

func (l *Log) line(line []byte) error {
	if bytes.Contains(line, anyVerb) && !slices.ContainsFunc(wanted, func(v []byte) bool { return bytes.Contains(line, v) }) {
		if !json.Valid(line) {
			return errors.New("not valid JSON")
		}
		l.Events++
		return nil
	}
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		if bytes.Contains(line, []byte(" AUDIT: ")) {
			return errors.New("a line of the legacy audit format: run the apiserver with --audit-log-format=json and --audit-policy-file")
		}
		return err
	}
	if e.Verb == "" || e.RequestURI == "" {
		return errors.New(`no audit event: it has no "verb" or no "requestURI"`)
	}
	l.Events++
	return l.add(&e)
}

// times returns when the request was received and when the event was written.
func (e *event) times() (received, stage time.Time, err error) {
	pick := func(ts ...*time.Time) time.Time {
		for _, t := range ts {
			if t != nil && !t.IsZero() {
				return *t
			}
		}
		return time.Time{}
	}
	received = pick(e.RequestReceivedTimestamp, e.Timestamp, e.StageTimestamp)
	stage = pick(e.StageTimestamp, e.Timestamp, e.RequestReceivedTimestamp)
	if received.IsZero() {
		err = errors.New(`the event has neither "stageTimestamp" nor "timestamp"`)
	}
	return received, stage, err
}

func (e *event) code() int {
	if e.ResponseStatus == nil {
		return 0
	}
	return e.ResponseStatus.Code
}

func (l *Log) add(e *event) error {
	received, stage, err := e.times()
	if err != nil {
		return err
	}
	if l.First.IsZero() || received.Before(l.First) {
		l.First = received
	}
	if stage.After(l.Last) {
		l.Last = stage
	}
	complete := e.Stage == "ResponseComplete" || e.Stage == "Panic"
	switch e.Verb {
	case "watch", "watchlist":
		return l.addWatch(e, received, stage, complete)
	case "list":
		if !complete || e.code()/100 != 2 {
			return nil
		}
		key, _, err := streamOf(e)
		if err != nil {
			return err
		}
		l.stream(key).lists = append(l.stream(key).lists, stage)
	default:
		if !complete || e.code()/100 != 2 || e.ObjectRef == nil || e.ObjectRef.Resource == "" || e.ObjectRef.Subresource != "" {
			return nil
		}
		w := write{resource: e.resource(), namespace: e.ObjectRef.Namespace, name: e.ObjectRef.Name,
			create: e.Verb == "create" && e.code() == 201, received: received, completed: stage}
		if e.ResponseObject != nil {
			w.rv, _ = strconv.ParseUint(e.ResponseObject.Metadata.ResourceVersion, 10, 64)
		}
		if e.Verb == "update" {
			l.observe(w.resource, received, e.ObjectRef.ResourceVersion)
		}
		l.writes = append(l.writes, w)
	}
	return nil
}

func (l *Log) addWatch(e *event, received, stage time.Time, complete bool) error {
	w := l.open[e.AuditID]
	if w == nil || e.AuditID == "" {
		key, rv, err := streamOf(e)
		if err != nil {
			return err
		}
		w = &watch{rv: rv, start: received}
		l.stream(key).watches = append(l.stream(key).watches, w)
		l.observe(key.resource, received, rv)
		l.open[e.AuditID] = w
	}
	if e.code() == 200 {
		w.ok = true
	}
	if complete {
		w.end = stage
		delete(l.open, e.AuditID)
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

func (e *event) resource() string {
	group := e.ObjectRef.APIGroup
	// 1.7 and 1.8 have group and version in apiVersion
	if g, _, ok := strings.Cut(e.ObjectRef.APIVersion, "/"); ok && group == "" {
		group = g
	}
	if group == "" {
		return e.ObjectRef.Resource
	}
	return e.ObjectRef.Resource + "." + group
}

// streamOf returns whose and which watch or list the event is of, and the
// resourceVersion that it asks for.
func streamOf(e *event) (streamKey, string, error) {
	u, err := url.ParseRequestURI(e.RequestURI)
	if err != nil {
		return streamKey{}, "", fmt.Errorf("requestURI %q: %w", e.RequestURI, err)
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
	key := streamKey{Stream: Stream{UserAgent: e.UserAgent, User: e.User.Username}}
	if len(e.SourceIPs) > 0 {
		key.Source = e.SourceIPs[0]
	}
	path := strings.TrimSuffix(u.Path, "/")
	var name string
	key.resource, key.namespace, name, path = parsePath(path)
	if key.resource == "" {
		return streamKey{}, "", fmt.Errorf("requestURI %q: no resource in it", e.RequestURI)
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
