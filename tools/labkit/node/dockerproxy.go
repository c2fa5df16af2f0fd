// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// ProxyDocker stands before dockerd on a socket of its own and tells saw of each call and of the
// status of its answer, of several at a time. endpoint is what a kubelet's --docker-endpoint
// wants. cAdvisor, within the kubelet, does not follow that flag. A reboot of the node ends it.
func (n *Node) ProxyDocker(saw func(r *http.Request, status int)) (endpoint string, err error) {
	// In the node's /run, as the path of a Unix socket has 107 bytes at most (unix(7), sun_path).
	const socket = "/run/docker-calls.sock"
	l, err := net.Listen("unix", fmt.Sprintf("/proc/%d/root%s", n.holder.Pid, socket))
	if err != nil {
		return "", err
	}
	srv := &http.Server{ErrorLog: stdlog.New(io.Discard, "", 0), Handler: &httputil.ReverseProxy{
		FlushInterval: -1,
		ErrorLog:      stdlog.New(io.Discard, "", 0),
		Transport:     n.Docker.http.Transport,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "docker"}) },
		ModifyResponse: func(r *http.Response) error {
			saw(r.Request, r.StatusCode)
			return nil
		},
		// A dockerd that is down looks like a connection that breaks, not like a 502.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}}
	go srv.Serve(l)
	n.in.OnStop(n.Name+"-docker-calls", func(context.Context) error { return srv.Close() })
	return "unix://" + socket, nil
}

// CgroupPath is that of the node's control groups, relative to the root of each hierarchy.
func (n *Node) CgroupPath() string { return n.cgroup }
