// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

func runWith(stdin string, args ...string) (out, notes string, err error) {
	var o, e bytes.Buffer
	err = run(args, strings.NewReader(stdin), &o, &e)
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
	if !strings.Contains(notes, "schedulerName") {
		t.Errorf("the missing default is not noted: %s", notes)
	}
	if out, _, err = runWith("", "--release", "1.2", "--dump", manifests+"web.json"); err != nil || !strings.Contains(out, "(api.PodTemplateSpec){ObjectMeta:(api.ObjectMeta){") {
		t.Errorf("--dump: %v\n%s", err, out)
	}
	if out, _, err = runWith("", "--release", "1.9", manifests+"stamped.json"); err != nil || !strings.Contains(out, "not known: Kubernetes 1.9: metadata.creationTimestamp") {
		t.Errorf("a set creationTimestamp: %v\n%s", err, out)
	}
}

// TestYAML: the same object in JSON and in YAML.
func TestYAML(t *testing.T) {
	const text = `
apiVersion: extensions/v1beta1
kind: Deployment
metadata: {name: web}
spec:
  template:
    metadata: {creationTimestamp: null, labels: {app: web}}
    spec:
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
	yaml, notes, err := runWith(text, "-")
	if err != nil || notes != "" {
		t.Fatal(err, notes)
	}
	json, _, err := runWith("", manifests+"web.json")
	if err != nil || yaml != json {
		t.Errorf("%v\nYAML:\n%s\nJSON:\n%s", err, yaml, json)
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
	out, _, err = runWith("", "odds", "--trials", "300", "--releases", "50", "--pattern", "v1.{0..99}.{0..99}", manifests+"web.json")
	if err != nil || !strings.Contains(out, "300 trials, seed 1") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestPairData: the pair in the labs' data is one.
func TestPairData(t *testing.T) {
	data, err := os.ReadFile("../../labs/hash-collision/data/fnv32a-pair.txt")
	if err != nil {
		t.Skip("the labs' data is not here:", err)
	}
	out, _, err := runWith(string(data), "collide", "--release", "1.9", "--tags", "-", "../../labs/hash-collision/data/web.json")
	if err != nil || !strings.Contains(out, "2 tags\n1.9 (fnv32a): 1 pairs") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"give one FILE":                 {},
		"--release: release \"1.10\"":   {"--release", "1.10", "x"},
		"give either --tags or":         {"collide", "x"},
		"not defined: -nosuch":          {"--nosuch", "x"},
		"is not closed":                 {"collide", "--pattern", "{1", manifests + "web.json"},
		"not a number from 2 to 4":      {"odds", "--releases", "5", "--pattern", "{1..4}", manifests + "web.json"},
		"standard input cannot be both": {"collide", "--tags", "-", "-"},
		"take no negative number":       {"--counts", "-1", "x"},
	} {
		_, _, err := runWith("", args...)
		if !errors.As(err, &usageError{}) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want the usage error %q", args, err, want)
		}
	}
	for want, args := range map[string][]string{
		"no such file":     {"nosuch.json"},
		"no container":     {"collide", "--container", "x", "--pattern", "a", manifests + "web.json"},
		"write one a line": {"collide", "--tags", "/dev/null", manifests + "web.json"},
	} {
		_, _, err := runWith("", args...)
		if err == nil || errors.As(err, &usageError{}) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want the error %q", args, err, want)
		}
	}
}
