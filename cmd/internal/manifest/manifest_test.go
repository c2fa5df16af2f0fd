// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	for _, tc := range []struct {
		name, in, want, err string
	}{
		{"one of JSON", `{"kind":"Pod","metadata":{"namespace":"a","name":"b"}}`, "f: Pod a/b", ""},
		{"several of JSON", "{\"kind\":\"A\"}\n {\"kind\":\"B\"}{\"kind\":\"C\"}", "f: f|f, document 2: f, document 2|f, document 3: f, document 3", ""},
		{"a list", `{"kind":"List","items":[{"metadata":{"name":"x"}},{"kind":"PodList","items":[{"metadata":{"name":"y"}}]}]}`, "f, items[0]: x|f, items[1], items[0]: Pod y", ""},
		{"a list of YAML after another document", "# c\n---\n---\nmetadata: {name: a}\n--- # d\nkind: List\nitems:\n- metadata: {name: b}\n- metadata: {name: c}\n", "f: a|f, document 2, items[0]: b|f, document 2, items[1]: c", ""},
		{"an object that has items is no list", `{"kind":"ConfigMap","metadata":{"name":"x"},"items":[1]}`, "f: ConfigMap x", ""},
		{"--- inside a text", "metadata:\n  name: |-\n    a\n    ---\n    b\n", "f: a\n---\nb", ""},
		{"an empty list", `{"kind":"List","items":[]}`, "", ""},
		{"rubbish after JSON", `{"kind":"A"} x`, "f: f", "f, document 2: not JSON after byte 12"},
		{"rubbish in YAML", "a: b\n---\na: [\n", "f: f", "f, document 2: neither JSON nor YAML"},
		{"a key twice in YAML", "a: b\na: c\n", "", "already set in map"},
		{"cut JSON", `{"kind":"A"`, "", "unexpected EOF"},
		{"no object", `[1]`, "", "f: not an object"},
		{"no object in a list", `{"kind":"List","items":[1]}`, "", "f, items[0]: not an object"},
		{"nothing", " \n", "", "f: it is empty"},
		{"nothing in YAML", "# only this\n---\n", "", "f: it is empty"},
	} {
		var got []string
		err := Read("f", strings.NewReader(tc.in), func(o Object) error {
			got = append(got, o.Where+": "+o.Name())
			return nil
		})
		if s := strings.Join(got, "|"); s != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, s, tc.want)
		}
		if (tc.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.err)
		}
	}
}

// TestTypedList: an item gets the kind of its list, and with it the list's apiVersion, unless it
// has its own.
func TestTypedList(t *testing.T) {
	for in, want := range map[string]string{
		`{"apiVersion":"apps/v1","kind":"DeploymentList","items":[{},{"kind":""},{"kind":null,"apiVersion":""}]}`: "apps/v1 Deployment|apps/v1 Deployment|apps/v1 Deployment",
		"apiVersion: v1\nkind: PodList\nitems:\n- spec: {}\n":                                                     "v1 Pod",
		`{"apiVersion":"v1","kind":"PodList","items":[{"apiVersion":"v2"},{"kind":"Node"}]}`:                      "v2 Pod| Node",
		`{"kind":"PodList","items":[{}]}`:                                                                         " Pod",
		`{"apiVersion":"v1","kind":"List","items":[{}]}`:                                                          " ",
		`{"apiVersion":"v1","items":[{}]}`:                                                                        " ",
	} {
		var got []string
		err := Read("f", strings.NewReader(in), func(o Object) error {
			got = append(got, o.String("apiVersion")+" "+o.String("kind"))
			return nil
		})
		if s := strings.Join(got, "|"); err != nil || s != want {
			t.Errorf("%s: %q, %v, want %q", in, s, err, want)
		}
	}
}

// TestAtOnce: an object of a stream is there before the next one is written.
func TestAtOnce(t *testing.T) {
	r, w := io.Pipe()
	got := make(chan string)
	done := make(chan error)
	go func() {
		done <- Read("-", r, func(o Object) error { got <- o.String("kind"); return nil })
	}()
	for _, k := range []string{"A", "B"} {
		if _, err := io.WriteString(w, `{"kind":"`+k+`"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		if g := <-got; g != k {
			t.Errorf("%q, want %q", g, k)
		}
	}
	w.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	stop := errors.New("stop")
	if err := Read("f", strings.NewReader("{}{}"), func(Object) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}
