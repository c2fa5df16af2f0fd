// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// TestPlaybookRuns runs it with a real Ansible on two hosts that are folders of this machine, with
// programs that only note what they are asked.
func TestPlaybookRuns(t *testing.T) {
	ansible, err := exec.LookPath("ansible-playbook")
	if err != nil {
		t.Skip("it needs ansible-playbook: the Debian package ansible-core")
	}
	for name, c := range map[string]struct {
		args   []string
		status string // that node1's swap ends with
		want   string
		fails  bool
	}{
		"there": {nil, "0", "n1 check, n1 swap, n2 check, n2 swap", false},
		"back":  {[]string{"-e", "back=true"}, "0", "n1 back, n2 back", false},
		"stops": {nil, "3", "n1 check, n1 swap", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(file, text string) {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			write("kubelet", "")
			write("kubectl-holdfast", "#!/bin/sh\necho \"$(basename \"$(dirname \"$0\")\") $2\" >>"+dir+"/log\ncase $2 in swap) exit "+c.status+";; esac\n")
			write("kubectl", "#!/bin/sh\necho 'True 2999-01-01T00:00:00Z'\n")
			write("hosts", "n1 ansible_connection=local dir="+dir+"/n1\nn2 ansible_connection=local dir="+dir+"/n2\n")
			cmd := exec.Command(ansible, append([]string{"-i", filepath.Join(dir, "hosts"), "-e", "programs=" + dir, "-e", "kubectl=" + dir + "/kubectl", "-e", "ansible_become=false", playbook}, c.args...)...)
			cmd.Env = append(os.Environ(), "HOME="+dir, "ANSIBLE_NOCOLOR=1", "ANSIBLE_LOCALHOST_WARNING=False")
			out, err := cmd.CombinedOutput()
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			got := strings.ReplaceAll(strings.TrimSpace(string(log)), "\n", ", ")
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("%v: %q, want %q\n%s", err, got, c.want, out)
			}
		})
	}
}
