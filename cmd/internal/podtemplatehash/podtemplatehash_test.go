// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplatehash

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const testdata = "testdata"

type golden struct {
	Manifest string
	Hashes   []uint32
	Dump     string
}

func readTemplate(t *testing.T, manifest string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testdata, "manifests", manifest))
	if err != nil {
		t.Fatal(err)
	}
	template, err := templateOf(data)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

// asBuiltToday is r with the layouts that today's Go gives to the types of the
// standard library, which is what the golden values of 1.3 to 1.8 have: their
// code was run, but built with today's Go.
func asBuiltToday(r *Release) *Release {
	node, err := r.types()
	if err != nil {
		panic(err)
	}
	today := &Release{Name: r.Name, Algorithm: r.Algorithm, Counts: r.Counts, layout: r.layout, internal: r.internal}
	today.once.Do(func() { today.node = node })
	if r.Name != "1.2" { // its tree prints Go 1.4's layouts by itself
		today.layout.SecNsecLoc, today.layout.HexWords = false, false
	}
	return today
}

// templateOf is Template of an object in JSON.
func templateOf(data []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var o map[string]any
	if err := dec.Decode(&o); err != nil {
		return nil, err
	}
	return Template(o)
}

// TestReleases compares with what the code of each release printed.
func TestReleases(t *testing.T) {
	for _, r := range Releases {
		data, err := os.ReadFile(filepath.Join(testdata, "golden", r.Name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var want []golden
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		today := asBuiltToday(r)
		for _, g := range want {
			template := readTemplate(t, g.Manifest)
			got, err := today.Dump(template)
			if g.Manifest == "stamped.json" && r.Name != "1.2" {
				if err == nil || !strings.Contains(err.Error(), "time zone") {
					t.Errorf("%s, %s: a set creationTimestamp must be refused, got %v", r.Name, g.Manifest, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s, %s: %v", r.Name, g.Manifest, err)
				continue
			}
			if string(got) != g.Dump {
				t.Errorf("%s, %s: %s", r.Name, g.Manifest, difference(string(got), g.Dump))
				continue
			}
			for i, hash := range g.Hashes {
				if got, err := today.Hash(template, i-1); err != nil || got != hash {
					t.Errorf("%s, %s, count %d: hash %d, %v; the release says %d", r.Name, g.Manifest, i-1, got, err, hash)
				}
			}
			// What the release's own binary prints differs in the layouts only.
			own, err := r.Dump(template)
			if err != nil {
				t.Errorf("%s, %s: %v", r.Name, g.Manifest, err)
				continue
			}
			swapped := g.Dump
			if r.layout.SecNsecLoc {
				swapped = strings.Replace(swapped, "{wall:(uint64)0 ext:(int64)0 loc", "{sec:(int64)0 nsec:(int32)0 loc", -1)
			}
			if r.layout.HexWords && !today.layout.HexWords { // 17Pi, the one amount there that needs a big.Int
				swapped = strings.Replace(swapped, "[12105675798371893248 1037597]", "[0xa800000000000000 0xfd51d]", -1)
				swapped = strings.Replace(swapped, "[693554342615056384 1]", "[0x9a0000000000000 0x1]", -1)
			}
			if string(own) != swapped {
				t.Errorf("%s, %s, own Go: %s", r.Name, g.Manifest, difference(string(own), swapped))
			}
		}
	}
}

// difference shows where two dumps part.
func difference(got, want string) string {
	from := 0
	for from < len(got) && from < len(want) && got[from] == want[from] {
		from++
	}
	cut := func(s string) string {
		first, last := from-40, from+80
		if first < 0 {
			first = 0
		}
		if last > len(s) {
			last = len(s)
		}
		return s[first:last]
	}
	return "got  …" + cut(got) + "\nwant …" + cut(want)
}

// TestReport holds the hashes of the original report, kubernetes/kubernetes
// #43449, and what 1.9.11 says of its templates.
func TestReport(t *testing.T) {
	for manifest, want := range map[string][]uint32{
		"report-new.json": {3175208150, 915265942, 2481928375, 2076908372},
		"report-old.json": {2802532450, 3027872418, 299567555, 4189514848},
	} {
		template := readTemplate(t, manifest)
		r, _ := Find("1.9")
		for i, hash := range want {
			if got, err := r.Hash(template, i-1); err != nil || got != hash {
				t.Errorf("%s, 1.9, count %d: %d, %v; want %d", manifest, i-1, got, err, hash)
			}
		}
		// The reporter's log names the ReplicaSet, and the reporter printed the
		// hash of both templates with a program of their own as well.
		for name, hash := range map[string]uint32{"1.2": 2281102275, "1.3": 985343960} {
			old, _ := Find(name)
			if got, err := old.Hash(template, -1); err != nil || got != hash {
				t.Errorf("%s, %s: %d, %v; the report has %d", manifest, name, got, err, hash)
			}
		}
	}
}

func TestSuffix(t *testing.T) {
	// A ReplicaSet that a 1.9.11 controller manager made (tools/labs/hash-collision).
	r, _ := Find("1.9")
	if got := r.Suffix(2552054345); got != "6996498789" {
		t.Errorf("1.9: %s", got)
	}
	r, _ = Find("1.2")
	if got := r.Suffix(2281102275); got != "2281102275" {
		t.Errorf("1.2: %s", got)
	}
}

func TestTemplateErrors(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                         "spec: missing",
		`{"spec":{"replicas":1}}`:    "neither template nor containers",
		`{"spec":{"containers":[]}}`: "",
	} {
		_, err := templateOf([]byte(in))
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
	r, _ := Find("1.9")
	for in, want := range map[string]string{
		`{"spec":{"containers":[{"name":1}]}}`:                                               "spec.containers[0].name",
		`{"spec":{"containers":[{"ports":[{"containerPort":"x"}]}]}}`:                        "spec.containers[0].ports[0].containerPort",
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1i"}}}]}}`:                    `spec.containers[0].resources.limits.cpu: quantity "1i"`,
		`{"metadata":{"creationTimestamp":"2017-03-21T16:40:00Z"},"spec":{"containers":[]}}`: "metadata.creationTimestamp",
	} {
		template, err := templateOf([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Dump(template); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
	if _, err := Find("1.10"); err == nil || !strings.Contains(err.Error(), "1.2 1.3 1.4 1.5 1.6 1.7 1.8 1.9") {
		t.Errorf("Find(1.10): %v", err)
	}
}

func TestMissing(t *testing.T) {
	r, _ := Find("1.9")
	if m := r.Missing(readTemplate(t, "web.json")); len(m) != 0 {
		t.Errorf("web.json: %v", m)
	}
	if m := strings.Join(r.Missing(readTemplate(t, "report-new.json")), " "); m != "spec.schedulerName spec.containers[0].terminationMessagePolicy" {
		t.Errorf("report-new.json: %s", m)
	}
}
