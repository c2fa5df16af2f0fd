// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package storageos

import (
	"errors"
	"strings"
	"testing"

	storageostypes "github.com/storageos/go-api/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
)

// refusing is a StorageOS server that answers whatever is asked with an error.
type refusing struct{ err error }

func (r refusing) Volume(string, string) (*storageostypes.Volume, error) { return nil, r.err }
func (r refusing) VolumeCreate(storageostypes.VolumeCreateOptions) (*storageostypes.Volume, error) {
	return nil, r.err
}
func (r refusing) VolumeMount(storageostypes.VolumeMountOptions) error     { return r.err }
func (r refusing) VolumeUnmount(storageostypes.VolumeUnmountOptions) error { return r.err }
func (r refusing) VolumeDelete(storageostypes.DeleteOptions) error         { return r.err }

// The server's answer is in no error, since the pod's event would have it.
func TestStorageOSAnswers(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ProvisionErrorsWithoutResponse, on)()
			u := &storageosUtil{}
			if err := u.NewAPI(&storageosAPIConfig{apiAddr: "tcp://127.0.0.1:1"}); err != nil {
				t.Fatal(err)
			}
			w, ok := u.api.(withoutAnswers)
			if !ok {
				t.Fatalf("the client is a %T", u.api)
			}
			w.api = refusing{errors.New("internal-page")}
			_, volume := w.Volume("ns", "v")
			_, create := w.VolumeCreate(storageostypes.VolumeCreateOptions{})
			for i, err := range []error{volume, create, w.VolumeMount(storageostypes.VolumeMountOptions{}),
				w.VolumeUnmount(storageostypes.VolumeUnmountOptions{}), w.VolumeDelete(storageostypes.DeleteOptions{})} {
				if err == nil || strings.Contains(err.Error(), "internal-page") == on {
					t.Errorf("gate %v, request %d: %v", on, i, err)
				}
			}
		}()
	}
}
