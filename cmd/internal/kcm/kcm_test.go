// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kcm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"holdfast/cmd/internal/atomicfile"
	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/mutate"
)

const secret = "hunter2secret"

// kubeadm is a manifest as kubeadm writes it, with a secret in it.
const kubeadm = `apiVersion: v1
kind: Pod
metadata:
  annotations:
    scheduler.alpha.kubernetes.io/critical-pod: ""
  creationTimestamp: null
  labels:
    component: kube-controller-manager
  name: kube-controller-manager
  namespace: kube-system
spec:
  containers:
  - command:
    - kube-controller-manager
    - --kubeconfig=/etc/kubernetes/controller-manager.conf
    - --use-service-account-credentials=true
    - --leader-elect=true
    env:
    - name: PASSWORD
      value: ` + secret + `
    image: gcr.io/google_containers/kube-controller-manager-amd64:v1.9.11
    name: kube-controller-manager
    resources:
      requests:
        cpu: 200m
    volumeMounts:
    - mountPath: /etc/kubernetes/pki
      name: k8s-certs
      readOnly: true
  hostNetwork: true
  volumes:
  - hostPath:
      path: /etc/kubernetes/pki
      type: DirectoryOrCreate
    name: k8s-certs
status: {}
`

// master is a folder with manifests/kcm.yaml and a binary that answers as one.
type master struct {
	t            *testing.T
	file, binary string
}

func newMaster(t *testing.T, manifest string) *master {
	dir := t.TempDir()
	m := &master{t, filepath.Join(dir, "manifests", "kcm.yaml"), filepath.Join(dir, "kube-controller-manager")}
	if err := os.Mkdir(filepath.Join(dir, "manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.write(m.file, manifest, 0o600)
	m.write(m.binary, "#!/bin/sh\nfor a; do [ \"$a\" != --bad ] || exit 1; done\necho Kubernetes v1.9.11+holdfast.2\n", 0o755)
	return m
}

func (m *master) write(file, text string, mode os.FileMode) {
	m.t.Helper()
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		m.t.Fatal(err)
	}
}

func (m *master) read() string {
	m.t.Helper()
	b, err := os.ReadFile(m.file)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

func execute(t testing.TB, args ...string) (string, int) {
	t.Helper()
	cmd := Command()
	cmd.SetContext(t.Context())
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.Execute()
	if err != nil {
		fmt.Fprintln(&out, err)
	}
	if strings.Contains(out.String(), secret) {
		t.Errorf("%q shows a secret:\n%s", args, &out)
	}
	return out.String(), exit.Code(err)
}

func (m *master) run(args ...string) (string, int) {
	return execute(m.t, slices.Concat([]string{args[0], m.file, "--binary", m.binary}, args[1:])...)
}

// There and back, as kubeadm, hyperkube and kops write the command: what comes back is what was there.
func TestManifest(t *testing.T) {
	words := "    - kube-controller-manager\n"
	for name, c := range map[string]struct{ manifest, path, command string }{
		"kubeadm":   {kubeadm, image, words},
		"full path": {strings.Replace(kubeadm, words, "    - /usr/bin/kube-controller-manager\n", 1), "/usr/bin/kube-controller-manager", "    - /usr/bin/kube-controller-manager\n"},
		"hyperkube": {strings.NewReplacer(words, "    - /hyperkube\n    - controller-manager\n", "kube-controller-manager-amd64:", "hyperkube-amd64:").Replace(kubeadm), image, "    - " + image + "\n"},
		"shell": {strings.Replace(kubeadm, words, "    - /bin/sh\n    - -c\n    - /usr/local/bin/kube-controller-manager --v=2 2>&1 | tee /kcm.log\n", 1),
			image, "    - /usr/local/bin/kube-controller-manager --v=2 2>&1"},
		"no volumes": {strings.NewReplacer("    volumeMounts:\n    - mountPath: /etc/kubernetes/pki\n      name: k8s-certs\n      readOnly: true\n", "",
			"  volumes:\n  - hostPath:\n      path: /etc/kubernetes/pki\n      type: DirectoryOrCreate\n    name: k8s-certs\n", "").Replace(kubeadm), image, words},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMaster(t, c.manifest)
			if out, status := m.run("manifest", "--dry-run"); status != 0 || !strings.Contains(out, "+      path: "+m.binary) || m.read() != c.manifest {
				t.Errorf("dry run: %d\n%s", status, out)
			}
			out, status := m.run("manifest")
			got := m.read()
			if status != 0 || !strings.Contains(got, "    - mountPath: "+c.path+"\n      name: holdfast\n      readOnly: true\n") ||
				!strings.Contains(got, "  - hostPath:\n      path: "+m.binary+"\n      type: File\n    name: holdfast\n") || !strings.Contains(got, c.command) {
				t.Fatalf("%d\n%s\n%s", status, out, got)
			}
			if s, err := os.Stat(m.file); err != nil || s.Mode().Perm() != 0o600 {
				t.Errorf("mode %v %v", s.Mode(), err)
			}
			if b, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(m.file)), "kcm.yaml.before-holdfast")); err != nil || string(b) != c.manifest {
				t.Errorf("kept: %v\n%s", err, b)
			}
			if list, err := os.ReadDir(filepath.Dir(m.file)); err != nil || len(list) != 1 {
				t.Errorf("the manifests folder has %v %v", list, err)
			}
			if out, status := m.run("manifest"); status != 0 || !strings.Contains(out, untouched) || m.read() != got {
				t.Errorf("again: %d\n%s", status, out)
			}
			if out, status := m.run("manifest", "--back"); status != 0 || m.read() != c.manifest {
				t.Errorf("back: %d\n%s\n%s", status, out, strings.Join(diff(c.manifest, m.read()), "\n"))
			}
			if out, status := m.run("manifest", "--back"); status != 0 || !strings.Contains(out, untouched) {
				t.Errorf("back again: %d\n%s", status, out)
			}
		})
	}
}

// What must stop it, with the code, and the file as it was.
func TestManifestStops(t *testing.T) {
	for name, c := range map[string]struct {
		code string
		make func(m *master)
		args []string
	}{
		"no pod": {"HF521", func(m *master) { m.write(m.file, "kind: Service\n", 0o600) }, nil},
		"HTML":   {"HF521", func(m *master) { m.write(m.file, "<html>", 0o600) }, nil},
		"another program": {"HF521", func(m *master) {
			m.write(m.file, strings.Replace(kubeadm, "- kube-controller-manager\n", "- kube-scheduler\n", 1), 0o600)
		}, nil},
		"hyperkube in a shell": {"HF521", func(m *master) {
			m.write(m.file, strings.Replace(kubeadm, "- kube-controller-manager\n", "- sh\n    - -c\n    - /hyperkube controller-manager --v=2\n", 1), 0o600)
		}, nil},
		"a mount there": {"HF521", func(m *master) {
			m.write(m.file, strings.Replace(kubeadm, "mountPath: /etc/kubernetes/pki", "mountPath: "+image, 1), 0o600)
		}, nil},
		"no file":        {"HF522", func(m *master) { os.Remove(m.binary) }, nil},
		"not executable": {"HF522", func(m *master) { os.Chmod(m.binary, 0o644) }, nil},
		"stock":          {"HF522", func(m *master) { m.write(m.binary, "#!/bin/sh\necho Kubernetes v1.9.11\n", 0o755) }, nil},
		"endless":        {"HF522", func(m *master) { m.write(m.binary, "#!/bin/sh\nyes Kubernetes v1.9.11\n", 0o755) }, nil},
		"unknown flag": {"HF523", func(m *master) {
			m.write(m.file, strings.Replace(kubeadm, "--leader-elect=true", "--api-servers="+secret, 1), 0o600)
		}, nil},
		"refused by the file": {"HF523", func(m *master) { m.write(m.file, strings.Replace(kubeadm, "--leader-elect=true", "--bad", 1), 0o600) }, nil},
		"a gate, back": {"HF523", func(m *master) {
			m.run("manifest")
			m.write(m.file, strings.Replace(m.read(), "--leader-elect=true", "--feature-gates=UniqueLeaseIdentity=false", 1), 0o600)
		}, []string{"--back"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMaster(t, kubeadm)
			c.make(m)
			before := m.read()
			out, status := m.run(append([]string{"manifest"}, c.args...)...)
			if status != exit.Found || !strings.Contains(out, c.code) || !strings.Contains(out, untouched) || m.read() != before {
				t.Errorf("status %d\n%s", status, out)
			}
		})
	}
	m := newMaster(t, kubeadm)
	for _, args := range [][]string{{"manifest", m.file}, {"manifest", m.file, "--binary", "kcm"}, {"manifest", "--binary", "/kcm"}, {"check", m.file, "x", "--binary", "/kcm"}, {"wait", "x"}, {"wait", "--timeout", "0s"}, {"swap"}} {
		if out, status := execute(t, args...); status != exit.Usage {
			t.Errorf("%q: %d %s", args, status, out)
		}
	}
	link := filepath.Join(filepath.Dir(m.file), "link.yaml")
	if err := os.Symlink(m.file, link); err != nil {
		t.Fatal(err)
	}
	if out, status := execute(t, "manifest", link, "--binary", m.binary); status != exit.Failed || m.read() != kubeadm {
		t.Errorf("a link: %d %s", status, out)
	}
}

// TestMain is the program that TestKilled kills.
func TestMain(main *testing.M) {
	atomicfile.Sync = func(*os.File) error { return nil } // a killed program loses nothing by it
	if file := os.Getenv("KCM_KILLED"); file != "" {
		at := 0
		atomicfile.Sync = func(*os.File) error {
			if at++; os.Getenv("KCM_AT") == fmt.Sprint(at) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			return nil
		}
		cmd := Command()
		cmd.SetArgs([]string{"manifest", file, "--binary", os.Getenv("KCM_BINARY")})
		os.Exit(exit.Code(cmd.ExecuteContext(context.Background())))
	}
	os.Exit(main.Run())
}

// The program is killed with each file written and not yet renamed: the manifest is the old one, the
// folder has nothing else, and the next run ends it.
func TestKilled(t *testing.T) {
	killed := 0
	for at := 1; at < 9; at++ {
		m := newMaster(t, kubeadm)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "KCM_KILLED="+m.file, "KCM_BINARY="+m.binary, "KCM_AT="+fmt.Sprint(at))
		err := cmd.Run()
		if err == nil {
			if !strings.Contains(m.read(), "name: holdfast") {
				t.Error("it ended, and the manifest is not written")
			}
			break
		}
		killed++
		if list, e := os.ReadDir(filepath.Dir(m.file)); e != nil || len(list) != 1 || m.read() != kubeadm {
			t.Errorf("killed at %d: %v, %v\n%s", at, list, e, m.read())
		}
		if out, status := m.run("manifest"); status != 0 || !strings.Contains(m.read(), "name: holdfast") {
			t.Errorf("killed at %d, then %d %s", at, status, out)
		}
	}
	if killed != 2 {
		t.Errorf("killed at %d points", killed)
	}
}

// The disk is full: nothing changes, and nothing is left.
func TestDiskFull(t *testing.T) {
	defer func(f func(*os.File) error) { atomicfile.Sync = f }(atomicfile.Sync)
	atomicfile.Sync = func(*os.File) error { return syscall.ENOSPC }
	m := newMaster(t, kubeadm)
	out, status := m.run("manifest")
	if list, err := os.ReadDir(filepath.Dir(filepath.Dir(m.file))); err != nil || len(list) != 2 || status != exit.Failed || m.read() != kubeadm {
		t.Errorf("%d %s: %v %v", status, out, list, err)
	}
}

// Each code of the table is given by a test here.
func TestCodes(t *testing.T) {
	var b []byte
	for _, file := range []string{"kcm_test.go", "check_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, text...)
	}
	for _, c := range finding.Codes() {
		if slices.Contains(c.By, "kcm check") && !bytes.Contains(b, []byte(c.Code)) {
			t.Errorf("no test gives %s", c.Code)
		}
	}
}

// A manifest may be anything: nothing panics, and what is swapped in goes out again.
func TestBadManifests(t *testing.T) {
	read := 0
	mutate.Texts(10_000, kubeadm, func(s string) {
		if mangled(t, []byte(s)) {
			read++
		}
	})
	if read < 500 {
		t.Errorf("only %d could be read: the test tests little", read)
	}
}

// mangled parses what may be anything, swaps, and goes back.
func mangled(t testing.TB, b []byte) (read bool) {
	p, err := parse("x", b)
	if err != nil {
		return false
	}
	if p.swap("/opt/kcm") == nil {
		if len(p.mounted("/opt/kcm")) != 1 {
			t.Errorf("no mount in %q", b)
		}
		p.back("/opt/kcm")
		if len(p.mounted("/opt/kcm")) != 0 {
			t.Errorf("still mounted in %q", b)
		}
	}
	if _, err := p.yaml(); err != nil {
		t.Error(err)
	}
	return true
}
