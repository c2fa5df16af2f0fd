// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplatehash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"holdfast/cmd/internal/exit"
)

// runWith runs the command: what it prints, what it says on standard error, and
// its error, which is there too.
func runWith(stdin string, args ...string) (out, notes string, err error) {
	var o, e bytes.Buffer
	cmd := Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetFlagErrorFunc(nil)
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&o)
	cmd.SetErr(&e)
	err = cmd.Execute()
	return o.String(), e.String(), err
}

const manifests = "testdata/manifests/"

func TestHash(t *testing.T) {
	out, notes, err := runWith("", manifests+"report-new.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2281102275", "3175208150", "915265942", "2481928375", "2076908372", "985343960", "3916443517", "3916853574"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if !strings.Contains(notes, "schedulerName") || strings.Count(notes, "note:") != 1 {
		t.Errorf("the missing default is not noted: %s", notes)
	}
	if out, _, err = runWith("", "--release", "1.2", "--dump", manifests+"web.json"); err != nil || !strings.Contains(out, "(api.PodTemplateSpec){ObjectMeta:(api.ObjectMeta){") {
		t.Errorf("--dump: %v\n%s", err, out)
	}
}

// TestNotKnown: what cannot be hashed is said, and is status 1; the rest is
// answered.
func TestNotKnown(t *testing.T) {
	out, notes, err := runWith("", "--release", "1.9", manifests+"stamped.json")
	if exit.Code(err) != exit.Failed || !strings.Contains(out, "1.9      fnv32a     not known\n") || !strings.Contains(notes, "Deployment stamped: 1.9: metadata.creationTimestamp: a time is set") {
		t.Errorf("a set creationTimestamp: %v\n%s\n%s", err, out, notes)
	}
	out, notes, err = runWith("", manifests+"stamped.json")
	if exit.Code(err) != exit.Failed || !strings.Contains(out, "\n1.2      adler32    4265868294") || !strings.Contains(notes, ": 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9: ") {
		t.Errorf("a set creationTimestamp, which 1.2 can hash: %v\n%s", err, out)
	}
}

const (
	labels  = `{creationTimestamp: null, labels: {app: web}}`
	podSpec = `
      containers:
      - name: web
        image: registry.example/web:v1.0.0
        resources: {}
        terminationMessagePath: /dev/termination-log
        terminationMessagePolicy: File
        imagePullPolicy: IfNotPresent
      restartPolicy: Always
      terminationGracePeriodSeconds: 30
      dnsPolicy: ClusterFirst
      securityContext: {}
      schedulerName: default-scheduler
`
)

// object is an object with web.json's template, in YAML.
func object(kind, name, labels string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: %s\nmetadata: {name: %s}\nspec:\n  template:\n    metadata: %s\n    spec:%s", kind, name, labels, podSpec)
}

// TestYAML: the same object in JSON and in YAML.
func TestYAML(t *testing.T) {
	yaml, notes, err := runWith(object("Deployment", "web", labels), "-")
	if err != nil || notes != "" {
		t.Fatal(err, notes)
	}
	json, _, err := runWith("", manifests+"web.json")
	if err != nil || yaml != strings.Replace(json, "default/web", "web", 1) {
		t.Errorf("%v\nYAML:\n%s\nJSON:\n%s", err, yaml, json)
	}
}

// answers runs the command with -o json.
func answers(t *testing.T, stdin string, args ...string) (list []struct {
	Object   string
	Releases []answer
}, err error) {
	t.Helper()
	out, _, err := runWith(stdin, append(args, "-o", "json")...)
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if line == "" {
			continue
		}
		list = append(list, struct {
			Object   string
			Releases []answer
		}{})
		if jerr := json.Unmarshal([]byte(line), &list[len(list)-1]); jerr != nil {
			t.Fatal(jerr, line)
		}
	}
	return list, err
}

// TestKinds: documents and lists are answered one by one, each kind as its
// controller does.
func TestKinds(t *testing.T) {
	item := func(text string) string {
		return "- " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
	}
	stream := object("Deployment", "web", labels) + "---\napiVersion: v1\nkind: List\nitems:\n" +
		item(object("DaemonSet", "agent", labels)) + item(object("StatefulSet", "db", labels)) +
		item(object("ReplicaSet", "web-1", `{creationTimestamp: null, labels: {app: web, pod-template-hash: "2552054345"}}`))
	list, err := answers(t, stream, "-")
	if err != nil || len(list) != 4 {
		t.Fatalf("%v, %d answers", err, len(list))
	}
	of := func(i int, release string) answer {
		for _, a := range list[i].Releases {
			if a.Release == release {
				return a
			}
		}
		t.Fatalf("no release %s in %+v", release, list[i])
		return answer{}
	}
	web := of(0, "1.9")
	if list[0].Object != "Deployment web" || web.Hash == nil || web.Label != "pod-template-hash" || len(web.Counts) != 3 {
		t.Errorf("Deployment: %+v", list[0])
	}
	if agent := of(1, "1.9"); list[1].Object != "DaemonSet agent" || agent.Hash == nil || *agent.Hash != *web.Hash || agent.Label != "controller-revision-hash" {
		t.Errorf("DaemonSet in 1.9: %+v", agent)
	}
	if agent := of(1, "1.6"); agent.Hash != nil || !strings.Contains(agent.None, "before 1.7") {
		t.Errorf("DaemonSet in 1.6: %+v", agent)
	}
	if db := of(2, "1.9"); db.Hash != nil || !strings.Contains(db.None, "a StatefulSet has none") {
		t.Errorf("StatefulSet: %+v", db)
	}
	if rs := of(3, "1.9"); rs.Hash == nil || *rs.Hash != *web.Hash {
		t.Errorf("ReplicaSet: %+v, want its Deployment's %d", rs, *web.Hash)
	}
	data, err := os.ReadFile(manifests + "web.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]string{
		"a list in JSON":           `{"kind":"List","items":[` + string(data) + "," + string(data) + `]}`,
		"several documents":        string(data) + "\n" + string(data),
		"several documents, YAML":  object("Deployment", "web", labels) + "---\n" + object("Deployment", "web", labels),
		"a DeploymentList in JSON": `{"kind":"DeploymentList","items":[` + string(data) + "," + string(data) + `]}`,
	} {
		list, err := answers(t, in, "-")
		if err != nil || len(list) != 2 || len(list[1].Releases) != len(Releases) || *list[1].Releases[7].Hash != *web.Hash {
			t.Errorf("%s: %v, %+v", name, err, list)
		}
	}
	// What comes before an error is answered.
	for name, in := range map[string]string{
		"trailing rubbish":               string(data) + "x",
		"an object without a template":   object("Deployment", "web", labels) + "---\nkind: Service\nspec: {clusterIP: None}\n",
		"a quantity that is none":        object("Deployment", "web", labels) + "---\n" + strings.Replace(object("Deployment", "x", labels), "resources: {}", "resources: {limits: {cpu: much}}", 1),
		"a file that is not there, too ": string(data),
	} {
		args := []string{"-"}
		if strings.Contains(name, "not there") {
			args = append(args, "nosuch.json")
		}
		list, err := answers(t, in, args...)
		if exit.Code(err) != exit.Failed || len(list) == 0 || list[0].Releases[7].Hash == nil {
			t.Errorf("%s: %v, %+v", name, err, list)
		}
	}
}

func TestCollide(t *testing.T) {
	out, _, err := runWith("201703151133\n201703211640\n201703211641\n", "collide", "--tags", "-", manifests+"report-old.json")
	if err != nil || !strings.Contains(out, "1.2 (adler32): 1 pairs\n  201703151133  201703211640  hash 2281102275\n") || !strings.Contains(out, "1.9 (fnv32a): 0 pairs") {
		t.Errorf("%v\n%s", err, out)
	}
	out, _, err = runWith("", "collide", "--release", "1.9", "--limit", "1000", "--pattern", "v1.{0..399}.{0..999}", manifests+"web.json")
	if err != nil || !strings.Contains(out, "  v1.34.509  v1.342.42  hash 2552054345\n") {
		t.Errorf("%v\n%.500s", err, out)
	}
	out, _, err = runWith("201703151133\n201703211640\n", "collide", "--release", "1.2", "-o", "json", "--tags", "-", manifests+"report-old.json")
	if err != nil || !strings.Contains(out, `"pairs":1,"shown":[{"tags":["201703151133","201703211640"],"hash":2281102275}]`) {
		t.Errorf("%v\n%s", err, out)
	}
	out, _, err = runWith("", "odds", "--trials", "300", "--draws", "50", "--pattern", "v1.{0..99}.{0..99}", manifests+"web.json")
	if err != nil || !strings.Contains(out, "300 trials, seed 1") {
		t.Errorf("%v\n%s", err, out)
	}
	out, _, err = runWith("", "odds", "--trials", "300", "--draws", "50", "-o", "json", "--pattern", "v1.{0..99}.{0..99}", manifests+"web.json")
	if err != nil || strings.Count(out, `"odds":[{"draws":50,"met":`) != len(Releases) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestCollideKinds: a DaemonSet has hashes from 1.7 on only, and a Pod none of its own.
func TestCollideKinds(t *testing.T) {
	daemons := object("DaemonSet", "web", "{}")
	for _, command := range []string{"collide", "odds"} {
		out, _, err := runWith(daemons, command, "--pattern", "v{0..99}", "-")
		if err != nil || strings.Contains(out, "1.6") || !strings.Contains(out, "1.7") {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	_, errs, err := runWith(daemons, "collide", "--release", "1.6", "--pattern", "v{0..99}", "-")
	if exit.Code(err) != exit.Failed || !strings.Contains(errs, "a DaemonSet has none before 1.7") {
		t.Errorf("%v: %s", err, errs)
	}
	pod := "kind: Pod\nmetadata: {name: web}\nspec:" + podSpec
	_, errs, err = runWith(pod, "collide", "--pattern", "v{0..99}", "-")
	if exit.Code(err) != exit.Failed || !strings.Contains(errs, "a Pod has none of its own") {
		t.Errorf("%v: %s", err, errs)
	}
	for in, want := range map[string]string{
		pod: "Pod web: a Pod has none of its own: ",
		strings.Replace(pod, "Pod", "Sandbox", 1):    "Sandbox web: a Sandbox: only Deployments",
		strings.Replace(pod, "Pod", "Deployment", 1): "Deployment web: spec.template: missing",
		object("Rollout", "web", "{}"):               "Rollout web: a Rollout: only Deployments",
		"kind: Service\nspec: {ports: []}\n":         "a Service: only Deployments",
	} {
		for _, args := range [][]string{{"-"}, {"-o", "json", "-"}, {"odds", "--pattern", "v{0..99}", "-"}} {
			out, errs, err := runWith(in, args...)
			if exit.Code(err) != exit.Failed || out != "" || !strings.Contains(errs, want) {
				t.Errorf("%s, %v: %v: %s%s, want %q", in, args, err, out, errs, want)
			}
		}
	}
}

// TestPairData: the pair in the labs' data is one.
func TestPairData(t *testing.T) {
	data, err := os.ReadFile("../../../tools/labs/hash-collision/data/fnv32a-pair.txt")
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := runWith(string(data), "collide", "--release", "1.9", "--tags", "-", "../../../tools/labs/hash-collision/data/web.json")
	if err != nil || !strings.Contains(out, "2 tags\n1.9 (fnv32a): 1 pairs") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"name a FILE":                   {},
		"--release: release \"1.10\"":   {"--release", "1.10", "x"},
		"give either --tags or":         {"collide", "x"},
		"is not closed":                 {"collide", "--pattern", "{1", manifests + "web.json"},
		"not a number from 2 to 4":      {"odds", "--draws", "5", "--pattern", "{1..4}", manifests + "web.json"},
		"standard input cannot be both": {"collide", "--tags", "-", "-"},
		"take no negative number":       {"--counts", "-1", "x"},
	} {
		_, _, err := runWith("", args...)
		if exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want the usage error %q", args, err, want)
		}
	}
	for want, args := range map[string][]string{
		"no such file":                  {"nosuch.json"},
		"no container":                  {"collide", "--container", "x", "--pattern", "a", manifests + "web.json"},
		"/dev/null: no tags: write one": {"collide", "--tags", "/dev/null", manifests + "web.json"},
	} {
		_, notes, err := runWith("", args...)
		if exit.Code(err) != exit.Failed || !strings.Contains(notes+err.Error(), want) {
			t.Errorf("%v: %v %s, want the error %q", args, err, notes, want)
		}
	}
}
