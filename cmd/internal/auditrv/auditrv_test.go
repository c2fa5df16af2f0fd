// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package auditrv

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/cmd/internal/exit"
)

// logWriter writes an audit log as kube-apiserver 1.9 does at level Metadata.
type logWriter struct {
	bytes.Buffer
	now time.Time
	ids int
	// user, agent and ip are those of the next requests.
	user, agent, ip string
	// stages are written, as with the policy's omitStages.
	stages map[string]bool
	// versions writes the resourceVersion of responses, as at level RequestResponse.
	versions bool
	coarse   bool // without the times of the stages, as 1.8
}

func newLogWriter() *logWriter {
	return &logWriter{now: time.Date(2018, 1, 10, 12, 0, 0, 0, time.UTC), user: "system:kube-controller-manager", ip: "10.0.0.1",
		stages: map[string]bool{"RequestReceived": true, "ResponseStarted": true, "ResponseComplete": true}}
}

func (w *logWriter) pass(d time.Duration) { w.now = w.now.Add(d) }

type request struct {
	id, verb, uri   string
	ref             map[string]any
	code            int
	rv              string
	received        time.Time
	user, agent, ip string
}

func (w *logWriter) stage(r request, stage string) {
	if !w.stages[stage] {
		return
	}
	e := map[string]any{
		"kind": "Event", "apiVersion": "audit.k8s.io/v1beta1", "level": "Metadata", "stage": stage, "auditID": r.id,
		"requestURI": r.uri, "verb": r.verb, "user": map[string]any{"username": r.user}, "sourceIPs": []string{r.ip},
		"requestReceivedTimestamp": r.received.Format(time.RFC3339Nano), "stageTimestamp": w.now.Format(time.RFC3339Nano),
		"timestamp": r.received.Format(time.RFC3339), "metadata": map[string]any{"creationTimestamp": w.now.Format(time.RFC3339)},
	}
	if w.coarse {
		delete(e, "requestReceivedTimestamp")
		delete(e, "stageTimestamp")
	}
	if r.agent != "" {
		e["userAgent"] = r.agent
	}
	if r.ref != nil {
		e["objectRef"] = r.ref
	}
	if stage != "RequestReceived" {
		e["responseStatus"] = map[string]any{"metadata": map[string]any{}, "code": r.code}
	}
	if stage == "ResponseComplete" && w.versions && r.rv != "" {
		e["responseObject"] = map[string]any{"kind": "X", "metadata": map[string]any{"resourceVersion": r.rv}}
	}
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	w.Write(append(b, '\n'))
}

func (w *logWriter) request(verb, uri string, code int, ref map[string]any, rv string) request {
	w.ids++
	return request{id: fmt.Sprintf("id-%d", w.ids), verb: verb, uri: uri, code: code, ref: ref, rv: rv, received: w.now, user: w.user, agent: w.agent, ip: w.ip}
}

const services = "/api/v1/services"

// watch starts a watch and returns how to end it.
func (w *logWriter) watch(path, rv string) (end func()) {
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	r := w.request("watch", fmt.Sprintf("%s%sresourceVersion=%s&timeoutSeconds=%d&watch=true", path, sep, rv, 300+w.ids), 200, map[string]any{"resource": "services", "apiVersion": "v1"}, "")
	w.stage(r, "RequestReceived")
	w.pass(time.Millisecond)
	w.stage(r, "ResponseStarted")
	return func() { w.stage(r, "ResponseComplete") }
}

// watchFor is a watch that lasts d.
func (w *logWriter) watchFor(path, rv string, d time.Duration) {
	end := w.watch(path, rv)
	w.pass(d)
	end()
	w.pass(time.Millisecond)
}

// begin is a request that is received, and returns how to answer it.
func (w *logWriter) begin(verb, uri string, code int, ref map[string]any, rv string) (answer func()) {
	r := w.request(verb, uri, code, ref, rv)
	w.stage(r, "RequestReceived")
	return func() { w.stage(r, "ResponseComplete") }
}

func (w *logWriter) do(verb, uri string, code int, ref map[string]any, rv string) {
	answer := w.begin(verb, uri, code, ref, rv)
	w.pass(5 * time.Millisecond)
	answer()
	w.pass(time.Millisecond)
}

func (w *logWriter) list(path string) { w.do("list", path+"?resourceVersion=0", 200, nil, "") }

func ref(resource, name, rv string) map[string]any {
	r := map[string]any{"resource": resource, "namespace": "default", "apiVersion": "v1"}
	if name != "" {
		r["name"] = name
	}
	if rv != "" {
		r["resourceVersion"] = rv
	}
	return r
}

func (w *logWriter) beginCreate(resource string) (answer func()) {
	return w.begin("create", "/api/v1/namespaces/default/"+resource, 201, ref(resource, "", ""), "")
}

func (w *logWriter) create(resource, rv string) {
	w.do("create", "/api/v1/namespaces/default/"+resource, 201, ref(resource, "", ""), rv)
}

func (w *logWriter) update(resource, name, before, rv string) {
	w.do("update", "/api/v1/namespaces/default/"+resource+"/"+name, 200, ref(resource, name, before), rv)
}

// oneEtcd shows that Services and Endpoints are in one etcd.
func (w *logWriter) oneEtcd() {
	for i := range 4 {
		resource := []string{"endpoints", "services"}[i%2]
		w.update(resource, "a", fmt.Sprint(10+i), "")
		w.pass(time.Second)
	}
}

func (w *logWriter) remove(resource, name string) {
	w.do("delete", "/api/v1/namespaces/default/"+resource+"/"+name, 200, ref(resource, name, ""), "")
}

// whole is a log of whole seconds, as of 1.8: what happens in it does 2 seconds after the
// start of a watch of Services from 100, and a minute before its end.
func (w *logWriter) whole(happens func()) {
	w.coarse = true
	w.list(services)
	end := w.watch(services, "100")
	w.pass(2 * time.Second)
	happens()
	w.pass(time.Minute)
	w.list("/api/v1/pods") // the log goes on
	end()
}

func judged(t *testing.T, logs ...*logWriter) (*Log, []*Result) {
	t.Helper()
	l := NewLog()
	for i, w := range logs {
		if err := l.Read(fmt.Sprint(i), bytes.NewReader(w.Bytes()), func(e *LineError) { t.Error(e) }); err != nil {
			t.Fatal(err)
		}
	}
	return l, l.Results()
}

func TestJudge(t *testing.T) {
	for name, tc := range map[string]struct {
		write    func(w *logWriter)
		want     string // kinds of the findings, in order, by stream
		restarts int
	}{
		"right": {func(w *logWriter) {
			w.list(services)
			for _, rv := range []string{"100", "120", "999", "1000"} {
				w.watchFor(services, rv, 5*time.Minute)
			}
		}, "", 3},
		"goes back": {func(w *logWriter) {
			w.list(services)
			for _, rv := range []string{"100", "120", "35", "1000"} {
				w.watchFor(services, rv, 5*time.Minute)
			}
		}, "back", 3},
		"goes back by digits": {func(w *logWriter) {
			w.list(services)
			for _, rv := range []string{"1234567890123456789012345", "1234567890123456789012344"} {
				w.watchFor(services, rv, 5*time.Minute)
			}
		}, "back", 1},
		"nothing happens": {func(w *logWriter) {
			w.list(services)
			for range 5 {
				w.watchFor(services, "100", 5*time.Minute)
			}
		}, "", 4},
		"other resources happen": {func(w *logWriter) {
			w.list(services)
			for range 3 {
				end := w.watch(services, "100")
				w.create("configmaps", "")
				w.pass(time.Minute)
				end()
			}
		}, "", 2},
		"a Service is deleted, by a server that sends old versions, to a client that is right": {func(w *logWriter) {
			w.list(services)
			for range 3 {
				end := w.watch(services, "100")
				w.remove("services", "a")
				w.pass(time.Minute)
				end()
			}
		}, "", 2},
		"starts where it did though a Service was created": {func(w *logWriter) {
			w.list(services)
			end := w.watch(services, "100")
			w.create("services", "")
			w.pass(time.Minute)
			end()
			w.watchFor(services, "100", time.Minute)
		}, "stale", 1},
		"a Service was created at the very end of the watch": {func(w *logWriter) {
			w.list(services)
			end := w.watch(services, "100")
			w.pass(time.Minute)
			w.create("services", "")
			end()
			w.watchFor(services, "100", time.Minute)
		}, "", 1},
		"a Service was created in another namespace": {func(w *logWriter) {
			path := "/api/v1/namespaces/kube-system/services"
			w.list(path)
			end := w.watch(path, "100")
			w.create("services", "")
			w.pass(time.Minute)
			end()
			w.watchFor(path, "100", time.Minute)
		}, "", 1},
		"a Service was created in the same namespace": {func(w *logWriter) {
			path := "/api/v1/namespaces/default/services"
			w.list(path)
			end := w.watch(path, "100")
			w.create("services", "")
			w.pass(time.Minute)
			end()
			w.watchFor(path, "100", time.Minute)
		}, "stale", 1},
		"with a selector it need not see the Service": {func(w *logWriter) {
			path := services + "?labelSelector=a%3Db"
			w.list(services)
			end := w.watch(path, "100")
			w.create("services", "")
			w.pass(time.Minute)
			end()
			w.watchFor(path, "100", time.Minute)
		}, "", 1},
		"a creation that failed": {func(w *logWriter) {
			w.list(services)
			end := w.watch(services, "100")
			w.do("create", "/api/v1/namespaces/default/services", 409, ref("services", "", ""), "")
			w.pass(time.Minute)
			end()
			w.watchFor(services, "100", time.Minute)
		}, "", 1},
		// the incident: A 101, B 102, A is deleted and sent with 101
		"deletes the oldest, nothing happens later": {func(w *logWriter) {
			w.list(services)
			end := w.watch(services, "100")
			w.create("services", "")
			w.create("services", "")
			w.remove("services", "a")
			w.pass(time.Minute)
			end()
			w.watchFor(services, "101", time.Minute)
			w.watchFor(services, "101", time.Minute)
		}, "stale stale", 2},
		"the same, by a client that is right": {func(w *logWriter) {
			w.list(services)
			end := w.watch(services, "100")
			w.create("services", "")
			w.create("services", "")
			w.remove("services", "a")
			w.pass(time.Minute)
			end()
			w.watchFor(services, "102", time.Minute)
			w.watchFor(services, "102", time.Minute)
		}, "", 2},
		"Services have an etcd of their own": {func(w *logWriter) {
			w.update("endpoints", "kube-scheduler", "5000", "")
			w.list(services)
			end := w.watch(services, "100")
			w.update("endpoints", "kube-scheduler", "5001", "")
			w.create("services", "") // 101
			w.pass(time.Minute)
			end()
			w.watchFor(services, "101", time.Minute)
			w.update("endpoints", "kube-scheduler", "5002", "")
		}, "", 1},
		"Services have an etcd of their own, whose versions overtake the others": {func(w *logWriter) {
			w.list(services)
			end := w.watch(services, "100")
			w.update("endpoints", "kube-scheduler", "500", "")
			w.create("services", "") // 101
			w.pass(time.Minute)
			end()
			w.watchFor(services, "101", time.Minute)
			w.watchFor(services, "9000", time.Minute)
		}, "", 2},
		"the bound comes from another client's update": {func(w *logWriter) {
			w.oneEtcd()
			w.list(services)
			end := w.watch(services, "100")
			w.update("endpoints", "kube-scheduler", "150", "")
			w.create("services", "")
			w.pass(time.Minute)
			end()
			w.watchFor(services, "150", time.Minute)
		}, "stale", 1},
		"another storage does not count": {func(w *logWriter) {
			w.list(services)
			end := w.watch(services, "100")
			w.update("events", "e", "5000", "")
			w.do("update", "/apis/wardle.k8s.io/v1/namespaces/default/flunders/f", 200, map[string]any{"resource": "flunders", "apiGroup": "wardle.k8s.io", "resourceVersion": "7000", "namespace": "default", "name": "f"}, "")
			w.create("services", "")
			w.pass(time.Minute)
			end()
			w.watchFor(services, "120", time.Minute)
		}, "", 1},
		"the response tells the version": {func(w *logWriter) {
			w.versions = true
			w.list(services)
			end := w.watch(services, "100")
			w.create("services", "150")
			w.pass(time.Minute)
			end()
			w.watchFor(services, "149", time.Minute)
			w.watchFor(services, "150", time.Minute)
		}, "stale", 2},
		"an update that may have changed nothing": {func(w *logWriter) {
			w.list(services)
			end := w.watch(services, "100")
			w.update("services", "a", "90", "")
			w.pass(time.Minute)
			end()
			w.watchFor(services, "100", time.Minute)
		}, "repeat", 1},
		"410, then a list": {func(w *logWriter) {
			w.list(services)
			w.watchFor(services, "500", time.Minute)
			w.do("watch", services+"?resourceVersion=510&watch=true", 410, nil, "")
			w.list(services)
			w.watchFor(services, "90", time.Minute)
		}, "", 1},
		"a new process lists": {func(w *logWriter) {
			w.list(services)
			w.watchFor(services, "500", time.Minute)
			w.list(services)
			w.watchFor(services, "200", time.Minute)
			w.watchFor(services, "210", time.Minute)
		}, "", 1},
		"two informers of one client": {func(w *logWriter) {
			w.list(services)
			w.list(services)
			endA := w.watch(services, "100")
			endB := w.watch(services, "300")
			for i := range 5 {
				w.pass(time.Minute)
				endB()
				endB = w.watch(services, fmt.Sprint(301+i))
				w.pass(time.Minute)
				endA()
				endA = w.watch(services, fmt.Sprint(101+i))
			}
		}, "", 10},
		"one of two informers goes back": {func(w *logWriter) {
			w.list(services)
			w.list(services)
			endA, endB := w.watch(services, "100"), w.watch(services, "300")
			w.pass(time.Minute)
			endA()
			w.watch(services, "50")
			w.pass(time.Minute)
			endB()
			w.watch(services, "301")
		}, "back", 2},
		"two clients": {func(w *logWriter) {
			w.list(services)
			w.watchFor(services, "500", time.Minute)
			w.user = "system:node:a"
			w.list(services)
			w.watchFor(services, "400", time.Minute)
			w.agent = "kubelet/v1.9.11"
			w.watchFor(services, "300", time.Minute)
			w.ip = "10.0.0.2"
			w.watchFor(services, "200", time.Minute)
		}, "", 0},
		"watches from 0 or without a version": {func(w *logWriter) {
			for _, rv := range []string{"0", "500", "", "500", "0"} {
				w.watchFor(services, rv, time.Minute)
			}
		}, "", 2},
		"somebody with the same name lists every 10 s": {func(w *logWriter) {
			w.list(services)
			for _, rv := range []string{"100", "90", "80"} {
				end := w.watch(services, rv)
				for range 30 {
					w.list(services)
					w.pass(10 * time.Second)
				}
				end()
				w.pass(time.Millisecond)
			}
		}, "back back", 2},
		"somebody with the same name lists every 2 s": {func(w *logWriter) {
			w.list(services)
			end := w.watch(services, "100")
			for i := range 10 {
				for range 30 {
					w.pass(1500 * time.Millisecond)
					w.list(services)
					w.pass(500 * time.Millisecond)
				}
				end()
				end = w.watch(services, fmt.Sprint(99-i))
			}
			for range 3 {
				w.pass(1500 * time.Millisecond)
				w.list(services)
				w.pass(500 * time.Millisecond)
			}
			end()
		}, strings.TrimSpace(strings.Repeat("back ", 10)), 10},
		"somebody with the same name lists every 2 s, and the client lists": {func(w *logWriter) {
			w.list(services)
			for i := range 5 {
				end := w.watch(services, fmt.Sprint(100-i))
				for range 10 {
					w.list(services)
					w.pass(2 * time.Second)
				}
				end()
				w.pass(time.Second)
				w.list(services)
			}
		}, "", 0},
		"a client whose watches last 2 s each lists before each": {func(w *logWriter) {
			for i := range 10 {
				w.list(services)
				w.watchFor(services, fmt.Sprint(100-i), 2*time.Second)
			}
		}, "", 0},
		"somebody with the same name lists, and the client is right": {func(w *logWriter) {
			w.list(services)
			for _, rv := range []string{"100", "101", "103"} {
				end := w.watch(services, rv)
				for range 30 {
					w.list(services)
					w.pass(10 * time.Second)
				}
				end()
				w.pass(time.Millisecond)
			}
		}, "", 2},
		"a list just before a watch's end is noted": {func(w *logWriter) {
			w.list(services)
			end := w.watch(services, "500")
			w.pass(time.Minute)
			w.list(services) // by the client, which knows already
			end()
			w.watchFor(services, "90", time.Minute)
		}, "", 0},
		"a page of a list is no list": {func(w *logWriter) {
			w.list(services)
			w.watchFor(services, "100", time.Minute)
			w.do("list", services+"?limit=500&continue=abc", 200, nil, "")
			w.watchFor(services, "90", time.Minute)
		}, "back", 1},
		"a list whose version is in the log and is another": {func(w *logWriter) {
			w.versions = true
			w.list(services)
			w.watchFor(services, "100", time.Minute)
			w.do("list", services, 200, nil, "120")
			w.watchFor(services, "90", time.Minute)
			w.do("list", services, 200, nil, "130")
			w.watchFor(services, "130", time.Minute)
		}, "back", 1},
		"watches from 0 again and again": {func(w *logWriter) {
			for range 4 {
				end := w.watch(services, "0")
				w.create("services", "")
				w.update("endpoints", "e", fmt.Sprint(500+w.ids), "")
				w.create("services", "")
				w.pass(time.Minute)
				end()
			}
		}, "", 0},
		"a watch that begins with all objects": {func(w *logWriter) {
			w.list(services)
			w.watchFor(services, "100", time.Minute)
			w.do("watch", services+"?resourceVersion=90&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&watch=true", 200, nil, "")
			w.watchFor(services, "80", time.Minute)
		}, "back", 1},
		"watches from 0 and goes on from there": {func(w *logWriter) {
			w.oneEtcd()
			end := w.watch(services, "0")
			w.update("endpoints", "e", "500", "")
			w.create("services", "")
			w.pass(time.Minute)
			end()
			w.watchFor(services, "450", time.Minute)
		}, "stale", 1},
		"a creation that was tried only": {func(w *logWriter) {
			w.list(services)
			end := w.watch(services, "100")
			w.do("create", "/api/v1/namespaces/default/services?dryRun=All", 201, ref("services", "", ""), "150")
			w.do("update", "/api/v1/namespaces/default/services/a?dryRun=All&fieldManager=x", 200, ref("services", "a", "90"), "")
			w.pass(time.Minute)
			end()
			w.watchFor(services, "100", time.Minute)
		}, "", 1},
		"a creation with an empty dryRun": {func(w *logWriter) {
			w.list(services)
			end := w.watch(services, "100")
			w.do("create", "/api/v1/namespaces/default/services?dryRun=", 201, ref("services", "", ""), "")
			w.pass(time.Minute)
			end()
			w.watchFor(services, "100", time.Minute)
		}, "stale", 1},
		"a watch that nobody continued long ago": {func(w *logWriter) {
			w.list(services)
			w.watchFor(services, "500", time.Minute)
			w.pass(time.Hour)
			w.watchFor(services, "90", time.Minute)
		}, "", 0},
		"the log begins in the middle": {func(w *logWriter) {
			w.watchFor(services, "500", time.Minute)
			w.watchFor(services, "400", time.Minute)
		}, "back", 1},
		"only ResponseComplete is logged": {func(w *logWriter) {
			w.stages = map[string]bool{"ResponseComplete": true}
			w.list(services)
			end := w.watch(services, "100")
			w.create("services", "")
			w.pass(time.Minute)
			end()
			w.watchFor(services, "100", time.Minute)
			w.watchFor(services, "90", time.Minute)
		}, "stale back", 2},
		"1.8": {func(w *logWriter) {
			w.coarse = true
			w.list(services)
			w.pass(time.Second)
			end := w.watch(services, "100")
			w.pass(2 * time.Second)
			w.create("services", "")
			w.pass(time.Minute)
			w.list("/api/v1/pods") // the log goes on
			end()
			w.pass(2 * time.Second)
			w.watchFor(services, "100", time.Minute)
			w.pass(2 * time.Second)
			w.watchFor(services, "90", time.Minute)
		}, "stale back", 2},
		"1.8, a version is named later in the second of a creation": {func(w *logWriter) {
			w.whole(func() {
				created := w.beginCreate("services") // 101
				w.update("endpoints", "e", "150", "")
				w.pass(time.Second)
				w.list("/api/v1/pods")
				created()
			})
			w.watchFor(services, "101", time.Minute)
			w.watchFor(services, "101", time.Minute)
		}, "", 2},
		"1.8, a version is named in the second before": {func(w *logWriter) {
			w.oneEtcd()
			w.whole(func() {
				w.update("endpoints", "e", "150", "")
				w.pass(time.Second)
				w.create("services", "") // 152 at least
			})
			w.watchFor(services, "150", time.Minute)
		}, "stale", 1},
		"1.8, a creation that takes long": {func(w *logWriter) {
			w.whole(func() {
				slow := w.beginCreate("configmaps")
				w.pass(2 * time.Second)
				created := w.beginCreate("services") // 101
				w.pass(time.Second)
				slow() // 102
				w.list("/api/v1/pods")
				created()
			})
			w.watchFor(services, "101", time.Minute)
		}, "", 1},
		"1.8, a Service was created near the end of the watch": {func(w *logWriter) {
			w.coarse = true
			w.list(services)
			w.pass(time.Second)
			end := w.watch(services, "100")
			w.pass(time.Minute)
			w.create("services", "")
			w.pass(3 * time.Second)
			w.list("/api/v1/pods")
			end()
			w.pass(2 * time.Second)
			w.watchFor(services, "100", time.Minute)
		}, "", 1},
		"the deprecated path": {func(w *logWriter) {
			w.list(services)
			w.watchFor("/api/v1/watch/services", "100", time.Minute)
			w.watchFor("/api/v1/watch/services", "90", time.Minute)
		}, "back", 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLogWriter()
			tc.write(w)
			l, results := judged(t, w)
			var kinds []string
			for _, r := range results {
				for _, f := range r.Findings {
					kinds = append(kinds, string(f.Kind))
				}
			}
			if got := strings.Join(kinds, " "); got != tc.want {
				t.Errorf("found %q, want %q", got, tc.want)
				l.Report(os.Stderr, results)
			}
			if l.Restarts != tc.restarts {
				t.Errorf("%d restarts, want %d", l.Restarts, tc.restarts)
			}
		})
	}
}

const endpoints = "/api/v1/endpoints"

// restored writes a log in which etcd is restored from a backup: the versions fall
// from 1000 to 500, the apiserver restarts, and all clients list. before is what the
// client does that does not list, until it has to.
func restored(after func(w *logWriter)) *logWriter {
	w := newLogWriter()
	w.list(services)
	w.list(endpoints)
	a, b := w.watch(services, "200"), w.watch(endpoints, "900")
	w.update("endpoints", "e", "990", "")
	w.create("services", "") // 991 or later
	w.pass(time.Minute)
	a()
	b()
	w.watchFor(services, "1000", time.Second)
	w.watchFor(endpoints, "1000", time.Second)
	w.pass(time.Minute) // etcd is restored
	w.list(services)
	w.list(endpoints)
	after(w)
	return w
}

// TestRestore: what was known before etcd was restored proves nothing after it, and
// what happens after it is still found.
func TestRestore(t *testing.T) {
	for name, tc := range map[string]struct {
		after func(w *logWriter)
		want  string
	}{
		"everybody is right": {func(w *logWriter) {
			a, b := w.watch(services, "500"), w.watch(endpoints, "500")
			w.update("endpoints", "e", "500", "")
			w.create("services", "")
			w.pass(time.Minute)
			a()
			b()
			w.watchFor(services, "502", time.Minute)
			w.watchFor(endpoints, "501", time.Minute)
		}, ""},
		"a client waits where it was": {func(w *logWriter) {
			w.watch(services, "500")
			w.watch(endpoints, "500")
			w.user = "waits"
			w.watchFor(services, "1000", time.Minute)
			for range 2 {
				end := w.watch(services, "1000")
				w.create("services", "")
				w.pass(time.Minute)
				end()
			}
		}, ""},
		"a client goes back after it": {func(w *logWriter) {
			a, b := w.watch(services, "500"), w.watch(endpoints, "500")
			w.update("endpoints", "e", "500", "")
			w.create("services", "")
			w.pass(time.Minute)
			a()
			b()
			w.watchFor(services, "500", time.Minute)
			w.watchFor(services, "490", time.Minute)
		}, "stale back"},
	} {
		w := restored(tc.after)
		l, results := judged(t, w)
		var kinds []string
		for _, r := range results {
			for _, f := range r.Findings {
				kinds = append(kinds, string(f.Kind))
			}
		}
		if got := strings.Join(kinds, " "); got != tc.want || len(l.Restores) == 0 {
			t.Errorf("%s: found %q, want %q; restores %v", name, got, tc.want, l.Restores)
			l.Report(os.Stderr, results)
		}
	}
	// A client that has not listed is judged again when the versions have come to
	// where it is.
	w := newLogWriter()
	w.oneEtcd()
	w.user = "a"
	w.list(services)
	w.watchFor(services, "300", time.Second)
	w.user = "b"
	w.list(services)
	w.watchFor(services, "400", time.Second)
	w.list(services)
	end := w.watch(services, "350") // a server lags
	w.update("endpoints", "e", "410", "")
	w.pass(time.Minute)
	w.user = "a"
	w.watchFor(services, "405", time.Minute)
	w.watchFor(services, "401", time.Minute)
	end()
	if l, results := judged(t, w); len(l.Restores) != 1 || len(results) != 1 || results[0].User != "a" || results[0].Count(Back) != 1 {
		t.Errorf("a server that lags: restores %v, results %+v", l.Restores, results)
	}
	// The version of the list that shows the restore is later than the object that was
	// created while it was answered.
	w = newLogWriter()
	w.user = "a"
	w.list(services)
	w.watchFor(services, "1000", time.Second)
	w.pass(time.Minute) // etcd is restored
	answer := w.begin("list", services, 200, nil, "")
	w.pass(time.Millisecond)
	w.user = "b"
	w.list(services)
	end = w.watch(services, "500")
	w.create("services", "") // 501
	w.user = "a"
	answer()
	w.watch(services, "510")
	w.pass(time.Minute)
	end()
	w.user = "b"
	w.watchFor(services, "501", time.Minute)
	if l, results := judged(t, w); len(l.Restores) != 1 || len(results) != 0 {
		t.Errorf("a creation while the list is answered: restores %v, results %+v", l.Restores, results)
	}
}

// TestDocker: the log of a container, in which a long line is several.
func TestDocker(t *testing.T) {
	wrap := func(text, stream string) string {
		b, err := json.Marshal(map[string]string{"log": text, "stream": stream, "time": "2018-01-10T12:00:00Z"})
		if err != nil {
			t.Fatal(err)
		}
		return string(b) + "\n"
	}
	var in strings.Builder
	for i, line := range strings.SplitAfter(incident().String(), "\n") {
		if line == "" {
			continue
		}
		in.WriteString(wrap("I0110 12:00:00 server.go] hello\n", "stderr"))
		if i%2 == 0 { // in two parts, with another stream's line between
			in.WriteString(wrap(line[:40], "stdout") + wrap("E0110 12:00:00 server.go] {\n", "stderr"))
			line = line[40:]
		}
		in.WriteString(wrap(line, "stdout"))
	}
	out, errs, code := run(t, strings.NewReader(in.String()), "-")
	if code != 0 || errs != "" || !strings.Contains(out, "FOUND: services") || !strings.Contains(out, "1 went back") {
		t.Errorf("%d %s\n%s", code, errs, out)
	}
	for name, tc := range map[string]struct{ in, want string }{
		"cut in a line":     {in.String() + wrap("{", "stdout"), "standard input:"},
		"only other lines":  {wrap("I0110 12:00:00 server.go] hello\n", "stderr"), "no audit event in 1 lines"},
		"the legacy format": {wrap("2018-01-10T12:00:00Z AUDIT: id=1\n", "stdout"), "legacy audit format"},
	} {
		if _, errs, code := run(t, strings.NewReader(tc.in), "-"); code != 1 || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: %d %s", name, code, errs)
		}
	}
}

// TestRotatedFilesInAnyOrder: a watch may begin in one file and end in the next.
func TestRotatedFilesInAnyOrder(t *testing.T) {
	w := newLogWriter()
	w.list(services)
	end := w.watch(services, "100")
	rest := newLogWriter()
	rest.now, rest.ids = w.now, w.ids
	rest.create("services", "")
	rest.pass(time.Minute)
	w.now = rest.now
	first := w.Len()
	end()
	end = w.watch(services, "100")
	rest.Write(w.Bytes()[first:])
	w.Truncate(first)
	for _, logs := range [][]*logWriter{{w, rest}, {rest, w}} {
		_, results := judged(t, logs...)
		if len(results) != 1 || results[0].Count(Stale) != 1 {
			t.Errorf("results %+v, want one that is stale", results)
		}
	}
}

// TestTheSameFileTwice: nothing changes by it.
func TestTheSameFileTwice(t *testing.T) {
	w := newLogWriter()
	w.list(services)
	w.watchFor(services, "100", time.Minute)
	w.create("services", "")
	w.watchFor(services, "90", time.Minute)
	w.watchFor(services, "102", time.Minute)
	once, first := judged(t, w)
	twice, second := judged(t, w, w)
	if once.Restarts != 2 || twice.Restarts != 2 || len(first) != 1 || len(second) != 1 || len(first[0].Findings) != 1 || len(second[0].Findings) != 1 {
		t.Errorf("once: %d restarts, %+v; twice: %d restarts, %+v", once.Restarts, first, twice.Restarts, second)
	}
}

func run(t *testing.T, stdin io.Reader, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out, errs bytes.Buffer
	cmd.SetIn(stdin)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(args)
	err := cmd.Execute()
	if err != nil {
		fmt.Fprintln(&errs, err)
	}
	return out.String(), errs.String(), exit.Code(err)
}

func incident() *logWriter {
	w := newLogWriter()
	w.agent = "kube-controller-manager/v1.9.11 (linux/amd64) kubernetes/1bfeeb6/shared-informers"
	w.list(services)
	w.watchFor(services, "500", time.Minute)
	w.watchFor(services, "35", time.Minute)
	w.watchFor(services, "35", time.Minute)
	return w
}

func TestCommand(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	good := incident().Bytes()
	plain := write("audit.log", good)
	var z bytes.Buffer
	zw := gzip.NewWriter(&z)
	zw.Write(good)
	zw.Close()
	zipped := write("audit.log.gz", z.Bytes())
	cut := write("cut.log.gz", z.Bytes()[:z.Len()-20])
	lines := bytes.SplitAfter(good, []byte("\n"))
	var b []byte
	b = append(b, lines[0]...)
	b = append(b, "hello\n\n{\"kind\":\"Event\"\n"...)
	b = append(b, `2018-01-10T12:00:00Z AUDIT: id="1" ip="10.0.0.1" method="GET" uri="/api/v1/pods?watch=true"`+"\n"...)
	b = append(b, `{"verb":"get" "requestURI":"/api/v1/pods"}`+"\n"...)
	b = append(b, `{"verb":"watch","requestURI":"/api/v1/pods?resourceVersion=5","stage":"ResponseStarted"}`+"\n"...)
	b = append(b, `{"verb":"watch","requestURI":"/version","stage":"ResponseStarted","timestamp":"2018-01-10T12:00:00Z"}`+"\n"...)
	b = append(b, bytes.Join(lines[1:], nil)...)
	bad := write("bad.log", b)
	quiet := newLogWriter()
	quiet.list(services)
	quiet.watchFor(services, "100", time.Minute)
	quiet.watchFor(services, "100", time.Minute)
	nothing := write("quiet.log", quiet.Bytes())
	empty := write("empty.log", nil)

	for _, tc := range []struct {
		name           string
		args           []string
		stdin          []byte
		code           int
		stdout, stderr []string
	}{
		{"found", []string{plain}, nil, 0, []string{"FOUND: services: system:kube-controller-manager (kube-controller-manager/v1.9.11", "1 went back, 0 stale, 0 repeat",
			"2018-01-10T12:01:00.008Z back   resourceVersion=35, after a watch from 500 (1m0s before)", "1 watch(es) restart from an older version"}, nil},
		{"a proof counts before what could not be read", []string{"--exit-code", filepath.Join(dir, "none"), plain}, nil, 3, []string{"FOUND"}, []string{"no such file"}},
		{"status on request", []string{"--exit-code", plain}, nil, 3, []string{"FOUND"}, []string{"restart from an older version"}},
		{"nothing", []string{"--exit-code", nothing}, nil, 0, []string{"1 restarts of a watch", "no watch restarts from an older version"}, nil},
		{"empty", []string{empty}, nil, 1, []string{"so the log shows nothing"}, []string{"no audit event in what was read"}},
		{"an empty one beside another", []string{"--exit-code", empty, nothing}, nil, 0, []string{"1 restarts of a watch"}, nil},
		{"gzip", []string{zipped}, nil, 0, []string{"FOUND: services", "1 went back"}, nil},
		{"standard input", []string{"-"}, good, 0, []string{"FOUND: services"}, nil},
		{"JSON", []string{"-o", "json", plain}, nil, 0, []string{`"restarts":2`, `"badLines":0`, `"kind":"back"`, `"from":"35","before":"500"`, `"resource":"services"`}, nil},
		{"bad lines", []string{bad}, nil, 1, []string{"FOUND: services", "1 went back"},
			[]string{"bad.log:2:", "bad.log:4:", "bad.log:5: a line of the legacy audit format", "bad.log:6: byte 15: '\"' where a comma", "bad.log:7: the event has neither", `bad.log:8: requestURI "/version": no resource`, "6 lines are no audit events"}},
		{"a cut gzip file", []string{cut}, nil, 1, []string{"restarts of a watch"}, []string{"cut.log.gz: after line", "1 of 1 files"}},
		{"a file that is not there", []string{filepath.Join(dir, "none"), plain}, nil, 1, []string{"FOUND: services"}, []string{"no such file", "1 of 2 files"}},
		{"no file", nil, nil, 2, nil, []string{"name at least one audit log"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, errs, code := run(t, bytes.NewReader(tc.stdin), tc.args...)
			if code != tc.code {
				t.Errorf("status %d, want %d", code, tc.code)
			}
			for _, s := range tc.stdout {
				if !strings.Contains(out, s) {
					t.Errorf("output lacks %q:\n%s", s, out)
				}
			}
			for _, s := range tc.stderr {
				if !strings.Contains(errs, s) {
					t.Errorf("error output lacks %q:\n%s", s, errs)
				}
			}
		})
	}
}

// TestLongLines: an event at level RequestResponse may be longer than any buffer.
func TestLongLines(t *testing.T) {
	w := incident()
	pad := fmt.Sprintf(`{"verb":"create","requestURI":"/api/v1/x","stage":"ResponseComplete","timestamp":"2018-01-10T12:00:00Z","requestObject":{"data":%q}}`+"\n", strings.Repeat("x", 3<<20))
	l := NewLog()
	if err := l.Read("long", io.MultiReader(strings.NewReader(pad), bytes.NewReader(w.Bytes()), strings.NewReader(pad)), func(e *LineError) { t.Error(e) }); err != nil {
		t.Fatal(err)
	}
	if r := l.Results(); len(r) != 1 || r[0].Count(Back) != 1 {
		t.Errorf("results %+v", r)
	}
	bad := 0
	huge := io.MultiReader(io.LimitReader(zeros{}, maxLine+1<<20), strings.NewReader("\n"), bytes.NewReader(w.Bytes()))
	l = NewLog()
	if err := l.Read("huge", huge, func(e *LineError) {
		bad++
		if e.Line != 1 || !strings.Contains(e.Error(), "longer than") {
			t.Error(e)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if r := l.Results(); bad != 1 || len(r) != 1 {
		t.Errorf("%d bad lines, results %+v", bad, r)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// busyLog is what an apiserver of a busy cluster writes: mostly reads and updates.
func busyLog(n int) *logWriter {
	w := newLogWriter()
	w.list(services)
	rv := 1000
	for i := 0; w.Len() < n; i++ {
		end := w.watch(services, fmt.Sprint(rv))
		for range 200 {
			rv++
			w.do("get", "/api/v1/namespaces/default/endpoints/e", 200, ref("endpoints", "e", ""), "")
			w.update("endpoints", "e", fmt.Sprint(rv), "")
			w.do("patch", "/api/v1/nodes/n/status", 200, ref("nodes", "n", ""), "")
			w.create("pods", "")
		}
		end()
	}
	return w
}

// BenchmarkRead shows MB/s of log on one core.
func BenchmarkRead(b *testing.B) {
	w := busyLog(16 << 20)
	b.SetBytes(int64(w.Len()))
	for b.Loop() {
		l := NewLog()
		if err := l.Read("busy", bytes.NewReader(w.Bytes()), func(e *LineError) { b.Fatal(e) }); err != nil {
			b.Fatal(err)
		}
		if r := l.Results(); len(r) != 0 {
			b.Fatal(r[0])
		}
	}
}

// TestUnjudged: the report says how many watches a list kept from being judged.
func TestUnjudged(t *testing.T) {
	w := newLogWriter()
	w.list(services)
	for _, rv := range []string{"100", "90", "80"} {
		w.watchFor(services, rv, time.Minute)
		w.list(services)
	}
	l, results := judged(t, w)
	var out bytes.Buffer
	l.Report(&out, results)
	if l.Unjudged != 2 || l.Summary(results).Unjudged != 2 || !strings.Contains(out.String(), "2 watches began after a list and could not be judged") {
		t.Errorf("%d: %s", l.Unjudged, out.String())
	}
}

// TestObservationsAreBounded: updates that say nothing new are kept once a second.
func TestObservationsAreBounded(t *testing.T) {
	l := NewLog()
	at := time.Unix(1500000000, 0)
	for i := range 10000 {
		l.observe("endpoints", at.Add(time.Duration(i)*time.Millisecond), "100", nil)
	}
	if n := len(l.observations["endpoints"]); n != 10 {
		t.Errorf("%d observations of 10 s", n)
	}
}
