// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"holdfast/cmd/internal/node"
)

const playbook = "../../../docs/user/fleet-playbook.yaml"

// TestPlaybook: it is short, one host at a time, nothing in it goes on after a failure, and the
// commands and flags that it runs are there.
func TestPlaybook(t *testing.T) {
	// The go command caches a test by files inside the module, which this is not.
	_ = os.Getenv("HOLDFAST_TEST_RUN")
	text, err := os.ReadFile(playbook)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > 60 {
		t.Errorf("%d lines", n)
	}
	for _, word := range []string{"ignore_errors", "failed_when", "ignore_unreachable", "rescue", "max_fail_percentage", "async"} {
		if strings.Contains(string(text), word) {
			t.Errorf("it has %s", word)
		}
	}
	var plays []struct {
		Serial         int
		AnyErrorsFatal bool `json:"any_errors_fatal"`
		Vars           map[string]any
		Tasks          []map[string]any
	}
	if err := yaml.Unmarshal(text, &plays); err != nil {
		t.Fatal(err)
	}
	if len(plays) != 1 || plays[0].Serial != 1 || !plays[0].AnyErrorsFatal {
		t.Fatalf("%+v", plays)
	}
	values := func(s string) string {
		for k, v := range plays[0].Vars {
			s = strings.ReplaceAll(s, "{{ "+k+" }}", fmt.Sprint(v))
		}
		return s
	}
	ran := 0
	for _, task := range plays[0].Tasks {
		line, _ := task["ansible.builtin.command"].(string)
		if _, after, ok := strings.Cut(line, "kubectl-holdfast node "); ok {
			words := strings.Fields(values(values(after)))
			cmd, rest, err := node.Command().Find(words)
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err != nil || strings.Contains(strings.Join(words, " "), "{{") {
				t.Errorf("%q: %v", words, err)
			}
			ran++
		}
	}
	if ran != 3 {
		t.Errorf("%d commands of node", ran)
	}
}
