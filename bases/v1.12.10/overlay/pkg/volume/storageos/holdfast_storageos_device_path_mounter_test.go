// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package storageos

// mounterOf mounts volumes whose devices are in dir.
func mounterOf(dir string, s *storageos) *storageosMounter {
	return &storageosMounter{storageos: s, deviceDir: dir}
}
