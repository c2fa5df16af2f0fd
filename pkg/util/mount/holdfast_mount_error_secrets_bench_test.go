// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"fmt"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// BenchmarkMountCommand runs a mount command that does nothing, with the gate off,
// which is what stock does, and on.
func BenchmarkMountCommand(b *testing.B) {
	options := []string{"username=user", "password=secret-of-the-storage", "vers=3.0", "ro"}
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprintf("on=%v", on), func(b *testing.B) {
			if err := utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%v", features.MountErrorsWithoutSecrets, on)); err != nil {
				b.Fatal(err)
			}
			defer utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=true", features.MountErrorsWithoutSecrets))
			m := &Mounter{}
			for i := 0; i < b.N; i++ {
				if err := m.doMount("", "true", "//server/share", b.Name(), "cifs", options); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
