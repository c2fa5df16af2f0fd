// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

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
)

// NodeConfig is a node with dockerd and, if Kubelet.Path is set, a kubelet.
type NodeConfig struct {
	// Name is the node's name in the API.
	Name string
	// Kubelet is any release from 1.7 to 1.9.
	Kubelet Program
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
	Dockerd *Proc
	Kubelet *Proc
	// KubeletURL is the read-only port: /metrics, /pods, /stats/summary.
	KubeletURL string
	// Unit is NodeConfig.Unit for the next start of a kubelet. It finds its
	// kubeconfig in UnitKubeconfig and the authority's certificate in UnitCA.
	Unit []string

	env     *Env
	cfg     NodeConfig
	api     *APIServer
	index   int
	holder  *Proc
	cgroup  string // relative to each hierarchy's root
	started Program
}

// StartNode makes the node's namespaces, starts dockerd, imports the images
// and starts the kubelet. The Ready condition is not waited for. a may be nil
// for a kubelet that runs static pods only.
func (e *Env) StartNode(ctx context.Context, a *APIServer, c NodeConfig) (*Node, error) {
	if err := e.needMachine(); err != nil {
		return nil, err
	}
	if c.Name == "" {
		return nil, errors.New("NodeConfig.Name is missing")
	}
	if _, err := c.cgroupDriver(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.nodes++
	i := e.nodes
	e.mu.Unlock()
	n := &Node{Name: c.Name, env: e, cfg: c, api: a, index: i, Unit: c.Unit,
		IP: fmt.Sprintf("10.90.0.%d", 10+i), PodCIDR: fmt.Sprintf("10.91.%d.0/24", i),
		Dir: e.Path(c.Name), cgroup: filepath.Join("holdfast-"+e.ID, c.Name)}
	n.KubeletURL = "http://" + n.IP + ":10255"
	for _, d := range []string{"docker", "kubelet", "dockershim", "manifests", "log-pods", "log-containers", "volume-plugins"} {
		if err := os.MkdirAll(filepath.Join(n.Dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	if err := makeCgroups(n.cgroup); err != nil {
		return nil, fmt.Errorf("node %s: %w", c.Name, err)
	}
	if err := n.hold(ctx); err != nil {
		return nil, fmt.Errorf("node %s: %w", c.Name, err)
	}
	if err := n.network(ctx); err != nil {
		return nil, fmt.Errorf("node %s: %w", c.Name, err)
	}
	e.OnStop(c.Name+" processes", n.killRest)
	if c.CgroupDriver == Systemd {
		if err := n.startRelay(ctx); err != nil {
			return nil, fmt.Errorf("node %s: %w", c.Name, err)
		}
	}
	n.Docker = NewDocker(fmt.Sprintf("/proc/%d/root/run/docker.sock", n.holder.Pid))
	if err := n.StartDocker(ctx); err != nil {
		return nil, err
	}
	e.OnDump(func(ctx context.Context, dir string) error {
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
	Systemd            bool
}

// hold starts the process that keeps the namespaces.
func (n *Node) hold(ctx context.Context) error {
	spec := nodeSpec{Dir: n.Dir, Cgroup: n.cgroup, Ready: filepath.Join(n.Dir, "holder.ready"), Systemd: n.cfg.CgroupDriver == Systemd}
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	p := Process{Name: n.Name + "-holder", Path: selfExe(), Args: []string{hookNode, string(b)},
		StartTimeout: 15 * time.Second,
		Health: func(context.Context) error {
			_, err := os.Stat(spec.Ready)
			return err
		}}
	var flags uintptr = unix.CLONE_NEWNET | unix.CLONE_NEWNS
	if spec.Systemd {
		flags |= unix.CLONE_NEWPID | unix.CLONE_NEWUTS // systemd sets the host name
		p.StopSignal = unix.SIGKILL                    // SIGTERM has it execute itself again
	}
	n.holder, err = n.env.start(ctx, p, flags)
	return err
}

// network connects the node to the machine's bridge.
func (n *Node) network(ctx context.Context) error {
	v := fmt.Sprintf("node%d", n.index)
	pid := strconv.Itoa(n.holder.Pid)
	for _, c := range [][]string{
		{"ip", "link", "add", v, "type", "veth", "peer", "name", "eth0", "netns", pid},
		{"ip", "link", "set", v, "master", machineBridge, "up"},
		{"ip", "route", "add", n.PodCIDR, "via", n.IP},
	} {
		if c[1] == "route" {
			// The node's side first, else the route has no device.
			for _, in := range [][]string{
				{"ip", "link", "set", "lo", "up"}, {"ip", "addr", "add", n.IP + "/24", "dev", "eth0"}, {"ip", "link", "set", "eth0", "up"},
				{"ip", "route", "add", "default", "via", MachineIP},
				// Set before dockerd starts: it makes FORWARD's policy DROP only if it has to turn this on.
				{"sysctl", "-qw", "net.ipv4.ip_forward=1"},
			} {
				if err := n.Run(ctx, in[0], in[1:]...); err != nil {
					return err
				}
			}
		}
		if err := run(ctx, c[0], c[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// join is the command line that runs path inside the node.
func (n *Node) join(path string, args []string) (string, []string) {
	return selfExe(), append([]string{hookJoin, strconv.Itoa(n.holder.Pid), n.cgroup, n.Dir, path}, args...)
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
	p, a := n.join(path, args)
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
	// A killed dockerd leaves its pid file and then refuses to start.
	_ = os.Remove(fmt.Sprintf("/proc/%d/root/run/docker.pid", n.holder.Pid))
	driver, err := n.cfg.cgroupDriver()
	if err != nil {
		return err
	}
	args := []string{"--storage-driver=overlay2", "--exec-opt=native.cgroupdriver=" + driver, "--live-restore",
		"--default-ipc-mode=shareable", // kubelet 1.7 joins the sandbox's IPC namespace
		"--bip=" + n.dockerBridge(), "--ip-masq=false"}
	if !hasAllCapabilities() {
		args = append(args, "--add-runtime=clamp="+toolPath(n.env.Root, "runcclamp"), "--default-runtime=clamp")
	}
	n.Dockerd, err = n.env.Start(ctx, Process{Name: n.Name + "-dockerd", Path: "/usr/sbin/dockerd", Args: append(args, n.cfg.DockerArgs...), Node: n,
		KeepGroup: true, // containers outlive dockerd, as with live-restore they should
		Health:    n.Docker.Ping, StopTimeout: 30 * time.Second})
	if err != nil {
		return err
	}
	n.env.OnStop(n.Name+" containers", n.removeContainers)
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
	return WaitUntil(ctx, "node "+n.Name+" without processes", 10*time.Second, func(context.Context) (bool, error) {
		rest := 0
		for _, dir := range cgroupsLeft(n.cgroup) {
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
	pod := toolPath(n.env.Root, "labpod")
	ims := []Image{{Ref: PauseImage, Program: pod, Path: "/pause"}}
	for _, tag := range []string{"v1", "v2"} {
		ims = append(ims, Image{Ref: WebImage(tag), Program: pod, Path: "/labpod", Args: []string{"serve"}, Env: []string{"LABPOD_VERSION=" + tag}})
	}
	for _, im := range append(ims, n.cfg.Images...) {
		if err := n.Docker.Import(ctx, im); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}

// KubeletProgram is what runs or ran last as the kubelet.
func (n *Node) KubeletProgram() Program { return n.started }

// StartKubelet starts p on the node's root directory, which an earlier kubelet
// may have used: that is a swap of the binary. extra flags come last.
func (n *Node) StartKubelet(ctx context.Context, p Program, extra ...string) error {
	if n.Kubelet != nil && n.Kubelet.Alive() {
		return fmt.Errorf("node %s: a kubelet runs already", n.Name)
	}
	pki, err := n.env.GetPKI()
	if err != nil {
		return err
	}
	serving, err := pki.Issue(n.Name+"-serving", n.Name, nil, n.Name, n.IP)
	if err != nil {
		return err
	}
	driver, err := n.cfg.cgroupDriver()
	if err != nil {
		return err
	}
	resolv := filepath.Join(n.Dir, "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver "+MachineIP+"\n"), 0o644); err != nil {
		return err
	}
	args := []string{
		"--hostname-override=" + n.Name, "--node-ip=" + n.IP, "--address=0.0.0.0", "--port=10250", "--read-only-port=10255", "--cadvisor-port=0",
		"--healthz-bind-address=0.0.0.0", "--healthz-port=10248",
		"--client-ca-file=" + pki.CAFile, "--anonymous-auth=false", "--tls-cert-file=" + serving.CertFile, "--tls-private-key-file=" + serving.KeyFile,
		"--cgroup-driver=" + driver, "--container-runtime=docker", "--docker-endpoint=unix:///var/run/docker.sock",
		"--pod-manifest-path=" + filepath.Join(n.Dir, "manifests"), "--volume-plugin-dir=" + filepath.Join(n.Dir, "volume-plugins"),
		"--pod-infra-container-image=" + PauseImage, "--resolv-conf=" + resolv, "--cluster-dns=" + dnsIP, "--cluster-domain=cluster.local",
		"--allow-privileged=true", "--cloud-provider=",
		// The disk of a developer's machine looks full, and an image that is
		// collected cannot be pulled again.
		"--image-gc-high-threshold=100", "--eviction-hard=memory.available<100Mi,nodefs.available<1%,imagefs.available<1%",
		"--logtostderr=true", "--v=2",
	}
	switch {
	case n.Unit != nil:
		args = append(args, "--experimental-fail-swap-on=false") // every release from 1.7 to 1.9 knows it
	case p.minor() >= 8:
		args = append(args, "--fail-swap-on=false")
	}
	if n.api != nil {
		conf, err := pki.Kubeconfig(n.Name, n.api.URL, "system:node:"+n.Name, "system:nodes")
		if err != nil {
			return err
		}
		if n.Unit != nil {
			if err := n.unitFiles(pki, conf); err != nil {
				return err
			}
			args = append(args, n.Unit...)
		} else {
			args = append(args, "--kubeconfig="+conf, "--authorization-mode=Webhook")
			if p.minor() == 7 {
				// Else it runs standalone, see the lab kubelet-units.
				args = append(args, "--require-kubeconfig=true")
			}
		}
	}
	if n.cfg.CNI {
		args = append(args, n.cniArgs()...)
	}
	args = append(append(args, p.GateArgs()...), n.cfg.KubeletArgs...)
	n.Kubelet, err = n.env.Start(ctx, Process{Name: n.Name + "-kubelet", Path: p.Path, Args: append(args, extra...), Node: n,
		HealthURL: "http://" + n.IP + ":10248/healthz"})
	if err == nil {
		n.started = p
	}
	return err
}

// The files that the flags of Node.Unit name, where kubeadm has them.
const (
	UnitKubeconfig = "/etc/kubernetes/kubelet.conf"
	UnitCA         = "/etc/kubernetes/pki/ca.crt"
)

// unitFiles puts them into the node's own /etc.
func (n *Node) unitFiles(pki *PKI, conf string) error {
	for to, from := range map[string]string{UnitKubeconfig: conf, UnitCA: pki.CAFile} {
		b, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		file := fmt.Sprintf("/proc/%d/root%s", n.holder.Pid, to)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// StopKubelet is systemctl stop kubelet: pods keep running.
func (n *Node) StopKubelet() error { return n.Kubelet.Stop() }

// KillKubelet is kill -9.
func (n *Node) KillKubelet() error { return n.Kubelet.Kill() }

// SwapKubelet stops the kubelet and starts p in its place.
func (n *Node) SwapKubelet(ctx context.Context, p Program, extra ...string) error {
	if err := n.StopKubelet(); err != nil {
		return err
	}
	return n.StartKubelet(ctx, p, extra...)
}

// StopDocker stops dockerd; with live-restore containers keep running.
func (n *Node) StopDocker() error { return n.Dockerd.Stop() }

// KillDocker is kill -9 of dockerd.
func (n *Node) KillDocker() error { return n.Dockerd.Kill() }

// selfExe is this program; os.Executable is a constant path after start.
func selfExe() string {
	p, err := os.Executable()
	if err != nil {
		return "/proc/self/exe"
	}
	return p
}
