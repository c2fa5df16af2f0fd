// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upstreamtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestStartEtcdEnds: an etcd that never answers is waited for until the context ends, and ended.
func TestStartEtcdEnds(t *testing.T) {
	dir := t.TempDir()
	pid := filepath.Join(dir, "pid")
	if err := os.WriteFile(filepath.Join(dir, "etcd"), []byte("#!/bin/sh\necho $$ >"+pid+"\nexec sleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithCancelCause(t.Context())
	told := errors.New("told to end")
	go func() {
		for {
			if b, _ := os.ReadFile(pid); len(b) > 1 {
				cancel(told)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	began := time.Now()
	if _, _, err := startEtcd(ctx); !errors.Is(err, told) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	b, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + string(b[:len(b)-1])); !os.IsNotExist(err) {
		t.Errorf("its process is there: %v", err)
	}
}
