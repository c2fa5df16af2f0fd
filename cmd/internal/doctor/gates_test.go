// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write gates.txt from patches/*/fix.json")

// The table of gates is what the fixes say.
func TestGates(t *testing.T) {
	files, err := filepath.Glob("../../../patches/*/fix.json")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d fixes, %v", len(files), err)
	}
	var rows []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var fix struct {
			Components []string
			Incident   string
			Gates      map[string]struct {
				Default bool
				About   string
			}
		}
		if err := json.Unmarshal(text, &fix); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !slices.Contains(fix.Components, "kubelet") && !slices.Contains(fix.Components, "kube-controller-manager") {
			continue
		}
		for gate, g := range fix.Gates {
			if !g.Default {
				continue
			}
			says := fix.Incident
			if says == "" {
				says = "nothing " + g.About // it "makes the controller do …"
			}
			rows = append(rows, gate+" "+strings.TrimSuffix(says, ".")+"\n")
		}
	}
	slices.Sort(rows)
	want := "# Written from patches/*/fix.json: go test ./internal/doctor -update in cmd/\n" + strings.Join(rows, "")
	if *update {
		if err := os.WriteFile("gates.txt", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("gates.txt")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("gates.txt is not what patches/*/fix.json say: go test ./internal/doctor -update writes it")
	}
	if len(parseGates(want)) != len(rows) {
		t.Errorf("%d of %d gates are read", len(parseGates(want)), len(rows))
	}
}
