// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
)

// TestDrift fails when a struct below v1.Container has a field that the table
// does not list. Find the release that added the field (its kubelet hashes it
// from then on), add the field to the table, with "@" and the generation if it
// is newer than 1.6, and a generation if there is none.
func TestDrift(t *testing.T) {
	for _, d := range Drift() {
		t.Error(d)
	}
	if !Supported() {
		t.Error("not supported")
	}
}

// TestTableHasNoLeftovers fails when the table lists a struct that is gone.
func TestTableHasNoLeftovers(t *testing.T) {
	reached := map[string]bool{}
	var walk func(reflect.Type)
	walk = func(ty reflect.Type) {
		switch ty.Kind() {
		case reflect.Ptr, reflect.Slice, reflect.Map:
			walk(ty.Elem())
		case reflect.Struct:
			if !reached[ty.String()] {
				reached[ty.String()] = true
				for i := 0; i < ty.NumField(); i++ {
					walk(ty.Field(i).Type)
				}
			}
		}
	}
	walk(reflect.TypeOf(v1.Container{}))
	for name := range table {
		if !reached[name] {
			t.Errorf("no %s below v1.Container", name)
		}
	}
}

// TestDriftFinds removes or changes each line of the table in turn: each time
// Drift must say so, and nothing but the native hash may be known.
func TestDriftFinds(t *testing.T) {
	lines := 0
	for name, text := range table {
		list := strings.Split(strings.TrimSpace(text), "\n")
		for i := range list {
			for _, change := range []string{"", "\tOther bool", list[i] + "x"} {
				changed := append([]string(nil), list...)
				if change == "" {
					changed = append(changed[:i], changed[i+1:]...)
				} else {
					changed[i] = change
				}
				if len(changed) == 0 {
					continue
				}
				table[name] = strings.Join(changed, "\n")
				if strings.Contains(list[i], "@") && change != "" && change != "\tOther bool" {
					// "@1.8x" is a typing error in the generation.
					if fields, _ := tableFields(table, name); fields[i].since != Gen16 {
						t.Errorf("%s: %q parsed", name, change)
					}
				} else if len(Drift()) == 0 {
					t.Errorf("%s: line %d as %q is not noticed", name, i, change)
				} else if buildRoot(reflect.TypeOf(v1.Container{})) != nil {
					t.Errorf("%s: supported in spite of drift", name)
				}
				lines++
			}
		}
		delete(table, name)
		if len(Drift()) == 0 {
			t.Errorf("%s: its absence is not noticed", name)
		}
		table[name] = text
	}
	if lines < 200 {
		t.Errorf("only %d changes tried", lines)
	}
}

// TestUnsupported: without agreement between table and types the package
// accepts nothing.
func TestUnsupported(t *testing.T) {
	saved := rootNode
	rootNode = nil
	defer func() { rootNode = saved }()
	c := &v1.Container{Name: "a"}
	if _, ok := Match(c, 1); ok {
		t.Error("Match")
	}
	if _, ok := Hash(c, Gen17); ok {
		t.Error("Hash")
	}
	if g := Oldest(c); g != Native {
		t.Errorf("Oldest = %v", g)
	}
	if _, _, ok := OldestHash(c, OldestWritten); ok {
		t.Error("OldestHash")
	}
	if _, _, ok := RecordedBy(c, 1); ok {
		t.Error("RecordedBy")
	}
	if e := Explain(c, 1); e.Recorded != nil || e.Tried != nil {
		t.Error("Explain")
	}
}

// A later API as the kubelet of that release would see it.
type driftContainer struct {
	Name         string
	StartupProbe *v1.Probe
	Any          interface{}
	List         []*string
	Twice        **string
	Nothing      *struct{}
}

func TestDriftOfOtherKinds(t *testing.T) {
	table["hashcompat.driftContainer"] = "Name string\nStartupProbe *v1.Probe\nAny interface {}\nList []*string\nTwice **string\nNothing *struct {}"
	defer delete(table, "hashcompat.driftContainer")
	got := strings.Join(drift(reflect.TypeOf(driftContainer{}), table), "\n")
	for _, want := range []string{"pointer to nothing", "kind interface is not supported", "slice of pointers", "pointer to a pointer"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
