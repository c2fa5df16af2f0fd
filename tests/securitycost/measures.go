// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

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
	{"exec", 100, execs(1)},
	{"exec-32MB", 6, execs(32 << 20)},
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
