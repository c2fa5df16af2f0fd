// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/sweep"
)

// KubeletProgram is what runs or ran last as the kubelet.
func (n *Node) KubeletProgram() kube.Program { return n.started }

// StartKubelet starts p on the node's root directory, which an earlier kubelet
// may have used: that is a swap of the binary. extra flags come last.
func (n *Node) StartKubelet(ctx context.Context, p kube.Program, extra ...string) error {
	if n.Kubelet != nil && n.Kubelet.Alive() {
		return fmt.Errorf("node %s: a kubelet runs already", n.Name)
	}
	pki, err := n.in.GetPKI()
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
	if err := os.WriteFile(resolv, []byte("nameserver "+machine.IP+"\n"), 0o644); err != nil {
		return err
	}
	args := []string{
		"--hostname-override=" + n.Name, "--node-ip=" + n.IP, "--address=0.0.0.0", "--port=10250", "--read-only-port=10255",
		"--healthz-bind-address=0.0.0.0", "--healthz-port=10248",
		"--client-ca-file=" + pki.CAFile, "--anonymous-auth=false", "--tls-cert-file=" + serving.CertFile, "--tls-private-key-file=" + serving.KeyFile,
		"--cgroup-driver=" + driver, "--container-runtime=docker", "--docker-endpoint=unix:///var/run/docker.sock",
		"--pod-manifest-path=" + filepath.Join(n.Dir, "manifests"), "--volume-plugin-dir=" + filepath.Join(n.Dir, "volume-plugins"),
		"--pod-infra-container-image=" + PauseImage, "--resolv-conf=" + resolv, "--cluster-dns=" + kube.DNSIP, "--cluster-domain=cluster.local",
		"--allow-privileged=true", "--cloud-provider=",
		// The disk of a developer's machine looks full, and an image that is
		// collected cannot be pulled again.
		"--image-gc-high-threshold=100",
		"--logtostderr=true", "--v=2",
	}
	if !n.cfg.OwnEviction {
		args = append(args, "--eviction-hard=memory.available<100Mi,nodefs.available<1%,imagefs.available<1%")
	}
	if p.Minor() < 12 { // which has neither the port nor the flag any more
		args = append(args, "--cadvisor-port=0")
	}
	switch {
	case n.Unit != nil:
		args = append(args, "--experimental-fail-swap-on=false") // every release from 1.7 to 1.9 knows it
	case p.Minor() >= 8:
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
			if p.Minor() == 7 {
				// Else it runs standalone, see the lab kubelet-units.
				args = append(args, "--require-kubeconfig=true")
			}
		}
	}
	if n.cfg.CNI {
		args = append(args, n.cniArgs()...)
	}
	args = append(append(args, p.GateArgs()...), n.cfg.KubeletArgs...)
	if driver == Systemd {
		// Kubelets of 1.7 to 1.9 request this slice from systemd and check at once whether its cgroup
		// exists, before systemd's job has ended. On a busy computer the container manager of such a
		// kubelet does not start, and the Node is never Ready. A second start always finds the slice.
		if err := n.Run(ctx, "systemctl", "start", "kubepods.slice"); err != nil {
			return err
		}
	}
	n.Kubelet, err = n.in.Start(ctx, process.Process{Name: n.Name + "-kubelet", Component: sweep.Kubelet, Path: p.Path, Args: append(args, extra...), In: n,
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
func (n *Node) unitFiles(pki *kube.PKI, conf string) error {
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
func (n *Node) SwapKubelet(ctx context.Context, p kube.Program, extra ...string) error {
	if err := n.StopKubelet(); err != nil {
		return err
	}
	return n.StartKubelet(ctx, p, extra...)
}
