// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

const (
	maintainer = "Holdfast developers <developers@holdfast.invalid>"
	homepage   = "https://holdfast.invalid"
)

// The formats of packages, and the folder of each, which is a repository of apt or yum.
const (
	debFormat = "deb"
	rpmFormat = "rpm"
)

var folders = map[string]string{debFormat: "apt", rpmFormat: "yum"}

// packages writes the packages kubelet and kubectl-holdfast into OUT/apt and OUT/yum. kubelet and
// operators are their programs' files.
func (b *builder) packages(kubelet, operators string) error {
	for _, format := range []string{debFormat, rpmFormat} {
		if err := b.packagesOf(format, kubelet, operators); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) packagesOf(format, kubelet, operators string) error {
	for _, info := range []*nfpm.Info{b.operatorsPackage(format, operators), b.kubeletPackage(format, kubelet)} {
		if err := b.write(format, info); err != nil {
			return fmt.Errorf("package %s, %s: %w", info.Name, format, err)
		}
	}
	return nil
}

func (b *builder) kubeletPackage(format, program string) *nfpm.Info {
	info := b.info("kubelet", "Kubernetes node agent", "Drop-in for the package kubelet of upstream's "+b.base.Version+", with Holdfast's patches.\nlinux/amd64, glibc 2.17 or later.")
	script := func(name string) string { return filepath.Join(b.root, "release/packaging", name) }
	add := func(c *files.Content) { info.Contents = append(info.Contents, c) }
	add(b.file(program, "/usr/bin/kubelet", 0o755))
	// What upstream's package of 2017-12 depends on; kubernetes-cni only as a recommendation,
	// since plugins that a swap changes cannot be taken back.
	if format == debFormat {
		info.Depends = []string{"iptables (>= 1.4.21)", "iproute2", "socat", "mount", "ebtables", "ethtool", "libc6 (>= 2.17)"} // util-linux is essential
		info.Recommends = []string{"kubernetes-cni"}
		info.Deb.Predepends = []string{fmt.Sprintf("kubectl-holdfast (>= %s-1)", b.plain())}
		info.Scripts = nfpm.Scripts{PreInstall: script("kubelet.preinst"), PostInstall: script("kubelet.postinst"), PreRemove: script("kubelet.prerm"), PostRemove: script("kubelet.postrm")}
		add(b.file(script("kubelet.service"), "/lib/systemd/system/kubelet.service", 0o644))
		add(b.file(script("lintian-overrides"), "/usr/share/lintian/overrides/kubelet", 0o644))
		return info
	}
	info.Depends = []string{"iptables >= 1.4.21", "iproute", "socat", "util-linux", "ebtables", "ethtool", "kubectl-holdfast >= " + b.plain()}
	info.Recommends = nil // rpm of EL7 knows no such tag
	info.Scripts = nfpm.Scripts{PreInstall: script("rpm.pre"), PostInstall: script("rpm.post")}
	unit := b.file(script("kubelet.service"), "/etc/systemd/system/kubelet.service", 0o644)
	unit.Type = files.TypeConfigNoReplace
	add(unit)
	// Upstream's rpm owns it: without it here an upgrade removes it where it is empty.
	add(&files.Content{Destination: "/etc/kubernetes/manifests", Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: b.date}})
	return info
}

func (b *builder) operatorsPackage(format, program string) *nfpm.Info {
	info := b.info("kubectl-holdfast", "checks, swaps and forecasts kubelets of old Kubernetes releases", "The program of Holdfast's operators, also a plugin of kubectl.")
	info.Contents = append(info.Contents, b.file(program, "/usr/bin/kubectl-holdfast", 0o755))
	if format == debFormat {
		info.Contents = append(info.Contents, b.file(filepath.Join(b.root, "release/packaging/lintian-overrides-kubectl-holdfast"), "/usr/share/lintian/overrides/kubectl-holdfast", 0o644))
	}
	return info
}

func (b *builder) info(name, summary, about string) *nfpm.Info {
	info := &nfpm.Info{
		Name: name, Arch: "amd64", Platform: "linux", Version: b.plain(), VersionSchema: "none", Release: "1",
		Section: "admin", Priority: "optional", Maintainer: maintainer, Vendor: "Holdfast", Homepage: homepage, License: "Apache-2.0",
		Description: summary + "\n" + about, MTime: b.date, DisableGlobbing: true,
	}
	info.Deb.Compression, info.RPM.Compression = "gzip", "gzip"
	info.RPM.BuildHost, info.RPM.Summary, info.RPM.Packager, info.RPM.Group = "holdfast.invalid", summary, maintainer, "System Environment/Base"
	return info
}

func (b *builder) file(from, to string, mode os.FileMode) *files.Content {
	return &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: b.date}}
}

// write writes a package into its folder.
func (b *builder) write(format string, info *nfpm.Info) error {
	var packager nfpm.Packager = deb.Default
	if format == debFormat {
		info.Contents = append(info.Contents, b.file(filepath.Join(b.root, "release/packaging/copyright"), "/usr/share/doc/"+info.Name+"/copyright", 0o644))
		log := filepath.Join(b.work, info.Name+"-changelog.yml")
		text := fmt.Sprintf("- semver: %q\n  date: %s\n  packager: %s\n  changes:\n    - note: see docs/user/changes.md\n", b.plain()+"-1", b.date.Format(time.RFC3339), maintainer)
		if err := os.WriteFile(log, []byte(text), 0o644); err != nil {
			return err
		}
		info.Changelog = log
	} else {
		packager = rpm.DefaultRPM
		if b.keys != nil {
			info.RPM.Signature.SignFn = b.keys.detached
		}
	}
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	return b.create(filepath.Join(folders[format], packager.ConventionalFileName(info)), func(f *os.File) error { return packager.Package(info, f) })
}
