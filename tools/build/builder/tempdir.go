// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"syscall"

	"holdfast/tools/build/exit"
)

// TempDir makes a folder for the temporary files of tests, which many of
// upstream's leave behind (glog writes there), and adds it to env; end removes
// it. Its path is short, as tests put unix sockets there, and the same whenever the
// same tests run in one checkout, as the go command keeps a test's result only for the
// environment that the test has looked at. tests tells them from others that run at
// the same time. A folder that is in use is an error: the go command builds there too, and
// would lose its work when the first of the two removes it.
func TempDir(root, tests string, env []string) (withTmp []string, end func(), err error) {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s\n%s", root, tests)
	tmp := filepath.Join(os.TempDir(), fmt.Sprintf("hf-%08x", h.Sum32()))
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return nil, nil, err
	}
	dir, err := os.Open(tmp)
	if err != nil {
		return nil, nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		dir.Close()
		return nil, nil, exit.Preconditionf("%s: the same tests of %s run already (%s: %v): wait until they end", tests, root, tmp, err)
	}
	return append(env, "TMPDIR="+tmp), func() { os.RemoveAll(tmp); dir.Close() }, nil
}
