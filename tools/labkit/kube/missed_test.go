// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"holdfast/tools/labkit/wait"
)

// forgetful is an API server that breaks its first watch, from revision 5, and then has
// forgotten what came since, and an etcd beside it.
type forgetful struct {
	mu sync.Mutex
	// items and revision are of its second list.
	items    string
	revision int
	history  string // etcd's
	lists    int
	// resumed is the revision from which it accepts the watch after the first, 0 for none.
	resumed int
	watched []string
}

func (f *forgetful) pod(name string, rv int) string {
	return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"ns","resourceVersion":"%d"}}`, name, rv)
}

// put and del are lines of etcd's history.
func put(key string, created, rev int) string {
	return fmt.Sprintf(`{"kv":{"key":%q,"create_revision":"%d","mod_revision":"%d","version":"1","value":"AAAA"}}`, base64.StdEncoding.EncodeToString([]byte(key)), created, rev)
}

func del(key string, rev int) string {
	return fmt.Sprintf(`{"type":"DELETE","kv":{"key":%q,"mod_revision":"%d"}}`, base64.StdEncoding.EncodeToString([]byte(key)), rev)
}

func told(events ...string) string {
	return `{"result":{"created":true}}` + "\n" + `{"result":{"events":[` + strings.Join(events, ",") + `]}}` + "\n"
}

func (f *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	from := r.URL.Query().Get("resourceVersion")
	switch {
	case r.URL.Path == "/v3/watch":
		b, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(b), `"start_revision":"7"`) {
			http.Error(w, string(b), http.StatusBadRequest)
			return
		}
		io.WriteString(w, f.history)
	case r.URL.Query().Get("watch") == "":
		f.lists++
		if f.lists == 1 {
			fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[%s,%s]}`, f.pod("old", 3), f.pod("going", 4))
			return
		}
		fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`, f.revision, f.items)
	case from == "5":
		fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`+"\n", f.pod("old", 6))
	case from == fmt.Sprint(f.revision), from == fmt.Sprint(f.resumed):
		f.watched = append(f.watched, from)
		w.(http.Flusher).Flush()
		f.mu.Unlock()
		<-r.Context().Done()
		f.mu.Lock()
	default:
		w.WriteHeader(http.StatusGone)
		io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Gone","message":"too old resource version"}`)
	}
}

// record has the server's watch break, and says what a Recorder has when it watches again: after
// a minute if it is not what is wanted.
func (f *forgetful) record(t *testing.T, want string) string {
	t.Helper()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	c, err := NewClientForConfig(&rest.Config{Host: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	c.etcd = srv.URL
	rec, err := c.Record(context.Background(), Pods, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rec.Stop)
	if err := wait.Until(context.Background(), "the next watch", time.Minute, func(context.Context) (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.watched) > 0, nil
	}); err != nil {
		t.Fatal(err)
	}
	// It adds what it missed after that.
	_ = wait.Until(context.Background(), want, time.Minute, func(context.Context) (bool, error) { return said(rec) == want, nil })
	time.Sleep(50 * time.Millisecond)
	return said(rec)
}

func said(rec *Recorder) string {
	var out []string
	for _, ev := range rec.Events() {
		s := ev.Type
		if ev.Object != nil {
			s += " " + ev.Object.GetName() + "@" + ev.Object.GetResourceVersion()
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

const before = "LISTED old@3, LISTED going@4, MODIFIED old@6"

func TestRecorderResumes(t *testing.T) {
	f := &forgetful{resumed: 6}
	if got := f.record(t, before); got != before {
		t.Error(got)
	}
	if f.lists != 1 {
		t.Errorf("%d lists", f.lists)
	}
}

// What the server has forgotten is told by etcd, or there is a gap.
func TestRecorderMissed(t *testing.T) {
	f := &forgetful{}
	key := "/registry/pods/ns/"
	for what, c := range map[string]struct{ items, history, want string }{
		"nothing of pods":        {f.pod("old", 6) + "," + f.pod("going", 4), told(put("/registry/minions/n", 1, 12)), before},
		"one change of each":     {f.pod("old", 8) + "," + f.pod("new", 9), told(put(key+"old", 3, 8), put(key+"new", 9, 9)) + told(del(key+"going", 10), put("/registry/minions/n", 1, 12)), before + ", MODIFIED old@8, ADDED new@9, DELETED going@10"},
		"another resource":       {f.pod("old", 6) + "," + f.pod("going", 4), told(put("/registry/podtemplates/ns/old", 8, 8), put("/x", 1, 12)), before},
		"a second change":        {f.pod("old", 9) + "," + f.pod("going", 4), told(put(key+"old", 3, 8), put(key+"old", 3, 9), put("/x", 1, 12)), before + ", GAP, LISTED old@9, LISTED going@4"},
		"came and went":          {f.pod("old", 6) + "," + f.pod("going", 4), told(put(key+"x", 8, 8), del(key+"x", 9), put("/x", 1, 12)), before + ", GAP, LISTED old@6, LISTED going@4"},
		"the history is gone":    {f.pod("old", 6), `{"result":{"canceled":true,"compact_revision":"11"}}` + "\n", before + ", GAP, LISTED old@6"},
		"the history is cut off": {f.pod("old", 8), told(put(key+"old", 3, 8)), before + ", GAP, LISTED old@8"},
		"etcd fails":             {f.pod("old", 6), "", before + ", GAP, LISTED old@6"},
	} {
		t.Run(what, func(t *testing.T) {
			f := &forgetful{items: c.items, history: c.history, revision: 12}
			if got := f.record(t, c.want); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}
