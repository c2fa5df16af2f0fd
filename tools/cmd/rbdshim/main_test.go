// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
)

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

// The kernel's own options are none of a question's.
func TestQuestions(t *testing.T) {
	got := questions([]string{"--pool", "rbd", "-o", "noudev", "-m", "10.0.0.1:6789", "--options", "ro", "--key=x"})
	if want := []string{"--pool", "rbd", "-m", "10.0.0.1:6789", "--key=x"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
