// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node is the commands node check, node swap and node back: the kubelet of the machine
// that they run on, the unit that starts it, and the swap to Holdfast and back. See
// docs/user/upgrade-1.7-to-1.9.md.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Host is what the commands need of a machine. Tests have another one.
type Host struct {
	// Proc and Sys are /proc and /sys, Lib is where kept kubelets, state and journal are.
	Proc, Sys, Lib string
	// Run runs a program and returns what it wrote to stdout and stderr, bounded.
	Run func(ctx context.Context, name string, args ...string) (string, error)
	// Unmount unmounts a mount point. It follows no symbolic link.
	Unmount func(path string) error
	// Link gives a file a second name; it fails on another file system.
	Link func(from, to string) error
	// Space says how much of the file system of a path is free, in percent, and whether it
	// is read-only.
	Space func(path string) (Space, error)
	// Get asks one of the kubelet's own ports, or docker if socket is not "".
	Get func(ctx context.Context, socket, url string) ([]byte, error)
	// Step is called before each step that changes something. Tests end the program there.
	Step func(name string)
	// Poll is how often a kubelet is looked at while something is waited for.
	Poll time.Duration
}

// Space is what a file system has left.
type Space struct {
	FreeBytes, TotalBytes   uint64 // free for root's daemons, as df prints it
	FreeInodes, TotalInodes uint64 // TotalInodes is 0 where the file system has no limit
	ReadOnly                bool
}

// What is read of programs and ports is bounded, for they may be anything.
const (
	maxOutput  = 4 << 20
	maxAnswer  = 64 << 20
	askTimeout = 5 * time.Second
)

// thisHost is the machine that the program runs on.
func thisHost(lib string) *Host {
	return &Host{
		Proc: "/proc", Sys: "/sys", Lib: lib,
		Run: func(ctx context.Context, name string, args ...string) (string, error) {
			var out bounded
			cmd := exec.CommandContext(ctx, name, args...)
			if name != "sh" { // a kubelet that it starts must not write into a pipe that ends
				cmd.Stdout, cmd.Stderr = &out, &out
			}
			cmd.WaitDelay = time.Second
			err := cmd.Run()
			if ctx.Err() != nil {
				err = fmt.Errorf("%s did not end in time: %w", name, ctx.Err())
			}
			return string(out), err
		},
		Unmount: func(path string) error {
			const noFollow = 8 // UMOUNT_NOFOLLOW
			return syscall.Unmount(path, noFollow)
		},
		Link: os.Link,
		Space: func(path string) (Space, error) {
			var s syscall.Statfs_t
			if err := syscall.Statfs(path, &s); err != nil {
				return Space{}, err
			}
			const readOnly = 1 // ST_RDONLY
			b := uint64(s.Bsize)
			return Space{FreeBytes: s.Bavail * b, TotalBytes: s.Blocks * b, FreeInodes: s.Ffree, TotalInodes: s.Files, ReadOnly: s.Flags&readOnly != 0}, nil
		},
		Get:  get,
		Step: func(string) {},
		Poll: 200 * time.Millisecond,
	}
}

// bounded keeps the first bytes that are written to it and drops the others.
type bounded []byte

func (b *bounded) Write(p []byte) (int, error) {
	*b = append(*b, p[:min(len(p), maxOutput-len(*b))]...)
	return len(p), nil
}

func get(ctx context.Context, socket, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	// A proxy of the environment is for other machines.
	t := &http.Transport{DisableKeepAlives: true}
	if socket != "" {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = errors.New("its answer is too large")
	}
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s", res.Status)
	}
	return b, err
}
