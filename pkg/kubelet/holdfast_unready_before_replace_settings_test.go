// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/api/core/v1"
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
