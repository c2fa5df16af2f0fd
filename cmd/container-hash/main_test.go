// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

func call(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(args, strings.NewReader(stdin), &out, &errs)
	return status, out.String(), errs.String()
}

const nodeExporter = `{"id":"report","spec":{"name":"prometheus-node-exporter","image":"harbor.finupgroup.com/kubernetes/node-exporter:v0.16.0",` +
	`"ports":[{"name":"prom-node-exp","hostPort":9100,"containerPort":9100,"protocol":"TCP"}],"resources":{},` +
	`"volumeMounts":[{"name":"default-token-bks80","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],` +
	`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}}`

func TestHash(t *testing.T) {
	for _, tc := range []struct{ name, in, out string }{
		{"report", nodeExporter,
			`{"id":"report","hash":{"1.9":1428860573,"1.8":77704989,"1.7":1559107639,"1.6":1559107639},"records":"1.7"}`},
		{"id is a number", `{"id":7,"spec":{"name":"a","image":"b"}}`,
			`{"id":7,"hash":{"1.9":824610409,"1.8":2163650407,"1.7":2163650407,"1.6":2163650407},"records":"1.7"}`},
		{"no id", `{"spec":{"name":"a","image":"b"}}`,
			`{"id":null,"hash":{"1.9":824610409,"1.8":2163650407,"1.7":2163650407,"1.6":2163650407},"records":"1.7"}`},
	} {
		status, out, errs := call(t, tc.in)
		if status != 0 || out != tc.out+"\n" || errs != "" {
			t.Errorf("%s: %d\n got %s want %s\n%s", tc.name, status, out, tc.out, errs)
		}
	}
}

// TestNulls: each field that a release does not know makes its hash null.
func TestNulls(t *testing.T) {
	for _, tc := range []struct{ spec, nulls, records string }{
		{`{}`, "", "1.7"},
		{`{"livenessProbe":{"tcpSocket":{"port":1}}}`, "", "1.7"},
		{`{"livenessProbe":{"tcpSocket":{"port":1,"host":"h"}}}`, "1.6", "1.7"},
		{`{"volumeMounts":[{"mountPropagation":""}]}`, "1.7 1.6", "1.8"},
		{`{"securityContext":{"allowPrivilegeEscalation":true}}`, "1.7 1.6", "1.8"},
		{`{"volumeDevices":[{}]}`, "1.8 1.7 1.6", "1.9"},
		{`{"volumeDevices":[]}`, "", "1.7"},
	} {
		_, out, _ := call(t, `{"id":1,"spec":`+tc.spec+`}`)
		var got struct {
			Hash    map[string]*uint64
			Records string
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		var nulls []string
		for _, g := range []string{"1.9", "1.8", "1.7", "1.6"} {
			if h, ok := got.Hash[g]; !ok {
				t.Errorf("%s: no %s", tc.spec, g)
			} else if h == nil {
				nulls = append(nulls, g)
			}
		}
		if strings.Join(nulls, " ") != tc.nulls || got.Records != tc.records {
			t.Errorf("%s: null %v, records %s, want %s, %s", tc.spec, nulls, got.Records, tc.nulls, tc.records)
		}
	}
}

// golden calls do with every line of the golden data.
func golden(t testing.TB, do func(id string, spec json.RawMessage, hash map[string][]uint64)) {
	f, err := os.Open("../../pkg/kubelet/container/hashcompat/testdata/golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var row struct {
			ID   string
			Spec json.RawMessage
			Hash map[string][]uint64
		}
		if err := json.Unmarshal(s.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		do(row.ID, row.Spec, row.Hash)
	}
}

// TestModes compares both modes with what the releases computed.
func TestModes(t *testing.T) {
	releases := map[string]string{"1.9": "1.9.11", "1.8": "1.8.15", "1.7": "1.7.0", "1.6": "1.6.1"}
	for column, mode := range []string{"json", "proto"} {
		compared, differ := 0, 0
		golden(t, func(id string, spec json.RawMessage, hash map[string][]uint64) {
			status, out, errs := call(t, fmt.Sprintf(`{"id":%q,"spec":%s}`, id, spec), "--mode", mode)
			var got struct{ Hash map[string]*uint64 }
			if err := json.Unmarshal([]byte(out), &got); status != 0 || err != nil {
				t.Fatalf("%s: %d %v %s", id, status, err, errs)
			}
			for g, release := range releases {
				if hash[release][0] != hash[release][1] {
					differ++
				}
				if h := got.Hash[g]; h != nil {
					compared++
					if *h != hash[release][column] {
						t.Errorf("%s, %s, --mode %s: %d, want %d", id, g, mode, *h, hash[release][column])
					}
				}
			}
		})
		if compared < 350 || differ == 0 {
			t.Errorf("--mode %s: %d compared, the modes differ in %d", mode, compared, differ)
		}
	}
}

func TestBadLines(t *testing.T) {
	in := strings.Join([]string{
		`{"id":1,"spec":{"name":"a"}}`,
		`{"id":2,"spec":`,
		``,
		`{"id":4}`,
		`[]`,
		`{"id":6,"spec":{"ports":[{"containerPort":"x"}]}}`,
		`{"id":7,"spec":{"resources":{"limits":{"cpu":"much"}}}}`,
		`{"id":8,"spec":{"name":"a"}} {}`,
		`{"id":9,"spec":null}`,
		`{"id":10,"spec":{"name":"` + strings.Repeat("long", 1<<15) + `"}}`,
		`{"id":11,"spec":{"name":"a"}}`, // no newline at the end
	}, "\n")
	status, out, errs := call(t, in)
	if status != 1 {
		t.Errorf("status %d", status)
	}
	if n := strings.Count(out, "\n"); n != 3 || !strings.Contains(out, `{"id":1,`) || !strings.Contains(out, `{"id":10,`) || !strings.Contains(out, `{"id":11,`) {
		t.Errorf("%d lines answered: %s", n, out)
	}
	want := []string{
		`line 2: not a container: unexpected end of JSON input`,
		`line 4: no "spec": want {"id":…,"spec":{container}}`,
		`line 5: array instead of an object`,
		`line 6: spec.ports.containerPort: string instead of int32`,
		`line 7: `,
		`line 8: not a container: invalid character '{' after top-level value`,
		`line 9: no "spec"`,
	}
	lines := strings.Split(strings.TrimSpace(errs), "\n")
	if len(lines) != len(want) {
		t.Fatalf("errors:\n%s", errs)
	}
	for i, w := range want {
		if !strings.HasPrefix(lines[i], "container-hash: "+w) {
			t.Errorf("%q, want %q", lines[i], w)
		}
	}
}

func TestExplain(t *testing.T) {
	escalation := `{"id":"e","spec":{"securityContext":{"allowPrivilegeEscalation":false}}}`
	seen := `{"id":"e","spec":{"securityContext":{}}}`
	_, out, _ := call(t, seen)
	var hashes struct{ Hash map[string]uint64 }
	if err := json.Unmarshal([]byte(out), &hashes); err != nil {
		t.Fatal(err)
	}
	ignored := fmt.Sprint(hashes.Hash["1.7"])
	for _, tc := range []struct {
		name, in, recorded string
		want               []string
	}{
		{"decimal", nodeExporter, "1559107639", []string{"report: 1559107639 (label 5cee1837) is the hash of 1.7, 1.6 for this spec"}},
		{"label", nodeExporter, "5cee1837", []string{"report: 1559107639 (label 5cee1837) is the hash of 1.7, 1.6 for this spec"}},
		{"0X", nodeExporter, "0X5CEE1837", []string{"is the hash of 1.7, 1.6"}},
		{"1.8", nodeExporter, "77704989", []string{"is the hash of 1.8 for"}},
		{"native", nodeExporter, "1428860573", []string{"is the hash of 1.9 for"}},
		{"ignored", escalation, ignored, []string{"is what a 1.7 kubelet records for this spec without securityContext.allowPrivilegeEscalation", "has to be recreated"}},
		{"unknown", escalation, "12", []string{
			"no release from 1.6 to 1.9 records 18 (label 12) or 12 (label c) for this spec",
			"  1.9: records ", "  1.8: records ", "  1.7: does not know securityContext.allowPrivilegeEscalation\n", "  1.6: does not know securityContext.allowPrivilegeEscalation\n"}},
	} {
		status, out, errs := call(t, tc.in, "explain", "--recorded", tc.recorded)
		if status != 0 || errs != "" {
			t.Errorf("%s: %d %s", tc.name, status, errs)
		}
		for _, w := range tc.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in\n%s", tc.name, w, out)
			}
		}
	}
}

func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"-h"}, 0, "usage: container-hash"},
		{[]string{"explain", "--help"}, 0, "usage: container-hash"},
		{[]string{"--mode", "yaml"}, 2, `--mode is "yaml", want proto or json`},
		{[]string{"--recorded", "1"}, 2, "flag provided but not defined"},
		{[]string{"file"}, 2, `unexpected argument "file": containers are read from standard input`},
		{[]string{"explain"}, 2, "--recorded: no hash given"},
		{[]string{"explain", "--recorded", "xyz"}, 2, `--recorded: "xyz" is not a 32 bit number`},
		{[]string{"explain", "--recorded", "99999999999"}, 2, "is not a 32 bit number"},
	} {
		status, out, errs := call(t, "", tc.args...)
		if status != tc.status || !strings.Contains(out+errs, tc.want) {
			t.Errorf("%v: %d %s%s, want %d %q", tc.args, status, out, errs, tc.status, tc.want)
		}
	}
}

// TestAnswersAtOnce: who writes a line and waits gets the answer.
func TestAnswersAtOnce(t *testing.T) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan int)
	go func() {
		done <- run(nil, inR, outW, io.Discard)
		outW.Close()
	}()
	answers := bufio.NewReader(outR)
	for i := 0; i < 3; i++ {
		fmt.Fprintf(inW, `{"id":%d,"spec":{}}`+"\n", i)
		if line, err := answers.ReadString('\n'); err != nil || !strings.HasPrefix(line, fmt.Sprintf(`{"id":%d,`, i)) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	inW.Close()
	if status := <-done; status != 0 {
		t.Errorf("status %d", status)
	}
}

// goldenInput returns the golden containers as input of the command.
func goldenInput(t testing.TB) (in []byte, rows int) {
	golden(t, func(id string, spec json.RawMessage, _ map[string][]uint64) {
		in = append(in, fmt.Sprintf(`{"id":%q,"spec":%s}`+"\n", id, spec)...)
		rows++
	})
	return in, rows
}

// BenchmarkHash answers the golden containers; containers/s is the number to
// look at. Run it with -cpu 1.
func BenchmarkHash(b *testing.B) {
	in, rows := goldenInput(b)
	for _, mode := range []string{"proto", "json"} {
		b.Run(mode, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; i < b.N; i++ {
				if status := run([]string{"--mode", mode}, bytes.NewReader(in), io.Discard, io.Discard); status != 0 {
					b.Fatal(status)
				}
			}
			b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "containers/s")
		})
	}
}
