// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upgraderunbook

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeSystemctl keeps a kubelet that stays up as proc/42 below $MACHINE, and the
// unit's flags, one a line, in $MACHINE/flags. The unit of the page's check it starts as
// systemd would where nothing is quoted. It notes what it is called for.
const fakeSystemctl = `#!/bin/bash
set -eu
echo "systemctl $*" >> "$MACHINE/calls"
case "$*" in
daemon-reload) ;;
"start kubelet-flags-ok")
  read -ra words <<< "$(sed -n 's/^ExecStart=//p' "$MACHINE/run/systemd/system/kubelet-flags-ok.service")"
  "${words[@]}" ;;
"stop kubelet") rm -rf "$MACHINE/proc/42" ;;
"start kubelet")
  mapfile -t flags < "$MACHINE/flags"
  "$KUBELET" "${flags[@]}" || exit 0 # systemd answers before it ends
  mkdir -p "$MACHINE/proc/42"
  printf '%s\0' "$KUBELET" "${flags[@]}" > "$MACHINE/proc/42/cmdline" ;;
"cat kubelet") printf '[Service]\nExecStart=\nExecStart=%s %s\n' "$KUBELET" "$(paste -sd ' ' "$MACHINE/flags")" ;;
"show -p MainPID kubelet") if [ -d "$MACHINE/proc/42" ]; then echo MainPID=42; else echo MainPID=0; fi ;;
*) echo "systemctl $*: unknown" >&2; exit 1 ;;
esac
`

// fakeKubelet has a version, a status with which it ends at its start (0: it
// stays up) and the gates that its help lists.
func fakeKubelet(version, status, gates string) string {
	return "#!/bin/bash\n[ -z \"${MACHINE:-}\" ] || echo \"kubelet $*\" >> \"$MACHINE/calls\"\ncase \" $* \" in\n*' --help '*) echo '" + gates + "=true|false (ALPHA)' ;;\n" +
		"*' --version '*) echo 'Kubernetes " + version + "' ;;\n*) exit " + status + " ;;\nesac\n"
}

// shellNode is a folder in which the page's node blocks run without a lab.
type shellNode struct {
	*testing.T
	dir    string
	blocks []string // in the page's order: the scripts, ask, swap, ask for the way back, go back
}

// sandbox is a block that touches no process, mount or unit of this machine, and is in less of
// a hurry than the page.
func (n *shellNode) sandbox(script string) string {
	return strings.NewReplacer("/proc/", n.dir+"/proc/", "/run/", n.dir+"/run/", "{1..60}", "{1..2}", "sleep 1", "sleep 0.1").Replace(script)
}

func newShellNode(t *testing.T, flags ...string) *shellNode {
	bs := pageBlocks(t)
	n := &shellNode{T: t, dir: t.TempDir()}
	for _, b := range bs {
		if b.where == "node" {
			n.blocks = append(n.blocks, n.sandbox(b.script))
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
	n.write("proc/meminfo", "MemAvailable:    1000000 kB\n")
	n.unit(flags...)
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

// unit writes the unit's flags: those of a machine whose kubelet has no healthz, and more.
func (n *shellNode) unit(flags ...string) {
	all := append([]string{"--kubeconfig=/k", "--require-kubeconfig=true", "--root-dir=" + filepath.Join(n.dir, "root"),
		"--healthz-port=0", "--eviction-hard=memory.available<100Mi"}, flags...)
	n.write("flags", strings.Join(all, "\n")+"\n")
}

// run runs a block as a reader of the page does, in a fresh shell that lacks some names; must
// expects that it succeeds.
func (n *shellNode) run(script string, without ...string) (string, error) {
	// A block that waits for ever is wrong, too.
	ctx, cancel := context.WithTimeout(n.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.WaitDelay = time.Second // for what it has started
	cmd.Dir = n.dir
	cmd.Env = []string{"PATH=" + filepath.Join(n.dir, "bin") + ":" + os.Getenv("PATH"), "MACHINE=" + n.dir, "LC_ALL=C"}
	for name, value := range map[string]string{"KUBELET": filepath.Join(n.dir, "kubelet"), "NEW": filepath.Join(n.dir, "new"), "ROOT_DIR": filepath.Join(n.dir, "root"),
		"NODE": "node1", "RELEASE": "v1.9.11+holdfast.2", "SETTLE": "0"} {
		switch {
		case slices.Contains(without, name+"="): // it is there and empty
			cmd.Env = append(cmd.Env, name+"=")
		case !slices.Contains(without, name):
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (n *shellNode) must(script string) {
	n.Helper()
	if out, err := n.run(script); err != nil {
		n.Fatalf("%v: %s\n%s", err, script, out)
	}
}

// calls is what the machine's programs were called for since the last time.
func (n *shellNode) calls() string {
	n.Helper()
	file := filepath.Join(n.dir, "calls")
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		n.Fatal(err)
	}
	_ = os.Remove(file)
	return string(text)
}

// refused expects that a block ends with an error that says because, and has stopped nothing.
func (n *shellNode) refused(script, because string) {
	n.Helper()
	n.calls()
	out, err := n.run(script)
	if err == nil || !strings.Contains(out, because) {
		n.Fatalf("%v, want an error with %q: %s", err, because, out)
	}
	if calls := n.calls(); strings.Contains(calls, "systemctl stop") || strings.Contains(calls, "systemctl start kubelet\n") {
		n.Fatalf("it has acted: %s", calls)
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

// TestFreshShell: in a fresh shell that lacks a name, or has it empty, each block ends with an error before it
// calls anything. A shell without ROOT_DIR once started 1.7 over mounted subPaths.
func TestFreshShell(t *testing.T) {
	n := newShellNode(t)
	n.forward()
	n.write("bin/umount", "#!/bin/bash\necho umount >> \"$MACHINE/calls\"\n")
	n.write("bin/kubectl", "#!/bin/bash\necho kubectl >> \"$MACHINE/calls\"\n")
	n.write("proc/mounts", "/dev/sda1 "+filepath.Join(n.dir, "root/pods/uid/volume-subpaths/v/c/0")+" ext4 rw 0 0\n")
	bs := pageBlocks(t)
	setup := names(bs[0])
	if len(setup) != 6 {
		t.Fatalf("the setup has %q", setup)
	}
	used := 0
	for _, b := range bs[1:] {
		needs := b.needs(setup)
		for _, name := range needs {
			used++
			for _, without := range []string{name, name + "="} {
				n.calls()
				out, err := n.run(n.sandbox(b.script), without)
				if calls := n.calls(); err == nil || calls != "" || !strings.Contains(out, name) {
					t.Errorf("line %d without %s: %v, called %q: %s", b.line, without, err, calls, out)
				}
			}
		}
		if len(needs) == 0 {
			t.Errorf("line %d uses no name of the setup", b.line)
		}
	}
	if used < 15 {
		t.Errorf("%d names are used in all", used)
	}
	// The script that is left on the node is as careful by itself.
	for _, name := range []string{"KUBELET", "ROOT_DIR"} {
		out, err := n.run(filepath.Join(n.dir, "kubelet.swap")+" "+filepath.Join(n.dir, "new"), name)
		if calls := n.calls(); err == nil || calls != "" {
			t.Errorf("swap without %s: %v, called %q: %s", name, err, calls, out)
		}
	}
	n.is("v1.9.11+holdfast.2", true)
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

// A umount that fails ends the loop, and the old kubelet is not started: the one that ran goes on.
func TestBusySubPathStaysMounted(t *testing.T) {
	n := newShellNode(t)
	n.forward()
	n.must(n.blocks[3])
	n.write("bin/umount", "#!/bin/bash\nexit 32\n")
	n.write("proc/mounts", "/dev/sda1 "+filepath.Join(n.dir, "root/pods/uid/volume-subpaths/v/c/0")+" ext4 rw 0 0\n")
	if out, err := n.run(n.blocks[4]); err == nil || !strings.Contains(out, "still mounted") {
		t.Errorf("%v: %s", err, out)
	}
	n.is("v1.9.11+holdfast.2", true)
}

// Only kubelets that delete files through these mounts need them gone: those of a later one
// are its own.
func TestWhoDeletesFiles(t *testing.T) {
	n := newShellNode(t)
	text, err := os.ReadFile(filepath.Join(n.dir, "kubelet.swap"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\ndeletes() {")
	function, _, end := strings.Cut(rest, "\n}\n")
	if !ok || !end {
		t.Fatal("the script has no function deletes")
	}
	script := `is_ours() { "$1" --version | grep -q holdfast; }` + "\ndeletes() {" + function + "\n}\n" + `if deletes "$MACHINE/other"; then echo yes; else echo no; fi`
	for version, want := range map[string]string{
		"v1.6.13": "yes", "v1.7.0": "yes", "v1.7.13": "yes", "v1.7.14": "no", "v1.7.16": "no", "v1.8.0": "yes", "v1.8.8-gke.1": "yes", "v1.8.9": "no", "v1.8.15": "no",
		"v1.9.3": "yes", "v1.9.4": "no", "v1.9.11": "no", "v1.9.11+holdfast.2": "no", "v1.10.1": "no", "nonsense": "yes",
	} {
		n.write("other", fakeKubelet(version, "0", "X"))
		if out, err := n.run(script); err != nil || out != want+"\n" {
			t.Errorf("%s: %q, %v, want %s", version, out, err, want)
		}
	}
}
