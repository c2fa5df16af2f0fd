// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"fmt"
	"io/ioutil"
	"net/http"
	"net/http/httptest"
	"sync"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// fakeAPI is an API server with one pod that keeps what is written. before is called
// before each request, without any lock; an error refuses it. after is called when a
// request was served, before its answer is sent.
type fakeAPI struct {
	sync.Mutex
	clientset.Interface
	pod      *v1.Pod
	before   func(verb string) error
	after    func(verb string)
	written  []v1.PodStatus
	requests int
}

// verbs are those of requests by their methods; releases write a status by one of the two.
var verbs = map[string]string{"GET": "get", "PUT": "update", "PATCH": "update"}

func newAPI(pod *v1.Pod) *fakeAPI {
	a := &fakeAPI{pod: pod.DeepCopy()}
	codec := scheme.Codecs.LegacyCodec(v1.SchemeGroupVersion)
	answer := func(r *http.Request) (runtime.Object, error) {
		verb := verbs[r.Method]
		a.Lock()
		a.requests++
		before := a.before
		a.Unlock()
		if before != nil {
			if err := before(verb); err != nil {
				return nil, err
			}
		}
		a.Lock()
		defer a.Unlock()
		if a.pod == nil {
			return nil, errors.NewNotFound(v1.Resource("pods"), "foo")
		}
		if verb == "update" {
			body, _ := ioutil.ReadAll(r.Body)
			if r.Method == "PATCH" {
				was, err := json.Marshal(a.pod)
				if err != nil {
					return nil, err
				}
				if body, err = strategicpatch.StrategicMergePatch(was, body, v1.Pod{}); err != nil {
					return nil, err
				}
			}
			sent := &v1.Pod{}
			if err := json.Unmarshal(body, sent); err != nil {
				return nil, err
			}
			if sent.ResourceVersion != a.pod.ResourceVersion {
				return nil, errors.NewConflict(v1.Resource("pods"), "foo", fmt.Errorf("changed"))
			}
			a.pod.Status = sent.Status
			a.written = append(a.written, sent.Status)
			a.pod.ResourceVersion = fmt.Sprint(len(a.written))
		}
		return a.pod.DeepCopy(), nil
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o, err := answer(r)
		a.Lock()
		after := a.after
		a.Unlock()
		if after != nil {
			after(verbs[r.Method])
		}
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			status, ok := err.(errors.APIStatus)
			if !ok {
				status = errors.NewInternalError(err)
			}
			s := status.Status()
			if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
				w.Header().Set("Retry-After", fmt.Sprint(s.Details.RetryAfterSeconds))
			}
			w.WriteHeader(int(s.Code))
			o = &s
		}
		w.Write([]byte(runtime.EncodeOrDie(codec, o)))
	}))
	// The manager's own loop must not be slow in a test; the writer's limit is its own.
	a.Interface = clientset.NewForConfigOrDie(&rest.Config{Host: server.URL, QPS: 10000, Burst: 10000})
	return a
}

func (a *fakeAPI) set(before func(verb string) error) {
	a.Lock()
	defer a.Unlock()
	a.before = before
}

func (a *fakeAPI) setAfter(after func(verb string)) {
	a.Lock()
	defer a.Unlock()
	a.after = after
}

// ready is what the API server has of the containers and of the pod.
func (a *fakeAPI) ready() (c, d, pod bool) {
	a.Lock()
	defer a.Unlock()
	return a.pod.Status.ContainerStatuses[0].Ready, a.pod.Status.ContainerStatuses[1].Ready, podutil.IsPodReady(a.pod)
}

func (a *fakeAPI) writes() int {
	a.Lock()
	defer a.Unlock()
	return len(a.written)
}
