// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upgraderunbook

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/template"
)

// TestMain is kubectl where the page's blocks call it, see podsNode.
func TestMain(m *testing.M) {
	if os.Getenv("FAKE_KUBECTL") == "" {
		os.Exit(m.Run())
	}
	if err := fakeKubectl(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fakeKubectl executes a go-template on $MACHINE/node.json or $MACHINE/pods.json.
func fakeKubectl(args []string) error {
	text, err := os.ReadFile(os.Getenv("MACHINE") + "/" + strings.TrimSuffix(args[1], "s") + "s.json")
	if err != nil {
		return err
	}
	var data any
	if err := json.Unmarshal(text, &data); err != nil {
		return err
	}
	format, ok := strings.CutPrefix(args[slices.Index(args, "-o")+1], "go-template=")
	if !ok {
		return nil
	}
	t, err := template.New("").Parse(format)
	if err != nil {
		return err
	}
	return t.Execute(os.Stdout, data)
}

// pod has a nodeSelector and the terms of a required affinity, as JSON; "" is none.
func podJSON(name, selector, terms string) string {
	spec := []string{}
	if selector != "" {
		spec = append(spec, `"nodeSelector":`+selector)
	}
	if terms != "" {
		spec = append(spec, `"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":`+terms+`}}}`)
	}
	return `{"metadata":{"namespace":"d","name":"` + name + `","uid":"u-` + name + `"},"spec":{` + strings.Join(spec, ",") + `},` +
		`"status":{"containerStatuses":[{"name":"c","containerID":"docker://1","restartCount":0}]}}`
}

func term(expressions ...string) string {
	return `{"matchExpressions":[` + strings.Join(expressions, ",") + `]}`
}

func expression(key, operator string, values ...string) string {
	raw, _ := json.Marshal(map[string]any{"key": key, "operator": operator, "values": values})
	return string(raw)
}

func podsNode(t *testing.T, conditions string, pods ...string) (*shellNode, []block) {
	n := newShellNode(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n.write("bin/kubectl", fmt.Sprintf("#!/bin/bash\nFAKE_KUBECTL=1 exec %q \"$@\"\n", self))
	n.write("nodes.json", `{"metadata":{"labels":{"zone":"a","disk":"ssd","cores":"8","empty":""}},"status":{"conditions":[{"type":"Ready","status":"True"}`+conditions+`]}}`)
	n.write("pods.json", `{"items":[`+strings.Join(pods, ",")+`]}`)
	return n, slices.DeleteFunc(pageBlocks(t), func(b block) bool { return b.where != "admin" })
}

// TestPodsThatWouldFail: the page's first block names the pods that a kubelet's start would
// fail, and nothing else.
func TestPodsThatWouldFail(t *testing.T) {
	for _, c := range []struct {
		name, selector, terms string
		fits                  bool
	}{
		{"plain", "", "", true},
		{"selector", `{"zone":"a","empty":""}`, "", true},
		{"other-value", `{"zone":"b"}`, "", false},
		{"no-label", `{"rack":""}`, "", false},
		{"in", "", `[` + term(expression("zone", "In", "b", "a")) + `]`, true},
		{"not-in-list", "", `[` + term(expression("zone", "In", "b", "c")) + `]`, false},
		{"one-of-two-terms", "", `[` + term(expression("zone", "In", "b")) + `,` + term(expression("disk", "Exists")) + `]`, true},
		{"half-a-term", "", `[` + term(expression("zone", "In", "b"), expression("disk", "Exists")) + `]`, false},
		{"notin", "", `[` + term(expression("zone", "NotIn", "b"), expression("rack", "NotIn", "x")) + `]`, true},
		{"notin-wrong", "", `[` + term(expression("zone", "NotIn", "a")) + `]`, false},
		{"absent", "", `[` + term(expression("rack", "DoesNotExist")) + `]`, true},
		{"not-absent", "", `[` + term(expression("zone", "DoesNotExist")) + `]`, false},
		{"gt", "", `[` + term(expression("cores", "Gt", "7")) + `]`, true},
		{"gt-wrong", "", `[` + term(expression("cores", "Gt", "10")) + `]`, false},
		{"lt", "", `[` + term(expression("cores", "Lt", "10")) + `]`, true},
		{"lt-wrong", "", `[` + term(expression("cores", "Lt", "8")) + `]`, false},
		{"no-expression", "", `[` + term() + `]`, false},
	} {
		n, admin := podsNode(t, `,{"type":"DiskPressure","status":"False"}`, podJSON("first", `{"zone":"a"}`, ""), podJSON(c.name, c.selector, c.terms))
		out, err := n.run(admin[0].script)
		if (err == nil) != c.fits || strings.Contains(out, "d/"+c.name+":") == c.fits || strings.Contains(out, "d/first") {
			t.Errorf("%s: %v: %s", c.name, err, out)
		}
	}
	n, admin := podsNode(t, `,{"type":"DiskPressure","status":"True"}`)
	if out, err := n.run(admin[0].script); err == nil || !strings.Contains(out, "DiskPressure True") {
		t.Errorf("under disk pressure: %v: %s", err, out)
	}
}

// TestRecord: pods of one name in two namespaces are two lines, a pod that was made anew
// differs, and the file's name has the node's.
func TestRecord(t *testing.T) {
	n, admin := podsNode(t, "", podJSON("web", "", ""), strings.ReplaceAll(podJSON("web", "", ""), `"d"`, `"e"`), podJSON("static-node1", "", ""))
	n.must(admin[1].script)
	text, err := os.ReadFile(n.dir + "/before-node1")
	if want := "d web u-web c docker://1 0\ne web u-web c docker://1 0\n"; err != nil || string(text) != want {
		t.Errorf("%v: %q, want %q", err, text, want)
	}
	n.write("pods.json", `{"items":[`+podJSON("static-node1", "", "")+`]}`)
	if out, err := n.run(admin[1].script); err == nil || !strings.Contains(out, "is empty") {
		t.Errorf("no pods: %v: %s", err, out)
	}
}
