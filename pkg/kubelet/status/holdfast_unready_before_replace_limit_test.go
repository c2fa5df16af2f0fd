// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"io/ioutil"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// podServer answers GETs of pods and PUTs of their status.
func podServer(t *testing.T, pods map[string]*v1.Pod) (url string, stop func()) {
	var lock sync.Mutex
	codec := scheme.Codecs.LegacyCodec(v1.SchemeGroupVersion)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		parts := strings.Split(r.URL.Path, "/") // /api/v1/namespaces/new/pods/NAME[/status]
		pod := pods[parts[6]]
		if r.Method == "PUT" {
			body, _ := ioutil.ReadAll(r.Body)
			if _, _, err := codec.Decode(body, nil, pod); err != nil {
				t.Error(err)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(runtime.EncodeOrDie(codec, pod)))
	}))
	return server.URL, server.Close
}

// TestHoldfastUnreadyOwnLimit: the statuses of a full node do not wait for the kubelet's
// 5 requests a second, whoever used those up, nor take any of them.
func TestHoldfastUnreadyOwnLimit(t *testing.T) {
	const count = 110
	pods := map[string]*v1.Pod{}
	var all []*v1.Pod
	for i := 0; i < count; i++ {
		pod := twoContainers()
		pod.Name = fmt.Sprintf("pod-%d", i)
		pod.UID = types.UID(pod.Name)
		all = append(all, pod)
		pods[pod.Name] = pod.DeepCopy()
	}
	url, stop := podServer(t, pods)
	defer stop()
	client, err := clientset.NewForConfig(&rest.Config{Host: url, QPS: 5, Burst: 10})
	require.NoError(t, err)
	m := newTestManager(client)
	for _, pod := range all {
		m.podManager.AddPod(pod)
		m.SetPodStatus(pod, pod.Status)
	}
	for i := 0; i < 10; i++ { // the kubelet has other things to ask
		_, err := client.CoreV1().Pods("new").Get("pod-0", metav1.GetOptions{})
		require.NoError(t, err)
	}
	require.False(t, client.CoreV1().RESTClient().GetRateLimiter().TryAccept())

	begin := time.Now()
	for _, pod := range all {
		require.True(t, m.MarkUnready(pod, []kubecontainer.ContainerID{idC}))
	}
	var last time.Duration
	for _, pod := range all {
		eventually(t, pod.Name, acknowledged(m, pod))
		if d := m.UnreadyState(pod.UID).AcknowledgedAt.Sub(begin); d > last {
			last = d
		}
	}
	t.Logf("%d pods: %v", count, last)
	// 220 requests, 50 of them at once, then 50 a second.
	assert.True(t, last < 8*time.Second, "%d pods were acknowledged after %v", count, last)
	assert.True(t, last > 2*time.Second, "%d pods were acknowledged after %v: there is no limit", count, last)
}

// BenchmarkHoldfastSetPodStatus is what a sync of a pod without marks costs in the status
// manager, beside pods with and without marks.
func BenchmarkHoldfastSetPodStatus(b *testing.B) {
	for _, marked := range []int{0, 110} {
		b.Run(fmt.Sprintf("marked=%d", marked), func(b *testing.B) {
			pod := twoContainers()
			m := newTestManager(newAPI(pod))
			m.podManager.UpdatePod(pod)
			for i := 0; i < marked; i++ {
				m.HoldUnready(types.UID(fmt.Sprintf("other-%d", i)), []kubecontainer.ContainerID{idC}, time.Hour)
			}
			status := pod.Status
			m.SetPodStatus(pod, status)
			b.ResetTimer()
			for i := 0; i < b.N; i++ {
				m.SetPodStatus(pod, status)
			}
		})
	}
}
