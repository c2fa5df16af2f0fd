// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestExecs: every byte goes through the kubelet's streams.
func TestExecs(t *testing.T) {
	for _, size := range []int{0, 1, 100000} {
		do, clean, err := execs(size)("")
		if err == nil {
			err = do(3)
		}
		if err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		clean()
	}
}
