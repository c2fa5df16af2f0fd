// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/cmd/internal/atomicfile"
)

const (
	systemdProgram = "/lib/systemd/systemd"
	kubeletMark    = "\nholdfast test kubelet "
)

// TestMain makes a copy of the test program with a mark at its end a kubelet: it prints its
// version and gates, refuses --api-servers, and answers /healthz.
func TestMain(m *testing.M) {
	if self, err := os.Executable(); err == nil && filepath.Base(self) != "node.test" {
		if b, err := os.ReadFile(self); err == nil {
			if at := bytes.LastIndex(b[max(len(b)-100, 0):], []byte(kubeletMark)); at >= 0 {
				beKubelet(strings.Fields(string(b[max(len(b)-100, 0)+at+len(kubeletMark):])))
			}
		}
	}
	atomicfile.Sync = func(*os.File) error { return nil } // a killed program loses nothing by it
	os.Exit(m.Run())
}

func beKubelet(mark []string) {
	line := flags(os.Args[1:])
	if _, ok := line.value("api-servers"); ok {
		fmt.Println("unknown flag: --api-servers")
		os.Exit(1)
	}
	if _, ok := line.value("version"); ok {
		fmt.Println("Kubernetes " + mark[0])
		os.Exit(0)
	}
	if _, ok := line.value("help"); ok || mark[1] == "exits" {
		os.Exit(1)
	}
	if mark[1] == "stays" {
		signal.Ignore(syscall.SIGTERM)
	}
	http.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	http.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `holdfast_predecessor_info{release="1.7.0",source="api"} 1`)
	})
	fmt.Println(http.ListenAndServe("127.0.0.1:"+line.or("healthz-port", ""), nil))
	os.Exit(1)
}

// TestSystemd swaps under a real systemd, there and back: a user's, in namespaces of its own.
func TestSystemd(t *testing.T) {
	if _, err := os.Stat(systemdProgram); err != nil || os.Getuid() != 0 || testing.Short() {
		t.Skip("it needs root and " + systemdProgram)
	}
	dir := t.TempDir()
	if out, err := exec.Command("unshare", "-mn", "true").CombinedOutput(); err != nil {
		t.Skipf("no namespaces: %v %s", err, out)
	}
	cmd := exec.Command("unshare", "-mn", "sh", "-c", `set -e
for dir in $CGROUPS; do echo $$ > "$dir/cgroup.procs"; done
ip link set lo up
mount --make-rprivate /
mount --make-rshared /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system
exec "$0" -test.run='^TestSystemdInside$' -test.v`, os.Args[0])
	cmd.Env = append(os.Environ(), "CGROUPS="+strings.Join(ownCgroups(t), " "), "HOLDFAST_NODE_SYSTEMD="+dir, "XDG_RUNTIME_DIR="+dir, "XDG_CONFIG_HOME="+dir, "HOME="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: TestSystemdInside") {
		t.Errorf("%s", out)
	}
}

// ownCgroups makes a cgroup for the test in each hierarchy that systemd uses. In the cgroup of
// another test a user's systemd stops that test's kubelet.service, and at its end it removes every
// empty cgroup below the one that it started in.
func ownCgroups(t *testing.T) (dirs []string) {
	const mount = "/sys/fs/cgroup"
	name := "holdfast-test-" + strconv.Itoa(os.Getpid())
	for _, hierarchy := range []string{"", "unified", "systemd"} {
		dir := filepath.Join(mount, hierarchy, name)
		if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "cgroup.procs")); err != nil {
			continue
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	t.Cleanup(func() {
		// systemd makes the same cgroup in other hierarchies.
		for _, pattern := range []string{filepath.Join(mount, name), filepath.Join(mount, "*", name)} {
			made, _ := filepath.Glob(pattern)
			for _, dir := range made {
				if err := removeCgroup(dir); err != nil {
					t.Error(err)
				}
			}
		}
	})
	return dirs
}

// removeCgroup removes a cgroup and those below it, when their processes have ended.
func removeCgroup(dir string) error {
	below, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range below {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for range 100 {
		if err = os.Remove(dir); !errors.Is(err, syscall.EBUSY) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// TestSystemdInside is no test by itself: TestSystemd runs it.
func TestSystemdInside(t *testing.T) {
	dir := os.Getenv("HOLDFAST_NODE_SYSTEMD")
	if dir == "" {
		t.Skip("only inside TestSystemd")
	}
	f := openFake(dir)
	h := thisHost(f.p("lib"))
	real := h.Run
	h.Run = func(ctx context.Context, name string, args ...string) (string, error) {
		if name == "systemctl" {
			args = append([]string{"--user"}, args...)
		}
		return real(ctx, name, args...)
	}
	f.Host = h
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	kubelet := func(name, mark string) { f.write(name, string(self)+kubeletMark+mark) }
	kubelet("usr/bin/kubelet", "v1.7.0 runs")
	kubelet("bad", "v1.9.11+holdfast.2 exits")
	kubelet("new", "v1.9.11+holdfast.2 runs")
	f.write("var/pods/x", "")
	f.write("kubeconfig", kubeconfigOf("http://127.0.0.1:1"))
	f.write("default", "EXTRA=\"--v=2 --x\"\nSECRET="+secret+"\n")
	f.write("systemd/user/lab.target", "[Unit]\nDefaultDependencies=no\n")
	f.write("systemd/user/kubelet.service", "[Unit]\nDefaultDependencies=no\n[Service]\nEnvironment=\"CONF=--kubeconfig="+f.p("kubeconfig")+" --require-kubeconfig=true\"\n"+
		"EnvironmentFile=-"+f.p("default")+"\nExecStart="+f.p("usr/bin/kubelet")+" $CONF --eviction-hard=nodefs.available<1%% \\\n  \"--node-labels=a=b c\" $EXTRA --docker-endpoint=unix://"+f.p("d.sock")+
		" --healthz-port=10248 --root-dir="+f.p("var")+" --read-only-port=10248\nRestart=always\nRestartSec=1\nStandardOutput=append:"+f.p("unit.log")+"\nStandardError=inherit\n")
	l, err := net.Listen("unix", f.p("d.sock"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b := []byte(`{"DockerRootDir":"/tmp"}`)
			if strings.Contains(r.URL.Path, "containers") {
				b = []byte(`[{"Id":"a","Labels":{"` + labelUID + `":"1","` + labelName + `":"app"}}]`)
			}
			_, _ = w.Write(b)
		}))
	}()
	manager := exec.Command(systemdProgram, "--user", "--unit=lab.target")
	if err := manager.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_, _ = h.Run(context.Background(), "systemctl", "stop", "kubelet.service")
		_ = manager.Process.Kill()
	}()
	for range 300 {
		if _, err = h.Run(t.Context(), "systemctl", "start", "kubelet.service"); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	// A busy machine may stand still for seconds; a kubelet that fails is found at once.
	const patience = time.Minute
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if _, err = h.Get(t.Context(), "", "http://127.0.0.1:10248/healthz"); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	m, out := f.check(t)
	for _, found := range m.findings() {
		if found.Code != "HF105" { // this machine may be full
			t.Errorf("%v\n%s", found, out)
		}
	}
	t.Cleanup(func() {
		if b, _ := os.ReadFile(f.p("unit.log")); t.Failed() {
			t.Logf("the unit's log:\n%s", b)
		}
	})
	patient := func(o *Options) { o.HealthTimeout = patience }
	defer func(d time.Duration) { stopTimeout = d }(stopTimeout)
	stopTimeout = patience
	runs := func(release string) {
		t.Helper()
		if out, err := exec.Command(f.p("usr/bin/kubelet"), "--version").Output(); err != nil || strings.TrimSpace(string(out)) != "Kubernetes "+release {
			t.Errorf("%v %s, want %s", err, out, release)
		}
	}
	status, out := f.do(false, patient, func(o *Options) { o.New = f.p("bad") })
	if status != 3 || !strings.Contains(out, "v1.7.0 runs again") {
		t.Errorf("it exits: %d %s", status, out)
	}
	runs("v1.7.0")
	if status, out = f.do(false, patient); status != 0 || !strings.Contains(out, "kept 1, recreated 0") {
		t.Errorf("there: %d %s", status, out)
	}
	runs("v1.9.11+holdfast.2")
	f.write("default", "EXTRA=--api-servers=http://x\n")
	if status, out = f.do(true, patient); status != 3 || !strings.Contains(out, "HF101") {
		t.Errorf("edited: %d %s", status, out)
	}
	f.write("default", "")
	if status, out = f.do(true, patient); status != 0 || !strings.Contains(out, "kept 1, recreated 0") {
		t.Errorf("back: %d %s", status, out)
	}
	runs("v1.7.0")

	// One that ignores SIGTERM is killed long before systemd would do it, after 90 s, and started again.
	const stays = "v1.9.11+holdfast.1"
	kubelet("new", stays+" stays")
	if status, out = f.do(false, patient); status != 0 {
		t.Errorf("to the one that stays: %d %s", status, out)
	}
	stopTimeout = 2 * time.Second
	defer func() { _, _ = h.Run(context.Background(), "systemctl", "kill", "-s", "KILL", "kubelet.service") }()
	began := time.Now()
	if status, out = f.do(true, patient); status != 3 || !strings.Contains(out, stays+" runs again") || time.Since(began) > time.Minute {
		t.Errorf("it stays: %d after %s: %s", status, time.Since(began), out)
	}
	runs(stays)
}
