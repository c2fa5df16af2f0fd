// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

// upLab names it in messages and files.
const upLab = "up"

// UpServeCommand is the hidden command that stays in the background.
const UpServeCommand = "up-serve"

// UpOptions says what Up starts.
type UpOptions struct {
	// Base is the release that runs.
	Base string
	// Variant is whose kube-controller-manager and kubelet: Ours or Stock.
	Variant labkit.Variant
	Nodes   int
	Bins    []string
	Root    string // as in Options
	Out     io.Writer
}

// upRequest is what the background process is told.
type upRequest struct{ Machine request }

// upCluster is a cluster to start and keep.
type upCluster struct {
	Base  string
	Nodes int
	// Port is where the apiserver is reached on the host's loopback.
	Port int
}

// upState is _output/up/state.json.
type upState struct {
	ID    string
	Pid   int    // of the background process
	Start string // its start time, field 22 of /proc/PID/stat: pids come again
	Dir   string
}

func upDir(root string) string { return filepath.Join(root, "_output", "up") }

func upNeeds(base string) []labkit.Binary {
	return []labkit.Binary{labkit.StockBinary(base, "kube-apiserver"), labkit.StockBinary(base, "kube-scheduler"), labkit.StockBinary(base, "kubectl"),
		labkit.BinaryUnderTest(base, "kube-controller-manager"), labkit.BinaryUnderTest(base, "kubelet")}
}

// Up starts a cluster that outlives this process and prints how to use it.
func Up(ctx context.Context, o UpOptions) error {
	if o.Variant != labkit.Ours && o.Variant != labkit.Stock {
		return exit.Usagef("--variant %q: want %s or %s", o.Variant, labkit.Ours, labkit.Stock)
	}
	if o.Nodes < 1 || o.Nodes > 9 {
		return exit.Usagef("--nodes %d: want 1 to 9", o.Nodes)
	}
	root, err := base.FindRoot(o.Root)
	if err != nil {
		return err
	}
	bins, err := labkit.NewBinaries(root, o.Bins)
	if err != nil {
		return exit.Usagef("%v", err)
	}
	dir := upDir(root)
	if s, err := readUpState(dir); err == nil {
		if s.alive() {
			return fmt.Errorf("a cluster is already up (process %d, %s): end it with `make down`", s.Pid, dir)
		}
		return fmt.Errorf("an earlier cluster ended by itself; its logs are in %s: remove it with `make down`", dir)
	}
	var needs []labkit.Binary
	for _, b := range upNeeds(o.Base) {
		needs = append(needs, b.For(o.Variant))
	}
	if err := prepare(ctx, root, bins, needs, nil, o.Out); err != nil {
		return err
	}
	id, err := newID()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	req := upRequest{request{Lab: upLab, Up: &upCluster{o.Base, o.Nodes, port}, ID: id, Dir: dir, Root: root,
		Variant: o.Variant, Profile: labkit.Long, Keep: true, Timeout: 10 * 365 * 24 * time.Hour, Bins: bins}}
	file := filepath.Join(dir, "up.json")
	if err := writeJSON(file, req); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "up.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(process.Self(), UpServeCommand, file)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	state := upState{ID: id, Pid: cmd.Process.Pid, Start: startTime(cmd.Process.Pid), Dir: dir}
	if err := writeJSON(filepath.Join(dir, "state.json"), state); err != nil {
		_ = cmd.Process.Kill()
		return err
	}
	fmt.Fprintf(o.Out, "starting etcd, kube-apiserver, kube-scheduler (stock), kube-controller-manager and %d kubelet(s) (%s), %s; log: %s\n", o.Nodes, o.Variant, o.Base, log.Name())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	ready := filepath.Join(dir, "ready")
	for {
		if _, err := os.Stat(ready); err == nil {
			break
		}
		select {
		case <-done:
			tailed, kept := process.Tail(log.Name(), 20), dir+"-failed"
			return errors.Join(fmt.Errorf("the cluster did not start; its logs are in %s, up.log ends:\n%s", kept, process.Indent(tailed)), down(context.WithoutCancel(ctx), root, io.Discard, kept))
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("interrupted"), Down(context.WithoutCancel(ctx), root, o.Out))
		case <-time.After(100 * time.Millisecond):
		}
	}
	kubectl := bins.Path(labkit.StockBinary(o.Base, "kubectl"))
	fmt.Fprintf(o.Out, "the cluster is up. Try:\n  export KUBECONFIG=%s\n  %s get nodes\n", filepath.Join(dir, "kubeconfig"), kubectl)
	fmt.Fprintf(o.Out, "images in it: %s %s (there is no registry; see tools/labs/checks/cluster-smoke)\n", node.WebImage("v1"), node.WebImage("v2"))
	fmt.Fprintf(o.Out, "logs: %s\nend it with: make down\n", dir)
	return nil
}

// UpServe keeps the machine and forwards the host's loopback port to the
// apiserver inside until SIGTERM.
func UpServe(ctx context.Context, file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var req upRequest
	if err := json.Unmarshal(b, &req); err != nil {
		return err
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", req.Machine.Up.Port))
	if err != nil {
		return err
	}
	defer l.Close()
	go machine.Forward(l, "unix", upSocket(req.Machine.ID))
	defer os.Remove(upSocket(req.Machine.ID))
	res, _ := runMachine(ctx, req.Machine, os.Stdout)
	if res.Verdict != labkit.Absent {
		return fmt.Errorf("%s", res.Why)
	}
	return nil
}

// upSocket is a short path: a Unix socket's may have 107 bytes.
func upSocket(id string) string { return filepath.Join(os.TempDir(), "holdfast-up-"+id+".sock") }

// lab starts the cluster and waits to be asked to end. It is in no list.
func (up upCluster) lab() *labkit.Lab {
	return &labkit.Lab{Name: upLab, Summary: "a cluster to try things on", Needs: upNeeds(up.Base),
		Expect: map[labkit.Variant]labkit.Verdict{labkit.Stock: labkit.Absent, labkit.Ours: labkit.Absent},
		Steps: func(e *labkit.Env) []labkit.Step {
			var c *node.Cluster
			return []labkit.Step{
				{Text: "start the cluster, and forward to its apiserver", Do: func(ctx context.Context) (err error) {
					c, err = up.start(ctx, e)
					return err
				}},
				{Text: "keep it until make down ends it", Do: func(ctx context.Context) error {
					say(ctx, e, c)
					<-ctx.Done()
					e.Record(asked{})
					return nil
				}},
			}
		},
		Oracle: labkit.Oracle{Text: []string{"make down ended it"}, Judge: func(h *history.History) labkit.Outcome {
			history.One[asked](h)
			return labkit.AbsentBecause("make down ended it")
		}}}
}

// asked is that the cluster was asked to end.
type asked struct{}

func (up upCluster) start(ctx context.Context, e *labkit.Env) (*node.Cluster, error) {
	cc := node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: e.Stock(up.Base, "kube-apiserver"), Audit: true},
		ControllerManager: &kube.ControllerManagerConfig{Program: e.UnderTest(up.Base, "kube-controller-manager")},
		Scheduler:         &kube.SchedulerConfig{Program: e.Stock(up.Base, "kube-scheduler")},
	}
	for i := range up.Nodes {
		cc.Nodes = append(cc.Nodes, node.Config{Name: fmt.Sprintf("node%d", i+1), Kubelet: e.UnderTest(up.Base, "kubelet")})
	}
	c, err := e.StartCluster(ctx, cc)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", upSocket(e.ID))
	if err != nil {
		return nil, err
	}
	e.OnStop("the forwarding to the apiserver", func(context.Context) error { return l.Close() })
	go machine.Forward(l, "tcp", strings.TrimPrefix(c.APIServer.URL, "https://"))
	pki, err := e.GetPKI()
	if err != nil {
		return nil, err
	}
	base := strings.TrimSuffix(c.APIServer.AdminKubeconfig, ".conf")
	conf := kube.Kubeconfig(fmt.Sprintf("https://127.0.0.1:%d", up.Port), pki.CAFile, base+".crt", base+".key")
	if err := os.WriteFile(e.Path("kubeconfig"), []byte(conf), 0o600); err != nil {
		return nil, err
	}
	return c, os.WriteFile(e.Path("ready"), nil, 0o644)
}

// say has the log name each process of the cluster that ends by itself.
func say(ctx context.Context, e *labkit.Env, c *node.Cluster) {
	procs := []*process.Proc{c.Etcd.Proc, c.APIServer.Proc, c.ControllerManager.Proc, c.Scheduler}
	for _, n := range c.Nodes {
		procs = append(procs, n.Dockerd, n.Kubelet)
	}
	for _, p := range procs {
		go func() {
			<-p.Done()
			if ctx.Err() == nil {
				e.Step("%s ended: %v; log: %s", p.Spec.Name, process.DescribeExit(p.Err()), p.LogPath)
			}
		}()
	}
}

// Down ends what Up started, proves that nothing is left and removes the
// directory. from is the checkout or a folder inside it. Without a cluster it
// says so and succeeds.
func Down(ctx context.Context, from string, out io.Writer) error {
	root, err := base.FindRoot(from)
	if err != nil {
		return err
	}
	return down(ctx, root, out, "")
}

// down is Down that moves the directory to keep, if that is not "".
func down(ctx context.Context, root string, out io.Writer, keep string) error {
	dir := upDir(root)
	s, err := readUpState(dir)
	if errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(out, "no cluster is up")
		return nil
	}
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("the cluster belongs to root: run down with sudo")
	}
	if s.alive() {
		if err := syscall.Kill(s.Pid, syscall.SIGTERM); err != nil {
			return err
		}
		err := wait.Until(ctx, fmt.Sprintf("process %d ended", s.Pid), 150*time.Second, func(context.Context) (bool, error) { return !s.alive(), nil })
		if err != nil {
			_ = syscall.Kill(s.Pid, syscall.SIGKILL) // takes the machine with it
		}
	}
	_ = os.Remove(upSocket(s.ID))
	_ = machine.RemoveCgroups(ctx, machine.Cgroup(s.ID))
	if leaks := machine.Leaks(ctx, s.Dir, s.ID); len(leaks) > 0 {
		return fmt.Errorf("left behind: %s; logs stay in %s", machine.Few(leaks), dir)
	}
	gone := dir
	if keep != "" {
		gone = keep
	}
	if err := os.RemoveAll(gone); err != nil {
		return err
	}
	if keep != "" {
		if err := os.Rename(dir, keep); err != nil {
			return err
		}
		dropBulk(keep)
	}
	fmt.Fprintln(out, "the cluster is down; no process, mount or cgroup is left")
	return nil
}

func readUpState(dir string) (upState, error) {
	var s upState
	b, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(b, &s)
}

func (s upState) alive() bool { return s.Start != "" && startTime(s.Pid) == s.Start }

// startTime is field 22 of /proc/PID/stat, "" if there is no such process or
// it is a zombie.
func startTime(pid int) string {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return ""
	}
	stat, err := p.Stat()
	if err != nil || stat.State == "Z" {
		return ""
	}
	return strconv.FormatUint(stat.Starttime, 10)
}

func writeJSON(file string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}
