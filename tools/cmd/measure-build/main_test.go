// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"holdfast/tools/build/exit"
)

func TestMeasure(t *testing.T) {
	var out bytes.Buffer
	m := &measurement{dir: t.TempDir(), env: os.Environ(), out: &out}
	// A shell that holds 40 MB for longer than a look takes to come.
	if err := m.measure("a shell", "sh", "-c", "x=$(head -c 40000000 /dev/zero | tr '\\0' x); sleep 1.2; : ${#x}"); err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`^\| a shell \| (\d+\.\d) s \| (\d+) MiB \| .sh -c .* \| \d+\.\d+ \|\n$`).FindStringSubmatch(out.String())
	if row == nil {
		t.Fatalf("row %q", out.String())
	}
	if s, _ := strconv.ParseFloat(row[1], 64); s < 1.2 {
		t.Errorf("it took %s s", row[1])
	}
	if mib, _ := strconv.Atoi(row[2]); mib < 38 {
		t.Errorf("it held %s MiB", row[2])
	}
	err := m.measure("no", "sh", "-c", "echo broken; exit 3")
	if err == nil || !strings.Contains(err.Error(), "no: exit status 3") || !strings.Contains(err.Error(), "broken") {
		t.Error(err)
	}
	if exit.Code(run(false, []string{"x"})) != 2 {
		t.Error("an argument is taken")
	}
}
