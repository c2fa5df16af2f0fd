// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"io/ioutil"
	"net/http"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/util/outputlimit"
)

func TestHookOutputLimits(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ProbeOutputLimits, on)()
			for _, size := range []int{0, 1, outputlimit.HTTPBody, outputlimit.HTTPBody + 1, 10 << 20} {
				body := strings.NewReader(strings.Repeat("x", size))
				got := getHttpRespBody(&http.Response{Body: ioutil.NopCloser(body)})
				want := size
				if on && want > outputlimit.HTTPBody {
					want = outputlimit.HTTPBody
				}
				if len(got) != want || body.Len() != 0 {
					t.Errorf("gate %v, %d bytes: kept %d, want %d; %d left unread", on, size, len(got), want, body.Len())
				}
			}
		}()
	}
}
