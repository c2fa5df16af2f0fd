// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/webhook/rulesets"
)

func parse(t *testing.T, text string) *Set {
	t.Helper()
	s, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMistakes(t *testing.T) {
	rule := func(when, then string) string {
		return fmt.Sprintf("rules:\n- name: a\n  when: %s\n  then: %s\n", when, then)
	}
	many := "rules:\n" + strings.Repeat("- {name: a, when: 'true', then: ready}\n", MaxRules+1)
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "f.yaml: it is empty"},
		{"no rules", "dryRun: true\n", "f.yaml:1:1: no rules"},
		{"empty list", "rules: []\n", "f.yaml:1:1: no rules"},
		{"no list", "rules: 3\n", "f.yaml:1:8: \"rules\" is a list"},
		{"a list at the top", "- a\n", "f.yaml:1:1: the file is a mapping"},
		{"unknown key", "rulez: []\n", "f.yaml:1:1: unknown key \"rulez\": there are dryRun, rules"},
		{"unknown key of a rule", "rules:\n- name: a\n  if: 'true'\n  then: ready\n", "f.yaml:3:3: unknown key \"if\": there are dryRun, name, then, when"},
		{"key twice", "rules:\n- name: a\n  name: b\n", "f.yaml:3:3: key \"name\" is there twice"},
		{"name twice", rule("'true'", "ready") + "- name: a\n  when: 'false'\n  then: leave\n", "f.yaml:5:3: rule \"a\" is there twice, first in line 2"},
		{"bad name", "rules:\n- {name: A_b, when: 'true', then: ready}\n", "f.yaml:2:3: \"name\" is \"A_b\""},
		{"no when", "rules:\n- {name: a, then: ready}\n", "f.yaml:2:3: rule a has no \"when\""},
		{"no then", "rules:\n- {name: a, when: 'true'}\n", "f.yaml:2:3: rule a has no \"then\""},
		{"bad then", rule("'true'", "off"), "f.yaml:4:9: \"then\" is \"off\""},
		{"bad dryRun", "dryRun: maybe\nrules: []\n", "f.yaml:1:9: \"dryRun\" is true or false"},
		{"not YAML", "rules:\n- name: a\n  when: [\n", "f.yaml:3:1: not YAML"},
		{"two documents", rule("'true'", "ready") + "---\na: b\n", "a second YAML document"},
		{"alias", "rules: &r\n- {name: a, when: 'true', then: ready}\ndryRun: *r\n", "aliases"},
		{"too many", many, fmt.Sprintf("%d rules: the limit is %d", MaxRules+1, MaxRules)},
		{"a megabyte", strings.Repeat("#", 1<<20), "1048576 bytes: the limit is 262144"},
		{"unknown field", rule("pod.imagePendin", "ready"), "f.yaml:3:13: \"when\" of rule a: "},
		{"unknown field, quoted", rule("'pod.nope'", "ready"), "f.yaml:3:14: "},
		{"in a block", "rules:\n- name: a\n  when: |\n    pod.ready and\n    pod.nope\n  then: ready\n", "f.yaml:5:9: "},
		{"no bool", rule("pod.name", "ready"), "expected bool, but got string"},
		{"other type", rule("pod.name > 3", "ready"), "f.yaml:3:18: "},
		{"clock", rule("now() == now()", "ready"), "f.yaml:3:9: "},
		{"range", rule("'any(1..1000000, # > 3)'", "ready"), "ranges (..) are not allowed"},
		{"nested", rule("any(pod.containers, any(pod.containers, true))", "ready"), "not allowed inside one another"},
		{"let", rule("let a = 1; a == 1", "ready"), "variables (let) are not allowed"},
		{"duration", rule("elapsed(pod.readySince, '30')", "ready"), "is no duration"},
		{"duration, computed", rule("elapsed(pod.readySince, pod.name)", "ready"), "is a duration in quotes"},
		{"moment", rule("elapsed(pod.name, '3s')", "ready"), "f.yaml:3:21: "},
		{"long", rule("pod.ready"+strings.Repeat(" or pod.ready", 400), "ready"), "the limit is 4096"},
		{"many parts", rule(strings.Repeat("1+", 400)+"1 > 2", "ready"), "compilation failed: expression exceeds maximum allowed nodes"},
	} {
		_, err := Parse("f.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("%s: %T is no *Error", c.name, err)
		}
	}
}

func TestJudge(t *testing.T) {
	now := time.Now()
	s := parse(t, `
rules:
- {name: dry, when: 'true', then: drop, dryRun: true}
- {name: off, when: 'pod.annotations["t"] == "off"', then: drop}
- {name: young, when: 'pod.ready and not elapsed(pod.readySince, "30s")', then: notReady}
- {name: gone, when: 'node.known and not node.ready and elapsed(node.readySince, "1m")', then: notReady}
- {name: keep, when: 'service.labels["keep"] == "yes"', then: leave}
- {name: both, when: 'containersReady("a, b")', then: ready}
`)
	for _, c := range []struct {
		name string
		env  Env
		want Verdict
	}{
		{"none", Env{}, Verdict{Place: Leave}},
		{"annotation", Env{Pod: Pod{Meta: Meta{Annotations: map[string]string{"t": "off"}}}}, Verdict{Place: Drop, Rule: "off"}},
		{"young", Env{Pod: Pod{Ready: true, ReadySince: At(now.Add(-10 * time.Second))}}, Verdict{Place: NotReady, Rule: "young", Wake: now.Add(20 * time.Second)}},
		{"old", Env{Pod: Pod{Ready: true, ReadySince: At(now.Add(-30 * time.Second))}}, Verdict{Place: Leave}},
		{"never", Env{Pod: Pod{Ready: true}}, Verdict{Place: NotReady, Rule: "young"}},
		{"node", Env{Node: Node{Known: true, ReadySince: At(now.Add(-10 * time.Second))}}, Verdict{Place: Leave, Wake: now.Add(50 * time.Second)}},
		{"leave wins", Env{Service: Service{Meta: Meta{Labels: map[string]string{"keep": "yes"}}}, Pod: Pod{Containers: []Container{{Name: "a", Ready: true}, {Name: "b", Ready: true}}}}, Verdict{Place: Leave, Rule: "keep"}},
		{"both", Env{Pod: Pod{Containers: []Container{{Name: "a", Ready: true}, {Name: "b", Ready: true}}}}, Verdict{Place: Ready, Rule: "both"}},
		{"one", Env{Pod: Pod{Containers: []Container{{Name: "a", Ready: true}, {Name: "b"}}}}, Verdict{Place: Leave}},
	} {
		c.want.DryRun = []string{"dry"}
		if got := s.Judge(&c.env, now); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	s.DryRun = true
	if v := s.Judge(&Env{Pod: Pod{Meta: Meta{Annotations: map[string]string{"t": "off"}}}}, now); v.Place != Leave || v.Rule != "" || len(v.DryRun) != 1 {
		t.Errorf("the whole file in dry-run: %+v", v)
	}
}

// TestRuleThatFails: it is off, said once, and the others go on.
func TestRuleThatFails(t *testing.T) {
	s := parse(t, `
rules:
- {name: fails, when: 'pod.containers[7].ready', then: drop}
- {name: panics, when: 'elapsed(pod.created, "1s")', then: drop}
- {name: good, when: 'true', then: notReady}
`)
	var off []string
	s.OnOff = func(r *Rule, _ string) { off = append(off, r.Name) }
	for range 3 {
		if v := s.Judge(&Env{}, time.Now()); v.Rule != "good" {
			t.Errorf("%+v", v)
		}
	}
	if fmt.Sprint(off) != "[fails]" || s.Find("fails").Off() == "" || s.Find("good").Off() != "" {
		t.Errorf("off: %v", off)
	}
	// A panic inside a function of ours comes out of the machine as an error.
	r := s.Find("panics")
	env := &Env{Elapsed: func(Moment, string) bool { panic("boom") }}
	if _, err := r.run(newMachine(), env); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("a panic gave %v", err)
	}
}

// TestBudget: a rule that takes too long three times in a row is off.
func TestBudget(t *testing.T) {
	s := parse(t, "rules:\n- {name: slow, when: 'elapsed(pod.created, \"1s\")', then: drop}\n")
	r, calls := s.Find("slow"), 0
	env := &Env{Elapsed: func(Moment, string) bool { calls++; time.Sleep(2 * Budget); return true }}
	yes, why := r.applies(newMachine(), env)
	if yes || !strings.Contains(why, "budget") || calls != budgetTries {
		t.Errorf("%v %q after %d calls", yes, why, calls)
	}
	calls = 0
	env.Elapsed = func(Moment, string) bool {
		if calls++; calls == 1 {
			time.Sleep(2 * Budget)
		}
		return true
	}
	if yes, why := r.applies(newMachine(), env); !yes || why != "" || calls != 2 {
		t.Errorf("slow once: %v %q after %d calls", yes, why, calls)
	}
}

func TestShippedRuleSets(t *testing.T) {
	judge := func(name string, pod Pod) Verdict {
		text, ok := rulesets.Text(name)
		if !ok {
			t.Fatal(name)
		}
		s, err := Parse(name, text)
		if err != nil {
			t.Fatal(err)
		}
		return s.Judge(&Env{Pod: pod, Node: Node{Known: true, Ready: true}}, time.Now())
	}
	if n := rulesets.Names(); len(n) != 3 {
		t.Errorf("%v", n)
	}
	web, side := Container{Name: "web", Ready: true}, Container{Name: "side"}
	counted := Meta{Annotations: map[string]string{"holdfast/counted-containers": "web"}}
	pendingWeb, pendingSide := web, side
	pendingWeb.ImagePending, pendingSide.ImagePending = true, true
	for _, c := range []struct {
		set  string
		pod  Pod
		want Place
	}{
		{"image-pending", Pod{ImagePending: true}, NotReady},
		{"image-pending", Pod{}, Leave},
		{"traffic-off", Pod{Meta: Meta{Annotations: map[string]string{"holdfast/traffic": "off"}}}, NotReady},
		{"traffic-off", Pod{Meta: Meta{Annotations: map[string]string{"holdfast/traffic": "on"}}}, Leave},
		{"traffic-off", Pod{ImagePending: true}, NotReady},
		{"counted-containers", Pod{Containers: []Container{web, side}}, Leave},
		{"counted-containers", Pod{Meta: counted, Phase: "Running", Containers: []Container{web, side}}, Ready},
		{"counted-containers", Pod{Meta: counted, Phase: "Running", Deleting: true, Containers: []Container{web, side}}, NotReady},
		{"counted-containers", Pod{Meta: counted, Phase: "Running", Containers: []Container{side}}, NotReady},
		{"counted-containers", Pod{Meta: counted, Phase: "Running", Containers: []Container{pendingWeb, side}}, NotReady},
		{"counted-containers", Pod{Meta: counted, Phase: "Running", Containers: []Container{web, pendingSide}}, Ready},
	} {
		if v := judge(c.set, c.pod); v.Place != c.want {
			t.Errorf("%s, %+v: %+v, want %s", c.set, c.pod, v, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, n := range rulesets.Names() {
		text, _ := rulesets.Text(n)
		f.Add(text)
	}
	f.Add([]byte("rules:\n- name: a\n  when: |\n    pod.nope\n  then: ready\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse("f", text)
		if (s == nil) == (err == nil) {
			t.Fatalf("%v, %v", s, err)
		}
		if s != nil {
			s.Judge(&Env{}, time.Now())
		}
	})
}

func BenchmarkJudge100Rules(b *testing.B) {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range 100 {
		fmt.Fprintf(&text, "- {name: r%d, when: 'pod.labels[\"app\"] == \"x%d\" and elapsed(pod.readySince, \"30s\")', then: drop}\n", i, i)
	}
	s, err := Parse("f", []byte(text.String()))
	if err != nil {
		b.Fatal(err)
	}
	env := &Env{Pod: Pod{Meta: Meta{Labels: map[string]string{"app": "web"}}}}
	b.ReportAllocs()
	for b.Loop() {
		s.Judge(env, time.Now())
	}
}
