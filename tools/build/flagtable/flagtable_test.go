// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package flagtable

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// TestCommitted: the page is that of the committed tables. That the tables are
// the releases' own is asked by holdfast flags --check.
func TestCommitted(t *testing.T) {
	tables := map[string]*Table{}
	for _, c := range Components() {
		var err error
		if tables[c], err = Load(root, c); err != nil {
			t.Fatal(err)
		}
	}
	all, err := files(tables)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 5 {
		t.Errorf("%d files", len(all))
	}
	for name, want := range all {
		got, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		if d := firstDifference(got, want); d != "" {
			t.Errorf("%s: %s: make flags", name, d)
		}
	}
}

// TestKubelet holds the committed table against what the options of the
// releases say in their source: cmd/kubelet/app/options and pkg/features.
func TestKubelet(t *testing.T) {
	k, err := Load(root, "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	up := k.Between("v1.7.0", "v1.9.11")
	if want := []string{"api-servers", "docker-exec-handler", "low-diskspace-threshold-mb", "network-plugin-dir", "outofdisk-transition-frequency"}; !reflect.DeepEqual(up.GoneFlags, want) {
		t.Errorf("gone: %v", up.GoneFlags)
	}
	if want := []string{"AffinityInAnnotations", "DynamicVolumeProvisioning"}; !reflect.DeepEqual(up.GoneGates, want) {
		t.Errorf("gates gone: %v", up.GoneGates)
	}
	for _, f := range []string{"docker-disable-shared-pid", "cert-dir", "eviction-hard", "cloud-provider"} {
		if !slices.Contains(up.MovedFlags, f) {
			t.Errorf("--%s has not moved", f)
		}
	}
	// What the runbook has in one unit for all of them.
	for _, f := range []string{"kubeconfig", "require-kubeconfig", "experimental-fail-swap-on"} {
		for _, r := range k.Releases {
			if n := k.Flag(f); n == nil || n.In(r) == nil {
				t.Errorf("%s refuses --%s", r, f)
			}
		}
	}
	for _, f := range []string{"fail-swap-on", "rotate-certificates"} {
		if n := k.Flag(f); n == nil || n.In("v1.7.0") != nil || n.In("v1.8.15") == nil {
			t.Errorf("--%s: %+v", f, n)
		}
	}
	// Drop-in: no flag, default or gate of upstream's is another in ours. What ours adds
	// is named here; without it everything is as in stock.
	added := map[string][]string{"kube-controller-manager": {"endpoint-updates-batch-period"}}
	for _, c := range Components() {
		tab, err := Load(root, c)
		if err != nil {
			t.Fatal(err)
		}
		s := tab.Between("v1.9.11", Ours)
		if len(s.GoneFlags)+len(s.MovedFlags)+len(s.DeprecatedFlags)+len(s.GoneGates)+len(s.MovedGates) > 0 || len(s.NewGates) == 0 || !slices.Equal(s.NewFlags, added[c]) {
			t.Errorf("%s: ours is not a drop-in: %+v", c, s)
		}
	}
}

func TestBetween(t *testing.T) {
	of := map[string]one{
		"v1": {map[string]Flag{"a": {Type: "int", Default: "1"}, "b": {Type: "int"}, "c": {Type: "string"}, "gone": {}},
			map[string]Gate{"A": {true, "BETA"}, "B": {false, "ALPHA"}, "Gone": {}}},
		"v2": {map[string]Flag{"a": {Type: "int", Default: "2"}, "b": {Type: "int", Deprecated: true}, "c": {Type: "bool"}, "new": {Hidden: true}},
			map[string]Gate{"A": {true, "GA"}, "B": {true, "BETA"}, "New": {}}},
	}
	tab := merge("x", []string{"v1", "v2"}, of)
	data, err := tab.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Decode(data)
	if err != nil || !reflect.DeepEqual(again, tab) {
		t.Fatalf("%v\n%s", err, data)
	}
	got := again.Between("v1", "v2")
	want := Step{Table: again, From: "v1", To: "v2", GoneFlags: []string{"gone"}, NewFlags: []string{"new"}, GoneGates: []string{"Gone"}, NewGates: []string{"New"},
		MovedFlags: []string{"a", "c"}, MovedGates: []string{"B"}, DeprecatedFlags: []string{"b"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	p := &page{}
	p.step(got)
	for _, line := range []string{"## x, 1 to 2", "Flags that 2 refuses (1): `--gone`.", "| `--a` | `1` | `2` |", "| `--c` | empty (string) | empty (bool) |",
		"Feature gates that are new in 2 (1): `New=false`.", "Feature gates with a changed default in 2 (1): `B=true`."} {
		if !bytes.Contains(p.b, []byte(line+"\n")) {
			t.Errorf("no line %q in:\n%s", line, p.b)
		}
	}
	if _, err := Decode([]byte(`{"component": "x", "flag": []}`)); err == nil {
		t.Error("a key that is none is taken")
	}
}

// TestAsk: each way in which a table can be wrong about a binary is seen.
func TestAsk(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "x")
	// Knows --a and --b, and of --b only numbers.
	if err := os.WriteFile(binary, []byte(`#!/bin/sh
for a; do
  case $a in
  --a=*|--b=[0-9]*|--version) ;;
  --b=*) echo "Flag --a is deprecated"; echo "invalid argument \"x\" for --b=x: not a number"; exit 2 ;;
  *) echo "unknown flag: ${a%%=*}"; exit 2 ;;
  esac
done
`), 0o755); err != nil {
		t.Fatal(err)
	}
	table := func(takes ...string) *Table {
		of := one{Flags: map[string]Flag{}}
		for _, f := range takes {
			of.Flags[f] = Flag{Default: "x"}
		}
		all := one{Flags: map[string]Flag{"a": {}, "b": {}, "c": {}}}
		return merge("x", []string{"r", "all"}, map[string]one{"r": of, "all": all})
	}
	for _, tc := range []struct {
		takes, except []string
		wrong         string
	}{
		{[]string{"a", "b"}, nil, ""},
		{[]string{"a"}, nil, "takes --b"},
		{[]string{"a"}, []string{"b"}, ""},
		{[]string{"a", "b", "c"}, nil, "refuses --c"},
	} {
		n, wrong, err := Ask(binary, table(tc.takes...), "r", tc.except)
		if err != nil || n != 3-len(tc.except) || (len(wrong) > 0) != (tc.wrong != "") || !strings.Contains(strings.Join(wrong, ""), tc.wrong) {
			t.Errorf("%v: %d %q %v", tc, n, wrong, err)
		}
	}
	if _, _, err := Ask("/bin/false", table("a"), "r", []string{"b", "c"}); err == nil {
		t.Error("a binary that says nothing is right")
	}
}

func TestWrap(t *testing.T) {
	for _, l := range strings.Split(wrap(strings.Repeat("word ", 200)), "\n") {
		if len(l) > 100 {
			t.Errorf("%d characters", len(l))
		}
	}
}
