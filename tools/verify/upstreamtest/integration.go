// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upstreamtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
)

// integrationSuites are upstream's integration tests of what our binaries do, by
// their folder below test/integration. Each starts an API server in its own process
// and needs an etcd beside it. The others are of the API server, of the scheduler,
// or measure.
var integrationSuites = []string{
	"client", "configmap", "daemonset", "deployment", "evictions", "garbagecollector", "pods", "quota", "replicaset",
	"replicationcontroller", "scale", "secrets", "serviceaccount", "ttlcontroller", "volume",
}

// Integration lists the packages of the integration suites; only chooses some of
// them, by their folder.
func Integration(b *base.Base, only []string) ([]string, error) {
	if len(only) == 0 {
		only = integrationSuites
	}
	var out []string
	for _, s := range only {
		dir := filepath.Join(b.SrcDir(base.Stock), "test", "integration", s)
		if files, _ := filepath.Glob(filepath.Join(dir, "*_test.go")); len(files) == 0 {
			return nil, exit.Usagef("base %s has no integration suite %q: they are %q", b.Name, s, integrationSuites)
		}
		out = append(out, b.Module+"/test/integration/"+s)
	}
	return out, nil
}

// etcdURLVariable tells upstream's integration tests where etcd is.
const etcdURLVariable = "KUBE_INTEGRATION_ETCD_URL"

// startEtcd starts Debian's etcd on loopback, with its data in a folder of its own, and waits a
// minute at most until it is healthy. stop ends it and removes the folder.
func startEtcd(ctx context.Context) (url string, stop func(), err error) {
	path, err := exec.LookPath("etcd")
	if err != nil {
		return "", nil, exit.Preconditionf("upstream's integration tests need etcd: install it as root with apt-get install etcd-server")
	}
	client, err := freePort()
	if err != nil {
		return "", nil, err
	}
	peer, err := freePort()
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "hf-etcd-")
	if err != nil {
		return "", nil, err
	}
	url = "http://" + client
	cmd := exec.Command(path, "--data-dir="+dir, "--listen-client-urls="+url, "--advertise-client-urls="+url, "--listen-peer-urls=http://"+peer,
		"--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=default=http://"+peer, "--unsafe-no-fsync")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began, ended := make(chan error, 1), make(chan struct{})
	go func() {
		// The signal comes when the thread ends that has started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		began <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	stop = func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
		}
		<-ended
		os.RemoveAll(dir)
	}
	if err := <-began; err != nil {
		stop()
		return "", nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, exit.Preconditionf("etcd is not healthy after a minute"))
	defer cancel()
	for !healthy(ctx, url) {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			stop()
			return "", nil, fmt.Errorf("%w\n%s", context.Cause(ctx), log.Bytes())
		}
	}
	return url, stop, nil
}

// healthy asks an etcd whether it is.
func healthy(ctx context.Context, url string) bool {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// freePort is a loopback address that was free just now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
