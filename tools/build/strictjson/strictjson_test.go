// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package strictjson

import (
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	for text, want := range map[string]string{
		`{"A": 1}`:          "",
		"{\"A\": 1}\n":      "",
		`{"B": 1}`:          `unknown field "B"`,
		`{"A": 1} {"A": 2}`: "more than one JSON value",
		`{"A": 1`:           "unexpected EOF",
		``:                  "EOF",
	} {
		var v struct{ A int }
		err := Decode([]byte(text), &v)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if want == "" && v.A != 1 {
			t.Errorf("%q: %+v", text, v)
		}
	}
}
