// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	for in, want := range map[string]string{
		`a  b	c`: `["a" "b" "c"]`, `"a b" 'c "d'`: `["a b" "c \"d"]`, `a"b c"d`: `["ab cd"]`, `""`: `[""]`, ``: `[]`,
		`a\x20b \"`: `["a b" "\""]`, `a\sb`: `["a b"]`, `"open`: "error", `\q`: "error", `\x`: "error",
	} {
		words, err := split(in)
		got := fmt.Sprintf("%q", words)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// TestExpand has the examples of systemd.service(5), "Command lines".
func TestExpand(t *testing.T) {
	env := map[string]string{"ONE": "one", "TWO": "two two", "Q": `"two two" too`, "E": ""}
	for in, want := range map[string]string{
		"$ONE $TWO ${TWO}": `["one" "two" "two" "two two"]`, "$Q": `["two two" "too"]`, "${Q}": `["\"two two\" too"]`,
		"$NONE ${NONE} $E": `[""]`, "a$ONE a${ONE}b": `["a$ONE" "aoneb"]`, "$$ONE": `["$ONE"]`, "$": `["$"]`, "${ONE": `["${ONE"]`, "$1": `["$1"]`,
	} {
		if got := fmt.Sprintf("%q", expand(strings.Fields(in), env)); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestEnvFile(t *testing.T) {
	env := map[string]string{"D": "was"}
	envFile(env, "# c\n; c\n\nA=1 2  \nB=\"x \\\" y\\z\"\nC='$a \\'\nD=\n E = e\nF=a\\\nb\nG=\"l1\nl2\"'m'\nno assignment\n1X=2\nH=a#b 'c'\nI=last\\")
	want := map[string]string{"A": "1 2", "B": `x " y\z`, "C": `$a \`, "D": "", "E": "e", "F": "ab", "G": "l1\nl2m", "H": "a#b 'c'", "I": "last"}
	if !maps.Equal(env, want) {
		t.Errorf("%q\nwant\n%q", env, want)
	}
}

func TestSettings(t *testing.T) {
	s := map[string][]string{}
	addSettings(s, "[Unit]\nExecStart=/no\n[Service]\n# ExecStart=/no\nExecStart=/usr/bin/kubelet \\\n# between\n  --a \\\n  --b\nEnvironment=A=b\n")
	addSettings(s, "[Service]\nExecStart=\nExecStart=-/usr/bin/kubelet $A\nEnvironment=C=d\n[Install]\nEnvironment=no=1\n")
	if fmt.Sprint(s) != "map[Environment:[A=b C=d] ExecStart:[-/usr/bin/kubelet $A]]" {
		t.Errorf("%q", s)
	}
	words, literal, err := startWords(`-/usr/bin/kubelet "--a=b c" --hard=x<10%% $A`, "kubelet.service", "{ path=/usr/bin/kubelet ; argv[]=/usr/bin/kubelet --a=b c --hard=x<10% $A ; ignore_errors=yes ; start_time=[n/a] }")
	if err != nil || literal || !slices.Equal(words, []string{"/usr/bin/kubelet", "--a=b c", "--hard=x<10%", "$A"}) {
		t.Errorf("%q %v %v", words, literal, err)
	}
	for _, bad := range []string{"/usr/bin/kubelet --other", "/usr/bin/kubelet %q", `/usr/bin/kubelet "open`, ""} {
		if words, _, err := startWords(bad, "kubelet.service", "{ path=/usr/bin/kubelet ; argv[]=/usr/bin/kubelet --a ; ignore_errors=no ; }"); err == nil {
			t.Errorf("%q: %q", bad, words)
		}
	}
	if words, literal, err = startWords("@/usr/bin/kubelet name :a", "k", "{ argv[]=name :a ; ignore_errors=no ; }"); err != nil || literal || len(words) != 2 {
		t.Errorf("%q %v %v", words, literal, err)
	}
}

func TestFlags(t *testing.T) {
	line := flags{"--kubeconfig", "/k", "--root_dir=/r", "--feature-gates=A=true, B=false", "--require-kubeconfig", "--token-auth-file=/etc/t", "--bearer-token", "xyz", "--v=2"}
	if v, ok := line.value("root-dir"); v != "/r" || !ok || line.or("kubeconfig", "") != "/k" || line.or("none", "x") != "x" || !line.is("require-kubeconfig", false) {
		t.Error(v)
	}
	if got := fmt.Sprint(line.gates(), line.withoutGates([]string{"A"})[len(line)-1], len(line.withoutGates([]string{"A", "B"}))); got != "[A B]--feature-gates= B=false8" {
		t.Error(got)
	}
	if s := line.show(); strings.Contains(s, "/etc/t") || strings.Contains(s, "xyz") || !strings.Contains(s, "--v=2") {
		t.Error(s)
	}
	if d := differ(line, slices.Concat(line[:len(line)-1], flags{"--v=3", "--x"})); fmt.Sprint(d) != "[--v --x]" {
		t.Error(d)
	}
	for release, want := range map[string]string{
		"v1.7.0": "standalone", "v1.8.15": "connected", "v1.9.11+holdfast.2": "connected",
	} {
		v, err := parseVersion("Kubernetes " + release + "\n")
		got := "connected"
		if (flags{"--kubeconfig=/k"}).standalone(v) {
			got = "standalone"
		}
		if err != nil || got != want || !(flags{"--kubeconfig=", "--require-kubeconfig=false"}).standalone(v) || (flags{"--require-kubeconfig"}).standalone(v) {
			t.Errorf("%s: %s", release, got)
		}
	}
	for release, want := range map[string]bool{"v1.6.13": true, "v1.7.0": true, "v1.7.13": true, "v1.7.14": false, "v1.8.8": true, "v1.8.9": false, "v1.9.3": true, "v1.9.4": false,
		"v1.9.0+holdfast.1": false, "v1.10.0": false} {
		v, err := parseVersion("Kubernetes " + release)
		if err != nil || v.deletes() != want {
			t.Errorf("%s deletes: %v %v", release, v.deletes(), err)
		}
	}
}

func TestCompare(t *testing.T) {
	before := []container{{UID: "1", Name: "a", ID: "x"}, {UID: "1", Name: "b", ID: "y"}, {UID: "old", Namespace: "n", Pod: "p", Name: "s", ID: "z", Static: true}, {UID: "2", Name: "a", ID: "q"}}
	after := []container{{UID: "1", Name: "a", ID: "x"}, {UID: "1", Name: "b", ID: "y2"}, {UID: "new", Namespace: "n", Pod: "p", Name: "s", ID: "z2", Static: true}, {UID: "3", Name: "a", ID: "r"}}
	if got := compare(before, after).String(); got != "kept 1, recreated 1 (/ b), static 1 (n/p s), new 1, gone 1" {
		t.Error(got)
	}
}

// FuzzUnit: no text makes the readers fail otherwise than with an error.
func FuzzUnit(f *testing.F) {
	f.Add("[Service]\nExecStart=/usr/bin/kubelet --a \\\n'b c' $A %H\nEnvironment=\"A=b\\")
	f.Fuzz(func(t *testing.T, text string) {
		s := map[string][]string{}
		addSettings(s, text)
		for _, l := range s["ExecStart"] {
			_, _, _ = startWords(l, "kubelet.service", text)
		}
		env := map[string]string{}
		envFile(env, text)
		line := flags(expand(strings.Fields(text), env))
		line.show()
		differ(line, line.without("a").withoutGates(line.gates()))
		line.standalone(version{minor: 9})
		if words, err := split(text); err == nil && len(words) > len(text) {
			t.Error(words)
		}
	})
}
