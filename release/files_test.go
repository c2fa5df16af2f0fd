// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func (m *made) one(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(m.out, pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %v %v", pattern, files, err)
	}
	return files[0]
}

func has(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, w := range wants {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in\n%s", w, text)
		}
	}
}

func (m *made) debs(t *testing.T) {
	deb := m.one(t, "apt/kubelet_*_amd64.deb")
	out, err := shell(t, m.out, "dpkg-deb -I '"+deb+"'; dpkg-deb -c '"+deb+"'")
	must(t, err)
	has(t, out, "Version: 1.9.11+holdfast.9-1\n", "Pre-Depends: kubectl-holdfast (>= 1.9.11+holdfast.9-1)\n", "Recommends: kubernetes-cni\n", "libc6 (>= 2.17)",
		"./usr/bin/kubelet\n", "./lib/systemd/system/kubelet.service\n", "./usr/share/doc/kubelet/copyright\n")
	for _, never := range []string{"10-kubeadm", "/etc/", "kubernetes-cni (="} {
		if strings.Contains(out, never) {
			t.Errorf("%s in\n%s", never, out)
		}
	}
	// What the issue of a release rests on: dpkg's order of versions.
	order := []string{"1.7.16-00", "1.9.11-00", "1.9.11+holdfast.9-1", "1.9.11+holdfast.9.post.g0123456789ab-1", "1.9.11+holdfast.10-1", "1.10.0-00"}
	for i := range order[1:] {
		if out, err := shell(t, m.out, "dpkg --compare-versions "+order[i]+" lt "+order[i+1]); err != nil {
			t.Errorf("%s is not below %s: %s", order[i], order[i+1], out)
		}
	}
}

func (m *made) rpms(t *testing.T) {
	rpm := m.one(t, "yum/kubelet-*.x86_64.rpm")
	out, err := shell(t, m.out, "rpm -qp --nosignature --qf '%{VERSION}-%{RELEASE}\\n' '"+rpm+"'; rpm -qp --nosignature -lv --requires --scripts '"+rpm+"'; rpm -qp --nosignature --configfiles '"+rpm+"'")
	must(t, err)
	has(t, out, "1.9.11+holdfast.9-1\n", "kubectl-holdfast >= 1.9.11+holdfast.9\n", "/etc/kubernetes/manifests\n", "/usr/bin/kubelet\n", "kubectl-holdfast node keep")
	if !strings.HasSuffix(strings.TrimSpace(out), "/etc/systemd/system/kubelet.service") {
		t.Errorf("the unit is no configuration file:\n%s", out)
	}
	check := "mkdir db; rpm --dbpath $PWD/db --import " + m.keys + "/" + pgpPublic + "; rpm --dbpath $PWD/db -K "
	if out, err := shell(t, t.TempDir(), check+"'"+rpm+"'"); err != nil || !strings.Contains(out, "digests signatures OK") {
		t.Errorf("%v %s", err, out)
	}
	evil := filepath.Join(t.TempDir(), "evil.rpm")
	raw, err := os.ReadFile(rpm)
	must(t, err)
	raw[len(raw)-9] ^= 1
	must(t, os.WriteFile(evil, raw, 0o644))
	if out, err := shell(t, t.TempDir(), check+evil); err == nil {
		t.Errorf("a changed rpm: %s", out)
	}
	if a, err := contentSum(rpm); err != nil || a == "" {
		t.Error(err)
	} else if b, err := contentSum(evil); err != nil || a == b {
		t.Errorf("a changed rpm has the same content: %v", err)
	}
}

// apt asks apt itself, with lists and cache of its own.
func (m *made) apt(t *testing.T) {
	other := filepath.Join(t.TempDir(), "keys")
	must(t, keygen(other))
	try := func(repository, key string) (string, error) {
		dir := t.TempDir()
		must(t, os.MkdirAll(dir+"/lists/partial", 0o755))
		must(t, os.MkdirAll(dir+"/cache/archives/partial", 0o755))
		must(t, os.CopyFS(dir+"/apt", os.DirFS(repository)))
		must(t, exec.Command("chmod", "-R", "a+rX", dir).Run())
		line := "deb [signed-by=" + key + "] file://" + dir + "/apt ./\n"
		must(t, os.WriteFile(dir+"/sources.list", []byte(line), 0o644))
		return shell(t, dir, `o="-o Dir::State=$PWD -o Dir::State::status=/dev/null -o Dir::Cache=$PWD/cache -o Dir::Etc::sourcelist=$PWD/sources.list -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any"
apt-get $o update 2>&1; apt-cache $o policy kubelet`)
	}
	if out, err := try(m.out+"/apt", m.keys+"/"+pgpPublic); err != nil || !strings.Contains(out, "Candidate: 1.9.11+holdfast.9-1") {
		t.Errorf("%v %s", err, out)
	}
	if out, err := try(m.out+"/apt", other+"/"+pgpPublic); err == nil {
		t.Errorf("another key: %s", out)
	}
	evil := filepath.Join(t.TempDir(), "apt")
	must(t, os.CopyFS(evil, os.DirFS(m.out+"/apt")))
	must(t, swap(evil, "Packages", "1.9.11", "1.9.12"))
	must(t, os.Remove(evil+"/Packages.gz"))
	if out, err := try(evil, m.keys+"/"+pgpPublic); err == nil {
		t.Errorf("a changed list: %s", out)
	}
	must(t, os.Remove(evil+"/InRelease"))
	must(t, os.Remove(evil+"/Release.gpg"))
	if out, err := try(evil, m.keys+"/"+pgpPublic); err == nil {
		t.Errorf("not signed: %s", out)
	}
}

// bill: a module of the patched tree has upstream's version, and the patches that change it.
func (m *made) bill(t *testing.T) {
	f, err := os.Open(filepath.Join(m.out, "sbom/kube-controller-manager.cdx.json"))
	must(t, err)
	defer f.Close()
	var bom cdx.BOM
	must(t, cdx.NewBOMDecoder(f, cdx.BOMFileFormatJSON).Decode(&bom))
	found := map[string]cdx.Component{}
	for _, c := range *bom.Components {
		found[c.PackageURL] = c
	}
	api, main := found["pkg:golang/k8s.io/api@kubernetes-1.9.11"], found["pkg:golang/k8s.io/kubernetes@v1.9.11"]
	if api.Pedigree == nil || main.Pedigree == nil || main.Pedigree.Patches == nil {
		t.Fatalf("%+v %+v", api, main)
	}
	text, err := json.Marshal(main.Pedigree)
	must(t, err)
	has(t, string(text), m.b.base.Sum, "patches/gc-foreign-owner/v1.9.11/", `"gc-foreign-owner"`)
	if strings.Contains(string(text), "kmem-off") || strings.Contains(string(text), "patch-errors") {
		t.Error("the controller manager has a patch of another program")
	}
	if bom.Metadata.Component.PackageURL != "pkg:generic/kube-controller-manager@v1.9.11%2Bholdfast.9" {
		t.Error(bom.Metadata.Component.PackageURL)
	}
}

func (m *made) image(t *testing.T) {
	for name, c := range map[string]struct{ start, layer string }{
		rules:   {`"Entrypoint":["/usr/local/bin/endpoints-rules"]`, "tmp/ usr/ usr/local/ usr/local/bin/ usr/local/bin/endpoints-rules"},
		manager: {"", "tmp/ usr/ usr/local/ usr/local/bin/ usr/local/bin/kube-controller-manager"},
		fleet:   {"", "kubectl-holdfast kubelet"},
	} {
		out, err := shell(t, m.out, "tar -xOf images/"+name+"-amd64.tar manifest.json; f=$(tar -tf images/"+name+"-amd64.tar | grep ^sha256:); tar -xOf images/"+name+"-amd64.tar $f; echo; "+
			"l=$(tar -tf images/"+name+"-amd64.tar | grep gz$); tar -xOf images/"+name+"-amd64.tar $l | tar -tz | xargs echo layer:")
		must(t, err)
		has(t, out, `"holdfast.invalid/`+name+`:v1.9.11_holdfast.9"`, `"created":"2026-11-21T00:00:00Z"`, "layer: "+c.layer+"\n")
		if entry := strings.Contains(out, "Entrypoint"); entry != (name == rules) || entry && !strings.Contains(out, c.start) {
			t.Errorf("%s starts by itself: %v\n%s", name, entry, out)
		}
	}
}

// TestKrew: the sums of the manifest are those of the archives, and it has what krew asks for.
func TestKrew(t *testing.T) {
	b := &builder{source: &source{version: "v1.9.11+holdfast.9"}}
	text := b.krew(map[string]string{"linux-amd64": "1", "linux-arm64": "2", "darwin-arm64": "3"})
	has(t, text, "name: holdfast\n", "version: v1.9.11+holdfast.9\n", "matchLabels: {os: linux, arch: amd64}\n    uri: https://holdfast.invalid/v1.9.11+holdfast.9/kubectl-holdfast-linux-amd64.tar.gz\n    sha256: 1\n",
		"arch: arm64}\n    uri: https://holdfast.invalid/v1.9.11+holdfast.9/kubectl-holdfast-darwin-arm64.tar.gz\n    sha256: 3\n", "bin: kubectl-holdfast\n")
}

// TestSourceArchive: no name of a branch and no other time is in it.
func TestSourceArchive(t *testing.T) {
	root, err := filepath.Abs("..")
	must(t, err)
	b := &builder{source: &source{root: root, version: "v1.9.11+holdfast.9", commit: strings.Repeat("0a", 20), date: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)}, out: t.TempDir()}
	must(t, b.sourceArchive())
	out, err := shell(t, b.out, "tar -xzOf *-source.tar.gz holdfast-1.9.11+holdfast.9/hack/archive-commit; TZ=UTC tar -tvzf *-source.tar.gz | awk '{ print $4 }' | sort -u; tar -tzf *-source.tar.gz | grep -c patches/")
	must(t, err)
	has(t, out, b.commit+" tag: v1.9.11+holdfast.9\n2026-11-21\n")
}
