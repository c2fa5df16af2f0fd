// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlocks

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/cmd/internal/exit"
)

// A monitor that only a pod names is not asked with the operator's key, also where it stands
// beside one of a PersistentVolume, and an image that only an ended pod names is looked at.
func TestStrangersMonitors(t *testing.T) {
	dir := t.TempDir()
	r := newCeph(filepath.Join(dir, "rbd"))
	script := "#!/bin/sh\necho \"$*\" >> " + dir + "/calls\n[ \"$1\" = lock ] && echo '[]' && exit\necho '{\"watchers\":[]}'\n"
	if err := os.WriteFile(r.program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	pod := func(image, phase, monitors string) string {
		return `{"metadata":{"namespace":"ns","name":"p"},"spec":{"nodeName":"n1","volumes":[{"rbd":{"monitors":[` + monitors + `],"image":"` + image + `"}}]},"status":{"phase":"` + phase + `"}}`
	}
	api := fakeAPI{"nodes": nodes, "persistentvolumes": `{"items":[{"metadata":{"name":"pv"},"spec":{"rbd":{"monitors":["m1","m2"],"image":"pv"}}}]}`,
		"pods": `{"items":[` + strings.Join([]string{pod("evil", "Running", `"evil"`), pod("both", "Running", `"m1","evil"`), pod("joined", "Running", `"m1,evil"`), pod("one", "Running", `"m2"`), pod("ended", "Failed", `"m1","m2"`)}, ",") + `]}`}
	for name, c := range map[string]struct {
		change func(*ceph)
		asked  []string
	}{
		"by default":    {func(*ceph) {}, []string{"ended", "one", "pv"}},
		"with the flag": {func(r *ceph) { r.anyMonitor = true }, []string{"both", "ended", "evil", "joined", "one", "pv"}},
		"with a conf":   {func(r *ceph) { r.conf = "/c" }, []string{"both", "ended", "evil", "joined", "one", "pv"}},
	} {
		_ = os.Remove(filepath.Join(dir, "calls"))
		q := *r
		c.change(&q)
		var out, errs strings.Builder
		err := run(t.Context(), api, &q, "", "json", &out, &errs)
		calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
		var asked []string
		for _, image := range []string{"both", "ended", "evil", "joined", "one", "pv"} {
			if strings.Contains(string(calls), "--image="+image+" ") {
				asked = append(asked, image)
			}
		}
		if !slices.Equal(asked, c.asked) || (exit.Code(err) == exit.Failed) != (len(asked) < 6) {
			t.Errorf("%s: asked for %v, want %v: %v", name, asked, c.asked, err)
		}
		if name == "with a conf" && strings.Contains(string(calls), "evil:") || name != "with the flag" && strings.Contains(string(calls), ",evil") {
			t.Errorf("%s: %s", name, calls)
		}
		if n := strings.Count(out.String(), "only pods name the monitor"); n != 6-len(asked) {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}
