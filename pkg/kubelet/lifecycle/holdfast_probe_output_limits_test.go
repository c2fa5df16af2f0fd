// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"
	"io/ioutil"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
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

// hook is the runtime and the network of hooks that fail and say much.
type hook struct {
	text string
	resp *http.Response
}

func (h *hook) RunInContainer(kubecontainer.ContainerID, []string, time.Duration) ([]byte, error) {
	return []byte(h.text), errors.New(h.text)
}

func (h *hook) Get(string) (*http.Response, error) { return h.resp, errors.New(h.text) }

// TestHookMessageLimit: the message of a failed hook, which is an event, has 10 KiB of the error
// and 10 KiB of the output at most.
func TestHookMessageLimit(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ProbeOutputLimits, on)()
			for _, handler := range []*v1.Handler{{Exec: &v1.ExecAction{}}, {HTTPGet: &v1.HTTPGetAction{Host: "host"}}} {
				req, _ := http.NewRequest("GET", "http://host", nil)
				h := &hook{text: strings.Repeat("x", 1<<20), resp: &http.Response{Body: ioutil.NopCloser(strings.NewReader("body")), Request: req}}
				pod := &v1.Pod{}
				pod.UID = "uid"
				message, err := NewHandlerRunner(h, h, nil).Run(kubecontainer.ContainerID{}, pod, &v1.Container{Name: "c"}, handler)
				if err == nil || !strings.Contains(message, "xxxx") || (len(message) < 2*outputlimit.ShownText+200) != on {
					t.Errorf("gate %v: a message of %d bytes, error %.50v", on, len(message), err)
				}
				if sender := outputlimit.Sender(h.resp.Request); handler.HTTPGet != nil && sender != "uid/c" {
					t.Errorf("the answer is of %q", sender)
				}
			}
		}()
	}
}
