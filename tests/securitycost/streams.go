// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/types"
	consts "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	kubelet "k8s.io/kubernetes/pkg/kubelet/server/remotecommand"
)

// program stands for a container's: it prints so many bytes, in pieces of the size in which
// docker's output is copied.
type program struct{ size int }

func (p program) ExecInContainer(_ string, _ types.UID, _ string, _ []string, _ io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	piece := make([]byte, 32<<10)
	for left := p.size; left > 0; left -= len(piece) {
		if left < len(piece) {
			piece = piece[:left]
		}
		if _, err := out.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// counter counts what is written to it.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// execs are execs of a program that prints so many bytes: client-go's side of SPDY and the
// kubelet's, each over a connection of its own. Both sides are of the tree, so a limit of
// frames counts twice.
func execs(size int) func(string) (func(int) error, func(), error) {
	return func(string) (func(int) error, func(), error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, err
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			kubelet.ServeExec(w, req, program{size}, "pod", "", "main", []string{"print"}, &kubelet.Options{Stdout: true, Stderr: true},
				time.Minute, consts.DefaultStreamCreationTimeout, consts.SupportedStreamingProtocols)
		})}
		go s.Serve(l)
		u, err := url.Parse("http://" + l.Addr().String() + "/")
		if err != nil {
			return nil, nil, err
		}
		return func(times int) error {
			for i := 0; i < times; i++ {
				e, err := remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, u)
				if err != nil {
					return err
				}
				var out, errs counter
				if err := e.Stream(remotecommand.StreamOptions{Stdout: &out, Stderr: &errs}); err != nil {
					return err
				}
				if out != counter(size) || errs != 0 {
					return fmt.Errorf("exec: %d bytes of %d came, and %d errors", out, size, errs)
				}
			}
			return nil
		}, func() { s.Close() }, nil
	}
}
