// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goreleaser/nfpm/v2/files"
)

// releases are what the machines find at /release: r9 and r10 of Holdfast, signed; stock.deb and
// stock.rpm in the form of upstream's; and packages with a defect. The kubelets are stand-ins,
// kubectl-holdfast is the real one.
func releases(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	b := signed(t, dir, []string{debFormat, rpmFormat}, func(version string) string { return standIn(t, version, "") })
	defects(t, b, dir)
	must(t, keygen(filepath.Join(b.work, "other")))
	must(t, exec.Command("cp", filepath.Join(b.work, "other", pgpPublic), filepath.Join(dir, "other.asc")).Run())
	stock := filepath.Join(b.work, "stock")
	form(t, stock)
	must(t, swap(stock, "DEBIAN/control", "VERSION", "1.7.16-00"))
	must(t, os.MkdirAll(filepath.Join(stock, "usr/bin"), 0o755))
	program := standIn(t, old, "api-servers")
	must(t, exec.Command("cp", program, filepath.Join(stock, "usr/bin/kubelet")).Run())
	if out, err := exec.Command("dpkg-deb", "--root-owner-group", "-b", stock, filepath.Join(dir, "stock.deb")).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	// Other recipes of upstream's have no prerm.
	must(t, os.Remove(filepath.Join(stock, "DEBIAN/prerm")))
	if out, err := exec.Command("dpkg-deb", "--root-owner-group", "-b", stock, filepath.Join(dir, "stock-runs-on.deb")).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	stockRPM(t, b, program, filepath.Join(stock, "lib/systemd/system/kubelet.service"), filepath.Join(dir, "stock.rpm"))
	must(t, exec.Command("chmod", "-R", "a+rX", dir).Run())
	return dir
}

// signed writes the releases +holdfast.9 and .10 into the folders r9 and r10 of dir, with a key of
// their own. It returns the builder of the last one.
func signed(t *testing.T, dir string, formats []string, program func(version string) string) *builder {
	t.Helper()
	work := t.TempDir()
	root, err := filepath.Abs("..")
	must(t, err)
	pass := filepath.Join(work, "pass")
	must(t, os.WriteFile(pass, []byte("a long passphrase\n"), 0o600))
	t.Setenv("HOLDFAST_PASSPHRASE_FILE", pass)
	must(t, keygen(filepath.Join(work, "keys")))
	k, err := openKeys(filepath.Join(work, "keys"))
	must(t, err)
	base, err := readBase(root, "")
	must(t, err)
	var b *builder
	for i, n := range []string{"9", "10"} {
		b = &builder{source: &source{root: root, base: base, version: "v1.9.11+holdfast." + n, date: time.Date(2026, 11, 21+i, 0, 0, 0, 0, time.UTC)},
			out: filepath.Join(dir, "r"+n), work: work, keys: k}
		tool, err := b.compile("cmd", operators, "linux", "amd64")
		must(t, err)
		for _, format := range formats {
			must(t, b.packagesOf(format, program(b.version), tool))
			must(t, map[string]func() error{debFormat: b.apt, rpmFormat: b.yum}[format]())
		}
		must(t, b.publicKeys())
	}
	return b
}

// form writes a deb, unpacked, in the form of upstream's of 2017: its prerm stops the kubelet, its
// postinst enables and starts it. The program is not in it, and its version is VERSION.
func form(t *testing.T, dir string) {
	t.Helper()
	unit := "[Unit]\nDescription=kubelet\n\n[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\nStartLimitInterval=0\nRestartSec=10\n\n[Install]\nWantedBy=multi-user.target\n"
	for file, text := range map[string]string{
		"DEBIAN/control":                     "Package: kubelet\nVersion: VERSION\nArchitecture: amd64\nMaintainer: a test <test@holdfast.invalid>\nDepends: iptables (>= 1.4.21), iproute2, socat, util-linux, mount, ebtables, ethtool\nDescription: in the form of upstream's\n",
		"DEBIAN/postinst":                    "#!/bin/sh\nset -e\nmkdir -p /etc/kubernetes/manifests\ndeb-systemd-helper unmask kubelet.service >/dev/null || true\ndeb-systemd-helper enable kubelet.service >/dev/null || true\nif [ -d /run/systemd/system ]; then systemctl --system daemon-reload; deb-systemd-invoke start kubelet.service || true; fi\n",
		"DEBIAN/prerm":                       "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then deb-systemd-invoke stop kubelet.service; fi\n",
		"lib/systemd/system/kubelet.service": unit,
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
		mode := os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), mode))
	}
}

// stockRPM writes an rpm in the form of upstream's of 2017, which owns the folder of static pods.
func stockRPM(t *testing.T, b *builder, program, unit, file string) {
	t.Helper()
	info := b.info("kubelet", "in the form of upstream's", "in the form of upstream's")
	info.Version, info.Release = "1.7.16", "0"
	info.Contents = append(info.Contents, b.file(program, "/usr/bin/kubelet", 0o755), b.file(unit, "/etc/systemd/system/kubelet.service", 0o644),
		&files.Content{Destination: manifests, Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: b.date}})
	must(t, b.write(rpmFormat, info))
	written, err := filepath.Glob(filepath.Join(b.out, "yum/kubelet-1.7.16*.rpm"))
	if err != nil || len(written) != 1 {
		t.Fatalf("%v %v", written, err)
	}
	must(t, exec.Command("mv", written[0], file).Run())
}

// defects writes packages of the kubelet into folders of DIR, each without one thing that the real one has,
// and one for another architecture. A test must find each.
func defects(t *testing.T, b *builder, dir string) {
	t.Helper()
	program := standIn(t, b.version, "")
	of := *b
	of.out = filepath.Join(dir, "no-pre-depends")
	info := of.kubeletPackage(debFormat, program)
	info.Deb.Predepends = nil
	must(t, of.write(debFormat, info))
	must(t, of.apt())
	must(t, of.publicKeys())

	of.out = filepath.Join(dir, "arm64")
	info = of.kubeletPackage(debFormat, program)
	info.Arch = "arm64"
	must(t, of.write(debFormat, info))

	of.out = filepath.Join(dir, "link-in-var")
	info = of.kubeletPackage(debFormat, program)
	script, err := os.ReadFile(info.Scripts.PreInstall)
	must(t, err)
	link := filepath.Join(b.work, "preinst")
	must(t, os.WriteFile(link, append(script, "mkdir -p /var/lib/holdfast\nln /usr/bin/kubelet /var/lib/holdfast/kubelet\n"...), 0o644))
	info.Scripts.PreInstall = link
	must(t, of.write(debFormat, info))

	of.out = filepath.Join(dir, "no-manifests")
	info = of.kubeletPackage(rpmFormat, program)
	info.Contents = slices.DeleteFunc(info.Contents, func(c *files.Content) bool { return c.Destination == manifests })
	must(t, of.write(rpmFormat, info))
}

// standIn is testdata/kubelet of a version.
func standIn(t *testing.T, version, more string) string {
	file := filepath.Join(t.TempDir(), "kubelet")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-X=main.version="+version+" -X=main.more="+more, "-o", file, "./testdata/kubelet")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return file
}
