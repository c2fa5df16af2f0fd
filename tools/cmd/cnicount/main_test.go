// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	call := func(command string) (string, error) {
		env := map[string]string{"CNI_COMMAND": command, "CNI_CONTAINERID": "sb", "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=sb"}
		var out strings.Builder
		err := run(strings.NewReader(fmt.Sprintf(`{"cniVersion":"0.3.1","dir":%q,"prevResult":{"ips":[]}}`, dir)), &out, func(k string) string { return env[k] })
		return out.String(), err
	}
	touch := func(name string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	touch("ADD-fail-web-0")
	if out, err := call("ADD"); err == nil || out != "" {
		t.Errorf("an ADD that is to fail answers %q, %v", out, err)
	}
	hold := touch("ADD-hold-web-0")
	go func() {
		time.Sleep(100 * time.Millisecond)
		os.Remove(hold)
	}()
	if out, err := call("ADD"); err != nil || out != `{"ips":[]}` {
		t.Errorf("an ADD answers %q, %v", out, err)
	}
	if _, err := os.Stat(hold); err == nil {
		t.Error("an ADD that is held has answered")
	}
	if out, err := call("DEL"); err != nil || out != "" {
		t.Errorf("a DEL answers %q, %v", out, err)
	}
	if out, err := call("VERSION"); err != nil || !strings.Contains(out, "0.3.1") {
		t.Errorf("VERSION answers %q, %v", out, err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "calls.jsonl"))
	want := `{"Command":"ADD","Sandbox":"sb","Pod":"web-0","Failed":true}
{"Command":"ADD","Sandbox":"sb","Pod":"web-0"}
{"Command":"DEL","Sandbox":"sb","Pod":"web-0"}
`
	if err != nil || string(got) != want {
		t.Errorf("calls %s, %v; want %s", got, err, want)
	}
}
