// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// value is n as encoding/json decodes it.
func value(n *node) any {
	switch n.kind {
	case object:
		out := tree{}
		for i := range n.kids {
			out[n.kids[i].key] = value(&n.kids[i])
		}
		return out
	case list:
		out := make([]any, len(n.kids))
		for i := range n.kids {
			out[i] = value(&n.kids[i])
		}
		return out
	case str:
		return unquote(n.raw)
	case number:
		return json.Number(n.raw)
	case truth:
		return n.raw == "true"
	}
	return nil
}

func TestParseJSON(t *testing.T) {
	for _, text := range []string{
		`null`, ` true `, "-0.5e+3", `0`, `"a\"\u00e9\n"`, `[]`, `[ ]`, `{}`, `{ }`, `[1,[2,{"a":[]}],"]"]`, "{\"b\" : 1 ,\n\"a\" :{\"c\":null} }", `"\ud800"`,
		`{"j":1,"i":2,"h":3,"g":4,"f":5,"e":6,"d":7,"c":8,"b":9,"a":10}`,
	} {
		n, err := parseJSON(text, whole)
		want, werr := decode([]byte(text))
		if err != nil || werr != nil || fmt.Sprint(value(n)) != fmt.Sprint(want) {
			t.Errorf("%s: %v, %v, %v", text, n, err, werr)
		}
	}
	for text, want := range map[string]string{
		"":                       "the end at byte 0",
		"nul":                    "no value",
		"1 2":                    "more than one value at byte 2",
		"[1":                     "no comma and no end",
		"[1,]":                   "no value",
		"[,1]":                   "no value",
		"{,}":                    "no key",
		`{"a":1,}`:               "no key",
		`{"a" 1}`:                "no colon",
		`{"a":1 "b":2}`:          "no comma and no end",
		`{"a":1,"\u0061":2}`:     "a key that is there twice",
		`{"a`:                    "the end, in a text",
		"\"a\nb\"":               "a control character",
		`"\x"`:                   "no such escape",
		`"\u12g4"`:               `no \u and four digits`,
		"01":                     "more than one value",
		"1.":                     "no number",
		"-":                      "no number",
		"1e":                     "no number",
		"\"\xff\"":               "not UTF-8",
		strings.Repeat("[", 300): "too deep",
		`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"a":1}`: "a key that is there twice",
	} {
		if _, err := parseJSON(text, whole); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	// Below the depth all is checked, and nothing is made.
	n, err := parseJSON(`{"a":{"b":[1,2]}}`, 1)
	if err != nil || n.get("a").raw != `{"b":[1,2]}` || n.get("a").kids != nil {
		t.Error(n, err)
	}
	if _, err := parseJSON(`{"a":{"b":[1,2}}}`, 1); err == nil {
		t.Error("what is below the depth is not checked")
	}
}

// FuzzJSON holds the reader of JSON against encoding/json.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,"\u00e9\\",null,true,{}],"b":{"c":"d"}}`, `[[[]]]`, `"\ud83d\ude00"`, ` 1 `} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseJSON(text, whole)
		if err != nil {
			for _, ours := range []string{"twice", "too deep", "UTF-8"} {
				if strings.Contains(err.Error(), ours) {
					return
				}
			}
			if json.Valid([]byte(text)) {
				t.Fatalf("%q is JSON: %v", text, err)
			}
			return
		}
		want, err := decode([]byte(text))
		if err != nil || !json.Valid([]byte(text)) {
			t.Fatalf("%q is no JSON: %v", text, err)
		}
		if got := value(n); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
		if n.raw != strings.Trim(text, " \t\r\n") {
			t.Fatalf("%q: raw is %q", text, n.raw)
		}
	})
}

// FuzzBecomes holds the comparison that is done before an answer against one that makes
// the object that 1.9 has.
func FuzzBecomes(f *testing.F) {
	f.Add(`{"a":"b"}`, `{"c":""}`, `{"a":"b"}`)
	f.Add(`{"addresses":[{"ip":"1","nodeName":"n"}]}`, `{"addresses":[{"ip":"2","nodeName":null},{"x":{}}]}`, `{"addresses":[{"ip":"2"},{}]}`)
	f.Add(`{"labels":{"a":"b"},"hostname":"h"}`, `{"labels":null,"hostname":null}`, `{"hostname":"h"}`)
	f.Add(`{"a":[{"b":1}]}`, `{"a":[]}`, `{}`)
	f.Fuzz(func(t *testing.T, before, after, want string) {
		var n [3]*node
		var v [3]any
		for i, text := range []string{before, after, want} {
			var err error
			if n[i], err = parseJSON(text, whole); err != nil {
				return
			}
			if n[i].kind != object {
				return
			}
			if v[i], err = decode([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		ref := equal(canonical(inherit(v[0], v[1])), canonical(v[2]))
		if got := becomes(n[0], n[1], n[2]); got != ref {
			t.Fatalf("%s after %s, is it %s: %v, want %v", after, before, want, got, ref)
		}
	})
}
