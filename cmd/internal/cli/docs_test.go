// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const repository = "../../.."

// rbdCommands are commands of rbd 16.2 (rbd help), with how many words may follow.
var rbdCommands = map[string][2]int{
	"status": {1, 1}, "info": {1, 1}, "showmapped": {0, 0}, "map": {1, 1}, "unmap": {1, 1}, "create": {1, 1}, "rm": {1, 1}, "resize": {1, 1}, "export": {1, 2},
	"lock list": {1, 1}, "lock ls": {1, 1}, "lock add": {2, 2}, "lock remove": {3, 3}, "lock rm": {3, 3},
}

// rbdOptions are options of any of them: of the command line, or of Ceph's configuration.
var rbdOptions = []string{"--pool", "--image", "--format", "--conf", "--id", "--keyring", "--key", "-m", "-k", "-o", "--size",
	"--client_mount_timeout", "--rados_mon_op_timeout", "--rados_osd_op_timeout",
	"--rbd_blocklist_on_break_lock", // since 16
	"--rbd_blacklist_on_break_lock", // up to 15
}

// fakeRBD takes command lines as rbd does, and records them.
type fakeRBD struct{ ran []string }

// run is one command. A bare name of it, as in a sentence, is complete.
func (f *fakeRBD) run(words []string, bare bool) error {
	f.ran = append(f.ran, strings.Join(words, " "))
	var plain []string
	value := false // w is the value of the option before it
	for _, w := range words {
		if value {
			value = false
			continue
		}
		if strings.HasPrefix(w, "-") {
			name, _, equals := strings.Cut(w, "=")
			if !slices.Contains(rbdOptions, name) {
				return fmt.Errorf("rbd: unrecognised option '%s'", w)
			}
			value = !equals && !bare
			continue
		}
		plain = append(plain, w)
	}
	if value {
		return fmt.Errorf("rbd: the last option has no value")
	}
	for n := min(2, len(plain)); n > 0; n-- {
		if count, ok := rbdCommands[strings.Join(plain[:n], " ")]; ok {
			if left := len(plain) - n; (left < count[0] || left > count[1]) && !(bare && left == 0) {
				return fmt.Errorf("%d words after the command", left)
			}
			return nil
		}
	}
	if bare && slices.Equal(plain, []string{"lock"}) {
		return nil // "rbd status, lock and info"
	}
	return fmt.Errorf("rbd has no such command")
}

// holdfast checks a command line of this program: commands and flags, without running it.
func holdfast(words []string) error {
	root := Command()
	cmd, rest, err := root.Find(words)
	if err != nil || cmd == root && len(rest) > 0 {
		return fmt.Errorf("no such command (%v)", err)
	}
	if !slices.ContainsFunc(rest, func(w string) bool { return strings.HasPrefix(w, "-") }) {
		return nil
	}
	return cmd.ParseFlags(rest)
}

// others are programs of a node or of an operator, kubectlVerbs what kubectl is asked to do.
var (
	others       = []string{"grep", "ps", "blockdev", "e2fsck", "install", "systemctl", "modprobe", "fsck", "mkfs", "sha256sum", "dumpe2fs"}
	kubectlVerbs = []string{"describe", "get", "drain", "cordon", "uncordon", "delete"}
	spans        = regexp.MustCompile("`([^`\n]+)`")
	ourNames     = regexp.MustCompile(`^(RBD[A-Z][A-Za-z]+|holdfast_rbd_[a-z_]+)`)
	gateFlag     = regexp.MustCompile(`--feature-gates=([A-Za-z]+)=`)
)

// documented are the command lines and names on a page. What is in a sentence may end
// with a name alone.
func documented(text string) (lines, inText []string) {
	code := false
	var prose strings.Builder
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "```"):
			code = !code
		case code:
			if c, ok := strings.CutPrefix(strings.TrimSpace(line), "$ "); ok {
				lines = append(lines, c)
			}
		default:
			prose.WriteString(strings.TrimRight(line, "\n") + " ")
		}
	}
	for _, m := range spans.FindAllStringSubmatch(prose.String(), -1) {
		inText = append(inText, m[1])
	}
	return lines, inText
}

// joints are between the commands of a line.
var joints = regexp.MustCompile(` (?:\||&&) `)

// check says what is wrong with a command line or name of the pages.
func check(c string, bare bool, f *fakeRBD, sources string) error {
	if parts := joints.Split(c, -1); strings.HasPrefix(c, "rbd ") && len(parts) > 1 {
		for _, part := range parts {
			if err := check(part, false, f, sources); err != nil {
				return err
			}
		}
		return nil
	}
	words := strings.Fields(c)
	if m := gateFlag.FindStringSubmatch(c); m != nil && !strings.Contains(sources, `"`+m[1]+`"`) {
		return fmt.Errorf("there is no feature gate %s", m[1])
	}
	switch w := words[0]; {
	case w == "rbd" && len(words) > 1:
		return f.run(words[1:], bare)
	case w == "kubectl" && len(words) > 1 && words[1] == "holdfast":
		return holdfast(words[2:])
	case w == "kubectl-holdfast":
		return holdfast(words[1:])
	case w == "kubectl" && len(words) > 1:
		if !slices.Contains(kubectlVerbs, words[1]) {
			return fmt.Errorf("kubectl %s is not known here: correct it, or add it to this test", words[1])
		}
	case w == "make" || strings.HasPrefix(w, "_output/"):
		for _, word := range words[1:] {
			name := strings.TrimPrefix(word, "LAB=")
			if strings.HasPrefix(name, "rbd") && !strings.Contains(sources, `Name:     "`+name+`"`) && !strings.Contains(sources, `Name:    "`+name+`"`) && !strings.Contains(sources, `"`+name+`": {"package"`) {
				return fmt.Errorf("there is no lab or binary %s", name)
			}
		}
	case ourNames.MatchString(c):
		if name := ourNames.FindString(c); !strings.Contains(sources, name) {
			return fmt.Errorf("nothing in the source has the name %s", name)
		}
	case !bare && !slices.Contains(others, w):
		return fmt.Errorf("%s is not known here: correct it, or add it to this test", w)
	}
	return nil
}

// sources is the text in which names are looked for.
func sources(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, pattern := range []string{"pkg/volume/rbd/*.go", "patches/rbd-*/fix.json", "tools/labs/rbd-*/*.go", "bases/v1.9.11/base.json"} {
		files, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files (%v)", pattern, err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(text)
		}
	}
	return b.String()
}

// Every command, gate, metric and event that the pages about RBD name is there.
func TestRBDPages(t *testing.T) {
	// The go command caches a test by the environment and by files inside the module, which
	// these are not: make test sets another value each time, by hand use -count=1.
	_ = os.Getenv("HOLDFAST_TEST_RUN")
	pages, err := filepath.Glob(filepath.Join(repository, "patches/rbd-*/README.md"))
	if err != nil || len(pages) != 4 {
		t.Fatalf("%q, %v", pages, err)
	}
	src, f, lines := sources(t), &fakeRBD{}, 0
	for _, page := range append(pages, filepath.Join(repository, "docs/user/rbd.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		commands, names := documented(string(text))
		lines += len(commands)
		for _, c := range commands {
			if err := check(c, false, f, src); err != nil {
				t.Errorf("%s: %q: %v", filepath.Base(page), c, err)
			}
		}
		for _, c := range names {
			if err := check(c, true, f, src); err != nil {
				t.Errorf("%s: %q: %v", filepath.Base(page), c, err)
			}
		}
	}
	// The section of rbd-locks, with all that is printed there.
	text, err := os.ReadFile(filepath.Join(repository, "docs/user/kubectl-holdfast.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## rbd-locks\n")
	section, _, _ = strings.Cut(section, "\n## ")
	commands, _ := documented(section)
	for _, c := range commands {
		if err := check(c, false, f, src); err != nil {
			t.Errorf("kubectl-holdfast.md: %q: %v", c, err)
		}
	}
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "  rbd ") {
			lines++
			if err := check(strings.TrimSpace(line), false, f, src); err != nil {
				t.Errorf("kubectl-holdfast.md: %q: %v", line, err)
			}
		}
	}
	if lines < 5 || len(commands) == 0 || len(f.ran) < 20 {
		t.Errorf("%d command lines, %d of rbd: the pages are not read", lines, len(f.ran))
	}
}

// What rbd-locks says of itself.
func TestRBDLocksExamples(t *testing.T) {
	var cmd *cobra.Command
	for _, c := range Command().Commands() {
		if c.Name() == "rbd-locks" {
			cmd = c
		}
	}
	for line := range strings.Lines(cmd.Example) {
		if err := check(strings.TrimSpace(line), false, &fakeRBD{}, ""); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// The checks find what is wrong.
func TestFindsWrongCommands(t *testing.T) {
	src := sources(t)
	for _, c := range []string{
		"rbd unlock x", "rbd lock remove x", "rbd unmap", "rbd lock list --columns=1 x", "rbd lock remove --rbd_blocklist=false rbd/x id client.1",
		"rbd status x | grep y && rbd lock remove x", "rbd status | grep y && rbd unmap x", "rbd status x | grp y",
		"kubectl holdfast rbd-lock", "kubectl holdfast rbd-locks --ceph /etc", "kubectl repair x", "rbdctl x",
		"RBDNoSuchEvent", "holdfast_rbd_no_such_total", "kubelet --feature-gates=RBDNoSuchGate=true", "make lab LAB=rbd-nothing",
	} {
		if check(c, false, &fakeRBD{}, src) == nil {
			t.Errorf("%q is accepted", c)
		}
	}
	for _, c := range []string{
		"rbd unmap /dev/rbd0", "kubectl holdfast rbd-locks --kubeconfig F --ceph-conf C --id U --keyring K --image P/I -o json", "RBDLockKept", "holdfast_rbd_attach_waits_total",
		"make lab LAB=rbd-detach", "rbd status x | grep -qx 'Watchers: none' && rbd lock remove x id client.1",
	} {
		if err := check(c, false, &fakeRBD{}, src); err != nil {
			t.Errorf("%q: %v", c, err)
		}
	}
}
