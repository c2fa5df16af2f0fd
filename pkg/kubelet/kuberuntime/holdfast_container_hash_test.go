// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/util/flowcontrol"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/container/hashcompat"
	"k8s.io/kubernetes/pkg/kubelet/predecessor"
)

// setGates sets both gates for one test, on a node that came from 1.7.
func setGates(t *testing.T, compat, write bool) func() {
	predecessor.Default = predecessor.NewKnown("v1.7.0")
	set := func(f utilfeature.Feature, v bool) {
		if err := utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%v", f, v)); err != nil {
			t.Fatal(err)
		}
	}
	set(features.ContainerHashCompat, compat)
	set(features.LegacyContainerHashWrite, write)
	return func() {
		set(features.ContainerHashCompat, true)
		set(features.LegacyContainerHashWrite, true)
		predecessor.Default = predecessor.New()
	}
}

// note is what SyncPod does with a pod of one running container.
func note(c *v1.Container, status *kubecontainer.ContainerStatus) bool {
	status.Name, status.State = c.Name, kubecontainer.ContainerStateRunning
	_, _, changed := containerChanged(c, status)
	changes := podActions{ContainersToKill: map[kubecontainer.ContainerID]containerToKillInfo{}}
	if changed {
		changes.ContainersToKill[status.ID] = containerToKillInfo{}
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("pod of " + status.ID.ID)}, Spec: v1.PodSpec{Containers: []v1.Container{*c}}}
	noteContainerHashes(pod, &kubecontainer.PodStatus{ContainerStatuses: []*kubecontainer.ContainerStatus{status}}, changes)
	return changed
}

func counter(t *testing.T, v *prometheus.CounterVec, label string) float64 {
	m := &dto.Metric{}
	if err := v.WithLabelValues(label).Write(m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func hashOf(t *testing.T, c *v1.Container, g hashcompat.Generation) uint64 {
	h, ok := hashcompat.Hash(c, g)
	if !ok {
		t.Fatalf("%v cannot express %v", g, c)
	}
	return h
}

// mountContainer has another hash in 1.9, 1.8 and 1.7, and with the tcpSocket
// also in 1.6.
func mountContainer() v1.Container {
	return v1.Container{
		Name:         "app",
		Image:        "example.com/app:1",
		VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}},
		LivenessProbe: &v1.Probe{
			Handler: v1.Handler{TCPSocket: &v1.TCPSocketAction{}},
		},
	}
}

func TestContainerHashGatesAreOn(t *testing.T) {
	for _, f := range []utilfeature.Feature{features.ContainerHashCompat, features.LegacyContainerHashWrite} {
		if !utilfeature.DefaultFeatureGate.Enabled(f) {
			t.Errorf("%s is off by default", f)
		}
	}
}

func TestContainerChanged(t *testing.T) {
	c := mountContainer()
	native := kubecontainer.HashContainer(&c)
	for i, g := range hashcompat.Generations() {
		for _, enabled := range []bool{true, false} {
			func() {
				defer setGates(t, enabled, true)()
				h := hashOf(t, &c, g)
				status := &kubecontainer.ContainerStatus{Hash: h, ID: kubecontainer.ContainerID{ID: fmt.Sprintf("changed-%d-%v", i, enabled)}}
				used, unused := hashCompatKept, hashCompatWouldHaveKept
				if !enabled {
					used, unused = unused, used
				}
				before, beforeUnused := counter(t, used, g.String()), counter(t, unused, g.String())
				for sync := 0; sync < 3; sync++ {
					expected, recorded, changed := containerChanged(&c, status)
					if expected != native || recorded != h {
						t.Errorf("%v: hashes %d, %d, want %d, %d", g, expected, recorded, native, h)
					}
					if want := !enabled && h != native; changed != want {
						t.Errorf("%v, gate %v: changed = %v, want %v", g, enabled, changed, want)
					}
				}
				if counter(t, used, g.String()) != before {
					t.Errorf("%v, gate %v: a question was counted", g, enabled)
				}
				for sync := 0; sync < 3; sync++ {
					note(&c, status)
				}
				want := before + 1
				if h == native {
					want = before
				}
				if got := counter(t, used, g.String()); got != want {
					t.Errorf("%v, gate %v: counted %v, want %v", g, enabled, got, want)
				}
				if got := counter(t, unused, g.String()); got != beforeUnused {
					t.Errorf("%v, gate %v: the other metric counted", g, enabled)
				}
			}()
		}
	}
	if _, _, changed := containerChanged(&c, &kubecontainer.ContainerStatus{Hash: 1}); !changed {
		t.Error("an unknown hash is not a change")
	}
}

// TestContainerChangedIgnoredField: an old kubelet started the container
// without a setting that it did not know; it must be recreated.
func TestContainerChangedIgnoredField(t *testing.T) {
	seen := mountContainer()
	c := mountContainer()
	no := false
	seen.SecurityContext = &v1.SecurityContext{}
	c.SecurityContext = &v1.SecurityContext{AllowPrivilegeEscalation: &no}
	status := &kubecontainer.ContainerStatus{Hash: hashOf(t, &seen, hashcompat.Gen17)}
	if _, _, changed := containerChanged(&c, status); !changed {
		t.Error("the container is kept")
	}
	want := " It was started by a 1.7 kubelet, which does not know securityContext.allowPrivilegeEscalation"
	if got := containerChangeDetail(&c, status); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestContainerChangeDetail(t *testing.T) {
	no := false
	for name, tc := range map[string]struct {
		old, new, runtime string // images
		escalation        *bool
		gateOff           bool
		cause, want       string
	}{
		"image":        {old: "a:1", new: "a:2", runtime: "a:1", cause: "image", want: ` The image was "a:1", it is "a:2" now`},
		"latest":       {old: "a", new: "a:2", runtime: "a:latest", cause: "image", want: ` The image was "a", it is "a:2" now`},
		"docker.io":    {old: "docker.io/x/a", new: "b", runtime: "x/a:latest", cause: "image", want: ` The image was "docker.io/x/a", it is "b" now`},
		"library":      {old: "docker.io/library/a:1", new: "b", runtime: "a:1", cause: "image", want: ` The image was "docker.io/library/a:1", it is "b" now`},
		"other tag":    {old: "a:1", new: "a:2", runtime: "a:9", cause: "unknown"},
		"no image":     {old: "a:1", new: "a:2", cause: "unknown"},
		"image, field": {old: "a:1", new: "a:2", runtime: "a:1", escalation: &no, cause: "both", want: ` The image was "a:1", it is "a:2" now. It was started by a 1.7 kubelet, which does not know securityContext.allowPrivilegeEscalation`},
		"gate off":     {old: "a:1", new: "a:2", runtime: "a:1", gateOff: true},
	} {
		func() {
			defer setGates(t, !tc.gateOff, true)()
			c := mountContainer()
			c.SecurityContext = &v1.SecurityContext{}
			c.Image = tc.old
			status := &kubecontainer.ContainerStatus{
				ID:    kubecontainer.ContainerID{ID: "detail " + name},
				Hash:  hashOf(t, &c, hashcompat.Gen17),
				Image: tc.runtime,
			}
			c.Image = tc.new
			c.SecurityContext.AllowPrivilegeEscalation = tc.escalation
			before := 0.0
			if tc.cause != "" {
				before = counter(t, hashCompatChanged, tc.cause)
			}
			for sync := 0; sync < 3; sync++ {
				if got := containerChangeDetail(&c, status); got != tc.want {
					t.Errorf("%s: %q, want %q", name, got, tc.want)
				}
				if !note(&c, status) {
					t.Errorf("%s: not changed", name)
				}
			}
			if tc.cause != "" && counter(t, hashCompatChanged, tc.cause) != before+1 {
				t.Errorf("%s: not counted as %s", name, tc.cause)
			}
		}()
	}
}

// TestRecordedContainerHash: the label of a new container, through the
// function that writes labels and the one that reads them.
func TestRecordedContainerHash(t *testing.T) {
	no := false
	mode := v1.MountPropagationHostToContainer
	plain, escalation, propagation, device, host := mountContainer(), mountContainer(), mountContainer(), mountContainer(), mountContainer()
	escalation.SecurityContext = &v1.SecurityContext{AllowPrivilegeEscalation: &no}
	propagation.VolumeMounts[0].MountPropagation = &mode
	device.VolumeDevices = []v1.VolumeDevice{{Name: "d"}}
	host.LivenessProbe.TCPSocket.Host = "h"
	for name, tc := range map[string]struct {
		c    v1.Container
		want hashcompat.Generation
	}{
		"plain":       {plain, hashcompat.Gen17},
		"escalation":  {escalation, hashcompat.Gen18},
		"propagation": {propagation, hashcompat.Gen18},
		"device":      {device, hashcompat.Gen19},
		"host":        {host, hashcompat.Gen17},
	} {
		for _, gates := range []struct{ compat, write bool }{{true, true}, {true, false}, {false, true}, {false, false}} {
			func() {
				defer setGates(t, gates.compat, gates.write)()
				want := kubecontainer.HashContainer(&tc.c)
				written := hashcompat.Native
				if gates.compat && gates.write {
					written = tc.want
					want = hashOf(t, &tc.c, tc.want)
				}
				before, beforeWould := counter(t, hashCompatRecorded, written.String()), counter(t, hashCompatWouldHaveRecorded, tc.want.String())
				annotations := annotationsOf(&tc.c)
				if got := annotations[containerHashLabel]; got != strconv.FormatUint(want, 16) {
					t.Errorf("%s, %+v: recorded %s, want %x", name, gates, got, want)
				}
				if counter(t, hashCompatRecorded, written.String()) != before+1 {
					t.Errorf("%s, %+v: not counted", name, gates)
				}
				would := 0.0
				if written != tc.want {
					would = 1
				}
				if got := counter(t, hashCompatWouldHaveRecorded, tc.want.String()) - beforeWould; got != would {
					t.Errorf("%s, %+v: would-have counted %v, want %v", name, gates, got, would)
				}
				// What this kubelet recorded, it keeps.
				status := &kubecontainer.ContainerStatus{Hash: getContainerInfoFromAnnotations(annotations).Hash}
				if _, _, changed := containerChanged(&tc.c, status); changed {
					t.Errorf("%s, %+v: the container is taken for a changed one", name, gates)
				}
			}()
		}
	}
}

// TestRecordedContainerHashOnNode: new containers record what the kubelet that
// was here before computes, and what this release does if none is known.
func TestRecordedContainerHashOnNode(t *testing.T) {
	no := false
	mount, escalation := mountContainer(), mountContainer()
	escalation.SecurityContext = &v1.SecurityContext{AllowPrivilegeEscalation: &no}
	for before, want := range map[string]struct{ mount, escalation hashcompat.Generation }{
		"v1.5.8":  {hashcompat.Gen17, hashcompat.Gen18},
		"v1.6.13": {hashcompat.Gen17, hashcompat.Gen18},
		"v1.7.0":  {hashcompat.Gen17, hashcompat.Gen18},
		"v1.8.15": {hashcompat.Gen18, hashcompat.Gen18},
		"v1.9.11": {hashcompat.Gen19, hashcompat.Gen19},
		"v1.10.0": {of110, of110},
		"v1.11.9": {of110, of110},
		"v1.13.0": {hashcompat.Native, hashcompat.Native},
		"none":    {hashcompat.Native, hashcompat.Native},
	} {
		for _, write := range []bool{true, false} {
			func() {
				defer setGates(t, true, write)()
				predecessor.Default = predecessor.NewKnown(before)
				if !write {
					want.mount, want.escalation = hashcompat.Native, hashcompat.Native
				}
				if got := containerHashToRecord(&mount, kubecontainer.HashContainer(&mount)); got != hashOf(t, &mount, want.mount) {
					t.Errorf("%s, gate %v: recorded %x, want that of %v", before, write, got, want.mount)
				}
				if got := containerHashToRecord(&escalation, kubecontainer.HashContainer(&escalation)); got != hashOf(t, &escalation, want.escalation) {
					t.Errorf("%s, gate %v, a field of 1.8: recorded %x, want that of %v", before, write, got, want.escalation)
				}
			}()
		}
	}
}

// TestEvidenceOfContainers: without better knowledge the hashes of the newest
// containers, running or not, say which kubelet was here.
func TestEvidenceOfContainers(t *testing.T) {
	no := false
	mount, bare, escalation, device := mountContainer(), mountContainer(), mountContainer(), mountContainer()
	bare.VolumeMounts = nil // one hash in 1.7 and 1.8
	escalation.SecurityContext = &v1.SecurityContext{AllowPrivilegeEscalation: &no}
	device.VolumeDevices = []v1.VolumeDevice{{Name: "d"}}
	type left struct {
		c v1.Container
		g hashcompat.Generation
	}
	for name, tc := range map[string]struct {
		node []left
		want hashcompat.Generation
	}{
		"empty":                        {nil, hashcompat.Gen19},
		"1.6":                          {[]left{{mount, hashcompat.Gen16}}, hashcompat.Gen17},
		"1.7":                          {[]left{{mount, hashcompat.Gen17}}, hashcompat.Gen17},
		"1.8":                          {[]left{{mount, hashcompat.Gen18}}, hashcompat.Gen18},
		"1.9":                          {[]left{{mount, hashcompat.Gen19}}, hashcompat.Gen19},
		"1.7 or 1.8":                   {[]left{{bare, hashcompat.Gen18}}, hashcompat.Gen19},
		"1.7 or 1.8, and 1.8":          {[]left{{bare, hashcompat.Gen18}, {mount, hashcompat.Gen18}}, hashcompat.Gen18},
		"1.7 and newer fields":         {[]left{{mount, hashcompat.Gen17}, {escalation, hashcompat.Gen18}, {device, hashcompat.Gen19}}, hashcompat.Gen17},
		"a device only":                {[]left{{device, hashcompat.Gen19}}, hashcompat.Gen19},
		"one of a gate-off time":       {[]left{{mount, hashcompat.Gen19}, {mount, hashcompat.Gen17}, {mount, hashcompat.Gen17}}, hashcompat.Gen17},
		"one that outlived an upgrade": {[]left{{mount, hashcompat.Gen17}, {mount, hashcompat.Gen19}, {mount, hashcompat.Gen19}}, hashcompat.Gen19},
	} {
		for _, state := range []kubecontainer.ContainerState{kubecontainer.ContainerStateRunning, kubecontainer.ContainerStateExited} {
			func() {
				defer setGates(t, true, true)()
				predecessor.Default = predecessor.New()
				for i, l := range tc.node {
					id := fmt.Sprintf("evidence %s %s %d", name, state, i)
					pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(id)}, Spec: v1.PodSpec{Containers: []v1.Container{l.c}}}
					status := &kubecontainer.PodStatus{ContainerStatuses: []*kubecontainer.ContainerStatus{
						{Name: l.c.Name, ID: kubecontainer.ContainerID{ID: id}, State: state, Hash: hashOf(t, &l.c, l.g)},
						{Name: l.c.Name, ID: kubecontainer.ContainerID{ID: id + " older"}, Hash: hashOf(t, &l.c, hashcompat.Gen19)},
					}}
					for sync := 0; sync < 2; sync++ {
						noteContainerHashes(pod, status, podActions{KillPod: state == kubecontainer.ContainerStateExited})
					}
				}
				if got := containerHashToRecord(&mount, kubecontainer.HashContainer(&mount)); got != hashOf(t, &mount, tc.want) {
					t.Errorf("%s, %s: recorded %x, want that of %v", name, state, got, tc.want)
				}
			}()
		}
	}
	defer setGates(t, true, true)()
	predecessor.Default = predecessor.New()
	changed := mountContainer()
	changed.Image = "example.com/app:2"
	note(&changed, &kubecontainer.ContainerStatus{Hash: hashOf(t, &mount, hashcompat.Gen17), ID: kubecontainer.ContainerID{ID: "evidence changed"}})
	if r, ok := predecessor.Default.Release(); ok {
		t.Errorf("a container whose spec changed is evidence of %v", r)
	}
}

// TestComputePodActionsLegacyHash: what the decision is for. A pod whose
// containers an older kubelet started is left alone; a new image replaces just
// its container, with the reason in the event.
func TestComputePodActionsLegacyHash(t *testing.T) {
	_, _, m, err := createTestRuntimeManager()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range hashcompat.Generations() {
		for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever} {
			pod, podStatus := makeBasePodAndStatus()
			pod.Spec.RestartPolicy = policy
			for i := range pod.Spec.Containers {
				pod.Spec.Containers[i].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
				pod.Spec.Containers[i].Image = "example.com/app:1"
				podStatus.ContainerStatuses[i].Hash = hashOf(t, &pod.Spec.Containers[i], g)
				podStatus.ContainerStatuses[i].Image = "example.com/app:1"
			}
			if got := m.computePodActions(pod, podStatus); got.KillPod || len(got.ContainersToKill) > 0 || len(got.ContainersToStart) > 0 {
				t.Errorf("%v, %s: %+v", g, policy, got)
			}
			pod.Spec.Containers[1].Image = "example.com/app:2"
			got := m.computePodActions(pod, podStatus)
			if got.KillPod || len(got.ContainersToKill) != 1 || len(got.ContainersToStart) != 1 || got.ContainersToStart[0] != 1 {
				t.Errorf("%v, %s, new image: %+v", g, policy, got)
			}
			kill, ok := got.ContainersToKill[podStatus.ContainerStatuses[1].ID]
			if want := `. The image was "example.com/app:1", it is "example.com/app:2" now. Container will be killed and recreated.`; !ok || !strings.Contains(kill.message, want) {
				t.Errorf("%v, %s: message %q", g, policy, kill.message)
			}
		}
	}
	// The gate off: upstream's decision and upstream's words.
	defer setGates(t, false, true)()
	pod, podStatus := makeBasePodAndStatus()
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
	podStatus.ContainerStatuses[0].Hash = hashOf(t, &pod.Spec.Containers[0], hashcompat.Gen17)
	got := m.computePodActions(pod, podStatus)
	want := fmt.Sprintf("Container spec hash changed (%d vs %d).. Container will be killed and recreated.",
		podStatus.ContainerStatuses[0].Hash, kubecontainer.HashContainer(&pod.Spec.Containers[0]))
	if kill := got.ContainersToKill[podStatus.ContainerStatuses[0].ID]; kill.message != want {
		t.Errorf("gate off: %q, want %q", kill.message, want)
	}
}

// TestSyncPodNotes: SyncPod counts a container that it keeps, once, and learns
// from it. Nobody else does: what ContainersToStop asks leaves no trace.
func TestSyncPodNotes(t *testing.T) {
	defer setGates(t, true, true)()
	_, _, m, err := createTestRuntimeManager()
	if err != nil {
		t.Fatal(err)
	}
	c := mountContainer()
	c.ImagePullPolicy = v1.PullIfNotPresent
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "notes", Name: "notes", Namespace: "ns"}, Spec: v1.PodSpec{Containers: []v1.Container{c}}}
	backOff := flowcontrol.NewBackOff(time.Second, time.Minute)
	sync := func(s *kubecontainer.PodStatus) {
		if r := m.SyncPod(pod, v1.PodStatus{}, s, nil, backOff); r.Error() != nil {
			t.Fatal(r.Error())
		}
	}
	sync(&kubecontainer.PodStatus{})
	status, err := m.GetPodStatus(pod.UID, pod.Name, pod.Namespace)
	if err != nil || len(status.ContainerStatuses) != 1 || status.ContainerStatuses[0].Hash != hashOf(t, &c, hashcompat.Gen17) {
		t.Fatalf("%+v, %v", status, err)
	}
	predecessor.Default = predecessor.New() // a restart, and the Node cannot be read
	before := counter(t, hashCompatKept, "1.7")
	m.ContainersToStop(pod, status)
	if got := counter(t, hashCompatKept, "1.7"); got != before {
		t.Errorf("a question counted %v", got-before)
	}
	if _, ok := predecessor.Default.Release(); ok {
		t.Error("a question was learned from")
	}
	for i := 0; i < 3; i++ {
		sync(status)
	}
	if got := counter(t, hashCompatKept, "1.7"); got != before+1 {
		t.Errorf("counted %v, want 1", got-before)
	}
	if r, ok := predecessor.Default.Release(); !ok || r.String() != "1.7" || r.Source != predecessor.Evidence {
		t.Errorf("learned %v, %v", r, ok)
	}
}

// TestSeenContainers: what is remembered is bounded.
func TestSeenContainers(t *testing.T) {
	var s seenContainers
	for i := 0; i < maxSeenContainers+5; i++ {
		if !s.first(strconv.Itoa(i), "kept") {
			t.Fatalf("%d is not new", i)
		}
		if len(s.seen) > maxSeenContainers {
			t.Fatalf("%d remembered", len(s.seen))
		}
	}
	if s.first(strconv.Itoa(maxSeenContainers+4), "kept") {
		t.Error("the last one is forgotten")
	}
	if !s.first(strconv.Itoa(maxSeenContainers+4), "changed") {
		t.Error("another event is not new")
	}
}

// TestComputePodActionsInitContainers: at this release the hash of an init
// container is recorded but never compared. The test fails when that changes,
// for then the comparison has to go through decideContainerHash.
func TestComputePodActionsInitContainers(t *testing.T) {
	_, _, m, err := createTestRuntimeManager()
	if err != nil {
		t.Fatal(err)
	}
	pod, podStatus := makeBasePodAndStatusWithInitContainers()
	for i := range podStatus.ContainerStatuses {
		podStatus.ContainerStatuses[i].Hash++
	}
	got := m.computePodActions(pod, podStatus)
	if got.KillPod || len(got.ContainersToKill) > 0 {
		t.Errorf("%+v", got)
	}
}

// TestGoldenAPI: a container as a kubelet gets it from the API, defaulted,
// converted and off the wire, has in every generation the hash that the
// release itself computed.
func TestGoldenAPI(t *testing.T) {
	f, err := os.Open("../container/hashcompat/testdata/golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const static, api = 2, 3
	rows, kept := 0, 0
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for ; s.Scan(); rows++ {
		var row struct {
			ID   string
			Spec v1.Container
			Hash map[string][]uint64
		}
		if err := json.Unmarshal(s.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", UID: types.UID("u")},
			Spec:       v1.PodSpec{Containers: []v1.Container{row.Spec}},
		}
		corev1.SetObjectDefaults_Pod(pod)
		for _, mode := range []int{static, api} {
			c := &pod.Spec.Containers[0]
			if mode == api {
				data, err := pod.Marshal()
				if err != nil {
					t.Fatal(err)
				}
				wire := &v1.Pod{}
				if err := wire.Unmarshal(data); err != nil {
					t.Fatal(err)
				}
				c = &wire.Spec.Containers[0]
			}
			for release, g := range goldenReleases {
				want := row.Hash[release][mode]
				_, _, changed := containerChanged(c, &kubecontainer.ContainerStatus{Hash: want})
				unknown := hashcompat.Unknown(c, g)
				if changed != (len(unknown) > 0) {
					t.Errorf("%s: recorded by %s (mode %d): changed = %v, unknown to the release %v", row.ID, release, mode, changed, unknown)
				}
				if !changed {
					kept++
				}
			}
		}
	}
	if rows != 103 || kept < goldenKept {
		t.Errorf("%d rows, %d kept", rows, kept)
	}
	t.Logf("%d rows, %d recorded hashes kept", rows, kept)
}

// TestContainerChangedAllocations: the decision allocates nothing beyond
// HashContainer and leaves a container on the caller's stack. What it costs in
// time is BenchmarkContainerChanged's to say.
func TestContainerChangedAllocations(t *testing.T) {
	c := mountContainer()
	of := func(g hashcompat.Generation) *kubecontainer.ContainerStatus {
		return &kubecontainer.ContainerStatus{Hash: hashOf(t, &c, g), ID: kubecontainer.ContainerID{ID: "cost"}}
	}
	same, old := of(hashcompat.Native), of(hashcompat.Gen17)
	stock := testing.AllocsPerRun(100, func() {
		onStack := c
		kubecontainer.HashContainer(&onStack)
	})
	for name, status := range map[string]*kubecontainer.ContainerStatus{"this release": same, "1.7": old} {
		if got := testing.AllocsPerRun(100, func() {
			onStack := c
			containerChanged(&onStack, status)
		}); got > stock {
			t.Errorf("%s: %v allocations, HashContainer has %v", name, got, stock)
		}
	}
}

func benchmarkChanged(b *testing.B, g hashcompat.Generation, changed func(*v1.Container, *kubecontainer.ContainerStatus) bool) {
	c := mountContainer()
	h, _ := hashcompat.Hash(&c, g)
	status := &kubecontainer.ContainerStatus{Hash: h}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		changed(&c, status)
	}
}

// BenchmarkContainerChanged: "stock" is upstream's body of containerChanged,
// once for a container of this release and once for a 1.7 one (which it takes
// for a changed one).
func BenchmarkContainerChanged(b *testing.B) {
	stock := func(c *v1.Container, s *kubecontainer.ContainerStatus) bool {
		return s.Hash != kubecontainer.HashContainer(c)
	}
	ours := func(c *v1.Container, s *kubecontainer.ContainerStatus) bool {
		_, _, changed := containerChanged(c, s)
		return changed
	}
	b.Run("same-release/stock", func(b *testing.B) { benchmarkChanged(b, hashcompat.Native, stock) })
	b.Run("same-release/ours", func(b *testing.B) { benchmarkChanged(b, hashcompat.Native, ours) })
	b.Run("1.8/stock", func(b *testing.B) { benchmarkChanged(b, hashcompat.Gen18, stock) })
	b.Run("1.8/ours", func(b *testing.B) { benchmarkChanged(b, hashcompat.Gen18, ours) })
	b.Run("1.7/stock", func(b *testing.B) { benchmarkChanged(b, hashcompat.Gen17, stock) })
	b.Run("1.7/ours", func(b *testing.B) { benchmarkChanged(b, hashcompat.Gen17, ours) })
	b.Run("1.6/ours", func(b *testing.B) { benchmarkChanged(b, hashcompat.Gen16, ours) })
}
