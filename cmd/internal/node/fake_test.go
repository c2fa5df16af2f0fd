// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/finding"
)

// fake is a host that is all in a folder, so that a program that is killed leaves it as it is.
// A kubelet is a text file: its version, what it takes, and how it behaves.
type fake struct {
	dir, systemd string // systemd is its release
	*Host
}

const (
	oldGates = "gates AppArmor AffinityInAnnotations\nflags kubeconfig require-kubeconfig root-dir feature-gates healthz-port api-servers experimental-fail-swap-on eviction-hard token-auth-file network-plugin cni-conf-dir pod-manifest-path cluster-dns cgroup-driver\n"
	newGates = "gates AppArmor LegacyContainerHashWrite\nflags kubeconfig require-kubeconfig root-dir feature-gates healthz-port experimental-fail-swap-on eviction-hard token-auth-file network-plugin cni-conf-dir pod-manifest-path cluster-dns cgroup-driver\n"
	v170     = "kubelet v1.7.0\n" + oldGates
	v1716    = "kubelet v1.7.16\n" + oldGates
	holdfast = "kubelet v1.9.11+holdfast.2\n" + newGates
	later    = "kubelet v1.9.11+holdfast.3\n" + newGates
	secret   = "s3cr3t-of-the-node"
)

func openFake(dir string) *fake {
	f := &fake{dir: dir}
	f.Host = &Host{
		Proc: f.p("proc"), Sys: f.p("sys"), Lib: f.p("usr/lib/holdfast"),
		Run: f.run, Get: f.get, Link: os.Link, Poll: time.Millisecond,
		Step:    func(string) {},
		Unmount: f.unmount,
		Space:   func(string) (Space, error) { return Space{50 << 30, 100 << 30, 50, 100, false}, nil },
	}
	return f
}

func (f *fake) p(name string) string { return filepath.Join(f.dir, name) }

func (f *fake) write(name, text string) {
	if err := os.MkdirAll(filepath.Dir(f.p(name)), 0o755); err != nil {
		panic(err)
	}
	// As package managers do: another file of the same name.
	if err := os.WriteFile(f.p(name)+"~", []byte(text), 0o755); err != nil {
		panic(err)
	}
	if err := os.Rename(f.p(name)+"~", f.p(name)); err != nil {
		panic(err)
	}
}

func (f *fake) read(name string) string {
	b, _ := os.ReadFile(f.p(name))
	return string(b)
}

// newFake is a node with kubelet 1.7.0, its unit with a drop-in and an environment file, and
// three containers.
func newFake(t testing.TB) *fake {
	f := openFake(t.TempDir())
	root := f.p("var/lib/kubelet")
	f.write("var/lib/kubelet/pods/x", "")
	f.kubeconfig("http://127.0.0.1:1")
	f.write("etc/kubelet.service", "[Unit]\nWants=docker.service\n[Service]\nExecStart="+f.p("usr/bin/kubelet")+"\n")
	f.write("etc/10-kubeadm.conf", "[Service]\nEnvironment=\"CONFIG=--kubeconfig="+f.p("etc/kubeconfig")+" --require-kubeconfig=true\" SECRET="+secret+"\n"+
		"EnvironmentFile=-"+f.p("etc/default")+"\nExecStart=\nExecStart="+f.p("usr/bin/kubelet")+" $CONFIG $EXTRA --root-dir="+root+"\n")
	f.write("etc/default", "# "+secret+"\nEXTRA=\nPASSWORD='"+secret+"'\n")
	f.write("usr/bin/kubelet", v170)
	f.write("new", holdfast)
	f.write("proc/self/mounts", "")
	f.write("proc/self/mountinfo", "20 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n")
	f.write("proc/swaps", "Filename Type Size Used Priority\n")
	f.write("proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\n")
	f.write("proc/stat", "btime 1000\n")
	f.containers("1 app a", "2 app b", "2 side c")
	f.start()
	return f
}

func (f *fake) kubeconfig(server string) { f.write("etc/kubeconfig", kubeconfigOf(server)) }

func kubeconfigOf(server string) string {
	return "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: '" + server + "'}}]\nusers: [{name: u, user: {token: " + secret + "}}]\n"
}

// containers are "UID NAME ID"; those of UID s… are of a static pod.
func (f *fake) containers(list ...string) {
	type m = map[string]any
	var out []m
	for _, c := range list {
		w := strings.Fields(c)
		l := m{labelUID: w[0], labelName: w[1], labelType: "container", labelNamespace: "default", labelPod: "pod-" + w[0][:1], "env": secret}
		out = append(out, m{"Id": w[2], "Labels": l, "Command": secret})
		s := m{labelUID: w[0], labelName: "POD", labelType: "podsandbox", labelSource: "api"}
		if w[0][0] == 's' {
			s[labelSource] = "file"
		}
		out = append(out, m{"Id": "sandbox", "Labels": s})
	}
	b, _ := json.Marshal(out)
	f.write("containers.json", string(b))
}

func (f *fake) unmount(path string) error {
	if _, err := os.Stat(f.p("busy")); err == nil {
		return errors.New("device or resource busy")
	}
	lines := strings.SplitAfter(f.read("proc/self/mounts"), "\n")
	f.write("proc/self/mounts", strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, " "+path+" ") }), ""))
	return nil
}

func (f *fake) pid() int {
	n, _ := strconv.Atoi(f.read("pid"))
	return n
}

// argv is the unit's command line, by another way than readUnit: no quotes, no escapes.
func (f *fake) argv(expanded bool) []string {
	env, argv := map[string]string{}, []string{}
	for _, file := range []string{"etc/kubelet.service", "etc/10-kubeadm.conf"} {
		for line := range strings.SplitSeq(f.read(file), "\n") {
			if v, ok := strings.CutPrefix(line, "ExecStart="); ok {
				argv = strings.Fields(v)
			}
			if v, ok := strings.CutPrefix(line, `Environment="CONFIG=`); ok {
				env["$CONFIG"], _, _ = strings.Cut(v, `"`)
			}
		}
	}
	for line := range strings.SplitSeq(f.read("etc/default"), "\n") {
		if k, v, ok := strings.Cut(line, "="); ok {
			env["$"+k] = strings.Trim(v, `"`)
		}
	}
	if !expanded {
		return argv
	}
	var out []string
	for _, w := range argv {
		if v, ok := env[w]; ok || w[0] == '$' {
			out = append(out, strings.Fields(v)...)
		} else {
			out = append(out, w)
		}
	}
	return out
}

func (f *fake) start() {
	if f.pid() != 0 {
		return
	}
	argv := f.argv(true)
	text, _ := os.ReadFile(argv[0])
	os.Remove(f.p("failed"))
	if strings.Contains(string(text), "exits") {
		f.write("failed", "")
		return
	}
	if strings.Contains(string(text), "other flags") {
		argv = argv[:1]
	}
	n, _ := strconv.Atoi(f.read("count"))
	f.write("count", strconv.Itoa(n+1))
	pid := 100 + n
	dir := fmt.Sprintf("proc/%d/", pid)
	f.write(dir+"cmdline", strings.Join(argv, "\x00")+"\x00")
	f.write(dir+"stat", fmt.Sprintf("%d (kube let) S 1 %s%d", pid, strings.Repeat("0 ", 17), (time.Now().Unix()-1000)*100))
	// The process keeps its file when the name gets another one.
	if err := os.Link(argv[0], f.p(dir+"exe")); err != nil {
		panic(err)
	}
	f.write("pid", strconv.Itoa(pid))
}

func (f *fake) stop() {
	os.RemoveAll(f.p(fmt.Sprintf("proc/%d", f.pid())))
	f.write("pid", "0")
	f.write("failed", "") // as of a kubelet that gets SIGTERM
}

// kubelet is what runs, "" if nothing does.
func (f *fake) kubelet() string {
	if f.pid() == 0 {
		return ""
	}
	return f.read(fmt.Sprintf("proc/%d/exe", f.pid()))
}

func (f *fake) run(ctx context.Context, name string, args ...string) (string, error) {
	f.call(name, args)
	if name == "systemctl" || name == "sh" {
		verb := args[0]
		if name == "sh" {
			verb = args[1]
		}
		switch verb {
		case "show":
			if args[len(args)-1] == "kubepods.slice" {
				b, err := os.ReadFile(f.p("slice"))
				return string(b), err
			}
			active, reload := "inactive", "no"
			if f.pid() != 0 {
				active = "active"
			} else if _, err := os.Stat(f.p("failed")); err == nil {
				active = "failed"
			}
			if _, err := os.Stat(f.p("changed")); err == nil {
				reload = "yes"
			}
			argv := f.argv(false)
			return fmt.Sprintf("LoadState=loaded\nFragmentPath=%s\nDropInPaths=%s\nNeedDaemonReload=%s\nMainPID=%d\nActiveState=%s\nSubState=%s\nKillMode=control-group\nControlGroup=/kubelet\nExecStart={ path=%s ; argv[]=%s ; ignore_errors=no ; start_time=[n/a] }\n",
				f.p("etc/kubelet.service"), f.p("etc/10-kubeadm.conf"), reload, f.pid(), active, active, argv[0], strings.Join(argv, " ")), nil
		case "stop":
			if strings.Contains(f.kubelet(), "hangs") {
				<-ctx.Done()
				return "", ctx.Err()
			}
			f.stop()
		case "kill":
			f.stop()
		case "start":
			f.start()
		case "reset-failed":
		case "--version":
			return "systemd " + f.systemd + "\n+PAM\n", nil
		default:
			return "", fmt.Errorf("systemctl %v", args)
		}
		return "", nil
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	text := string(b)
	if !strings.HasPrefix(text, "kubelet ") {
		return secret, errors.New("exec format error")
	}
	known := strings.Fields(after(text, "flags "))
	for _, a := range args {
		if n, _, _ := cutFlag(a); n != "" && n != "version" && n != "help" && !slices.Contains(known, n) {
			return "unknown flag: --" + n + "\nUsage of kubelet:\n --all", errors.New("exit status 1")
		}
	}
	if slices.Contains(args, "--help") {
		out := "--feature-gates mapStringBool  Options are:\n"
		for _, g := range strings.Fields(after(text, "gates ")) {
			out += g + "=true|false (ALPHA - default=false)\n"
		}
		return out, nil
	}
	if slices.Contains(args, "--version") {
		return "Flag --x has been deprecated\nKubernetes " + after(text, "kubelet ") + "\n", nil
	}
	return "", errors.New("a kubelet was started")
}

func (f *fake) call(name string, args []string) {
	l, err := os.OpenFile(f.p("calls"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(l, filepath.Base(name), strings.Join(args, " "))
	l.Close()
}

// after is the rest of the line that begins with a prefix.
func after(text, prefix string) string {
	for l := range strings.SplitSeq(text, "\n") {
		if v, ok := strings.CutPrefix(l, prefix); ok {
			return v
		}
	}
	return ""
}

func (f *fake) get(_ context.Context, socket, url string) ([]byte, error) {
	switch {
	case strings.HasPrefix(url, "http://docker/containers/json"):
		return []byte(f.read("containers.json")), nil
	case url == "http://docker/info":
		return []byte(`{"DockerRootDir":"/var/lib/docker"}`), nil
	case strings.HasSuffix(url, ":10255/metrics") && strings.Contains(f.kubelet(), "holdfast"):
		return []byte("holdfast_predecessor_info{release=\"1.7.0\",source=\"api\"} 1\n"), nil
	case strings.HasSuffix(url, ":10248/healthz") && f.pid() != 0 && !strings.Contains(f.kubelet(), "is ill"):
		// A kubelet whose process ends after it was healthy.
		if strings.Contains(f.kubelet(), "ends later") {
			f.write("later", f.read("later")+"x")
			if len(f.read("later")) > 0 {
				defer f.stop()
			}
		}
		return []byte("ok"), nil
	}
	return nil, errors.New("connection refused")
}

// do runs a command and returns its status and all that it printed.
func (f *fake) do(back bool, change ...func(*Options)) (int, string) {
	o := Options{Unit: "kubelet.service", New: f.p("new"), HealthTimeout: 100 * time.Millisecond, Settle: 0}
	for _, c := range change {
		c(&o)
	}
	var out bytes.Buffer
	s := &settings{format: finding.Wide, failOn: finding.FailOn{}}
	cmd := Command()
	cmd.SetOut(&out)
	err := run(context.Background(), f.Host, o, back, &out, s.print(cmd))
	if err != nil {
		fmt.Fprintln(&out, err)
	}
	return exit.Code(err), strings.Join(strings.Fields(out.String()), " ")
}

func (f *fake) check(t *testing.T) (*machine, string) {
	t.Helper()
	o := Options{Unit: "kubelet.service", New: f.p("new")}
	m, err := look(context.Background(), f.Host, o, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	m.judge(context.Background(), o.New, false)
	var out bytes.Buffer
	s := &settings{format: finding.Table}
	cmd := Command()
	cmd.SetOut(&out)
	_ = s.print(cmd)(m.rows, m.findings(), "")
	return m, out.String()
}

// snapshot is all that is in the folder, less what the program may write.
func (f *fake) snapshot() string {
	var b strings.Builder
	_ = filepath.Walk(f.dir, func(p string, s os.FileInfo, err error) error {
		if err == nil && !s.IsDir() && !strings.HasPrefix(p, f.Lib) && p != f.p("calls") {
			text, _ := os.ReadFile(p)
			fmt.Fprintf(&b, "%s %s %q\n", p, s.Mode(), text)
		}
		return nil
	})
	return b.String()
}
