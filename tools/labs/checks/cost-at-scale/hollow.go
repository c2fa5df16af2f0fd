// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package costatscale

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/process"
)

func nodeName(i int) string { return fmt.Sprintf("hollow-%03d", i) }

// nodeIP is the address of a hollow node, one of the machine's.
func nodeIP(i int) string { return fmt.Sprintf("10.92.0.%d", i+1) }

// own gives a hollow node folders of its own: the socket of its dockershim, the checkpoints
// of its sandboxes and the links to its logs have fixed names. Kubemark has it in a
// container. The mounts end with the process's namespace. $0 is the program, $1 its
// /etc/hosts, where it finds its address.
const own = `for d in /run /var/lib/dockershim /var/log; do mkdir -p $d; mount -t tmpfs tmpfs $d; done
mount --bind "$1" /etc/hosts; shift; exec "$0" "$@"`

// startHollow starts them and waits until all are ready.
func (l *lab) startHollow(ctx context.Context) error {
	pki, err := l.e.GetPKI()
	if err != nil {
		return err
	}
	l.hollow = make([]*process.Proc, l.nodes)
	g, starting := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i := range l.nodes {
		name := nodeName(i)
		conf, err := pki.Kubeconfig(name, l.c.APIServer.URL, "system:node:"+name, "system:nodes")
		if err != nil {
			return err
		}
		port, err := l.e.FreePort()
		if err != nil {
			return err
		}
		readOnly, err := l.e.FreePort()
		if err != nil {
			return err
		}
		tmp, hosts := l.e.Path(name), l.e.Path(name, "hosts")
		if err := os.MkdirAll(tmp, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"+nodeIP(i)+" "+name+"\n"), 0o644); err != nil {
			return err
		}
		if err := machine.Run(ctx, "ip", "addr", "add", nodeIP(i)+"/32", "dev", machine.Bridge); err != nil {
			return err
		}
		g.Go(func() (err error) {
			l.hollow[i], err = l.e.Start(starting, process.Process{Name: name, Path: "/bin/sh", Cloneflags: unix.CLONE_NEWNS, Env: []string{"TMPDIR=" + tmp},
				Args: []string{"-ec", own, l.e.Stock(base, hollow).Path, hosts, "--morph=kubelet", "--name=" + name, "--kubeconfig=" + conf,
					fmt.Sprintf("--kubelet-port=%d", port), fmt.Sprintf("--kubelet-read-only-port=%d", readOnly), "--logtostderr=true"},
				HealthURL: fmt.Sprintf("http://127.0.0.1:%d/healthz", readOnly), StartTimeout: 3 * time.Minute})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	_, err = l.c.Client.WaitList(ctx, kube.Nodes, "", "", 5*time.Minute, "all ready", func(list []kube.Object) (bool, error) {
		ready := 0
		for i := range list {
			if kube.Condition(&list[i], "Ready") == "True" {
				ready++
			}
		}
		if ready != l.nodes {
			return false, fmt.Errorf("%d of %d", ready, l.nodes)
		}
		return true, nil
	})
	return err
}
