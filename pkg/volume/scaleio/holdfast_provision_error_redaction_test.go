// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleio

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/util/mount"
)

// The gateway that a pod names answers with a page of the node's network, which the
// pod's event would quote.
func TestScaleIOAnswers(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.WriteHeader(http.StatusForbidden)
		w.Write([]byte(`{"message": "internal-page", "httpStatusCode": 403, "errorCode": 0}`))
	}))
	defer server.Close()
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ProvisionErrorsWithoutResponse, on)()
			asked = 0
			m, err := newSioMgr(map[string]string{confKey.gateway: server.URL, confKey.sslEnabled: "false", confKey.username: "u", confKey.password: "p"}, mount.NewFakeExec(nil))
			if err != nil {
				t.Fatal(err)
			}
			_, err = m.AttachVolume("v", false)
			if err == nil || strings.Contains(err.Error(), "internal-page") == on || asked == 0 {
				t.Errorf("gate %v: asked %d times: %v", on, asked, err)
			}
		}()
	}
}
