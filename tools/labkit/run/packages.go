// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

// DebianPackages are what every lab needs from Debian 12.
var DebianPackages = []string{"etcd-server", "docker.io", "containerd", "runc", "iptables", "conntrack", "iproute2", "procps"}

// InstallPackages installs those of pkgs that are missing. None of their
// services is started: a lab starts its own.
func InstallPackages(ctx context.Context, pkgs []string, out io.Writer) error {
	missing, err := missingPackages(ctx, pkgs)
	if err != nil || len(missing) == 0 {
		return err
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("missing Debian packages: install them as root with apt-get install %s", strings.Join(missing, " "))
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("missing packages %s, and there is no apt-get here: labs are made for Debian 12", strings.Join(missing, " "))
	}
	fmt.Fprintf(out, "install Debian packages: %s\n", strings.Join(missing, " "))
	undo, err := denyServices()
	if err != nil {
		return err
	}
	defer undo()
	install := append([]string{"install", "-y", "--no-install-recommends"}, missing...)
	if aptGet(ctx, install...) == nil {
		return nil
	}
	// The package lists may be old or not there at all.
	if err := aptGet(ctx, "update"); err != nil {
		return err
	}
	return aptGet(ctx, install...)
}

// aptGet waits for another program that installs packages.
func aptGet(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "DPkg::Lock::Timeout=300"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// denyServices has invoke-rc.d refuse to start services until undo is called.
// A policy that is there already is left alone.
func denyServices() (undo func(), err error) {
	const policy = "/usr/sbin/policy-rc.d"
	f, err := os.OpenFile(policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, os.ErrExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString("#!/bin/sh\nexit 101\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(policy) }, nil
}

func missingPackages(ctx context.Context, pkgs []string) ([]string, error) {
	dpkg, err := exec.LookPath("dpkg-query")
	if err != nil {
		return nil, errors.New("there is no dpkg-query: labs are made for Debian 12")
	}
	want := map[string]bool{}
	for _, p := range pkgs {
		want[p] = true
	}
	names := make([]string, 0, len(want))
	for p := range want {
		names = append(names, p)
	}
	// The exit status is 1 when one is unknown; the output still has the rest.
	out, _ := exec.CommandContext(ctx, filepath.Clean(dpkg), append([]string{"-W", "-f=${Package} ${db:Status-Status}\n"}, names...)...).Output()
	for _, l := range strings.Split(string(out), "\n") {
		if p, ok := strings.CutSuffix(l, " installed"); ok {
			delete(want, p)
		}
	}
	var missing []string
	for p := range want {
		missing = append(missing, p)
	}
	sort.Strings(missing)
	return missing, nil
}
