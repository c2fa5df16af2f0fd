// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package git_repo

import (
	"path/filepath"
	"testing"

	"k8s.io/api/core/v1"
)

// TestGitRepoHardeningOption: an option in place of the repository.
func TestGitRepoHardeningOption(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "marker")
	hardened{"option", "repository", &v1.GitRepoVolumeSource{Repository: "--upload-pack=echo > " + marker + ";", Directory: "file:///nonexistent"},
		func(string) bool { return written(marker) }}.test(t)
}
