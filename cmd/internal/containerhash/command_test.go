// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package containerhash

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"holdfast/cmd/internal/exit"
)

// call runs the command: its status, output and error output, with its error.
func call(t testing.TB, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err := cmd.Execute()
	if err != nil {
		fmt.Fprintln(&errs, err)
	}
	return exit.Code(err), out.String(), errs.String()
}

const (
	container1 = `{"name":"prometheus-node-exporter","image":"harbor.finupgroup.com/kubernetes/node-exporter:v0.16.0",` +
		`"ports":[{"name":"prom-node-exp","hostPort":9100,"containerPort":9100,"protocol":"TCP"}],"resources":{},` +
		`"volumeMounts":[{"name":"default-token-bks80","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],` +
		`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}`
	nodeExporter = `{"id":"report","spec":` + container1 + `}`
	pod          = `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"ns","name":"p"},"spec":{"initContainers":[{"name":"i","image":"x"}],"containers":[` + container1 + `]}}`
	old          = "1.9,1.8,1.7,1.6"
)

func TestHash(t *testing.T) {
	for _, tc := range []struct{ name, in, out string }{
		{"report", nodeExporter,
			`{"id":"report","hash":{"1.6":1559107639,"1.7":1559107639,"1.8":77704989,"1.9":1428860573},"oldest":"1.7"}`},
		{"id is a number", `{"id":7,"spec":{"name":"a","image":"b"}}`,
			`{"id":7,"hash":{"1.6":2163650407,"1.7":2163650407,"1.8":2163650407,"1.9":824610409},"oldest":"1.7"}`},
		{"no id", `{"spec":{"name":"a","image":"b"}}`,
			`{"id":null,"hash":{"1.6":2163650407,"1.7":2163650407,"1.8":2163650407,"1.9":824610409},"oldest":"1.7"}`},
		{"YAML", "id: 7\nspec:\n  name: a\n  image: b\n",
			`{"id":7,"hash":{"1.6":2163650407,"1.7":2163650407,"1.8":2163650407,"1.9":824610409},"oldest":"1.7"}`},
		{"unknown", `{"id":7,"spec":{"name":"a","image":"b","volumeDevices":[{}]}}`,
			`{"id":7,"hash":{"1.6":null,"1.7":null,"1.8":null,"1.9":589402586},"oldest":"1.9","unknown":{"1.6":["volumeDevices"],"1.7":["volumeDevices"],"1.8":["volumeDevices"]}}`},
	} {
		status, out, errs := call(t, tc.in, "--release", old, "-o", "json", "-")
		if status != 0 || out != tc.out+"\n" || errs != "" {
			t.Errorf("%s: %d\n got %s want %s\n%s", tc.name, status, out, tc.out, errs)
		}
	}
	status, out, errs := call(t, nodeExporter, "-")
	for _, want := range []string{"report\nRELEASES   HASH        LABEL\n", "1.9-1.13   1428860573  552aae9d\n", "1.8        77704989    4a1af1d\n", "1.6-1.7    1559107639  5cee1837\n"} {
		if status != 0 || !strings.Contains(out, want) || errs != "" {
			t.Errorf("table: %d %s\nno %q in\n%s", status, errs, want, out)
		}
	}
}

// TestReleases: the order of --release does not matter, and a run of releases has no gap.
func TestReleases(t *testing.T) {
	for _, releases := range []string{"1.7,1.9", "1.9,1.7", "1.9,1.7,1.9"} {
		status, out, errs := call(t, nodeExporter, "--release", releases, "-o", "json", "-")
		if status != 0 || !strings.Contains(out, `"oldest":"1.7"`) || errs != "" {
			t.Errorf("%s: %d %s %s", releases, status, out, errs)
		}
	}
	status, out, errs := call(t, nodeExporter, "--release", "1.13,1.9,1.10", "-")
	for _, want := range []string{"1.13      1428860573", "1.9-1.10  1428860573"} {
		if status != 0 || !strings.Contains(out, want) || errs != "" {
			t.Errorf("no %q: %d %s %s", want, status, out, errs)
		}
	}
}

// TestPods: pods, lists and several documents are answered container by container.
func TestPods(t *testing.T) {
	ids := func(out string) string {
		var list []string
		for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
			var a struct{ ID string }
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Fatal(err, line)
			}
			list = append(list, a.ID)
		}
		return strings.Join(list, " ")
	}
	for name, tc := range map[string]struct{ in, want string }{
		"a pod":             {pod, "ns/p/i ns/p/prometheus-node-exporter"},
		"a list":            {`{"kind":"List","items":[` + pod + "," + pod + `]}`, "ns/p/i ns/p/prometheus-node-exporter ns/p/i ns/p/prometheus-node-exporter"},
		"several documents": {pod + "\n" + nodeExporter, "ns/p/i ns/p/prometheus-node-exporter report"},
	} {
		status, out, errs := call(t, tc.in, "-o", "json", "-")
		if status != 0 || ids(out) != tc.want {
			t.Errorf("%s: %d %s %s", name, status, out, errs)
		}
	}
	status, out, _ := call(t, pod, "--container", "prometheus-node-exporter", "--release", "1.7", "-o", "json", "-")
	if status != 0 || out != `{"id":"ns/p/prometheus-node-exporter","hash":{"1.7":1559107639},"oldest":"1.7"}`+"\n" {
		t.Errorf("--container: %d %s", status, out)
	}
	if status, _, errs := call(t, pod, "--container", "x", "-"); status != 1 || !strings.Contains(errs, `no container "x"`) {
		t.Errorf("--container x: %d %s", status, errs)
	}
}

// TestNulls: each field that a release does not know makes its hash null.
func TestNulls(t *testing.T) {
	for _, tc := range []struct{ spec, nulls, oldest string }{
		{`{}`, "", "1.7"},
		{`{"livenessProbe":{"tcpSocket":{"port":1}}}`, "", "1.7"},
		{`{"livenessProbe":{"tcpSocket":{"port":1,"host":"h"}}}`, "1.6", "1.7"},
		{`{"volumeMounts":[{"mountPropagation":""}]}`, "1.7 1.6", "1.8"},
		{`{"securityContext":{"allowPrivilegeEscalation":true}}`, "1.7 1.6", "1.8"},
		{`{"volumeDevices":[{}]}`, "1.8 1.7 1.6", "1.9"},
		{`{"volumeDevices":[]}`, "", "1.7"},
	} {
		_, out, _ := call(t, `{"id":1,"spec":`+tc.spec+`}`, "--release", old, "-o", "json", "-")
		var got struct {
			Hash   map[string]*uint32
			Oldest string
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		var nulls []string
		for _, g := range strings.Split(old, ",") {
			if h, ok := got.Hash[g]; !ok {
				t.Errorf("%s: no %s", tc.spec, g)
			} else if h == nil {
				nulls = append(nulls, g)
			}
		}
		if strings.Join(nulls, " ") != tc.nulls || got.Oldest != tc.oldest {
			t.Errorf("%s: null %v, oldest %s, want %s, %s", tc.spec, nulls, got.Oldest, tc.nulls, tc.oldest)
		}
	}
}

func TestBad(t *testing.T) {
	in := strings.Join([]string{
		`{"id":1,"spec":{"name":"a"}}`,
		`{"id":4}`,
		`{"id":6,"spec":{"ports":[{"containerPort":"x"}]}}`,
		`{"id":7,"spec":{"resources":{"limits":{"cpu":"much"}}}}`,
		`{"id":9,"spec":null}`,
		`{"kind":"Deployment","metadata":{"name":"d"},"spec":{"template":{"spec":{"containers":[]}}}}`,
		`{"kind":"Service","metadata":{"name":"s"},"spec":{"clusterIP":"None"}}`,
		`{"kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"image":"a"}]}}`,
		`{"id":11,"spec":{"name":"` + strings.Repeat("long", 1<<15) + `"}}`,
		`{"id":12,"spec":{"name":"a"}} x`,
	}, "\n")
	status, out, errs := call(t, in, "--release", "1.9", "-o", "json", "-")
	if status != 1 {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{`{"id":1,`, `{"id":11,`, `{"id":12,`, `{"id":6,"hash":{"1.9":null},"errors":{"1.9":"ports[0].containerPort: `} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%.2000s", want, out)
		}
	}
	for _, want := range []string{
		`standard input, document 2: no "spec"`,
		`6: 1.9: ports[0].containerPort: a value of type int32 cannot be "x"`,
		`7: 1.9: resources.limits.cpu: quantity "much": digits`,
		`document 5: no "spec"`,
		`Deployment d: a kubelet does not hash a template`,
		`Service s: Service has no containers`,
		`Pod p: spec.containers[0].name: missing`,
		`document 11: not JSON after byte `,
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in\n%.3000s", want, errs)
		}
	}
}

// TestStray: a field that no release knows is noted.
func TestStray(t *testing.T) {
	status, _, errs := call(t, `{"id":1,"spec":{"name":"a","imagePullPolice":"Always"}}`, "-")
	if status != 0 || errs != "note: 1: no release supports imagePullPolice\n" {
		t.Errorf("%d %s", status, errs)
	}
}

func TestExplain(t *testing.T) {
	const escalation = `{"id":"e","spec":{"name":"a","image":"b","securityContext":{"allowPrivilegeEscalation":false}}}`
	_, out, _ := call(t, `{"id":"e","spec":{"name":"a","image":"b","securityContext":{}}}`, "--release", "1.7", "-o", "json", "-")
	var without struct{ Hash map[string]uint32 }
	if err := json.Unmarshal([]byte(out), &without); err != nil {
		t.Fatal(err)
	}
	ignored := fmt.Sprint(without.Hash["1.7"])
	for _, tc := range []struct {
		name, in, recorded string
		want               []string
	}{
		{"decimal", nodeExporter, "1559107639", []string{"report: 1559107639 (label 5cee1837) is the hash of 1.7, 1.6 for this spec"}},
		{"label", nodeExporter, "5cee1837", []string{"report: 1559107639 (label 5cee1837) is the hash of 1.7, 1.6 for this spec"}},
		{"0X", nodeExporter, "0X5CEE1837", []string{"is the hash of 1.7, 1.6"}},
		{"1.8", nodeExporter, "77704989", []string{"is the hash of 1.8 for"}},
		{"native", nodeExporter, "1428860573", []string{"is the hash of 1.13, 1.12, 1.11, 1.10, 1.9 for"}},
		{"ignored", escalation, ignored, []string{"is what a 1.7 kubelet records for this spec without securityContext.allowPrivilegeEscalation", "has to be recreated"}},
		{"unknown", escalation, "12", []string{
			"none of the releases records 18 (label 12) or 12 (label c) for this spec",
			"  1.9: records ", "  1.8: records ", "  1.6-1.7: does not support securityContext.allowPrivilegeEscalation\n"}},
	} {
		status, out, errs := call(t, tc.in, "explain", "--recorded", tc.recorded, "-")
		if none := tc.name == "unknown"; none != (status == exit.Found) || none != (errs != "") || !none && status != 0 {
			t.Errorf("%s: %d %s", tc.name, status, errs)
		}
		for _, w := range tc.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in\n%s", tc.name, w, out)
			}
		}
	}
	status, out, _ := call(t, nodeExporter, "explain", "--recorded", "5cee1837", "--release", "1.7,1.9", "-o", "json", "-")
	if status != 0 || !strings.HasPrefix(out, `{"id":"report","recorded":["1.7"],"hash":1559107639,"tried":[{"release":"1.9","hash":1428860573},{"release":"1.7","hash":1559107639}]}`) {
		t.Errorf("-o json: %d %s", status, out)
	}
}

// Several containers: a summary is last, and one that matches is enough.
func TestSummary(t *testing.T) {
	two := nodeExporter + `{"id":"e","spec":{"name":"a","image":"b","securityContext":{"allowPrivilegeEscalation":false}}}`
	if status, out, errs := call(t, two, "--release", "1.7,1.9", "-"); status != 0 || !strings.HasSuffix(out, "\n2 containers, 1 with a field that an older release does not support\n") {
		t.Errorf("%d %s%s", status, out, errs)
	}
	if status, out, errs := call(t, two, "explain", "--recorded", "5cee1837", "-"); status != 0 || !strings.HasSuffix(out, "\n2 containers, 1 whose recorded hash is of no release\n") {
		t.Errorf("%d %s%s", status, out, errs)
	}
	if status, out, errs := call(t, nodeExporter, "-"); status != 0 || strings.Contains(out, "containers") {
		t.Errorf("%d %s%s", status, out, errs)
	}
}

func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"-h"}, 0, "kubectl-holdfast container-hash -"},
		{[]string{"explain", "--help"}, 0, "--recorded 5cee1837 -"},
		{nil, 2, "name a FILE"},
		{[]string{"--mode", "yaml", "-"}, 2, `--mode is "yaml": use proto or json`},
		{[]string{"--release", "1.5", "-"}, 2, `release "1.5" is unknown: use 1.6 to 1.36`},
		{[]string{"--release", "", "-"}, 2, "--release: name a release, 1.6 to 1.36"},
		{[]string{"explain", "-"}, 2, "--recorded: no hash given"},
		{[]string{"explain", "--recorded", "xyz", "-"}, 2, `--recorded: "xyz" is not a 32 bit number`},
		{[]string{"explain", "--recorded", "99999999999", "-"}, 2, "is not a 32 bit number"},
		{[]string{"nosuch.json"}, 1, "no such file"},
	} {
		status, out, errs := call(t, "", tc.args...)
		if status != tc.status || !strings.Contains(out+errs, tc.want) {
			t.Errorf("%v: %d %s%s, want %d %q", tc.args, status, out, errs, tc.status, tc.want)
		}
	}
}

// TestAnswersAtOnce: who writes an object and waits gets the answer.
func TestAnswersAtOnce(t *testing.T) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error)
	go func() {
		cmd := Command()
		cmd.SetArgs([]string{"-o", "json", "-"})
		cmd.SetIn(inR)
		cmd.SetOut(outW)
		done <- cmd.Execute()
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
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// BenchmarkHash answers the golden containers; containers/s is the number to
// look at. Run it with -cpu 1.
func BenchmarkHash(b *testing.B) {
	var in strings.Builder
	rows := golden(b)[:103]
	for _, r := range rows {
		fmt.Fprintf(&in, `{"id":%q,"spec":%s}`+"\n", r.ID, r.Spec)
	}
	for _, releases := range []string{old, "1.9"} {
		b.Run(releases, func(b *testing.B) {
			for i := 0; i < b.N; i++ {
				if status, _, errs := call(b, in.String(), "--release", releases, "-o", "json", "-"); status != 0 {
					b.Fatal(errs)
				}
			}
			b.ReportMetric(float64(len(rows)*b.N)/b.Elapsed().Seconds(), "containers/s")
		})
	}
}
