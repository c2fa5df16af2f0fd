// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// LimitMarks implements UnreadyMarking.
func (m *manager) LimitMarks(podUID types.UID, most time.Duration) {
	m.unready.limitMarks(podUID, time.Now().Add(most))
}

func (u *unreadyMarks) holdUntil(podUID types.UID, ids []kubecontainer.ContainerID, end time.Time) {
	u.Lock()
	defer u.Unlock()
	if p := u.pods[podUID]; p != nil {
		for _, id := range ids {
			p.ends[id.String()] = end
		}
	}
}

// limitMarks gives an end to the marks that have none.
func (u *unreadyMarks) limitMarks(podUID types.UID, end time.Time) {
	u.Lock()
	defer u.Unlock()
	if p := u.pods[podUID]; p != nil {
		for id := range p.containers {
			if _, ends := p.ends[id]; !ends {
				p.ends[id] = end
			}
		}
	}
}

// heldInVain says whether the mark has come to its end.
func (u *unreadyMarks) heldInVain(podUID types.UID, id kubecontainer.ContainerID, now time.Time) bool {
	u.Lock()
	defer u.Unlock()
	p := u.pods[podUID]
	if p == nil {
		return false
	}
	_, marked := p.containers[id.String()]
	end, ends := p.ends[id.String()]
	return marked && ends && !now.Before(end)
}
