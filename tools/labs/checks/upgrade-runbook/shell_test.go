// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upgraderunbook

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakeSystemctl keeps a kubelet that stays up as proc/42 below $MACHINE, and the
// unit's flags, one a line, in $MACHINE/flags.
const fakeSystemctl = `#!/bin/bash
set -eu
case $1 in
stop) rm -rf "$MACHINE/proc/42" ;;
start)
  mapfile -t flags < "$MACHINE/flags"
  "$KUBELET" "${flags[@]}" || exit 0 # systemd answers before it ends
  mkdir "$MACHINE/proc/42"
  printf '%s\0' "$KUBELET" "${flags[@]}" > "$MACHINE/proc/42/cmdline" ;;
cat) cat "$MACHINE/flags" ;;
show) if [ -d "$MACHINE/proc/42" ]; then echo MainPID=42; else echo MainPID=0; fi ;;
*) exit 1 ;;
esac
`

// fakeKubelet has a version, a status with which it ends at its start (0: it
// stays up) and the gates that its help lists.
func fakeKubelet(version, status, gates string) string {
	return "#!/bin/bash\ncase \" $* \" in\n*' --help '*) echo '" + gates + "=true|false (ALPHA)' ;;\n" +
		"*' --version '*) echo 'Kubernetes " + version + "' ;;\n*) exit " + status + " ;;\nesac\n"
}

// shellNode is a folder in which the page's node blocks run without a lab.
type shellNode struct {
	*testing.T
	dir    string
	blocks []string // in the page's order: the check, ask, swap, ask for the way back, go back
}

func newShellNode(t *testing.T, flags ...string) *shellNode {
	bs := pageBlocks(t)
	n := &shellNode{T: t, dir: t.TempDir()}
	for _, b := range bs {
		if b.where == "node" {
			// No process and no mount of this machine.
			n.blocks = append(n.blocks, strings.ReplaceAll(b.script, "/proc/", n.dir+"/proc/"))
		}
	}
	for _, d := range []string{"proc", "bin", "root/pods"} {
		if err := os.MkdirAll(filepath.Join(n.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.write("proc/mounts", "")
	n.write("bin/systemctl", fakeSystemctl)
	n.write("kubelet", fakeKubelet("v1.7.0", "0", "AffinityInAnnotations"))
	n.write("new", fakeKubelet("v1.9.11+holdfast.2", "0", "LegacyContainerHashWrite"))
	n.unit(append([]string{"--kubeconfig=/k", "--require-kubeconfig=true"}, flags...)...)
	n.must("systemctl start kubelet")
	n.must(n.blocks[0])
	return n
}

func (n *shellNode) write(name, text string) {
	n.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o755); err != nil {
		n.Fatal(err)
	}
}

func (n *shellNode) unit(flags ...string) { n.write("flags", strings.Join(flags, "\n")+"\n") }

// run runs a block as the lab does, must expects that it succeeds.
func (n *shellNode) run(script string) (string, error) {
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Env = []string{"PATH=" + filepath.Join(n.dir, "bin") + ":" + os.Getenv("PATH"), "MACHINE=" + n.dir, "LC_ALL=C",
		"KUBELET=" + filepath.Join(n.dir, "kubelet"), "NEW=" + filepath.Join(n.dir, "new"), "ROOT_DIR=" + filepath.Join(n.dir, "root")}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (n *shellNode) must(script string) {
	n.Helper()
	if out, err := n.run(script); err != nil {
		n.Fatalf("%v: %s\n%s", err, script, out)
	}
}

// refused expects that a block ends with an error that says because, and leaves no kubelet to put in.
func (n *shellNode) refused(script, because string) {
	n.Helper()
	out, err := n.run(script)
	if err == nil || !strings.Contains(out, because) {
		n.Fatalf("%v, want an error with %q: %s", err, because, out)
	}
	if _, err := os.Stat(filepath.Join(n.dir, "kubelet.new")); err == nil {
		n.Fatal("there is a kubelet.new")
	}
}

// is expects the version at the kubelet's path, and whether it runs.
func (n *shellNode) is(version string, runs bool) {
	n.Helper()
	out, err := n.run(`"$KUBELET" --version; systemctl show -p MainPID kubelet`)
	want := "Kubernetes " + version + "\nMainPID=0\n"
	if runs {
		want = "Kubernetes " + version + "\nMainPID=42\n"
	}
	if err != nil || out != want {
		n.Fatalf("%v: %q, want %q", err, out, want)
	}
}

func (n *shellNode) forward() { n.Helper(); n.must(n.blocks[1]); n.must(n.blocks[2]) }
func (n *shellNode) back()    { n.Helper(); n.must(n.blocks[3]); n.must(n.blocks[4]) }

func TestThereTwiceAndBack(t *testing.T) {
	n := newShellNode(t)
	n.forward()
	n.is("v1.9.11+holdfast.2", true)
	n.write("new", fakeKubelet("v1.9.11+holdfast.3", "0", "X"))
	n.forward()
	n.is("v1.9.11+holdfast.3", true)
	n.back()
	n.is("v1.7.0", true)
}

func TestBackWhenOursEnds(t *testing.T) {
	n := newShellNode(t)
	n.write("new", fakeKubelet("v1.9.11+holdfast.2", "1", "X"))
	n.forward()
	n.is("v1.9.11+holdfast.2", false)
	n.forward() // as automation does; nothing runs whose command line could be saved
	n.is("v1.9.11+holdfast.2", false)
	n.unit("--kubeconfig=/k", "--require-kubeconfig=true", "--feature-gates=X=true")
	n.refused(n.blocks[3], "its unit is not the saved one")
	n.unit("--kubeconfig=/k", "--require-kubeconfig=true")
	n.back()
	n.is("v1.7.0", true)
}

func TestBackToOurs(t *testing.T) {
	n := newShellNode(t)
	n.forward()
	n.must(`cp "$KUBELET" "$KUBELET.before-holdfast"`) // what this page's first edition did the second time
	n.refused(n.blocks[3], "is not the old kubelet")
}

func TestGateOfTwoArguments(t *testing.T) {
	for _, flags := range [][]string{{"--feature-gates", "AffinityInAnnotations=true"}, {"--feature_gates=AffinityInAnnotations=true"}} {
		n := newShellNode(t, flags...)
		n.refused(n.blocks[1], "does not know the feature gate AffinityInAnnotations")
		n.is("v1.7.0", true)
	}
}

func TestNothingRuns(t *testing.T) {
	n := newShellNode(t)
	n.must("systemctl stop kubelet")
	n.refused(n.blocks[1], "start it first")
}

// A container that docker is still starting finds what it cannot mount where the files were;
// data that lie below a mount point stay.
func TestNoEmptyDirectoryAfterTheUnmount(t *testing.T) {
	n := newShellNode(t)
	n.forward()
	n.write("bin/umount", "#!/bin/bash\ngrep -vF \" $1 \" \"$MACHINE/proc/mounts\" > \"$MACHINE/m\"; cp \"$MACHINE/m\" \"$MACHINE/proc/mounts\"\n")
	subpaths := filepath.Join(n.dir, "root/pods/uid/volume-subpaths/v/c")
	if err := os.MkdirAll(filepath.Join(subpaths, "0"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.write("root/pods/uid/volume-subpaths/v/c/1", "")
	n.write("root/pods/uid/volume-subpaths/v/c/2", "data")
	mounts := ""
	for _, m := range []string{"0", "1", "2"} {
		mounts += "/dev/sda1 " + filepath.Join(subpaths, m) + " ext4 rw 0 0\n"
	}
	n.write("proc/mounts", mounts)
	n.back()
	n.is("v1.7.0", true)
	for name, dir := range map[string]bool{"0": false, "1": true, "2": false} {
		if info, err := os.Stat(filepath.Join(subpaths, name)); err != nil || info.IsDir() != dir {
			t.Errorf("%s: %v, want a directory: %v", name, err, dir)
		}
	}
	if data, err := os.ReadFile(filepath.Join(subpaths, "2")); err != nil || string(data) != "data" {
		t.Errorf("%q, %v", data, err)
	}
}

// A umount that fails ends the loop, and the old kubelet is not started.
func TestBusySubPathStaysMounted(t *testing.T) {
	n := newShellNode(t)
	n.forward()
	n.must(n.blocks[3])
	n.write("bin/umount", "#!/bin/bash\nexit 32\n")
	n.write("proc/mounts", "/dev/sda1 "+filepath.Join(n.dir, "root/pods/uid/volume-subpaths/v/c/0")+" ext4 rw 0 0\n")
	if out, err := n.run(n.blocks[4]); err == nil || !strings.Contains(out, "still mounted") {
		t.Errorf("%v: %s", err, out)
	}
	n.is("v1.9.11+holdfast.2", false)
}
