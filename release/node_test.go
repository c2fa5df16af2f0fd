// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// long keeps a test out of make test: it needs root, a Debian that is downloaded, and minutes.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("HOLDFAST_RELEASE") != "long" {
		t.Skip("only with HOLDFAST_RELEASE=long (make release-check)")
	}
	if os.Geteuid() != 0 {
		t.Fatal("it makes namespaces and runs dpkg: run it as root")
	}
}

// debian is a Debian 12 with systemd and what the package kubelet depends on, made once.
func debian(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../_output/cache/debian-12")
	must(t, err)
	if _, err := os.Stat(root); err == nil {
		return root
	}
	must(t, os.MkdirAll(filepath.Dir(root), 0o755))
	must(t, os.RemoveAll(root+".part"))
	out, err := exec.Command("mmdebstrap", "--variant=minbase", "--format=dir",
		"--include=systemd,systemd-sysv,dbus,iproute2,iptables,socat,ebtables,ethtool,util-linux,mount,e2fsprogs,rpm", "bookworm", root+".part").CombinedOutput()
	if err != nil {
		t.Fatalf("mmdebstrap: %v\n%s", err, out)
	}
	must(t, os.Rename(root+".part", root))
	return root
}

// machine is a Debian of its own whose process 1 is systemd, in namespaces, without a network.
type machine struct {
	t    *testing.T
	root string
	cmd  *exec.Cmd
}

// boot mounts a machine's root, enters cgroups of its own, and becomes its systemd.
const boot = `
for c in /sys/fs/cgroup/*/; do
  mkdir -p "$c$NAME"
  if [[ -e ${c}cpuset.cpus ]]; then
    cat "${c}cpuset.cpus" >"$c$NAME/cpuset.cpus"
    cat "${c}cpuset.mems" >"$c$NAME/cpuset.mems"
  fi
  echo $$ >"$c$NAME/cgroup.procs"
done
exec unshare --cgroup --mount --uts --ipc --net --pid --fork --kill-child bash -euo pipefail -c '
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$DIR/upper,workdir=$DIR/work" "$ROOT"
mount --make-rshared "$ROOT"
mount -t proc proc "$ROOT/proc"
mount -t sysfs sysfs "$ROOT/sys"
mount -t tmpfs cgroup "$ROOT/sys/fs/cgroup"
mkdir "$ROOT/sys/fs/cgroup/systemd"
mount -t cgroup -o none,name=systemd cgroup "$ROOT/sys/fs/cgroup/systemd"
mount -t tmpfs run -o mode=755 "$ROOT/run"
mount -t tmpfs dev -o mode=755 "$ROOT/dev"
for d in null zero random urandom; do
  touch "$ROOT/dev/$d"
  mount --bind "/dev/$d" "$ROOT/dev/$d"
done
ln -s null "$ROOT/dev/console"
ln -s /proc/self/fd "$ROOT/dev/fd"
if [[ -n $VAR ]]; then
  mkdir -p "$DIR/var"
  mount -t tmpfs var "$DIR/var"
  cp -a "$ROOT/var/." "$DIR/var/"
  mount --bind "$DIR/var" "$ROOT/var"
fi
mkdir -p "$ROOT/release"
mount --bind "$RELEASES" "$ROOT/release"
ip link set lo up
hostname node1
printf "[Unit]\nDescription=node of a test\nRequires=basic.target\nAfter=basic.target\n" >"$ROOT/etc/systemd/system/lab.target"
# As the release agent of cgroup v1, which is one for the whole computer: a service has no process left.
while sleep 0.2; do
  for f in "$ROOT"/sys/fs/cgroup/systemd/system.slice/*.service/cgroup.procs; do
    if [[ -e $f && -z $(<"$f") ]]; then
      printf "/system.slice/%s" "$(basename "$(dirname "$f")")" | chroot "$ROOT" socat -u - UNIX-SENDTO:/run/systemd/cgroups-agent || true
    fi
  done
done 2>/dev/null &
export container=holdfast-test
exec chroot "$ROOT" /lib/systemd/systemd --system --unit=lab.target --log-target=null systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1
'
`

// newMachine starts one. releases is mounted at /release; ownVar gives /var a file system of its own.
func newMachine(t *testing.T, releases string, ownVar bool) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{t: t, root: filepath.Join(dir, "root")}
	for _, d := range []string{"root", "upper", "work"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	name := fmt.Sprintf("holdfast-package-%d-%d", os.Getpid(), time.Now().UnixNano())
	m.cmd = exec.Command("bash", "-euo", "pipefail", "-c", boot)
	m.cmd.Env = append(os.Environ(), "NAME="+name, "LOWER="+debian(t), "DIR="+dir, "ROOT="+m.root, "RELEASES="+releases, "VAR="+map[bool]string{true: "1"}[ownVar])
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	m.cmd.Stdout, m.cmd.Stderr = log, log
	must(t, m.cmd.Start())
	t.Cleanup(func() {
		_ = m.cmd.Process.Kill() // --kill-child ends systemd, and the kernel its namespace
		_ = m.cmd.Wait()
		time.Sleep(time.Second)
		groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
		for _, g := range groups {
			_ = exec.Command("find", g, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+").Run()
		}
	})
	end := time.Now().Add(time.Minute)
	for {
		if out, err := m.try("systemctl is-active lab.target"); err == nil {
			return m
		} else if time.Now().After(end) {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("systemd does not start: %v %s\n%s", err, out, text)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// try runs a script in the machine.
func (m *machine) try(script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", m.cmd.Process.Pid, m.cmd.Process.Pid))
	pid := strings.TrimSpace(string(raw))
	if err != nil || pid == "" {
		return "", fmt.Errorf("the machine does not run: %v", err)
	}
	cmd := exec.CommandContext(ctx, "nsenter", "--target", pid, "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "env", "--chdir=/", "bash", "-euo", "pipefail", "-c", script)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "HOME=/tmp"}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run is try for what must not fail.
func (m *machine) run(script string) string {
	m.t.Helper()
	out, err := m.try(script)
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}
