// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// What rbd 16.2 prints, and what 12.2 prints of the same lock.
func TestSqueeze(t *testing.T) {
	two := "There is 1 exclusive lock on this image.\n" +
		"Locker       ID                        Address                  \n" +
		"client.4277  kubelet_lock_magic_node1  10.95.0.11:0/1582627961  \n"
	one := "There is 1 exclusive lock on this image.\n" +
		"Locker ID Address \n" +
		"client.4277 kubelet_lock_magic_node1 10.95.0.11:0/1582627961 \n"
	if got := squeeze(two); got != one {
		t.Errorf("%q", got)
	}
}
