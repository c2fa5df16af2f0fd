// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"encoding/json"
	"io/ioutil"
	"os"
	"path/filepath"
	"time"

	"github.com/golang/glog"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// keptRecord is what a process of the kubelet leaves to the next about a container
// whose readiness it keeps and no probe has confirmed: without it a kubelet that
// starts again and again faster than its probes would keep the readiness for ever.
//
// It is the file holdfast_readiness_<container>.json in the pod's folder, where no
// release looks for files and which every release removes with the pod. It goes
// with the first success of the probe. The API holds nothing that it could be
// derived from: a heartbeat is written at every start, and the Ready condition's
// times say when the pod became ready, not when a probe last said so.
type keptRecord struct {
	// ContainerID is as in the API, like docker://….
	ContainerID string `json:"containerID"`
	// Since is when the first process without a success of the probe began to keep.
	Since time.Time `json:"since"`
	// LastStart is when the newest such process did.
	LastStart time.Time `json:"lastStart"`
}

func (k *keptReadiness) recordFile(c *keptContainer) string {
	return filepath.Join(k.PodDir(c.pod.UID), "holdfast_readiness_"+c.name+".json")
}

// readRecord returns what an earlier process left about this container, nil if
// there is nothing that counts. What cannot be read counts as begun with the
// container.
func (k *keptReadiness) readRecord(id kubecontainer.ContainerID, c *keptContainer) *keptRecord {
	file := k.recordFile(c)
	b, err := ioutil.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	var r keptRecord
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	now := k.Clock.Now()
	switch {
	case err != nil:
		glog.Warningf("%s: %v. The readiness of the container counts as kept since the container started", file, err)
		return &keptRecord{ContainerID: id.String(), Since: c.startedAt, LastStart: now}
	case r.ContainerID != id.String() || r.Since.Before(c.startedAt):
		return nil // of another container, or of an earlier run of this one
	case now.Sub(r.LastStart) > c.bound()+k.MaxHeartbeatAge:
		// The process that wrote it came to its end or to the end of the bound long
		// ago. Since then another kubelet was there, else the last heartbeat is too
		// old: ours with the result of a probe, or a stock one, which keeps nothing.
		return nil
	}
	return &r
}

// writeRecord notes that the container's readiness is kept from now on, or still.
// It returns how long it may be kept.
func (k *keptReadiness) writeRecord(id kubecontainer.ContainerID, c *keptContainer, now time.Time) (time.Duration, error) {
	r := keptRecord{ContainerID: id.String(), Since: now, LastStart: now}
	if c.record != nil {
		r.Since = c.record.Since
	}
	b, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	// Renamed into place: a kubelet may be killed at any time. That it outlives the
	// machine is not needed, as no container does.
	file := k.recordFile(c)
	if err := ioutil.WriteFile(file+".tmp", b, 0600); err != nil {
		return 0, err
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		return 0, err
	}
	c.record = &r
	if r.Since.After(now) {
		return 0, nil // the clock was set back
	}
	return c.bound() - now.Sub(r.Since), nil
}

func (k *keptReadiness) removeRecord(c *keptContainer) {
	c.record = nil
	if err := os.Remove(k.recordFile(c)); err != nil && !os.IsNotExist(err) {
		glog.Warningf("The next process of the kubelet may not keep the readiness of a container: %v", err)
	}
}
