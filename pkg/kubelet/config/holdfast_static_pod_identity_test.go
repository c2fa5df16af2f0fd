// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io/ioutil"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/kubelet/config/staticpod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/predecessor"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

const (
	identityManifest = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s","namespace":"kube-system"},"spec":{"containers":[{"name":"etcd","image":"etcd:%s"}]}}`
	identityNode     = types.NodeName("node")
)

func manifestOf(name, tag string) string { return fmt.Sprintf(identityManifest, name, tag) }

// nativeAndOlder are the UIDs of a manifest.
func nativeAndOlder(t *testing.T, manifest string) (native types.UID, older []staticpod.UID) {
	defer func(r *runningPods) { ranBefore = r }(ranBefore)
	ranBefore = nil
	obj, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), []byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	pod := obj.(*api.Pod)
	older = staticpod.Older(pod)
	if err := applyDefaults(pod, "f", true, identityNode); err != nil {
		t.Fatal(err)
	}
	return pod.UID, older
}

func sandbox(name string, uid types.UID, state kubecontainer.ContainerState) *kubecontainer.Pod {
	return &kubecontainer.Pod{ID: uid, Name: name + "-node", Namespace: "kube-system", Sandboxes: []*kubecontainer.Container{{State: state}}}
}

// decided is the UID that the manifest gets when these pods are in the runtime.
func decided(t *testing.T, manifest string, pods ...*kubecontainer.Pod) types.UID {
	defer func(r *runningPods) { ranBefore = r }(ranBefore)
	ranBefore = newRunningPods(time.Minute)
	FindRunningPods(func(all bool) ([]*kubecontainer.Pod, error) { return pods, nil })
	return uidOf(t, manifest)
}

func uidOf(t *testing.T, manifest string) types.UID {
	_, pod, err := tryDecodeSinglePod([]byte(manifest), func(pod *api.Pod) error { return applyDefaults(pod, "f", true, identityNode) })
	if err != nil {
		t.Fatal(err)
	}
	if hash := pod.Annotations[kubetypes.ConfigHashAnnotationKey]; hash != string(pod.UID) {
		t.Errorf("the mirror pod's annotation is %s, the UID %s", hash, pod.UID)
	}
	return pod.UID
}

func TestHoldfastStaticPodIdentity(t *testing.T) {
	const running, ended = kubecontainer.ContainerStateRunning, kubecontainer.ContainerStateExited
	etcd := manifestOf("etcd", "3")
	native, older := nativeAndOlder(t, etcd)
	if len(older) != 4 {
		t.Fatalf("%v", older)
	}
	for _, u := range older {
		if got := decided(t, etcd, sandbox("etcd", u.UID, running)); got != u.UID {
			t.Errorf("started by %s as %s: %s", u.Release, u.UID, got)
		}
	}
	old := older[3].UID
	otherNamespace := sandbox("etcd", old, running)
	otherNamespace.Namespace = "default"
	for _, tc := range []struct {
		name     string
		manifest string
		pods     []*kubecontainer.Pod
		want     types.UID
	}{
		{"nothing runs, as after a reboot", etcd, nil, native},
		{"the sandbox has ended", etcd, []*kubecontainer.Pod{sandbox("etcd", old, ended)}, native},
		{"this release's runs", etcd, []*kubecontainer.Pod{sandbox("etcd", native, running)}, native},
		{"both run", etcd, []*kubecontainer.Pod{sandbox("etcd", old, running), sandbox("etcd", native, running)}, native},
		{"of 1.8 and 1.7: the newer", etcd, []*kubecontainer.Pod{sandbox("etcd", old, running), sandbox("etcd", older[0].UID, running)}, older[0].UID},
		{"another pod has it", etcd, []*kubecontainer.Pod{sandbox("apiserver", old, running)}, native},
		{"in another namespace", etcd, []*kubecontainer.Pod{otherNamespace}, native},
		{"something else runs under the name", etcd, []*kubecontainer.Pod{sandbox("etcd", "0123", running)}, native},
		{"no sandbox, as in rkt", etcd, []*kubecontainer.Pod{{ID: old, Name: "etcd-node", Namespace: "kube-system"}}, native},
	} {
		if got := decided(t, tc.manifest, tc.pods...); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
	// The manifest was edited while the kubelet was away, or what runs is of the other name
	// after two manifests swapped names.
	edited := manifestOf("etcd", "4")
	editedNative, _ := nativeAndOlder(t, edited)
	if got := decided(t, edited, sandbox("etcd", old, running)); got != editedNative {
		t.Errorf("an edited manifest gets %s, want %s", got, editedNative)
	}
	// A field that 1.7 does not know was added: the pod that runs does not have it.
	added := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"etcd","namespace":"kube-system"},"spec":{"containers":[{"name":"etcd","image":"etcd:3","securityContext":{"allowPrivilegeEscalation":false}}]}}`
	addedNative, _ := nativeAndOlder(t, added)
	_, without := nativeAndOlder(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"etcd","namespace":"kube-system"},"spec":{"containers":[{"name":"etcd","image":"etcd:3","securityContext":{}}]}}`)
	for _, u := range without {
		if got := decided(t, added, sandbox("etcd", u.UID, running)); got != addedNative {
			t.Errorf("a field that %s does not know: %s, want %s", u.Release, got, addedNative)
		}
	}
	// A UID of the manifest's own.
	own := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"etcd","uid":"mine"},"spec":{"containers":[{"name":"etcd","image":"etcd:3"}]}}`
	if got := decided(t, own, sandbox("etcd", old, running)); got != "mine" {
		t.Errorf("the manifest's own UID becomes %s", got)
	}
	// Without a namespace it is the default one.
	bare := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"etcd"},"spec":{"containers":[{"name":"etcd","image":"etcd:3"}]}}`
	_, bareOlder := nativeAndOlder(t, bare)
	inDefault := sandbox("etcd", bareOlder[3].UID, running)
	inDefault.Namespace = "default"
	if got := decided(t, bare, inDefault); got != bareOlder[3].UID {
		t.Errorf("in the default namespace: %s, want %s", got, bareOlder[3].UID)
	}
}

// TestHoldfastLegacyStaticPodIdentityWrite: a new static pod gets the UID of upstream's build of
// the kubelet that was here before, one that runs keeps its own, and it stays as it is when
// more becomes known.
func TestHoldfastLegacyStaticPodIdentityWrite(t *testing.T) {
	defer func(r *runningPods, p *predecessor.Predecessor) { ranBefore, predecessor.Default = r, p }(ranBefore, predecessor.Default)
	defer utilfeature.DefaultFeatureGate.Set("LegacyStaticPodIdentityWrite=true")
	const running = kubecontainer.ContainerStateRunning
	etcd := manifestOf("etcd", "3")
	native, older := nativeAndOlder(t, etcd) // two of 1.8, two of 1.7
	later := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"etcd","namespace":"kube-system"},"spec":{"containers":[{"name":"etcd","image":"etcd:3","securityContext":{"allowPrivilegeEscalation":false}}]}}`
	laterNative, laterOlder := nativeAndOlder(t, later)
	for _, tc := range []struct {
		name, was, manifest string
		pods                []*kubecontainer.Pod
		want                types.UID
	}{
		{"a new pod after 1.7", "v1.7.16", etcd, nil, older[2].UID},
		{"a new pod after 1.8", "v1.8.15", etcd, nil, older[0].UID},
		{"after 1.9", "v1.9.11", etcd, nil, native},
		{"after 1.6, whose UIDs are not known", "v1.6.13", etcd, nil, native},
		{"the operator says that there was none", "none", etcd, nil, native},
		{"the manifest was changed", "v1.7.16", etcd, []*kubecontainer.Pod{sandbox("etcd", "0123", running)}, older[2].UID},
		{"it runs as this release started it", "v1.7.16", etcd, []*kubecontainer.Pod{sandbox("etcd", native, running)}, native},
		{"it runs as another build of 1.7 started it", "v1.7.16", etcd, []*kubecontainer.Pod{sandbox("etcd", older[3].UID, running)}, older[3].UID},
		{"it runs as 1.8 started it", "v1.7.16", etcd, []*kubecontainer.Pod{sandbox("etcd", older[0].UID, running)}, older[0].UID},
		{"a field that 1.7 does not know", "v1.7.16", later, nil, laterNative},
		{"a field that 1.8 knows", "v1.8.15", later, nil, laterOlder[0].UID},
	} {
		predecessor.Default = predecessor.NewKnown(tc.was)
		if got := decided(t, tc.manifest, tc.pods...); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}

	predecessor.Default = predecessor.NewKnown("v1.7.16")
	utilfeature.DefaultFeatureGate.Set("LegacyStaticPodIdentityWrite=false")
	if got := decided(t, etcd); got != native {
		t.Errorf("gate off: %s, want %s", got, native)
	}
	if got := decided(t, etcd, sandbox("etcd", older[2].UID, running)); got != older[2].UID {
		t.Errorf("gate off, and the pod runs: %s, want %s", got, older[2].UID)
	}
	utilfeature.DefaultFeatureGate.Set("LegacyStaticPodIdentityWrite=true")

	// The API server, which is one of the static pods, says later which kubelet was here.
	predecessor.Default = predecessor.New()
	ranBefore = newRunningPods(time.Minute)
	FindRunningPods(func(bool) ([]*kubecontainer.Pod, error) { return nil, nil })
	first := uidOf(t, etcd)
	predecessor.Default = predecessor.NewKnown("v1.7.16")
	if again := uidOf(t, etcd); first != native || again != native {
		t.Errorf("%s, then %s, want %s", first, again, native)
	}
}

// TestHoldfastStaticPodIdentityWaits: for a runtime that does not answer yet; and when it
// answers too late the UIDs that were given stay.
func TestHoldfastStaticPodIdentityWaits(t *testing.T) {
	defer func(r *runningPods) { ranBefore = r }(ranBefore)
	etcd := manifestOf("etcd", "3")
	native, older := nativeAndOlder(t, etcd)
	pods := []*kubecontainer.Pod{sandbox("etcd", older[0].UID, kubecontainer.ContainerStateRunning)}

	ranBefore = newRunningPods(time.Minute)
	var asked int32
	go ranBefore.find(func(all bool) ([]*kubecontainer.Pod, error) {
		if all {
			t.Error("pods that do not run were asked for")
		}
		if atomic.AddInt32(&asked, 1) < 4 {
			return nil, errors.New("not now")
		}
		return pods, nil
	}, time.Millisecond)
	if got := uidOf(t, etcd); got != older[0].UID || atomic.LoadInt32(&asked) != 4 {
		t.Errorf("%s after %d answers, want %s", got, asked, older[0].UID)
	}
	// The pod that ran has ended, and the manifest is read again and again.
	if got := uidOf(t, etcd); got != older[0].UID || atomic.LoadInt32(&asked) != 4 {
		t.Errorf("then %s after %d answers", got, asked)
	}

	late := newRunningPods(20 * time.Millisecond)
	ranBefore = late
	answer := make(chan struct{})
	done := make(chan struct{})
	go func() {
		late.find(func(bool) ([]*kubecontainer.Pod, error) { <-answer; return pods, nil }, time.Millisecond)
		close(done)
	}()
	if got := uidOf(t, etcd); got != native {
		t.Errorf("no answer in time: %s, want %s", got, native)
	}
	close(answer)
	<-done
	if got := uidOf(t, etcd); got != native {
		t.Errorf("after a late answer the pod gets another UID, %s", got)
	}
}

// TestHoldfastStaticPodIdentityOff: the gate off, and programs without a kubelet, ask nothing.
func TestHoldfastStaticPodIdentityOff(t *testing.T) {
	defer func(r *runningPods) { ranBefore = r }(ranBefore)
	defer utilfeature.DefaultFeatureGate.Set("StaticPodIdentity=true")
	etcd := manifestOf("etcd", "3")
	native, older := nativeAndOlder(t, etcd)
	for _, off := range []bool{true, false} {
		ranBefore = nil
		if off {
			utilfeature.DefaultFeatureGate.Set("StaticPodIdentity=false")
			ExpectRunningPods()
		}
		FindRunningPods(func(bool) ([]*kubecontainer.Pod, error) {
			t.Error("the runtime is asked")
			return []*kubecontainer.Pod{sandbox("etcd", older[0].UID, kubecontainer.ContainerStateRunning)}, nil
		})
		if got := uidOf(t, etcd); got != native {
			t.Errorf("%s, want %s", got, native)
		}
	}
	utilfeature.DefaultFeatureGate.Set("StaticPodIdentity=true")
	if ExpectRunningPods(); ranBefore == nil {
		t.Error("the gate is on, and nothing is expected")
	}
}

// TestHoldfastStaticPodIdentitySources: pods of a folder and of a URL, through the sources.
func TestHoldfastStaticPodIdentitySources(t *testing.T) {
	defer func(r *runningPods) { ranBefore = r }(ranBefore)
	etcd := manifestOf("etcd", "3")
	_, older := nativeAndOlder(t, etcd)
	dir, err := ioutil.TempDir("", "manifests")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := ioutil.WriteFile(filepath.Join(dir, "etcd.yaml"), []byte(etcd), 0644); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"apiVersion":"v1","kind":"PodList","items":[%s]}`, etcd)
	}))
	defer server.Close()
	ranBefore = newRunningPods(time.Minute)
	updates := make(chan interface{}, 10)
	file := new(dir, identityNode, time.Hour, updates)
	url := &sourceURL{url: server.URL, nodeName: identityNode, updates: updates, client: http.DefaultClient}
	go file.resetStoreFromPath()
	go url.extractFromURL()
	select {
	case u := <-updates:
		t.Fatalf("pods before the runtime has answered: %v", u)
	case <-time.After(50 * time.Millisecond):
	}
	FindRunningPods(func(bool) ([]*kubecontainer.Pod, error) {
		return []*kubecontainer.Pod{sandbox("etcd", older[2].UID, kubecontainer.ContainerStateRunning)}, nil
	})
	for i := 0; i < 2; i++ {
		u := (<-updates).(kubetypes.PodUpdate)
		// A pod of a list has no kind of its own, in each release, so its UID is the same.
		if len(u.Pods) != 1 || u.Pods[0].UID != older[2].UID {
			t.Errorf("%s: %v, want UID %s", u.Source, u.Pods, older[2].UID)
		}
	}
}
