// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A list is read object by object, with pages and without, and nothing but a whole list is one.
func TestList(t *testing.T) {
	const items = `{"n":1},{"n":2}`
	answers := map[string]string{
		"/whole":  `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","extra":{"a":[1]}},"items":[` + items + `]}`,
		"/last":   `{"items":[` + items + `],"kind":"PodList"}`,
		"/null":   `{"kind":"PodList","metadata":{},"items":null}`,
		"/half":   `{"kind":"PodList","metadata":{},"items":[` + items,
		"/html":   `<html><body>hunter2secret</body></html>`,
		"/other":  `{"kind":"Status","items":[` + items + `]}`,
		"/string": `{"kind":"PodList","items":"hunter2secret"}`,
		"/empty":  ``,
		"/large":  `{"kind":"PodList","items":["` + strings.Repeat("x", 5000) + `"]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == "/paged" && r.FormValue("continue") == "":
			fmt.Fprint(w, `{"kind":"PodList","metadata":{"continue":"a+b"},"items":[{"n":1}]}`)
		case path == "/paged" && r.FormValue("continue") == "a+b":
			fmt.Fprint(w, `{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"n":2}]}`)
		case path == "/endless":
			fmt.Fprint(w, `{"kind":"PodList","metadata":{"continue":"again"},"items":[]}`)
		case path == "/slow":
			fmt.Fprint(w, `{"kind":"PodList",`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case answers[path] != "" || path == "/empty":
			fmt.Fprint(w, answers[path])
		default:
			http.NotFound(w, r)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer server.Close()
	c, err := Load(config(t, "server: '"+server.URL+"'", "token: t0ken"), "")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/whole": "", "/last": "", "/paged": "", "/null": "", "/half": "half of it", "/html": "not the list", "/other": "not the list", "/string": "not the list",
		"/empty": "not the list", "/large": "more than 4000 bytes", "/endless": "has no end", "/slow": "deadline", "/none": "404",
	} {
		sum, limit, timeout := 0, int64(4000), time.Minute
		switch path {
		case "/endless":
			limit = 1 << 20
		case "/slow":
			timeout = time.Second
		}
		start := time.Now()
		at, version, err := c.List(t.Context(), path, limit, timeout, func(raw json.RawMessage) error {
			var item struct{ N int }
			err := json.Unmarshal(raw, &item)
			sum += item.N
			return err
		})
		if want == "" {
			n := 3
			if path == "/null" {
				n = 0
			}
			if err != nil || sum != n || time.Since(at).Abs() > time.Minute || version != "7" && (path == "/whole" || path == "/paged") {
				t.Errorf("%s: %d, %v, %q, %v", path, sum, at, version, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || path == "/slow" && time.Since(start) > 30*time.Second {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
