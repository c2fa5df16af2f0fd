// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/probe"
	httprobe "k8s.io/kubernetes/pkg/probe/http"
	"k8s.io/kubernetes/pkg/util/outputlimit"
	"k8s.io/utils/exec"
)

// outputRunner is a runtime in whose containers each command prints and fails.
type outputRunner struct {
	output []byte
	err    error
}

func (r outputRunner) RunInContainer(kubecontainer.ContainerID, []string, time.Duration) ([]byte, error) {
	return r.output, r.err
}

// TestProbeEventLimit: what a pod says in a failed probe's event, however it says it, is cut.
func TestProbeEventLimit(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/"+long, http.StatusFound)
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	failed := exec.CodeExitError{Err: errors.New("exit"), Code: 1}
	for _, tc := range []struct {
		name    string
		handler v1.Handler
		runner  outputRunner
	}{
		{"a command's output", v1.Handler{Exec: &v1.ExecAction{}}, outputRunner{[]byte(long), failed}},
		{"the runtime's error", v1.Handler{Exec: &v1.ExecAction{}}, outputRunner{nil, errors.New(long)}},
		{"a redirect's address", v1.Handler{HTTPGet: &v1.HTTPGetAction{Scheme: v1.URISchemeHTTP, Host: u.Hostname(), Port: intstr.FromInt(port)}}, outputRunner{}},
	} {
		for _, on := range []bool{true, false} {
			func() {
				defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ProbeOutputLimits, on)()
				recorder, id := record.NewFakeRecorder(1), kubecontainer.ContainerID{Type: "test", ID: "id"}
				refs := kubecontainer.NewRefManager()
				refs.SetRef(id, &v1.ObjectReference{Name: "pod"})
				pb := newProber(tc.runner, refs, recorder)
				container := v1.Container{Name: "c", LivenessProbe: &v1.Probe{Handler: tc.handler, TimeoutSeconds: 10}}
				if result, _ := pb.probe(liveness, &v1.Pod{}, v1.PodStatus{}, container, id); result != results.Failure {
					t.Errorf("%s: %v", tc.name, result)
				}
				event := <-recorder.Events
				if short := len(event) < outputlimit.ShownText+100; short != on || !strings.Contains(event, "xxxx") {
					t.Errorf("%s, gate %v: an event of %d bytes: %.200s", tc.name, on, len(event), event)
				}
			}()
		}
	}
}

// namingProber is an HTTP prober that notes whose probes it makes.
type namingProber struct{ senders *[]string }

func (p namingProber) OfContainer(container string) httprobe.HTTPProber {
	*p.senders = append(*p.senders, container)
	return p
}

func (p namingProber) Probe(*url.URL, http.Header, time.Duration) (probe.Result, string, error) {
	return probe.Success, "", nil
}

// TestProbeNamesContainer: what the kubelet remembers of an answer that it cut is the container.
func TestProbeNamesContainer(t *testing.T) {
	var senders []string
	pb := newProber(nil, kubecontainer.NewRefManager(), record.NewFakeRecorder(1))
	pb.livenessHttp, pb.readinessHttp = namingProber{&senders}, namingProber{&senders}
	get := &v1.Probe{Handler: v1.Handler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt(80)}}}
	pod, container := &v1.Pod{}, v1.Container{Name: "c", LivenessProbe: get, ReadinessProbe: get}
	pod.UID = "uid"
	for _, kind := range []probeType{liveness, readiness} {
		if result, err := pb.probe(kind, pod, v1.PodStatus{}, container, kubecontainer.ContainerID{}); result != results.Success || err != nil {
			t.Errorf("%v: %v, %v", kind, result, err)
		}
	}
	if got := strings.Join(senders, " "); got != "uid/c uid/c" {
		t.Errorf("the probes are of %q", got)
	}
}
