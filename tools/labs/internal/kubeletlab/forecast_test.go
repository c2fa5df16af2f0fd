// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletlab

import (
	"reflect"
	"testing"
)

func TestParseAnswer(t *testing.T) {
	lines := `{"version":1,"kind":"container","pod":"ns/a","container":"main","containerID":"1","answer":"kept"}
{"version":1,"kind":"finding","code":"HF203"}
`
	want := Answer{Plan: lines, Told: []Told{{"ns/a", "main", "1", "kept"}}, Codes: []string{"HF203"}}
	if got := ParseAnswer("asks node1\n" + lines); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestNotAsTold(t *testing.T) {
	box := Container{ID: "p", Sandbox: true}
	before := Snapshot{"ns/a/main": {ID: "1", StartedAt: "1"}, "ns/a/POD": box}
	for what, c := range map[string]struct {
		told  []Told
		after Snapshot
		wrong int
	}{
		"kept":               {[]Told{{"ns/a", "main", "1", "kept"}}, Snapshot{"ns/a/main": {ID: "1", StartedAt: "1"}}, 0},
		"new":                {[]Told{{"ns/a", "main", "1", "new"}}, Snapshot{"ns/a/main": {ID: "2", StartedAt: "2"}}, 0},
		"started again":      {[]Told{{"ns/a", "main", "1", "kept"}}, Snapshot{"ns/a/main": {ID: "1", StartedAt: "2"}}, 1},
		"gone":               {[]Told{{"ns/a", "main", "1", "new"}}, nil, 1},
		"not known":          {[]Told{{"ns/a", "main", "1", "?"}}, before, 1},
		"another":            {[]Told{{"ns/a", "main", "9", "kept"}}, before, 1},
		"not named":          {nil, before, 1},
		"one that never ran": {[]Told{{"ns/a", "main", "1", "kept"}, {"ns/b", "main", "2", "kept"}}, before, 1},
	} {
		if wrong := NotAsTold(c.told, before, c.after, nil); len(wrong) != c.wrong {
			t.Errorf("%s: %q", what, wrong)
		}
	}
	open := func(t Told) bool { return t.Answer == "?" }
	for answer, n := range map[string]int{"?": 0, "new": 1} {
		if wrong := NotAsTold([]Told{{"ns/a", "main", "1", answer}}, before, before, open); len(wrong) != n {
			t.Errorf("%s, left open: %q", answer, wrong)
		}
	}
	if wrong := NotAsTold([]Told{{"ns/a", "main", "2", "?"}}, before, before, open); len(wrong) != 1 {
		t.Errorf("another, left open: %q", wrong)
	}
}
