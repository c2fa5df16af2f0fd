// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
)

func TestHoldfastReplaceSettings(t *testing.T) {
	pod := podWithUIDNameNs("1", "foo", "new")
	pod.Spec.Containers = []v1.Container{{Name: "a"}, {Name: "b"}}
	for _, tc := range []struct {
		drain, out string
		expect     time.Duration
		outA, outB bool
		problem    string
	}{
		{},
		{drain: "0"},
		{drain: "5", expect: 5 * time.Second},
		{drain: "300", expect: 300 * time.Second},
		{drain: "301", problem: drainAnnotation},
		{drain: "-1", problem: drainAnnotation},
		{drain: "5s", problem: drainAnnotation},
		{drain: " 5", problem: drainAnnotation},
		{drain: "99999999999999999999", problem: drainAnnotation},
		{out: "*", outA: true, outB: true},
		{out: "a", outA: true},
		{out: "a, b", outA: true, outB: true},
		{out: "b,c", outB: true, problem: optOutAnnotation},
		{out: "true", problem: optOutAnnotation},
		{out: "a", drain: "x", outA: true, problem: drainAnnotation},
		{out: "x", drain: "7", expect: 7 * time.Second, problem: optOutAnnotation},
	} {
		pod.Annotations = map[string]string{}
		if tc.drain != "" {
			pod.Annotations[drainAnnotation] = tc.drain
		}
		if tc.out != "" {
			pod.Annotations[optOutAnnotation] = tc.out
		}
		s, problem := replaceSettingsOf(pod)
		assert.Equal(t, tc.expect, s.drain, "%+v", tc)
		assert.Equal(t, []bool{tc.outA, tc.outB}, []bool{s.optsOut("a"), s.optsOut("b")}, "%+v", tc)
		if tc.problem == "" {
			assert.NoError(t, problem, "%+v", tc)
		} else if assert.Error(t, problem, "%+v", tc) {
			assert.Contains(t, problem.Error(), tc.problem)
		}
	}
}

func TestHoldfastReplaceAnnotations(t *testing.T) {
	r := newReplacing(t, map[string]string{optOutAnnotation: "c"})
	defer r.stop()
	r.publish()
	optedOut := func() float64 {
		var m dto.Metric
		require.NoError(t, unreadyOptedOut.Write(&m))
		return m.GetCounter().GetValue()
	}
	before := optedOut()
	assert.True(t, r.kl.ReplaceAtOnce(r.pod, replacedC[0]))
	assert.True(t, r.kl.ReplaceAtOnce(r.pod, replacedC[0]), "the next sync, if the kill failed")
	assert.False(t, r.kl.ReplaceAtOnce(r.pod, kuberuntime.ReplacedContainer{Name: "d"}))
	assert.Equal(t, before+1, optedOut())
	assert.True(t, r.cachedReady(), "opted out: as stock")
	assert.Empty(t, r.said())

	r = newReplacing(t, map[string]string{drainAnnotation: "soon"})
	defer r.stop()
	r.publish()
	assert.False(t, r.kl.ReplaceAtOnce(r.pod, replacedC[0]))
	assert.True(t, r.prepare(true))
	assert.True(t, r.prepare(true))
	assert.False(t, r.storedReady(), "a bad value is as none")
	assert.Equal(t, map[string]int{unreadyEvent: 1, unreadyAnnotationEvent: 1}, r.said())
}

func TestHoldfastQuoteShort(t *testing.T) {
	for value, expect := range map[string]string{
		"":                         `""`,
		"soon":                     `"soon"`,
		strings.Repeat("x", 58):    `"` + strings.Repeat("x", 58) + `"`,
		strings.Repeat("x", 59):    `"` + strings.Repeat("x", 55) + `"...`,
		strings.Repeat("x", 1<<18): `"` + strings.Repeat("x", 55) + `"...`,
		strings.Repeat("\n", 40):   `"` + strings.Repeat(`\n`, 27) + `"...`,
	} {
		assert.Equal(t, expect, quoteShort(value))
		assert.True(t, len(quoteShort(value)) <= maxQuoteBytes)
	}
}

// TestHoldfastReplaceNotesBounded: who may change a pod's annotations, or its images, fills
// neither the kubelet's memory nor its log.
func TestHoldfastReplaceNotesBounded(t *testing.T) {
	r := newReplacing(t, nil)
	defer r.stop()
	r.publish()
	c := replacedC[0]
	size := func() (bytes int) {
		for uid, p := range replaceNoted.pods {
			bytes += len(uid) + 8
			for name, c := range p.containers {
				bytes += len(name) + len(c.id) + 1
			}
		}
		return bytes
	}
	before := size()
	for i := 0; i < 50; i++ {
		c.ID.ID = fmt.Sprintf("c%d", i)
		long := fmt.Sprintf("%d", i) + strings.Repeat("x", 15<<10)
		for _, annotations := range []map[string]string{
			{optOutAnnotation: long}, {optOutAnnotation: long + long}, {drainAnnotation: long}, {optOutAnnotation: "c"},
		} {
			r.pod.Annotations = annotations
			for sync := 0; sync < 2; sync++ {
				r.kl.ReplaceAtOnce(r.pod, c)
				r.kl.replaceSettings(r.pod)
			}
			if _, problem := replaceSettingsOf(r.pod); problem != nil {
				require.Len(t, r.events.Events, 1, "told of once")
				event := <-r.events.Events
				assert.True(t, len(event) < 400, "an event of %d bytes", len(event))
			}
		}
	}
	assert.True(t, size()-before < 200, "%d bytes are remembered of one pod", size()-before)

	// They go with the status of the pod.
	r.kl.statusManager.RemoveOrphanedStatuses(map[types.UID]bool{})
	other := r.pod.DeepCopy()
	other.UID = r.pod.UID + "-other"
	r.kl.statusManager.SetPodStatus(other, other.Status)
	r.kl.firstNote(other.UID, c, noteMarked)
	assert.Nil(t, replaceNoted.pods[r.pod.UID])
	assert.NotNil(t, replaceNoted.pods[other.UID])
	r.publish()
	assert.True(t, r.kl.firstNote(r.pod.UID, c, noteMarked))
	assert.False(t, r.kl.firstNote(r.pod.UID, c, noteMarked))
	r.kl.statusManager.RemoveOrphanedStatuses(map[types.UID]bool{})
	r.publish()
	assert.True(t, r.kl.firstNote(r.pod.UID, c, noteMarked), "the same pod with a new status")
}
