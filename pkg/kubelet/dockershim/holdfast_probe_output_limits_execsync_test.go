// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockershim

import "time"

func execSync(ds *dockerService, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	return ds.ExecSync(id, cmd, timeout)
}
