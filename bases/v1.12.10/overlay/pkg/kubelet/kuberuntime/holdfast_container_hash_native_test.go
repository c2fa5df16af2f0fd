// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"testing"

	"k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/container/hashcompat"
	"k8s.io/kubernetes/pkg/kubelet/predecessor"
)

// goldenReleases are the columns of the golden data that this release knows.
var goldenReleases = map[string]hashcompat.Generation{
	"1.6.1": hashcompat.Gen16, "1.7.0": hashcompat.Gen17, "1.8.0": hashcompat.Gen18, "1.8.15": hashcompat.Gen18,
	"1.9.0": hashcompat.Gen19, "1.9.11": hashcompat.Gen19, "1.10.0": hashcompat.Gen110, "1.11.10": hashcompat.Gen110,
	"1.12.4": hashcompat.Gen112, "1.12.10": hashcompat.Gen112, "1.13.0": hashcompat.Gen112,
}

const (
	// goldenKept is the least number of their hashes that TestGoldenAPI keeps.
	goldenKept = 2150
	// of110 is what is recorded on a node that came from 1.10 or 1.11.
	of110 = hashcompat.Gen110
)

// annotationsOf are those of a new container.
func annotationsOf(c *v1.Container) map[string]string {
	return newContainerAnnotations(c, &v1.Pod{}, 0, &kubecontainer.RunContainerOptions{})
}

// TestFrom111AndBack: what 1.11 started is kept, and what is started on a node that came from 1.11
// has the hash that 1.11 computes, unless it sets a field that 1.11 does not know.
func TestFrom111AndBack(t *testing.T) {
	group, unmasked, usual := int64(7), v1.UnmaskedProcMount, v1.DefaultProcMount
	for name, tc := range map[string]struct {
		sc   *v1.SecurityContext
		want hashcompat.Generation
		kept bool
	}{
		"none":              {nil, hashcompat.Native, true},
		"empty":             {&v1.SecurityContext{}, hashcompat.Gen110, true},
		"runAsGroup":        {&v1.SecurityContext{RunAsGroup: &group}, hashcompat.Gen110, true},
		"procMount Default": {&v1.SecurityContext{ProcMount: &usual}, hashcompat.Gen110, true},
		"procMount":         {&v1.SecurityContext{ProcMount: &unmasked}, hashcompat.Native, false},
	} {
		c, seen := mountContainer(), mountContainer()
		c.SecurityContext = tc.sc
		if tc.sc != nil {
			seen.SecurityContext = tc.sc.DeepCopy()
			seen.SecurityContext.ProcMount = nil
		}
		recorded := hashOf(t, &seen, hashcompat.Gen110)
		for _, enabled := range []bool{true, false} {
			func() {
				defer setGates(t, enabled, true)()
				native := kubecontainer.HashContainer(&c)
				_, _, changed := containerChanged(&c, &kubecontainer.ContainerStatus{Hash: recorded})
				if want := recorded != native && (!enabled || !tc.kept); changed != want {
					t.Errorf("%s, gate %v: changed = %v, want %v", name, enabled, changed, want)
				}
				predecessor.Default = predecessor.NewKnown("v1.11.10")
				want := native
				if enabled {
					want = hashOf(t, &c, tc.want)
				}
				if got := containerHashToRecord(&c, native); got != want {
					t.Errorf("%s, gate %v: recorded %x, want %x", name, enabled, got, want)
				}
				if enabled && tc.kept && want != recorded {
					t.Errorf("%s: 1.11 computes %x, and %x is recorded", name, recorded, want)
				}
			}()
		}
	}
}
