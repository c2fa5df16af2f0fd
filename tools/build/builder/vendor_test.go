// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/tools/build/base"
)

// TestVendorModule: the folder of a base with versions of its own is a module that names the drop-in programs
// as tools, and finds the patched tree where the root does.
func TestVendorModule(t *testing.T) {
	root := t.TempDir()
	b := &base.Base{Root: root, Name: "v9", Module: "k8s.io/kubernetes", Mode: base.ModeModule, Pins: "bases/v9",
		Binaries: map[string]base.Binary{"kubelet": {Package: "./cmd/kubelet", DropIn: true}, "kubectl": {Package: "./cmd/kubectl"}}}
	modfile := filepath.Join(b.Output(), "mod", "v9-ours.mod")
	for file, text := range map[string]string{
		modfile: "module holdfast\n\ngo 1.26\n\nrequire k8s.io/kubernetes v1.9.0\n\nreplace k8s.io/kubernetes => ./_output/src/v9/ours\n",
		strings.TrimSuffix(modfile, ".mod") + ".sum":       "a sum\n",
		filepath.Join(root, "bases/v9/vendor/left-over"):   "x",
		filepath.Join(b.Output(), "src/v9/ours/here"):      "the tree",
		filepath.Join(b.Output(), "src/v9/ours/README.md"): "x",
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := vendorModule(b, modfile); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "bases/v9/vendor")
	if offlineDir(b) != dir || vendorDir(b) != dir {
		t.Errorf("%s %s", offlineDir(b), vendorDir(b))
	}
	for file, want := range map[string]string{"go.mod": "tool k8s.io/kubernetes/cmd/kubelet\n", "go.sum": "a sum\n", "_output/src/v9/ours/here": "the tree"} {
		if raw, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.Contains(string(raw), want) || strings.Contains(string(raw), "kubectl") {
			t.Errorf("%s: %v %s", file, err, raw)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "left-over")); !os.IsNotExist(err) {
		t.Errorf("the old folder is still there: %v", err)
	}
	if at := (&base.Base{Root: root, Name: "v1", Mode: base.ModeModule}); offlineDir(at) != root || vendorDir(at) != filepath.Join(root, "vendor") {
		t.Errorf("the root's own base is built in %s from %s", offlineDir(at), vendorDir(at))
	}
}
