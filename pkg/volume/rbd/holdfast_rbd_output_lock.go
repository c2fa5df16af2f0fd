// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"fmt"
	"strings"

	"k8s.io/kubernetes/pkg/util/node"
	utilexec "k8s.io/utils/exec"
)

// ownLockID is the ID of the lock that a kubelet up to 1.8 on this machine takes: by the
// operating system's host name, whatever the node is called.
func ownLockID() string { return kubeLockMagic + node.GetHostname("") }

// keepsOwnLock says whether an attach leaves this machine's own lock on the image.
var keepsOwnLock = func() bool { return false }

// keyOption is the option of rbd for the key: the one that is given, else the keyring. Stock
// gives an empty key to status and info, with which no keyring is read.
func keyOption(b *rbdMounter, secret string) string {
	if secret == "" && b.Keyring != "" {
		return "--keyring=" + b.Keyring
	}
	return "--key=" + secret
}

// run runs "rbd <words> …" on an image with the credentials of a mount.
func (b *rbdMounter) run(words []string, more ...string) ([]byte, error) {
	args := append([]string{}, words...)
	args = append(args, "--pool", b.Pool, "--id", b.Id, "-m", (&RBDUtil{}).kernelRBDMonitorsOpt(b.Mon))
	if b.Secret != "" {
		args = append(args, "--key="+b.Secret)
	} else {
		args = append(args, "-k", b.Keyring)
	}
	return b.exec.Run("rbd", append(args, more...)...)
}

// listWatchers returns the clients that have an image open.
func (b *rbdMounter) listWatchers() ([]rbdWatcher, error) {
	output, err := b.run([]string{"status", b.Image})
	if err != nil {
		return nil, rbdErrors(err, fmt.Errorf("rbd: failed to ask for the watchers of %s: %v, rbd output: %s", b.shownImage(), err, shownOutput(output)))
	}
	return parseStatus(output)
}

// listLocks returns the advisory locks on an image.
func (b *rbdMounter) listLocks() ([]rbdLock, error) {
	output, err := b.run([]string{"lock", "list", b.Image})
	if err != nil {
		return nil, fmt.Errorf("rbd: failed to list the locks of %s: %v, rbd output: %s", b.shownImage(), err, shownOutput(output))
	}
	return parseLockList(output)
}

// ownLock returns the lock of this machine on an image, nil if there is none.
func (b *rbdMounter) ownLock() (*rbdLock, error) {
	locks, err := b.listLocks()
	for i := range locks {
		if locks[i].id == ownLockID() {
			return &locks[i], err
		}
	}
	return nil, err
}

// removeLock removes an advisory lock. Ceph would put its holder's address on the blocklist
// for an hour, for which a user with mon 'allow r' has no right, and which would keep out
// whatever has that address next: so it is told not to, with the option's name since
// Ceph 16 and with the one before.
func (b *rbdMounter) removeLock(l rbdLock) error {
	var output []byte
	var err error
	for _, option := range []string{"--rbd_blocklist_on_break_lock=false", "--rbd_blacklist_on_break_lock=false"} {
		output, err = b.run([]string{"lock", "remove", b.Image, l.id, l.locker}, option)
		if err == nil {
			return nil
		}
		if !strings.Contains(string(output), "unrecognised option") {
			break
		}
	}
	return fmt.Errorf("rbd: failed to remove the lock %v of %s: %v, rbd output: %s", l, b.shownImage(), err, shownOutput(output))
}

// exitStatus is how a command ended, -1 if it did not run.
func exitStatus(err error) int {
	if ee, ok := err.(utilexec.ExitError); ok && ee.Exited() {
		return ee.ExitStatus()
	}
	return -1
}
