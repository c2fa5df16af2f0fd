// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashoracle

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestGeneratePod(t *testing.T) {
	oldest := map[int]int{}
	var all bytes.Buffer
	for i := range 20_000 {
		p := GeneratePod(7, i)
		if again := GeneratePod(7, i); !bytes.Equal(p.JSON, again.JSON) || p.Oldest != again.Oldest {
			t.Fatalf("pod %d is not the same twice", i)
		}
		if !json.Valid(p.JSON) || bytes.ContainsRune(p.JSON, '\n') {
			t.Fatalf("pod %d is not one line of JSON: %s", i, p.JSON)
		}
		oldest[p.Oldest]++
		all.Write(p.JSON)
	}
	for release := 7; release <= 9; release++ {
		if oldest[release] < 500 {
			t.Errorf("only %d pods that 1.%d is the oldest to know: %v", oldest[release], release, oldest)
		}
	}
	for _, want := range []string{
		`"hostPath":{"path":"/etc/kubernetes","type":""}`, `"type":"DirectoryOrCreate"`, `"sizeLimit":"1500Mi"`, `"wwids":`, `"initiatorName":`,
		`"priorityClassName":`, `"priority":0`, `"dnsConfig":{}`, `"volumeDevices":`, `"mountPropagation":`, `"allowPrivilegeEscalation":false`,
		`"initContainers":`, `"creationTimestamp":null`, `"12345678901234567890"`, `"hostAliases":`, `"ownerReferences":`, `(core.Pod){`,
	} {
		if !bytes.Contains(all.Bytes(), []byte(want)) {
			t.Errorf("no %s in 20000 pods", want)
		}
	}
}

// podTypes are the types of a release, as "struct: field type, field type".
func podTypes(lines ...string) map[string]podType {
	types := map[string]podType{}
	for _, line := range lines {
		name, fields, _ := strings.Cut(line, ": ")
		p := podType{Kind: "struct"}
		for _, f := range strings.Split(fields, ", ") {
			field, typ, _ := strings.Cut(f, " ")
			p.Fields = append(p.Fields, struct{ Name, Type string }{field, typ})
		}
		types[name] = p
	}
	return types
}

func TestMergePodTypes(t *testing.T) {
	newest := []string{"core.Pod: A string, B *core.B, C *int, D *core.HostPathType", "core.B: X string, Y string"}
	for _, tc := range []struct {
		name          string
		older, older2 []string
		want          string
	}{
		{"the same", []string{"api.Pod: A string, B *api.B, C *int, D *api.HostPathType", "api.B: X string, Y string"}, nil, "A string\n\t\tB *core.B\n\t\tC *int\n\t\tD *core.HostPathType \"\"`"},
		{"a field is new in the newest", []string{"api.Pod: A string, C *int, D *api.HostPathType"}, nil, "B *core.B @1.9\n\t\tC *int\n"},
		{"in the one before, with a new struct", []string{"api.Pod: A string, B *api.B, C *int, D *api.HostPathType", "api.B: X string, Y string"},
			[]string{"api.Pod: A string, B *api.B, C int"}, "C *int *1.8\n\t\tD *core.HostPathType @1.8 \"\"`"},
		{"another order", []string{"api.Pod: B *api.B, A string, C *int, D *api.HostPathType", "api.B: X string, Y string"}, nil, "! or has it in another place"},
		{"a field is gone", []string{"api.Pod: A string, B *api.B, C *int, D *api.HostPathType, E int", "api.B: X string, Y string"}, nil, "! has a field E that the newest release lacks"},
		{"another type", []string{"api.Pod: A int, B *api.B, C *int, D *api.HostPathType", "api.B: X string, Y string"}, nil, "! no rule for core.Pod.A string, which 1.8 has otherwise"},
		{"it comes and goes", []string{"api.Pod: A string, C *int, D *api.HostPathType", "api.B: X string, Y string"},
			[]string{"api.Pod: A string, B *api.B, C *int, D *api.HostPathType", "api.B: X string, Y string"}, "! no rule for core.Pod.B"},
	} {
		if tc.older2 == nil {
			tc.older2 = tc.older
		}
		text, err := mergePodTypes([]map[string]podType{podTypes(newest...), podTypes(tc.older...), podTypes(tc.older2...)})
		if want, isError := strings.CutPrefix(tc.want, "! "); isError {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", tc.name, err, want)
			}
		} else if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, want %q in\n%s", tc.name, err, want, text)
		}
	}
}

// TestJudgePod: the comparison sees each kind of difference.
func TestJudgePod(t *testing.T) {
	right := func() podAnswer {
		return podAnswer{ours: map[string][]string{"1.8": {"o8", "n8"}}, uids: [][]string{{"n9", "n9"}, {"o8", "n8"}, {"o7", "n7"}}, runs: []bool{true, true, true}}
	}
	for _, tc := range []struct {
		name   string
		change func(*podAnswer)
		want   string
	}{
		{"right", func(*podAnswer) {}, ""},
		{"another UID", func(a *podAnswer) { a.ours["1.8"][1] = "x" }, "1.8: [o8 x], the release gives [o8 n8]"},
		{"none", func(a *podAnswer) { delete(a.ours, "1.8") }, "1.8: [], the release gives"},
		{"without knowing", func(a *podAnswer) { a.ours["1.7"] = []string{"x"} }, "1.7: a UID is given"},
		{"one pod's UID for another", func(a *podAnswer) { a.uids[2][1] = "n8" }, "1.7 gives n8 without knowing all fields, and it is taken for one of 1.8"},
	} {
		a := right()
		tc.change(&a)
		var r PodReport
		r.judge("pod", []byte("{}"), 8, a)
		switch {
		case tc.want == "" && (r.Differ != 0 || r.UIDs != 2 || r.Withheld != 1):
			t.Errorf("%s: %+v", tc.name, r)
		case tc.want != "" && (r.Differ != 1 || !strings.Contains(strings.Join(r.Mismatches, ""), tc.want)):
			t.Errorf("%s: %+v, want %q", tc.name, r, tc.want)
		}
	}
	a := right()
	a.runs[1] = false
	var r PodReport
	if r.judge("pod", nil, 8, a); r.Differ != 0 || r.UIDs != 2 || r.Refused != 2 {
		t.Errorf("a pod that the release refuses: %+v", r)
	}
	a.uids[1], a.ours, r = nil, nil, PodReport{}
	if r.judge("pod", nil, 8, a); r.Differ != 0 || r.Undecoded != 1 {
		t.Errorf("a pod that the release cannot decode: %+v", r)
	}
}
