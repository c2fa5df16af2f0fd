// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletlab

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

// ExtraFile is the environment file of a Unit. What it sets as KUBELET_EXTRA_ARGS comes last.
const ExtraFile = "/etc/default/kubelet"

// UnitFlags are the node.Config.Unit of a node that StartUnit is for.
var UnitFlags = []string{"--kubeconfig=" + node.UnitKubeconfig, "--require-kubeconfig=true", "--authorization-mode=Webhook"}

// Unit is a kubelet that the node's systemd starts.
type Unit struct {
	Node *node.Node
	// Program is the kubelet's file.
	Program string
}

// TakeOver stops the kit's kubelet of a node of systemd, which from then on is no process of the kit, and
// returns its flags as a unit's Environment= has them.
func TakeOver(n *node.Node) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", n.Kubelet.Pid))
	if err != nil {
		return "", err
	}
	line := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
	for len(line) > 0 && !strings.HasPrefix(line[0], "--") {
		line = line[1:]
	}
	if err := n.StopKubelet(); err != nil {
		return "", err
	}
	n.Kubelet = nil
	return strings.ReplaceAll(strings.Join(line, " "), "%", "%%"), nil
}

// Answers waits until the kubelet that systemd started answers.
func Answers(ctx context.Context, n *node.Node) error {
	return wait.Until(ctx, "the unit's kubelet of "+n.Name+" answers", time.Minute, func(ctx context.Context) (bool, error) {
		_, err := Metric(ctx, n, "kubelet_running_pod_count")
		return err == nil, err
	})
}

// StartUnit takes the kit's kubelet of a node of systemd, and has a unit in kubeadm's form start
// program, a copy of it, with the same flags. program is a path of the node.
func StartUnit(ctx context.Context, e *labkit.Env, n *node.Node, kubelet kube.Program, program string) (*Unit, error) {
	u := &Unit{Node: n, Program: program}
	line, err := TakeOver(n)
	if err != nil {
		return nil, err
	}
	if err := n.Run(ctx, "install", "-D", "-m", "0755", kubelet.Path, program); err != nil {
		return nil, err
	}
	e.OnStop(n.Name+" kubelet.service", func(ctx context.Context) error { return n.Run(ctx, "systemctl", "stop", "kubelet") })
	text := "[Unit]\nDescription=kubelet of the lab\nDefaultDependencies=no\n\n[Service]\nExecStart=" + program + "\nRestart=always\nRestartSec=10\nStartLimitInterval=0\n" +
		"StandardOutput=append:" + e.Path(n.Name+"-unit.log") + "\nStandardError=inherit\n"
	dropIn := "[Service]\nEnvironment=\"KUBELET_LAB_ARGS=" + line + "\"\nEnvironmentFile=-" + ExtraFile + "\nExecStart=\nExecStart=" +
		program + " $KUBELET_LAB_ARGS $KUBELET_EXTRA_ARGS\n"
	for file, text := range map[string]string{"kubelet.service": text, "kubelet.service.d/10-kubeadm.conf": dropIn} {
		if err := u.Write(ctx, "/etc/systemd/system/"+file, text); err != nil {
			return nil, err
		}
	}
	if err := n.Run(ctx, "systemctl", "daemon-reload"); err != nil {
		return nil, err
	}
	if err := n.Run(ctx, "systemctl", "start", "kubelet"); err != nil {
		return nil, err
	}
	return u, Answers(ctx, n)
}

// Write writes a file of the node's own.
func (u *Unit) Write(ctx context.Context, file, text string) error {
	return u.Node.Run(ctx, "sh", "-c", `mkdir -p "$(dirname "$1")" && printf %s "$2" >"$1"`, "sh", file, text)
}

// PID is the unit's process, 0 if there is none.
func (u *Unit) PID(ctx context.Context) (int, error) { return MainPID(ctx, u.Node, "kubelet") }

// MainPID is the process of any unit of the node.
func MainPID(ctx context.Context, n *node.Node, unit string) (int, error) {
	out, err := n.Output(ctx, "systemctl", "show", "-p", "MainPID", "--value", unit)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(out))
}

// Release is that of the unit's file: "v1.7.0".
func (u *Unit) Release(ctx context.Context) (string, error) {
	out, err := u.Node.Output(ctx, "sh", "-c", u.Program+" --version")
	return strings.TrimPrefix(strings.TrimSpace(out), "Kubernetes "), err
}

// Ending writes a kubelet that exits at once, but prints its version and its flags as another does.
func Ending(e *labkit.Env, kubelet string) (file string, err error) {
	file = e.Path("kubelet-that-ends")
	text := "#!/bin/sh\nfor a; do case $a in --version|--help) exec " + kubelet + " \"$@\";; esac; done\nexit 1\n"
	return file, os.WriteFile(file, []byte(text), 0o755)
}
