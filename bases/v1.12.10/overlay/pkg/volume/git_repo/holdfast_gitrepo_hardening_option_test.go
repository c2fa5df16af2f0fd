// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package git_repo

import (
	"os"
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/volume"
)

// TestGitRepoHardeningOption: this release refuses an option by itself, before it is asked for a
// mounter.
func TestGitRepoHardeningOption(t *testing.T) {
	dir, host := newTestHost(t)
	defer os.RemoveAll(dir)
	for _, src := range []v1.GitRepoVolumeSource{
		{Repository: "--upload-pack=touch /tmp/x"},
		{Repository: "https://a/b", Revision: "--orphan=x"},
		{Repository: "https://a/b", Directory: "--bare"},
	} {
		src := src
		spec := volume.NewSpecFromVolume(&v1.Volume{Name: "vol1", VolumeSource: v1.VolumeSource{GitRepo: &src}})
		if _, err := (&gitRepoPlugin{host}).NewMounter(spec, &v1.Pod{}, volume.VolumeOptions{}); err == nil {
			t.Errorf("%+v is not refused", src)
		}
	}
}
