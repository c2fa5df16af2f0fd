// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"io/ioutil"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/status"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
)

// preparingRuntime is a runtime whose SyncPod asks the kubelet before it kills, as
// kuberuntime's does.
type preparingRuntime struct {
	*changingRuntime
	kl *Kubelet
	// asked is how often it came so far, killable the last answer.
	asked    int
	killable bool
}

func (p *preparingRuntime) SyncPod(pod *v1.Pod, _ v1.PodStatus, _ *kubecontainer.PodStatus, _ []v1.Secret, _ *flowcontrol.Backoff) (result kubecontainer.PodSyncResult) {
	p.asked++
	p.killable = p.kl.PrepareReplacement(pod, p.changed, true)
	return
}

// failingVolumes is a volume manager that mounts nothing.
type failingVolumes struct{ volumemanager.VolumeManager }

func (failingVolumes) WaitForAttachAndMount(*v1.Pod) error {
	return fmt.Errorf("timeout expired waiting for volumes to attach/mount")
}

// TestHoldfastUnreadyNotBegun: a container whose spec changed stays ready while something
// keeps its pod from running: syncPod ends before it is decided what to kill. When that is
// over the API server has it not ready before it is killed.
func TestHoldfastUnreadyNotBegun(t *testing.T) {
	allowed := capabilities.Get()
	defer capabilities.SetForTests(allowed)
	capabilities.SetForTests(capabilities.Capabilities{PrivilegedSources: capabilities.PrivilegedSources{HostNetworkSources: []string{kubetypes.ApiserverSource}}})
	network := func(err error) func(*replacing) {
		return func(r *replacing) { r.kl.runtimeState.setNetworkState(err) }
	}
	for _, tc := range []struct {
		name       string
		fail, mend func(*replacing)
		begun      bool
	}{
		{"nothing fails", func(*replacing) {}, func(*replacing) {}, true},
		{"a volume cannot be mounted, or its secret is missing",
			func(r *replacing) { r.kl.volumeManager = failingVolumes{r.kl.volumeManager} },
			func(r *replacing) { r.kl.volumeManager = r.kl.volumeManager.(failingVolumes).VolumeManager }, false},
		{"the network plug-in is not ready", network(fmt.Errorf("cni config uninitialized")), network(nil), false},
		{"the same, and the pod uses the host's", func(r *replacing) {
			r.pod.Spec.HostNetwork = true
			r.pod.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.ApiserverSource}
			network(fmt.Errorf("cni config uninitialized"))(r)
		}, network(nil), true},
	} {
		r := newReplacing(t, nil)
		r.kl.runtimeState.setNetworkState(nil)
		runtime := &preparingRuntime{changingRuntime: r.runtime, kl: r.kl}
		r.kl.containerRuntime = runtime
		r.publish()
		r.runtime.changed = replacedC
		tc.fail(r)
		sync := func() error {
			return r.kl.syncPod(syncPodOptions{pod: r.pod, podStatus: r.podStatus, updateType: kubetypes.SyncPodUpdate})
		}
		for i := 0; i < 2; i++ {
			err := sync()
			marked := r.kl.statusManager.(status.UnreadyMarking).UnreadyState(r.pod.UID).Marked
			if tc.begun {
				assert.NoError(t, err, tc.name)
			} else {
				assert.Error(t, err, tc.name)
			}
			assert.Equal(t, tc.begun, marked, "%s: marked", tc.name)
			assert.Equal(t, !tc.begun, r.cachedReady(), "%s: ready", tc.name)
			assert.Equal(t, tc.begun, runtime.asked > 0, "%s: killing was thought of", tc.name)
		}
		tc.mend(r)
		assert.NoError(t, sync(), tc.name)
		assert.True(t, runtime.killable, tc.name)
		assert.False(t, r.storedReady(), "%s: killed before the API server had it not ready", tc.name)
		r.stop()
	}
}

// TestHoldfastUnreadyThirdImage: another image during the drain ends the sync, and the drain
// goes on in the next one where it was: it does not begin anew.
func TestHoldfastUnreadyThirdImage(t *testing.T) {
	// The machine may stand still for seconds: the bounds are far apart.
	r := newReplacing(t, map[string]string{drainAnnotation: "6"})
	defer r.stop()
	r.publish()
	r.runtime.changed = replacedC
	begin := time.Now()
	result := make(chan bool)
	third := r.pod.DeepCopy() // before the status manager normalises its start time in place
	go func() { result <- r.prepare(true) }()
	time.Sleep(4 * time.Second)
	third.Spec.Containers[0].Image = "third"
	r.workers.UpdatePod(&UpdatePodOptions{Pod: third, UpdateType: kubetypes.SyncPodUpdate})
	select {
	case killable := <-result:
		require.False(t, killable, "the second image is not started any more")
	case <-time.After(30 * time.Second):
		t.Fatal("still waiting")
	}
	assert.True(t, time.Since(begin) < 6*time.Second, "the news ended the sync")

	// The worker takes the update.
	r.workers.podLock.Lock()
	delete(r.workers.lastUndeliveredWorkUpdate, r.pod.UID)
	r.workers.podLock.Unlock()
	third.Status = r.pod.Status
	r.pod = third
	r.kl.podManager.UpdatePod(third)
	r.publish()
	assert.False(t, r.cachedReady(), "between the syncs")
	assert.True(t, r.prepare(true))
	took := time.Since(begin)
	assert.True(t, took >= 6*time.Second && took < 10*time.Second, "%v", took)
	assert.False(t, r.storedReady())
	assert.Equal(t, map[string]int{unreadyEvent: 1}, r.said())
}

// TestHoldfastUnreadyStaticPodUID: a changed manifest is another pod, with a UID of its own,
// whose containers are new: nothing is replaced in place. With a uid in the manifest it is the
// same pod, and its container is.
func TestHoldfastUnreadyStaticPodUID(t *testing.T) {
	const own = "6b1c1f7e-0000-4000-8000-000000000001"
	for _, uid := range []string{"", own} {
		dir, err := ioutil.TempDir("", "manifests")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		read := func(image string) *v1.Pod {
			manifest := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: static, uid: %q}\nspec: {containers: [{name: c, image: %q}]}\n", uid, image)
			require.NoError(t, ioutil.WriteFile(filepath.Join(dir, "static.yaml"), []byte(manifest), 0644))
			updates := make(chan interface{}, 10)
			config.NewSourceFile(dir, "node", time.Hour, updates)
			select {
			case u := <-updates:
				pods := u.(kubetypes.PodUpdate).Pods
				require.Len(t, pods, 1)
				return pods[0]
			case <-time.After(10 * time.Second):
				t.Fatal("the manifest was not read")
				return nil
			}
		}
		was, is := read("one"), read("two")
		require.Equal(t, []string{"one", "two"}, []string{was.Spec.Containers[0].Image, is.Spec.Containers[0].Image})
		assert.Equal(t, uid == own, was.UID == is.UID, "uid %q: %q, then %q", uid, was.UID, is.UID)
		if uid == own {
			assert.Equal(t, own, string(is.UID))
		}

		// What the first pod's worker has marked says nothing of a pod with another UID.
		r := newReplacing(t, nil)
		marks := r.kl.statusManager.(status.UnreadyMarking)
		was.Status, is.Status = r.pod.Status, r.pod.Status
		r.kl.podManager.AddPod(was)
		r.kl.statusManager.SetPodStatus(was, was.Status)
		require.True(t, marks.MarkUnready(was, []kubecontainer.ContainerID{replacedC[0].ID}))
		assert.Equal(t, uid == own, marks.UnreadyState(is.UID).Marked, "uid %q", uid)
		r.stop()
	}
}
