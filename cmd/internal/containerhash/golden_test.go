// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package containerhash

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// row is a container of the golden data.
type row struct {
	ID   string
	Spec json.RawMessage
	// Hash has, by the minor release, the hash of the decoded JSON and that after a
	// protobuf round trip, computed by the release's own code.
	Hash map[int][2]uint32
	// Ignored are the releases below 1.10 that do not know a field of the spec.
	Unknown map[int]bool
}

// kubeletGolden is the golden data of the kubelet's own package.
const kubeletGolden = "../../../pkg/kubelet/container/hashcompat/testdata/golden.jsonl"

// golden reads both files of golden data: that of the kubelet's package for 1.6 to
// 1.9 and the specs, and testdata/golden.jsonl for the later releases.
func golden(t testing.TB) []*row {
	var rows []*row
	byID := map[string]*row{}
	releases := map[string]int{"1.6.1": 6, "1.7.0": 7, "1.8.15": 8, "1.9.11": 9}
	lines(t, kubeletGolden, func(line []byte) {
		var in struct {
			ID      string
			Spec    json.RawMessage
			Hash    map[string][]uint32
			Unknown []string
		}
		if err := json.Unmarshal(line, &in); err != nil {
			t.Fatal(err)
		}
		r := &row{ID: in.ID, Spec: in.Spec, Hash: map[int][2]uint32{}, Unknown: map[int]bool{}}
		for name, m := range releases {
			r.Hash[m] = [2]uint32(in.Hash[name])
		}
		for _, name := range in.Unknown {
			if m, ok := releases[name]; ok {
				r.Unknown[m] = true
			}
		}
		rows, byID[in.ID] = append(rows, r), r
	})
	lines(t, "testdata/golden.jsonl", func(line []byte) {
		var in struct {
			ID   string
			Spec json.RawMessage
			Hash map[string][2]uint32
		}
		if err := json.Unmarshal(line, &in); err != nil {
			t.Fatal(err)
		}
		r := byID[in.ID]
		if r == nil {
			r = &row{ID: in.ID, Spec: in.Spec, Hash: map[int][2]uint32{}}
			rows = append(rows, r)
		}
		for span, hash := range in.Hash {
			var from, to int
			if _, err := fmt.Sscanf(span, "1.%d-1.%d", &from, &to); err != nil {
				t.Fatal(span, err)
			}
			for m := from; m <= to; m++ {
				r.Hash[m] = hash
			}
		}
	})
	return rows
}

func lines(t testing.TB, file string, do func([]byte)) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		do(s.Bytes())
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
}

func (r *row) decode(t testing.TB) map[string]any {
	dec := json.NewDecoder(bytes.NewReader(r.Spec))
	dec.UseNumber()
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(r.ID, err)
	}
	return v
}

func set(t testing.TB) *Set {
	s, err := All()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestGolden compares every release with what its own code computed, also where it
// ignores fields that it does not know.
func TestGolden(t *testing.T) {
	s := set(t)
	compared := map[string]int{}
	for _, row := range golden(t) {
		spec := row.decode(t)
		for _, r := range s.Releases {
			want, ok := row.Hash[r.minor]
			if !ok {
				if r.minor >= 10 || row.Unknown != nil {
					t.Errorf("%s, %s: no golden value", row.ID, r.Name)
				}
				continue
			}
			for mode, o := range []Options{{}, {Wire: true}} {
				got, err := r.Hash(spec, o)
				if err != nil || got != want[mode] {
					text, _ := r.Text(spec, o)
					t.Errorf("%s, %s, mode %d: %d, %v; want %d\n%.600s", row.ID, r.Name, mode, got, err, want[mode], text)
				}
				compared[r.Name]++
			}
			// An empty list says nothing, so that losing it is not held against the spec.
			lost := row.Unknown[r.minor] && row.ID != "dev-empty"
			if unknown := s.Unknown(r, spec); row.Unknown != nil && r.minor < 10 && (len(unknown) > 0) != lost {
				t.Errorf("%s, %s: unknown %v, the data says %v", row.ID, r.Name, unknown, row.Unknown[r.minor])
			}
		}
	}
	for _, r := range s.Releases {
		if n := compared[r.Name]; n < 2*103 || r.minor >= 10 && n < 2*200 {
			t.Errorf("%s: only %d hashes compared", r.Name, n)
		}
	}
	t.Logf("hashes compared: %v", compared)
}

// TestOwnGo: the text of 1.6 to 1.8 as the release's own Go printed it differs from
// that of a newer Go only where an amount is a big.Int, whose words were printed in
// hexadecimal. A container with the other hash is explained, too.
func TestOwnGo(t *testing.T) {
	s := set(t)
	differ := map[string]bool{}
	for _, row := range golden(t) {
		spec := row.decode(t)
		for _, r := range s.Releases {
			own, err := r.Text(spec, Options{Wire: true})
			if err != nil {
				t.Fatal(err)
			}
			today, err := r.Text(spec, Options{Wire: true, NewerGo: true})
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(own, today) {
				continue
			}
			differ[r.Name] = true
			words := regexp.MustCompile(`abs:\(big\.nat\)\[(<nil> )*0x`)
			if !words.Match(own) || words.Match(today) {
				t.Errorf("%s, %s:\n%s\n%s", row.ID, r.Name, own, today)
			}
			h, err := r.Hash(spec, Options{Wire: true, NewerGo: true})
			if err != nil {
				t.Fatal(err)
			}
			e := explain(s.Try([]*Release{r}, spec, Options{Wire: true}), []uint32{h})
			if !e.NewerGo || len(e.Recorded) != 1 || !strings.Contains(e.text("a", nil), r.Name+", built with Go 1.9 or later") {
				t.Errorf("%s, %s: %+v", row.ID, r.Name, e)
			}
		}
	}
	if len(differ) != 3 || !differ["1.6"] || !differ["1.7"] || !differ["1.8"] {
		t.Errorf("differ in %v, want 1.6, 1.7, 1.8", differ)
	}
}

// TestZeroWord: a word of an old big.Int that is 0 is an address that is nil.
func TestZeroWord(t *testing.T) {
	spec := map[string]any{"resources": map[string]any{"limits": map[string]any{"memory": "7Ei"}}}
	for _, r := range set(t).Releases {
		text, err := r.Text(spec, Options{Wire: true})
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]string{true: "abs:(big.nat)[<nil> 0x1a13b860]", false: "abs:(big.nat)[0 437500000]"}[r.minor <= 8]; r.form == spewForm && !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s: no %s in %s", r.Name, want, text)
		}
	}
}

// TestFields: a field that a release does not know is named, from the release on that
// has it not.
func TestFields(t *testing.T) {
	s := set(t)
	since := map[string]int{
		"field.securityContext.runAsGroup":                        10,
		"field.securityContext.procMount":                         12,
		"field.volumeMounts.subPathExpr":                          14,
		"field.startupProbe.exec.command":                         16,
		"field.securityContext.seccompProfile.type":               19,
		"field.livenessProbe.grpc.service":                        23,
		"field.resources.claims.name":                             26,
		"field.restartPolicy":                                     28,
		"field.volumeMounts.recursiveReadOnly":                    30,
		"field.lifecycle.preStop.tcpSocket.host":                  7,
		"field.securityContext.windowsOptions.gmsaCredentialSpec": 15,
	}
	found := 0
	for _, row := range golden(t) {
		first, ok := since[row.ID]
		if !ok {
			continue
		}
		found++
		path := strings.TrimPrefix(row.ID, "field.")
		for _, r := range s.Releases {
			unknown := s.Unknown(r, row.decode(t))
			if (len(unknown) > 0) != (r.minor < first) || len(unknown) > 0 && !strings.HasPrefix(path, strings.NewReplacer("[0]", "").Replace(unknown[0])) {
				t.Errorf("%s, %s: unknown %v", row.ID, r.Name, unknown)
			}
		}
	}
	if found != len(since) {
		t.Errorf("%d of %d fields are in the data", found, len(since))
	}
	if stray := s.Stray(map[string]any{"name": "a", "imagePullPolice": "Always", "env": []any{map[string]any{"nam": "x"}}}); strings.Join(stray, " ") != "env[0].nam imagePullPolice" {
		t.Errorf("stray %v", stray)
	}
}

// TestControlCharacters: their JSON depends on the Go release.
func TestControlCharacters(t *testing.T) {
	s := set(t)
	spec := map[string]any{"name": "a", "args": []any{"x\by"}}
	for _, r := range s.Releases {
		_, err := r.Hash(spec, Options{})
		if (err != nil) != (r.form == jsonForm) || err != nil && !strings.Contains(err.Error(), "args[0]: the text has a backspace") {
			t.Errorf("%s: %v", r.Name, err)
		}
	}
}

// TestReport holds the numbers of the incident report.
func TestReport(t *testing.T) {
	s := set(t)
	for _, row := range golden(t) {
		if row.ID != "article-node-exporter" {
			continue
		}
		for _, a := range s.Try(s.Releases, row.decode(t), Options{Wire: true}) {
			want := map[string]uint32{"1.6": 1559107639, "1.7": 1559107639, "1.8": 77704989, "1.9": 1428860573, "1.13": 1428860573}[a.Release]
			if want != 0 && (a.Hash == nil || *a.Hash != want) {
				t.Errorf("%+v, want %d", a, want)
			}
		}
		return
	}
	t.Fatal("no article-node-exporter in the data")
}

// TestTable: what the table is read from can be written, and bad lines are refused.
func TestTable(t *testing.T) {
	table, err := load()
	if err != nil {
		t.Fatal(err)
	}
	fields := 0
	for name, lines := range table.Structs {
		for _, line := range lines {
			f, err := ParseField(line)
			if err != nil || f.String() != line {
				t.Errorf("%s: %q is written as %q, %v", name, line, f.String(), err)
			}
			fields++
		}
	}
	if fields < 100 {
		t.Errorf("only %d fields", fields)
	}
	for _, line := range []string{"", "A string", "A string a 1.6", "A string a 1.x-", "A string a 1.6-2.7", "A string a 6-"} {
		if f, err := ParseField(line); err == nil {
			t.Errorf("%q is read as %+v", line, f)
		}
	}
}
