// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node is a computer of the cluster: namespaces of its own with dockerd and
// a kubelet of any release from 1.7 to 1.9.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/sweep"
	"holdfast/tools/labkit/wait"
)

// Config is a node with dockerd and, if Kubelet.Path is set, a kubelet.
type Config struct {
	// Name is the node's name in the API.
	Name string
	// Kubelet is any release from 1.7 to 1.9.
	Kubelet kube.Program
	// KubeletArgs and DockerArgs come last and so override the kit's.
	KubeletArgs []string
	DockerArgs  []string
	// Unit are the flags by which the node's unit file tells the kubelet of the
	// API server. nil: the kit's own, --kubeconfig and --authorization-mode=Webhook
	// and what else the release needs to talk to it. Node.Unit changes them.
	Unit []string
	// CNI makes pods' networks by --network-plugin=cni, with the plug-ins of the
	// Debian package CNIPackage, instead of docker's bridge.
	CNI bool
	// CgroupDriver is dockerd's and the kubelet's: Cgroupfs, which "" means, or
	// Systemd. For that a real systemd, of the Debian package SystemdPackage, is
	// process 1 of the node. Such a node cannot be powered off.
	CgroupDriver string
	// Hostname is the host name that programs and kubelets see, in a UTS namespace of
	// the node's own. "": the machine's, which nodes then share. The node's name in the
	// API is Name in any case.
	Hostname string
	// InMachine leaves the node in the machine's network namespace, as a master is: etcd, the
	// control plane, the kubelet and pods on the host's network have one loopback. Its address
	// is the machine's, so one node only can be so. It cannot be powered off.
	InMachine bool
	// OwnEviction leaves the kubelet its release's default of --eviction-hard.
	OwnEviction bool
	// Images are imported after the kit's own (PauseImage, WebImage v1 and v2).
	Images []Image
}

// Node is a network, mount and cgroup namespace with its programs. Within it
// the usual paths are the node's own; from the lab's code they are Dir's.
type Node struct {
	Name string
	// IP is reachable from the lab's code, as are pods in PodCIDR.
	IP, PodCIDR string
	// Dir has docker/, kubelet/ (root dir), dockershim/, manifests/ (static
	// pods), log-pods/.
	Dir     string
	Docker  *Docker
	Dockerd *process.Proc
	Kubelet *process.Proc
	// KubeletURL is the read-only port: /metrics, /pods, /stats/summary.
	KubeletURL string
	// Unit is Config.Unit for the next start of a kubelet. It finds its
	// kubeconfig in UnitKubeconfig and the authority's certificate in UnitCA.
	Unit []string

	in      *Starter
	cfg     Config
	api     *kube.APIServer
	index   int
	holder  *process.Proc
	cgroup  string // relative to each hierarchy's root
	started kube.Program
}

// StartNode makes the node's namespaces, starts dockerd, imports the images
// and starts the kubelet. The Ready condition is not waited for. a may be nil
// for a kubelet that runs static pods only.
func (s *Starter) StartNode(ctx context.Context, a *kube.APIServer, c Config) (*Node, error) {
	if err := s.Need(); err != nil {
		return nil, err
	}
	if c.Name == "" {
		return nil, errors.New("Config.Name is missing")
	}
	if _, err := c.cgroupDriver(); err != nil {
		return nil, err
	}
	if c.Hostname != "" && c.CgroupDriver == Systemd {
		return nil, fmt.Errorf("node %s: Config.Hostname does not work with Config.CgroupDriver %q: systemd sets the name", c.Name, Systemd)
	}
	i := int(s.nodes.Add(1))
	n := &Node{Name: c.Name, in: s, cfg: c, api: a, index: i, Unit: c.Unit,
		IP: fmt.Sprintf("10.90.0.%d", 10+i), PodCIDR: fmt.Sprintf("10.91.%d.0/24", i),
		Dir: s.Path(c.Name), cgroup: filepath.Join(machine.Cgroup(s.ID), c.Name)}
	if c.InMachine {
		n.IP = machine.IP
	}
	n.KubeletURL = "http://" + n.IP + ":10255"
	for _, d := range []string{"docker", "kubelet", "dockershim", "manifests", "log-pods", "log-containers", "volume-plugins"} {
		if err := os.MkdirAll(filepath.Join(n.Dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	if err := machine.MakeCgroups(n.cgroup); err != nil {
		return nil, fmt.Errorf("node %s: %w", c.Name, err)
	}
	if err := n.hold(ctx); err != nil {
		return nil, fmt.Errorf("node %s: %w", c.Name, err)
	}
	if err := n.network(ctx); err != nil {
		return nil, fmt.Errorf("node %s: %w", c.Name, err)
	}
	s.OnStop(c.Name+" processes", n.killRest)
	if c.CgroupDriver == Systemd {
		if err := n.startRelay(ctx); err != nil {
			return nil, fmt.Errorf("node %s: %w", c.Name, err)
		}
	}
	n.Docker = NewDocker(fmt.Sprintf("/proc/%d/root/run/docker.sock", n.holder.Pid))
	if err := n.StartDocker(ctx); err != nil {
		return nil, err
	}
	s.OnDump(func(ctx context.Context, dir string) error {
		return n.Docker.dump(ctx, filepath.Join(dir, c.Name+"-containers.json"))
	})
	if err := n.importImages(ctx); err != nil {
		return nil, err
	}
	if c.CNI {
		if err := n.writeCNI(); err != nil {
			return nil, err
		}
	}
	if c.Kubelet.Path != "" {
		if err := n.StartKubelet(ctx, c.Kubelet); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// nodeSpec is what the holder process is told.
type nodeSpec struct {
	Dir, Cgroup, Ready string
	Hostname           string
	Systemd            bool
}

// hold starts the process that keeps the namespaces.
func (n *Node) hold(ctx context.Context) error {
	spec := nodeSpec{Dir: n.Dir, Cgroup: n.cgroup, Ready: filepath.Join(n.Dir, "holder.ready"), Hostname: n.cfg.Hostname, Systemd: n.cfg.CgroupDriver == Systemd}
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	p := process.Process{Name: n.Name + "-holder", Path: process.Self(), Args: []string{hookNode, string(b)},
		StartTimeout: 15 * time.Second,
		Health: func(context.Context) error {
			_, err := os.Stat(spec.Ready)
			return err
		}}
	p.Cloneflags = unix.CLONE_NEWNS
	if !n.cfg.InMachine {
		p.Cloneflags |= unix.CLONE_NEWNET
	}
	if spec.Hostname != "" {
		p.Cloneflags |= unix.CLONE_NEWUTS
	}
	if spec.Systemd {
		p.Cloneflags |= unix.CLONE_NEWPID | unix.CLONE_NEWUTS // systemd sets the host name
		p.StopSignal = unix.SIGKILL                           // SIGTERM has it execute itself again
	}
	n.holder, err = n.in.Start(ctx, p)
	return err
}

// network connects the node to the machine's bridge.
func (n *Node) network(ctx context.Context) error {
	if n.cfg.InMachine {
		return n.machineNetwork(ctx)
	}
	v := fmt.Sprintf("node%d", n.index)
	pid := strconv.Itoa(n.holder.Pid)
	for _, c := range [][]string{
		{"ip", "link", "add", v, "type", "veth", "peer", "name", "eth0", "netns", pid},
		{"ip", "link", "set", v, "master", machine.Bridge, "up"},
		{"ip", "route", "add", n.PodCIDR, "via", n.IP},
	} {
		if c[1] == "route" {
			// The node's side first, else the route has no device.
			for _, in := range [][]string{
				{"ip", "link", "set", "lo", "up"}, {"ip", "addr", "add", n.IP + "/24", "dev", "eth0"}, {"ip", "link", "set", "eth0", "up"},
				{"ip", "route", "add", "default", "via", machine.IP},
				// Set before dockerd starts: it makes FORWARD's policy DROP only if it has to turn this on.
				{"sysctl", "-qw", "net.ipv4.ip_forward=1"},
			} {
				if err := n.Run(ctx, in[0], in[1:]...); err != nil {
					return err
				}
			}
		}
		if err := machine.Run(ctx, c[0], c[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// machineNetwork is what a node in the machine's network needs beyond it: the addresses of
// Services must have a route before kube-proxy's rules see them, and docker's bridge goes with
// the node.
func (n *Node) machineNetwork(ctx context.Context) error {
	n.in.OnStop(n.Name+" bridge of docker", func(ctx context.Context) error {
		if err := machine.Run(ctx, "ip", "link", "del", dockerBridgeName); err != nil && !strings.Contains(err.Error(), "Cannot find device") {
			return err
		}
		return nil
	})
	return machine.Run(ctx, "ip", "route", "add", kube.ServiceCIDR, "dev", machine.Bridge)
}

// Join is the command line that runs path inside the node.
func (n *Node) Join(path string, args []string) (string, []string) {
	spaces := "cgroup,net,mnt"
	if n.cfg.Hostname != "" {
		spaces = "uts," + spaces
	}
	return process.Self(), append([]string{hookJoin, strconv.Itoa(n.holder.Pid), spaces, n.cgroup, n.Dir, path}, args...)
}

// WriteManifest puts the manifest of the static pod name into the kubelet's folder at once: the
// kubelet reads whatever it finds there.
func (n *Node) WriteManifest(name string, text []byte) error {
	beside := filepath.Join(n.Dir, name+".yaml")
	if err := os.WriteFile(beside, text, 0o600); err != nil {
		return err
	}
	return os.Rename(beside, filepath.Join(n.Dir, "manifests", name+".yaml"))
}

// Run runs a command inside the node and returns an error with its output.
func (n *Node) Run(ctx context.Context, name string, args ...string) error {
	_, err := n.Output(ctx, name, args...)
	return err
}

// Output is Run with the command's output.
func (n *Node) Output(ctx context.Context, name string, args ...string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	p, a := n.Join(path, args)
	out, err := n.combinedOutput(exec.CommandContext(ctx, p, a...))
	if err != nil {
		return string(out), fmt.Errorf("node %s: %s %s: %w: %s", n.Name, name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// StartDocker starts dockerd (again); containers of a stopped one live on.
func (n *Node) StartDocker(ctx context.Context) error {
	if n.Dockerd != nil && n.Dockerd.Alive() {
		return fmt.Errorf("node %s: dockerd runs already", n.Name)
	}
	driver, err := n.cfg.cgroupDriver()
	if err != nil {
		return err
	}
	args := []string{"--storage-driver=overlay2", "--exec-opt=native.cgroupdriver=" + driver, "--live-restore",
		"--default-ipc-mode=shareable", // kubelet 1.7 joins the sandbox's IPC namespace
		"--bip=" + n.dockerBridge(), "--ip-masq=false"}
	if !machine.HasAllCapabilities() {
		args = append(args, "--add-runtime=clamp="+ToolPath(n.in.Root, "runcclamp"), "--default-runtime=clamp")
	}
	n.Dockerd, err = n.in.Start(ctx, process.Process{Name: n.Name + "-dockerd", Component: sweep.Dockerd, Path: "/usr/sbin/dockerd", Args: append(args, n.cfg.DockerArgs...), In: n,
		Before: func() error {
			// A killed dockerd leaves its pid file and then refuses to start.
			_ = os.Remove(fmt.Sprintf("/proc/%d/root/run/docker.pid", n.holder.Pid))
			return nil
		},
		KeepGroup: true, // containers outlive dockerd, as with live-restore they should
		Health:    n.Docker.Ping, StopTimeout: 30 * time.Second})
	if err != nil {
		return err
	}
	n.in.OnStop(n.Name+" containers", n.removeContainers)
	return nil
}

// removeContainers is undone before each dockerd; the kubelet goes first, or
// it would start the containers again.
func (n *Node) removeContainers(ctx context.Context) error {
	var err error
	if n.Kubelet != nil {
		err = n.Kubelet.Stop()
	}
	if !n.Dockerd.Alive() {
		return err // killRest does it
	}
	return errors.Join(err, n.Docker.RemoveAll(ctx))
}

// killRest kills what outlives a dockerd that the lab has ended: containers.
func (n *Node) killRest(ctx context.Context) error {
	return wait.Until(ctx, "node "+n.Name+" without processes", 10*time.Second, func(context.Context) (bool, error) {
		rest := 0
		for _, dir := range machine.Cgroups(n.cgroup) {
			b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for _, f := range strings.Fields(string(b)) {
				if pid, err := strconv.Atoi(f); err == nil && pid != n.holder.Pid && pid > 1 {
					rest++
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
		}
		if rest > 0 {
			return false, fmt.Errorf("%d left", rest)
		}
		return true, nil
	})
}

func (n *Node) importImages(ctx context.Context) error {
	pod := ToolPath(n.in.Root, "labpod")
	ims := []Image{{Ref: PauseImage, Program: pod, Path: "/pause"}}
	for _, tag := range []string{"v1", "v2"} {
		ims = append(ims, n.web(tag))
	}
	for _, im := range append(ims, n.cfg.Images...) {
		if err := n.Docker.Import(ctx, im); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}

func (n *Node) web(tag string) Image {
	return Image{Ref: WebImage(tag), Program: ToolPath(n.in.Root, "labpod"), Path: "/labpod", Args: []string{"serve"}, Env: []string{"LABPOD_VERSION=" + tag}}
}

// ImportWeb imports WebImage(tag), which is another image than that of any other tag. The kit
// itself imports v1 and v2.
func (n *Node) ImportWeb(ctx context.Context, tag string) error {
	if err := n.Docker.Import(ctx, n.web(tag)); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	return nil
}

// StopDocker stops dockerd; with live-restore containers keep running.
func (n *Node) StopDocker() error { return n.Dockerd.Stop() }

// KillDocker is kill -9 of dockerd.
func (n *Node) KillDocker() error { return n.Dockerd.Kill() }
