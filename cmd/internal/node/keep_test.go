// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"holdfast/cmd/internal/atomicfile"
	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/finding"
)

// keep runs node keep for the package of the fake's kubelet.
func (f *fake) keep() (int, string) {
	var out bytes.Buffer
	s := &settings{format: finding.Wide, failOn: finding.FailOn{}}
	cmd := Command()
	cmd.SetOut(&out)
	err := runKeep(context.Background(), f.Host, Options{Unit: "kubelet.service"},
		keepOptions{f.p("usr/bin/kubelet"), f.p("etc/holdfast/skip-check")}, &out, s.print(cmd))
	if err != nil {
		fmt.Fprintln(&out, err)
	}
	return exit.Code(err), strings.Join(strings.Fields(out.String()), " ")
}

const keptFile = "usr/lib/holdfast/kept/v1.7.0/kubelet"

// TestKeepThenBack: what a package manager does between the two, with a kubelet that it stopped.
func TestKeepThenBack(t *testing.T) {
	f := newFake(t)
	f.stop()
	before := f.snapshot()
	if status, out := f.keep(); status != 0 || !strings.Contains(out, "v1.7.0 is kept in ") || f.snapshot() != before {
		t.Fatalf("%d %s", status, out)
	}
	f.write("usr/bin/kubelet", holdfast)
	f.start()
	// The package of the next Holdfast keeps nothing more.
	if status, out := f.keep(); status != 0 || !strings.Contains(out, "v1.7.0 is kept in ") {
		t.Errorf("again: %d %s", status, out)
	}
	f.stop()
	f.write("usr/bin/kubelet", later)
	f.start()
	if f.read(keptFile) != v170 {
		t.Errorf("kept: %q", f.read(keptFile))
	}
	if status, out := f.do(true); status != 0 {
		t.Errorf("back: %d %s", status, out)
	}
	f.is(t, v170)
	if entries, err := os.ReadDir(f.p("usr/lib/holdfast/kept")); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
}

func TestKeepStops(t *testing.T) {
	for name, c := range map[string]struct {
		make func(f *fake)
		want string
		kept bool // skip-check passes it over
	}{
		"flag": {func(f *fake) { f.write("etc/default", "EXTRA=--api-servers=x\n") }, "HF101 Holdfast's kubelet does not accept --api-servers", true},
		"gate": {func(f *fake) { f.write("etc/default", "EXTRA=--feature-gates=AffinityInAnnotations=true\n") }, "Holdfast's kubelet does not accept AffinityInAnnotations", true},
		"standalone": {func(f *fake) {
			f.write("etc/10-kubeadm.conf", "[Service]\nExecStart=\nExecStart="+f.p("usr/bin/kubelet")+"\n")
		}, "HF102", true},
		"not loaded": {func(f *fake) { f.write("changed", "") }, "HF502", true},
		"wrapper":    {func(f *fake) { f.write("usr/bin/kubelet", "#!/bin/sh\n") }, "HF503", true},
		"other file": {func(f *fake) {
			f.write("opt/kubelet", v170)
			f.write("etc/10-kubeadm.conf", strings.Replace(f.read("etc/10-kubeadm.conf"), f.p("usr/bin/kubelet")+" ", f.p("opt/kubelet")+" ", 1))
		}, "HF530", true},
		"disabled": {func(f *fake) {
			run := f.Run
			f.Run = func(ctx context.Context, name string, args ...string) (string, error) {
				out, err := run(ctx, name, args...)
				if name == "systemctl" && args[0] == "show" {
					out += "UnitFileState=disabled\n"
				}
				return out, err
			}
		}, "HF530", true},
		"link": {func(f *fake) {
			_ = os.Rename(f.p("usr/bin/kubelet"), f.p("usr/bin/kubelet-1.7.0"))
			_ = os.Symlink("kubelet-1.7.0", f.p("usr/bin/kubelet"))
		}, "HF503", true},
		// The build of an image: systemctl in a chroot says nothing and ends with 0.
		"chroot": {func(f *fake) {
			run := f.Run
			f.Run = func(ctx context.Context, name string, args ...string) (string, error) {
				if name == "systemctl" {
					return "", nil
				}
				return run(ctx, name, args...)
			}
		}, "HF503", true},
		"no systemd": {func(f *fake) {
			run := f.Run
			f.Run = func(ctx context.Context, name string, args ...string) (string, error) {
				if name == "systemctl" {
					return "", errors.New("Failed to connect to bus")
				}
				return run(ctx, name, args...)
			}
		}, "HF503", true},
		"no room": {func(f *fake) {
			f.Link = func(string, string) error { return errors.New("another file system") }
			atomicfile.Sync = func(*os.File) error { return errors.New("no space left on device") }
		}, "HF504", false},
	} {
		t.Run(name, func(t *testing.T) {
			sync := atomicfile.Sync
			defer func() { atomicfile.Sync = sync }()
			f := newFake(t)
			c.make(f)
			before := f.snapshot()
			status, out := f.keep()
			if status != 3 || !strings.Contains(out, c.want) || !strings.Contains(out, untouched) {
				t.Errorf("%d %s, want 3 with %s", status, out, c.want)
			}
			if f.snapshot() != before || len(f.keptNow()) > 0 {
				t.Errorf("something was touched, or kept: %v", f.keptNow())
			}
			f.write("etc/holdfast/skip-check", "")
			status, out = f.keep()
			if c.kept && (status != 0 || len(f.keptNow()) != 1 || !strings.Contains(f.read("usr/lib/holdfast/journal"), "was ignored: HF")) {
				t.Errorf("skip-check: %d %s, kept %v", status, out, f.keptNow())
			}
			if !c.kept && (status == 0 || len(f.keptNow()) > 0) {
				t.Errorf("skip-check: %d %s, kept %v", status, out, f.keptNow())
			}
		})
	}
}

// keptNow are the kubelets that are kept.
func (f *fake) keptNow() (names []string) {
	entries, _ := os.ReadDir(f.p("usr/lib/holdfast/kept"))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestKeepNothing: a machine without a kubelet and without systemd, such as an image that is built.
func TestKeepNothing(t *testing.T) {
	f := newFake(t)
	f.stop()
	os.Remove(f.p("usr/bin/kubelet"))
	f.Run = func(context.Context, string, ...string) (string, error) { return "", errors.New("no systemd") }
	if status, out := f.keep(); status != 0 || !strings.Contains(out, "nothing to keep") || len(f.keptNow()) > 0 {
		t.Errorf("%d %s", status, out)
	}
}

// TestKeepUnknown: with another runtime than docker the containers cannot be asked for. That is told,
// and is no reason to refuse.
func TestKeepUnknown(t *testing.T) {
	f := newFake(t)
	f.stop()
	f.write("usr/bin/kubelet", strings.Replace(v170, "api-servers", "container-runtime", 1))
	f.write("etc/default", "EXTRA=--container-runtime=remote\n")
	if status, out := f.keep(); status != 0 || !strings.Contains(out, "HF509") || len(f.keptNow()) != 1 {
		t.Errorf("%d %s", status, out)
	}
}

func TestImmutable(t *testing.T) {
	if immutable(os.Args[0]) || immutable("/no/such/file") {
		t.Error("it takes a file that is not for immutable")
	}
}
