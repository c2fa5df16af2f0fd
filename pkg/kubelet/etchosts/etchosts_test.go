// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package etchosts

import (
	"io/ioutil"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
)

func counted(t *testing.T, c prometheus.Counter) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func TestUsage(t *testing.T) {
	dir, err := ioutil.TempDir("", "etchosts")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	defer SetPodDir(nil)
	if b, i := Usage("small"); b != 0 || i != 0 {
		t.Errorf("before SetPodDir: %d bytes, %d inodes", b, i)
	}
	write := func(uid string, size int) string {
		file := filepath.Join(dir, uid, "etc-hosts")
		if err := os.MkdirAll(filepath.Dir(file), 0755); err != nil {
			t.Fatal(err)
		}
		if err := ioutil.WriteFile(file, make([]byte, size), 0644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("small", 200)
	write("large", 3<<20)
	if err := os.Truncate(write("sparse", 200), 1<<30); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "link"), 0755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "large", "etc-hosts"), filepath.Join(dir, "link", "etc-hosts")); err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CountEtcHosts, on)()
			SetPodDir(func(uid types.UID) string { return filepath.Join(dir, string(uid)) })
			files, would := counted(t, largeFiles), counted(t, wouldCount)
			for _, tc := range []struct {
				uid         types.UID
				least, most uint64
				inodes      uint64
			}{
				{"small", 0, 64 << 10, 1},
				{"large", 3 << 20, 4 << 20, 1},
				{"large", 3 << 20, 4 << 20, 1}, // counted once
				{"sparse", 0, 64 << 10, 1},
				{"link", 0, 0, 0},
				{"missing", 0, 0, 0},
			} {
				if !on {
					tc.least, tc.most, tc.inodes = 0, 0, 0
				}
				if b, i := Usage(tc.uid); b < tc.least || b > tc.most || i != tc.inodes {
					t.Errorf("gate %v, %s: %d bytes, %d inodes", on, tc.uid, b, i)
				}
			}
			files, would = counted(t, largeFiles)-files, counted(t, wouldCount)-would
			if (files == 1) != on || (would == 1) == on {
				t.Errorf("gate %v: counted %v, %v would be", on, files, would)
			}
		}()
	}
}
