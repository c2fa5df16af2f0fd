// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/exit"
)

func call(stdin string, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = Main("v1.9.11+holdfast.2", args, strings.NewReader(stdin), &out, &errs)
	return status, out.String(), errs.String()
}

// commands are all commands but those that cobra adds, and what the program calls itself.
func commands(cmd *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		if c.Name() != "help" && c.Name() != "completion" && !c.Hidden {
			list = append(list, commands(c)...)
		}
	}
	return list
}

// TestEveryCommand: help has an example that begins with the program's name or with
// a pipe into it, and every command that answers in a table has -o.
func TestEveryCommand(t *testing.T) {
	list := commands(Command())
	if len(list) != 25 {
		t.Errorf("%d commands", len(list))
	}
	for _, cmd := range list {
		path := cmd.CommandPath()
		status, out, errs := call("", append(strings.Fields(path)[1:], "--help")...)
		if status != 0 || errs != "" || !strings.Contains(out, "Examples:\n") || !strings.Contains(cmd.Example, path) {
			t.Errorf("%s --help: %d %s\n%s", path, status, errs, out)
		}
		for _, line := range strings.Split(out, "\n") {
			if len([]rune(line)) > 120 {
				t.Errorf("%s --help: a line of %d: %s", path, len([]rune(line)), line)
			}
		}
		noTable := cmd.HasSubCommands() || path == "kubectl-holdfast fleet agent" || path == "kubectl-holdfast fleet manifests"
		if !noTable && cmd.Flags().Lookup("output") == nil {
			t.Errorf("%s has no -o", path)
		}
	}
	if status, out, _ := call(""); status != 0 || !strings.Contains(out, "audit-rv") {
		t.Errorf("without a command: %d %s", status, out)
	}
}

func TestVersion(t *testing.T) {
	if status, out, errs := call("", "--version"); status != 0 || out != "kubectl-holdfast version v1.9.11+holdfast.2\n" || errs != "" {
		t.Errorf("--version: %d %q %q", status, out, errs)
	}
}

// TestErrors: what is wrong is said first and in a line, then where the usage is.
func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		args   []string
		status int
		stderr string
	}{
		{[]string{"audit-rw"}, exit.Usage, "kubectl-holdfast: unknown command \"audit-rw\": use one of audit-rv, completion, container-hash, doctor, explain, fleet, forecast, kcm, node, pod-template-hash, predecessor, rbd-locks, verify\nkubectl-holdfast --help shows the usage\n"},
		{[]string{"pod-template-hash", "--nosuch", "x"}, exit.Usage, "kubectl-holdfast pod-template-hash: unknown flag: --nosuch\nkubectl-holdfast pod-template-hash --help shows the usage\n"},
		{[]string{"pod-template-hash"}, exit.Usage, "kubectl-holdfast pod-template-hash: name a FILE, or - for standard input\nkubectl-holdfast pod-template-hash --help shows the usage\n"},
		{[]string{"container-hash", "-o", "yaml", "-"}, exit.Usage, "kubectl-holdfast container-hash: invalid argument \"yaml\" for \"-o, --output\" flag: use table or json\nkubectl-holdfast container-hash --help shows the usage\n"},
		{[]string{"audit-rv"}, exit.Usage, "kubectl-holdfast audit-rv: name at least one audit log, or - for standard input\nkubectl-holdfast audit-rv --help shows the usage\n"},
	} {
		status, out, errs := call("", tc.args...)
		if status != tc.status || out != "" || errs != tc.stderr {
			t.Errorf("%v: %d %s\n%s", tc.args, status, out, errs)
		}
	}
	status, _, errs := call("x", "container-hash", "-")
	if status != exit.Failed || strings.Contains(errs, "--help") || !strings.HasPrefix(errs, "kubectl-holdfast container-hash: standard input: not an object\n") {
		t.Errorf("no object: %d %s", status, errs)
	}
}

func TestCompletion(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"__complete", "con"}, "container-hash\t"},
		{[]string{"__complete", "container-hash", "-o", ""}, "table\njson\n:4"},
		{[]string{"__complete", "container-hash", "--release", ""}, "1.36\n1.35\n"},
		{[]string{"__complete", "pod-template-hash", "--release", ""}, "1.2\n1.3\n"},
		{[]string{"completion", "bash"}, "bash completion V2 for kubectl-holdfast"},
	} {
		if status, out, errs := call("", tc.args...); status != 0 || !strings.Contains(out, tc.want) {
			t.Errorf("%v: %d %s\n%.300s", tc.args, status, errs, out)
		}
	}
}
