// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestReal makes a snapshot of what make has built, signed and in two folders, as make release does.
func TestReal(t *testing.T) {
	long(t)
	root, err := filepath.Abs("..")
	must(t, err)
	t.Chdir(root)
	work := t.TempDir()
	keys, pass := filepath.Join(work, "keys"), filepath.Join(work, "pass")
	must(t, os.WriteFile(pass, []byte("a long passphrase\n"), 0o600))
	t.Setenv("HOLDFAST_PASSPHRASE_FILE", pass)
	must(t, keygen(keys))
	signed := filepath.Join(work, "signed")
	must(t, build(options{snapshot: true, keys: keys}, signed))
	// Built once more elsewhere, without the keys, and compared.
	must(t, verify(options{snapshot: true, keys: keys, rebuild: true}, signed, os.Stdout))
	if err := build(options{snapshot: true}, signed); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("into a folder that is not empty: %v", err)
	}
	unsigned := filepath.Join(work, "unsigned")
	must(t, build(options{snapshot: true}, unsigned))
	if err := verify(options{keys: keys}, unsigned, io.Discard); err == nil {
		t.Error("it verifies what nobody signed")
	}
	vexIsInBills(t, signed)
	out, err := shell(t, signed, "lintian --fail-on error apt/*.deb")
	t.Logf("lintian:\n%s", out)
	must(t, err)
	offline(t, signed)
	s, err := readSource(options{snapshot: true})
	must(t, err)
	loads(t, signed, s.version)
	plugin(t, signed, s.version)
	old := filepath.Join(work, "v1.2.0")
	must(t, build(options{snapshot: true, keys: keys, base: "v1.2.0"}, old))
	must(t, verify(options{snapshot: true, keys: keys, base: "v1.2.0", rebuild: true}, old, os.Stdout))
	for _, dir := range []string{signed, old} {
		have, err := sizes(dir)
		must(t, err)
		for _, name := range slices.Sorted(maps.Keys(have)) {
			t.Logf("%s: %9d %s", filepath.Base(dir), have[name], name)
		}
	}
}

// offline: the two archives of the source, unpacked in one place, build without a network and
// without a module cache. What is compiled is kubectl-holdfast; of the two products the go command
// resolves all packages, and make reproducible builds them without a network.
func offline(t *testing.T, dir string) {
	out, err := shell(t, t.TempDir(), `cat '`+dir+`'/holdfast-*-source.tar.gz | tar -xz
cat '`+dir+`'/holdfast-*-vendor.tar.gz | tar -xz
cd holdfast-*
export GOMODCACHE=$PWD/../none GOPROXY=off GOFLAGS=
unshare --net make --no-print-directory OFFLINE=1 tool kubectl-holdfast endpoints-rules release-tool
CGO_ENABLED=1 unshare --net go list -mod=vendor -deps k8s.io/kubernetes/cmd/kubelet k8s.io/kubernetes/cmd/kube-controller-manager | wc -l
_output/bin/kubectl-holdfast --version`)
	if err != nil || !strings.Contains(out, "holdfast version v1.9.11+holdfast.") {
		t.Errorf("%v\n%s", err, out)
	}
}

// vexIsInBills: a scanner finds each product of vex.json, and each module that is named with it, in
// the bill of materials of that product, unless vex.json says that the module is not there.
func vexIsInBills(t *testing.T, dir string) {
	raw, err := os.ReadFile(filepath.Join(dir, "vex.json"))
	must(t, err)
	type id struct {
		ID string `json:"@id"`
	}
	var vex struct {
		Statements []struct {
			Status, Justification string
			Products              []struct {
				id
				Subcomponents []id
			}
		}
	}
	must(t, json.Unmarshal(raw, &vex))
	bills := map[string][]string{}
	files, err := filepath.Glob(filepath.Join(dir, "sbom/*.cdx.json"))
	must(t, err)
	for _, file := range files {
		f, err := os.Open(file)
		must(t, err)
		var bom cdx.BOM
		must(t, cdx.NewBOMDecoder(f, cdx.BOMFileFormatJSON).Decode(&bom))
		f.Close()
		for _, c := range *bom.Components {
			bills[bom.Metadata.Component.PackageURL] = append(bills[bom.Metadata.Component.PackageURL], c.PackageURL)
		}
	}
	seen, missing := 0, map[string]bool{}
	for _, s := range vex.Statements {
		for _, p := range s.Products {
			have, ok := bills[p.ID]
			if !ok && !strings.Contains(p.ID, "kube-apiserver") { // optional
				missing[p.ID] = true
			}
			for _, sub := range p.Subcomponents {
				if s.Justification == "component_not_present" {
					continue
				}
				seen++
				in := func(c string) bool { return c == sub.ID || strings.HasPrefix(c, sub.ID+"@") }
				if ok && !slices.ContainsFunc(have, in) {
					missing[p.ID+" "+sub.ID] = true
				}
			}
		}
	}
	if len(missing) > 0 || seen < 10 {
		t.Errorf("of %d modules named in vex.json, these are in no bill of materials: %v", seen, missing)
	}
}
