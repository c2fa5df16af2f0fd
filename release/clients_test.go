// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// krewModule is krew, which the proxy has as a module and the go command checks by its sum.
const krewModule = "sigs.k8s.io/krew/cmd/krew@v0.4.3"

// TestDNF: dnf installs from the signed folder, and refuses one that was changed, that nobody signed,
// or that is of another key.
func TestDNF(t *testing.T) {
	long(t)
	dir := t.TempDir()
	b := signed(t, dir, []string{rpmFormat}, func(version string) string { return standIn(t, version, "") })
	other := filepath.Join(b.work, "other")
	must(t, keygen(other))
	const install = `mkdir repos root
cat >repos/holdfast.repo <<EOF
[holdfast]
name=holdfast
baseurl=file://$DIR/yum
gpgcheck=1
repo_gpgcheck=1
skip_if_unavailable=0
gpgkey=file://$KEY
EOF
dnf="dnf -q -y --installroot=$PWD/root --releasever=7 --setopt=reposdir=$PWD/repos --setopt=cachedir=$PWD/cache --setopt=install_weak_deps=0"
$dnf repoquery kubelet
$dnf install kubectl-holdfast
root/usr/bin/kubectl-holdfast --version
`
	for name, c := range map[string]struct{ key, do, want string }{
		"signed":              {"", "", "kubelet-0:1.9.11+holdfast.10-1.x86_64"},
		"another key":         {filepath.Join(other, pgpPublic), "", "GPG"},
		"an rpm was changed":  {"", "echo x >>yum/kubectl-holdfast-*.rpm", "kubectl-holdfast"},
		"and its sum too":     {"", "rpm --delsign yum/kubectl-holdfast-*.rpm >/dev/null; createrepo_c -q yum", "GPG"},
		"no signature at all": {"", "rm yum/repodata/repomd.xml.asc", "repomd.xml"},
	} {
		t.Run(name, func(t *testing.T) {
			r := filepath.Join(t.TempDir(), "r")
			must(t, os.CopyFS(r, os.DirFS(b.out)))
			if out, err := shell(t, r, c.do); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			key := c.key
			if key == "" {
				key = filepath.Join(r, pgpPublic)
			}
			out, err := shell(t, t.TempDir(), "DIR="+r+" KEY="+key+"\n"+install)
			if (err == nil) != (name == "signed") || !strings.Contains(out, c.want) {
				t.Errorf("%v, want %q\n%s", err, c.want, out)
			}
		})
	}
}

// loads: docker loads each image under the ID that is in it, and its program runs and tells the
// version. dockerd is the test's own, without a network.
func loads(t *testing.T, dir, version string) {
	state := t.TempDir()
	cmd := exec.Command("unshare", "--net", "--kill-child", "--fork", "dockerd", "--data-root="+state+"/data", "--exec-root="+state+"/exec", "--pidfile="+state+"/pid",
		"--host=unix://"+state+"/socket", "--bridge=none", "--iptables=false", "--storage-driver=vfs")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(filepath.Join(state, "log"))
	must(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	must(t, cmd.Start())
	t.Cleanup(func() {
		if pid, err := os.ReadFile(state + "/pid"); err == nil {
			_, _ = shell(t, state, "kill "+strings.TrimSpace(string(pid))) // it stops its containerd
		}
		_ = cmd.Wait()
	})
	end := time.Now().Add(time.Minute)
	for _, err := os.Stat(state + "/socket"); err != nil; _, err = os.Stat(state + "/socket") {
		if time.Now().After(end) {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("dockerd does not start\n%s", text)
		}
		time.Sleep(200 * time.Millisecond)
	}
	for name, program := range map[string]string{manager: manager + " ", rules: "", fleet: "/kubectl-holdfast "} {
		out, err := shell(t, dir, `docker="docker --host=unix://`+state+`/socket"
file=images/`+name+`-amd64.tar
echo "id $(tar -xOf "$file" manifest.json | grep -o 'sha256:[0-9a-f]*' | head -n 1)"
$docker load -q -i "$file"
image=holdfast.invalid/`+name+`:`+strings.ReplaceAll(version, "+", "_")+`
echo "has $($docker image inspect -f '{{.Id}}' "$image")"
$docker run --rm --network=none "$image" `+program+`--version`)
		must(t, err)
		id, _, _ := strings.Cut(strings.TrimPrefix(out, "id "), "\n")
		if len(id) != len("sha256:")+64 || !strings.Contains(out, "has "+id+"\n") || !strings.Contains(out, version+"\n") {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// plugin: krew installs the plugin by the manifest of the release, and refuses another archive.
func plugin(t *testing.T, dir, version string) {
	out, err := shell(t, t.TempDir(), `export KREW_ROOT=$PWD/krew GOBIN=$PWD/bin GOFLAGS=-mod=mod
go install `+krewModule+`
install="bin/krew install --manifest=`+dir+`/krew/holdfast.yaml --archive"
cp '`+dir+`'/kubectl-holdfast-linux-amd64.tar.gz other.tar.gz
echo x >>other.tar.gz
if $install=other.tar.gz; then exit 1; fi
$install='`+dir+`'/kubectl-holdfast-linux-amd64.tar.gz
krew/bin/kubectl-holdfast --version`)
	if err != nil || !strings.Contains(out, version) || !strings.Contains(out, "checksum does not match") {
		t.Errorf("%v\n%s", err, out)
	}
}
