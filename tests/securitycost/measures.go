// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/docker/spdystream"
	"k8s.io/kubernetes/pkg/probe"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	"k8s.io/kubernetes/pkg/util/mount"
)

// measure is something that a limit is in the way of. prepare returns what does it so many
// times, and what takes away what prepare has made.
type measure struct {
	name    string
	times   int
	prepare func(dir string) (do func(times int) error, clean func(), err error)
}

var measures = []measure{
	{"probe-1B", 2000, probes(1)},
	{"probe-10KB", 2000, probes(10 << 10)},
	{"probe-10MB", 20, probes(10 << 20)},
	{"exec-open", 1000, streams(100)},
	{"exec-1MB", 200, streams(1 << 20)},
	{"mount", 40, mounts},
	{"subpath", 60, subPaths},
}

// probes are HTTP probes of a server that answers so many bytes.
func probes(size int) func(string) (func(int) error, func(), error) {
	return func(string) (func(int) error, func(), error) {
		body := bytes.Repeat([]byte("x"), size)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, err
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(body) })}
		go s.Serve(l)
		u, err := url.Parse("http://" + l.Addr().String() + "/")
		if err != nil {
			return nil, nil, err
		}
		prober := httpprobe.New()
		return func(times int) error {
			for i := 0; i < times; i++ {
				if result, text, err := prober.Probe(u, http.Header{}, time.Minute); result != probe.Success || err != nil {
					return fmt.Errorf("%v, %.100s, %v", result, text, err)
				}
			}
			return nil
		}, func() { s.Close() }, nil
	}
}

// streams are those of exec: each is opened with its header, sends size bytes, and ends.
func streams(size int) func(string) (func(int) error, func(), error) {
	return func(string) (func(int) error, func(), error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, err
		}
		defer l.Close()
		accepted := make(chan net.Conn, 1)
		go func() {
			c, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}()
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return nil, nil, err
		}
		back, ok := <-accepted
		if !ok {
			return nil, nil, fmt.Errorf("no connection")
		}
		server, err := spdystream.NewConnection(back, true)
		if err != nil {
			return nil, nil, err
		}
		client, err := spdystream.NewConnection(conn, false)
		if err != nil {
			return nil, nil, err
		}
		read := make(chan int64)
		go server.Serve(func(s *spdystream.Stream) {
			s.SendReply(http.Header{}, false)
			n, _ := io.Copy(io.Discard, s)
			s.Close()
			read <- n
		})
		go client.Serve(spdystream.NoOpStreamHandler)
		data := make([]byte, size)
		return func(times int) error {
			for i := 0; i < times; i++ {
				s, err := client.CreateStream(http.Header{"Streamtype": {"stdin"}}, nil, false)
				if err != nil {
					return err
				}
				if err := s.Wait(); err != nil {
					return err
				}
				if _, err := s.Write(data); err != nil {
					return err
				}
				if err := s.Close(); err != nil {
					return err
				}
				if n := <-read; n != int64(size) {
					return fmt.Errorf("%d bytes came, want %d", n, size)
				}
			}
			return nil
		}, func() { client.Close(); server.Close() }, nil
	}
}

// mounts are those of a volume with options.
func mounts(dir string) (func(int) error, func(), error) {
	target := filepath.Join(dir, "mounted")
	m := mount.New("")
	return func(times int) error {
		for i := 0; i < times; i++ {
			if err := m.Mount("volume", target, "tmpfs", []string{"size=1m", "mode=700", "noatime"}); err != nil {
				return err
			}
			if err := m.Unmount(target); err != nil {
				return err
			}
		}
		return nil
	}, func() {}, os.Mkdir(target, 0700)
}

// subPaths are bound and taken away.
func subPaths(dir string) (func(int) error, func(), error) {
	volume := filepath.Join(dir, "volume")
	sub := mount.Subpath{Path: filepath.Join(volume, "parent", "sub"), VolumeName: "vol", VolumePath: volume, PodDir: filepath.Join(dir, "pod"), ContainerName: "main"}
	m := mount.New("")
	return func(times int) error {
		for i := 0; i < times; i++ {
			if _, _, err := m.PrepareSafeSubpath(sub); err != nil {
				return err
			}
			if err := m.CleanSubPaths(sub.PodDir, sub.VolumeName); err != nil {
				return err
			}
		}
		return nil
	}, func() {}, os.MkdirAll(sub.Path, 0755)
}
