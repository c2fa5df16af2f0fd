// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upgraderunbook

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A kubelet that does not stay up is replaced by the one that ran before, at once.
func TestOursEnds(t *testing.T) {
	n := newShellNode(t)
	n.write("new", fakeKubelet("v1.9.11+holdfast.2", "1", "X"))
	n.must(n.blocks[1])
	if out, err := n.run(n.blocks[2]); err == nil || !strings.Contains(out, "is put back") {
		t.Errorf("%v: %s", err, out)
	}
	n.is("v1.7.0", true)
	n.write("new", fakeKubelet("v1.9.11+holdfast.3", "0", "X"))
	n.forward()
	n.is("v1.9.11+holdfast.3", true)
	n.write("new", fakeKubelet("v1.9.11+holdfast.4", "1", "X"))
	if out, err := n.run(n.blocks[2]); err == nil {
		t.Errorf("no error: %s", out)
	}
	n.is("v1.9.11+holdfast.3", true) // not the one before ours
	n.back()
	n.is("v1.7.0", true)
}

// A kubelet that runs, but not with the unit's flags, or is not healthy, is replaced, too.
func TestOursIsNotHealthy(t *testing.T) {
	n := newShellNode(t)
	good := fakeSystemctl
	n.write("bin/systemctl", strings.Replace(good, `"$KUBELET" "${flags[@]}" >`, `"$KUBELET" --other >`, 1))
	if out, err := n.run(n.blocks[2]); err == nil || !strings.Contains(out, "does not run with the unit's flags") {
		t.Errorf("other flags: %v: %s", err, out)
	}
	n.is("v1.7.0", true)
	n.write("bin/systemctl", good)

	healthy := false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" || !healthy {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte("ok"))
	}))
	defer s.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	n.unit("--healthz-port=" + port)
	if out, err := n.run(n.blocks[2]); err == nil || !strings.Contains(out, "answer /healthz") {
		t.Errorf("not healthy: %v: %s", err, out)
	}
	n.is("v1.7.0", true)
	healthy = true
	n.forward()
	n.is("v1.9.11+holdfast.2", true)
}

// The check takes the unit as it is on disk, also while no kubelet runs: what was changed
// counts before any restart.
func TestUnitOnDisk(t *testing.T) {
	n := newShellNode(t)
	n.unit("--feature-gates=LegacyContainerHashWrite=true")
	n.refused(n.blocks[1], "does not know the feature gate LegacyContainerHashWrite")
	n.unit("--require-kubeconfig=false")
	n.forward()
	n.unit("--feature-gates=LegacyContainerHashWrite=true")
	n.refused(n.blocks[3], "does not know the feature gate")
	n.refused(n.blocks[4], "does not know the feature gate")
	n.must("systemctl stop kubelet")
	n.refused(n.blocks[3], "does not know the feature gate")
	n.unit()
	n.must(n.blocks[3])
	n.is("v1.9.11+holdfast.2", false)
}

// The unit from which systemd expands the command line has the kubelet's environment, and
// the last of its command lines, also over several lines.
func TestUnitOfTheCheck(t *testing.T) {
	n := newShellNode(t)
	n.write("bin/systemctl", `#!/bin/bash
case "$*" in
"cat kubelet") cat "$MACHINE/unit" ;;
"start kubelet-flags-ok") cp "$MACHINE/run/systemd/system/kubelet-flags-ok.service" "$MACHINE/seen"; exit 1 ;;
esac
`)
	n.write("unit", "# /lib/systemd/system/kubelet.service\n[Unit]\nWants=docker.service\n[Service]\nEnvironment=A=b\nRestart=always\nExecStart=/usr/bin/kubelet --old\n"+
		"# /etc/systemd/system/kubelet.service.d/10.conf\n[Service]\nEnvironment=\"C=d e\" \\\n  F=g\nEnvironmentFile=-/etc/default/kubelet\nExecStart=\nExecStart=-/usr/bin/kubelet $A \\\n  --b=%%x\n")
	n.refused(n.blocks[1], "systemd does not start this unit")
	text, err := os.ReadFile(filepath.Join(n.dir, "seen"))
	if want := "[Service]\nType=oneshot\nEnvironment=A=b\nEnvironment=\"C=d e\"    F=g\nEnvironmentFile=-/etc/default/kubelet\nExecStart=" + n.dir + "/kubelet.flags-ok --print $A    --b=%%x\n"; err != nil || string(text) != want {
		t.Errorf("%v:\n%s\nwant\n%s", err, text, want)
	}
	n.write("unit", "[Service]\nExecStart=\n")
	n.refused(n.blocks[1], "has no ExecStart=")
}

// Below the limits of 1.9 nothing is stopped; a way back stays open.
func TestNoSwapBelowTheThresholds(t *testing.T) {
	n := newShellNode(t)
	n.write("flags", "--kubeconfig=/k\n--require-kubeconfig=true\n--healthz-port=0\n--root-dir="+filepath.Join(n.dir, "root")+"\n")
	n.write("bin/docker", "#!/bin/bash\necho ' Docker Root Dir: /images'\n")
	df := func(root, inodes, images int) {
		n.write("bin/df", fmt.Sprintf("#!/bin/bash\ncase \"$*\" in\n*-i*) free=%d ;;\n*/images) free=%d ;;\n*) free=%d ;;\nesac\n"+
			"echo head\necho \"/dev/sda1 1000 $((1000 - free)) $free x /\"\n", inodes, images, root))
	}
	for _, c := range []struct {
		root, inodes, images int
		because              string
	}{{99, 500, 500, "root: less than 10% free"}, {500, 49, 500, "root: less than 5% free"}, {500, 500, 149, "/images: less than 15% free"}} {
		df(c.root, c.inodes, c.images)
		n.refused(n.blocks[2], c.because)
	}
	df(100, 50, 150)
	n.write("proc/meminfo", "MemAvailable:    100000 kB\n")
	n.refused(n.blocks[2], "100 MiB of memory")
	n.write("proc/meminfo", "MemAvailable:    102400 kB\n")
	n.forward()
	df(0, 0, 0)
	n.back()
	n.is("v1.7.0", true)
}

func TestWrongRootDir(t *testing.T) {
	n := newShellNode(t)
	if err := os.MkdirAll(filepath.Join(n.dir, "other/pods"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.unit("--root-dir=" + filepath.Join(n.dir, "other"))
	n.refused(n.blocks[2], "--root-dir is "+n.dir+"/other")
	if err := os.Remove(filepath.Join(n.dir, "root/pods")); err != nil {
		t.Fatal(err)
	}
	n.refused(n.blocks[2], "set ROOT_DIR right")
}
