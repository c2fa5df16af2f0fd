// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	var ran []string
	part := func(name string, n Count, err error, needs ...string) Part {
		return Part{Name: name, Needs: needs, Run: func() (Count, error) { ran = append(ran, name); return n, err }}
	}
	for _, tc := range []struct {
		name  string
		parts []Part
		ok    bool
		ran   string
		lines []string // expressions, in the order of the closing table
	}{
		{"all pass", []Part{part("a", Count{Passed: 3, Failed: 0}, nil), part("b", Count{Passed: 0, Failed: 0}, nil, "a")}, true, "a b",
			[]string{`a +ok +3 passed +0 failed +0\.0 s`, `b +ok +0 passed +0 failed`, `^3 passed, 0 failed$`}},
		{"one has failed tests", []Part{part("a", Count{Passed: 2, Failed: 1}, nil), part("b", Count{Passed: 1, Failed: 0}, nil)}, false, "a b",
			[]string{`a +FAILED +2 passed +1 failed`, `b +ok +1 passed`, `^3 passed, 1 failed$`}},
		{"an error counts as a failure", []Part{part("a", Count{Passed: 2, Failed: 0}, errors.New("no network"))}, false, "a",
			[]string{`a +FAILED +2 passed +1 failed`, `^all parts took`, `^a failed: no network$`, `^2 passed, 1 failed$`}},
		{"a long error is told in short", []Part{part("a", Count{}, errors.New("k8s.io/a TestA fails in the patched tree:\n2\n3\n4\n5"))}, false, "a",
			[]string{`^a failed: k8s.io/a TestA fails`, `^4 … \(whole above\)$`, `^0 passed, 1 failed$`}},
		{"an error of counted failures is not counted twice", []Part{part("a", Count{Passed: 2, Failed: 4}, errors.New("exit status 1"))}, false, "a",
			[]string{`a +FAILED +2 passed +4 failed`, `^2 passed, 4 failed$`}},
		{"what needs a failed part is not run and fails, and so on", []Part{part("a", Count{Passed: 0, Failed: 1}, nil), part("b", Count{Passed: 1, Failed: 0}, nil, "a"), part("c", Count{Passed: 1, Failed: 0}, nil, "b"), part("d", Count{Passed: 1, Failed: 0}, nil)}, false, "a d",
			[]string{`a +FAILED`, `b +FAILED +0 passed +1 failed`, `c +FAILED +0 passed +1 failed`, `d +ok`, `^1 passed, 3 failed$`}},
		{"skipped tests are told", []Part{part("a", Count{Passed: 3, Skipped: 2}, nil), part("b", Count{Passed: 1}, nil)}, true, "a b",
			[]string{`a +ok +3 passed +0 failed +0\.0 s +0\.0 s CPU, 2 skipped$`, `b +ok .*s CPU$`, `^4 passed, 0 failed, 2 skipped$`}},
		{"a need that was not asked for", []Part{part("b", Count{Passed: 1, Failed: 0}, nil, "a")}, true, "b", []string{`b +ok`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ran = nil
			var out bytes.Buffer
			if ok := Run(&out, tc.parts, nil); ok != tc.ok {
				t.Errorf("%v, want %v", ok, tc.ok)
			}
			if got := strings.Join(ran, " "); got != tc.ran {
				t.Errorf("ran %q, want %q", got, tc.ran)
			}
			_, table, ok := strings.Cut(out.String(), "\npart ")
			if !ok {
				t.Fatalf("no table: %s", &out)
			}
			lines := strings.Split(table, "\n")
			for _, want := range tc.lines {
				i := slices.IndexFunc(lines, regexp.MustCompile(want).MatchString)
				if i < 0 {
					t.Errorf("no line %q, in order, in:\n%s", want, table)
					continue
				}
				lines = lines[i+1:]
			}
			if !regexp.MustCompile(`took 0\.0 min of a budget of 60 min`).MatchString(table) {
				t.Errorf("no budget: %s", table)
			}
			for _, p := range tc.parts {
				if !strings.Contains(out.String(), "\n=== "+p.Name+"\n") {
					t.Errorf("no headline of %s", p.Name)
				}
			}
		})
	}
	var out bytes.Buffer
	Run(&out, []Part{part("a", Count{}, errors.New("no network")), part("b", Count{}, nil, "a")}, nil)
	for _, want := range []string{"a: no network\n", "b: not run: it needs the part \"a\", which failed\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not said:\n%s", want, &out)
		}
	}
}

// TestAside: beside a part that waits others run in other processes, two at once, and go on when it
// has ended. What does not say that it may do so runs before it.
func TestAside(t *testing.T) {
	var mu sync.Mutex
	var ran []string
	note := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, s)
	}
	begun, end := make(chan struct{}), make(chan struct{})
	part := func(name string, failed int, needs ...string) Part {
		return Part{Name: name, Needs: needs, Beside: true, Run: func() (Count, error) { note(name); return Count{Passed: 1, Failed: failed}, nil }}
	}
	alone := func(p Part) Part { p.Beside = false; return p }
	labs := Part{Name: "labs", Waits: true, Run: func() (Count, error) {
		close(begun)
		<-end
		note("labs")
		return Count{Passed: 4}, nil
	}}
	second, now, most := make(chan struct{}), 0, 0
	aside := func(p Part) ([]byte, Count, error) {
		<-begun
		note("aside " + p.Name)
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		defer func() {
			mu.Lock()
			now--
			mu.Unlock()
		}()
		switch p.Name {
		case "a":
			<-second // two run at once
		case "bad":
			close(second)
		}
		if p.Name == "d" {
			close(end)
			for { // until labs is over
				mu.Lock()
				over := slices.Contains(ran, "labs")
				mu.Unlock()
				if over {
					time.Sleep(50 * time.Millisecond)
					return []byte("d said so\n"), Count{Passed: 2}, errors.New("d is no good")
				}
			}
		}
		return nil, Count{Passed: 1, Skipped: 1, CPU: 3 * time.Second}, nil
	}
	var out bytes.Buffer
	if Run(&out, []Part{part("a", 0), alone(part("b", 0)), part("bad", 1), alone(part("c", 1)), part("n", 0, "c"), part("d", 0), part("e", 0, "b"), labs}, aside) {
		t.Error("all well")
	}
	slices.Sort(ran[2:])
	if got, want := strings.Join(ran, ", "), "b, c, aside a, aside bad, aside d, aside e, labs"; got != want {
		t.Errorf("ran %s, want %s", got, want)
	}
	if most != atOnce {
		t.Errorf("%d at once, want %d", most, atOnce)
	}
	for _, want := range []string{`(?m)^d said so$`, `(?m)^d: d is no good$`, `(?m)^n +FAILED +0 passed +1 failed`, `(?m)^a +ok +1 passed +0 failed +0\.\d s +3\.0 s CPU, 1 skipped, beside others$`,
		`(?m)^d +FAILED +2 passed +1 failed .* beside others$`, `(?m)^labs +ok +4 passed`, `(?m)^e +ok +1 passed +0 failed +0\.\d s +3\.0 s CPU, 1 skipped, beside others$`, `(?m)^labs .* 0\.0 s CPU$`, `(?m)^d failed: d is no good$`, `(?m)^n failed: not run: it needs the part "c", which failed$`, `(?m)^11 passed, 3 failed, 3 skipped$`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no line %q in:\n%s", want, &out)
		}
	}
}

// TestSelect: only what must be fresh brings what it needs, and what that needs.
func TestSelect(t *testing.T) {
	all := []Part{{Name: "source"}, {Name: "rules"}, {Name: "binaries", Needs: []string{"source"}}, {Name: "unit", Needs: []string{"binaries"}}, {Name: "labs", Needs: []string{"binaries"}, Fresh: true}}
	for names, want := range map[string]string{"": "source rules binaries unit labs", "unit": "unit", "unit labs": "source binaries unit labs", "labs": "source binaries labs", "rules": "rules", "labs rules": "source rules binaries labs"} {
		var got []string
		for _, p := range Select(all, strings.Fields(names)) {
			got = append(got, p.Name)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%q selects %q, want %q", names, s, want)
		}
	}
}
