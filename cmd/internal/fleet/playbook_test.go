// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// TestPlaybookRuns: Ansible itself runs it, on hosts that are folders of this machine with a
// program in place of kubectl-holdfast, which notes what is asked of it.
func TestPlaybookRuns(t *testing.T) {
	_ = os.Getenv("HOLDFAST_TEST_RUN")
	if _, err := exec.LookPath("ansible-playbook"); err != nil {
		t.Fatalf("%v: hack/install-test-packages.sh installs it", err)
	}
	for _, tc := range []struct {
		name, hosts, fail string // the command of node that answers 3 on host b
		back              bool
		want              string
	}{
		{"a swap that fails ends it", "a,b,c", "swap", false, "a check, a swap, a Node, b check, b swap"},
		{"a check that fails ends it before the swap", "b,c", "check", false, "b check"},
		{"back", "a", "", true, "a back, a Node"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			log := filepath.Join(dir, "log")
			write("kubelet", "a kubelet\n")
			write("kubectl-holdfast", fmt.Sprintf("#!/bin/sh\n"+
				"here=$(dirname \"$0\")\nhost=$(basename \"$here\")\n"+
				"cmp -s \"$here/kubelet\" %q || exit 9\n"+
				"echo \"$host $2\" >>%q\n"+
				"if [ \"$host $2\" = \"b %s\" ]; then exit 3; fi\n", filepath.Join(dir, "kubelet"), log, tc.fail))
			write("kubectl", fmt.Sprintf("#!/bin/sh\necho \"${2#node/} Node\" >>%q\necho True 2999-01-01T00:00:00Z\n", log))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "ansible-playbook", "-i", tc.hosts+",", "-c", "local", playbook,
				"-e", fmt.Sprintf(`{"programs": %q, "dir": "%s/{{ inventory_hostname }}", "kubectl": %q, "back": %v, "ansible_become": false, "ansible_pipelining": true, "ansible_python_interpreter": "/usr/bin/python3"}`,
					dir, dir, filepath.Join(dir, "kubectl"), tc.back))
			cmd.Env = append(os.Environ(), "HOME="+dir, "ANSIBLE_LOCAL_TEMP="+dir, "ANSIBLE_REMOTE_TEMP="+dir, "ANSIBLE_NOCOLOR=1", "LC_ALL=C.UTF-8")
			out, err := cmd.CombinedOutput()
			if (err != nil) != (tc.fail != "") {
				t.Errorf("%v\n%s", err, out)
			}
			said, err := os.ReadFile(log)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := strings.Join(strings.Split(strings.TrimSpace(string(said)), "\n"), ", "); got != tc.want {
				t.Errorf("%s, want %s\n%s", got, tc.want, out)
			}
		})
	}
}
