// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"holdfast/cmd/internal/kubeapi"
)

// seen is a container that runs, as the kubelet's cadvisor sees it.
type seen struct {
	hash    *uint32 // nil: its labels have none, or none that can be read
	created time.Time
	id      string // docker's, "" if its cgroup's name has none
}

// key is a container of a pod: its UID and the container's name.
type key struct{ uid, container string }

// The labels of docker's containers (pkg/kubelet/dockershim/helpers.go, pkg/kubelet/types/labels.go).
const (
	labelPrefix    = "io.kubernetes."
	labelUID       = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
	labelKind      = "io.kubernetes.docker.type"
	labelHash      = "io.kubernetes.container.hash"
	annotation     = "annotation."
)

// containerID is what docker calls a container; cgroupfs has it as the cgroup's name, systemd as
// docker-ID.scope.
var containerID = regexp.MustCompile("[0-9a-f]{64}")

// decodeStats reads the answer to POST stats/container: the containers of the node by their cgroup.
// Of two of the same name the later one counts.
func decodeStats(data []byte) (map[key]seen, error) {
	type labels map[string]string
	var all map[string]*struct {
		Labels labels
		Spec   struct {
			Labels       labels
			CreationTime time.Time `json:"creation_time"`
		}
	}
	if err := kubeapi.Decode(data, &all); err != nil {
		return nil, err
	}
	if all == nil {
		return nil, errors.New("the answer has no containers")
	}
	out := map[key]seen{}
	for name, c := range all {
		if c == nil {
			continue
		}
		l := c.Spec.Labels
		if len(l) == 0 {
			l = c.Labels
		}
		k := key{l[labelUID], l[labelContainer]}
		if k.uid == "" || k.container == "" || k.container == "POD" || l[labelKind] == "podsandbox" {
			continue
		}
		s := seen{created: c.Spec.CreationTime, id: containerID.FindString(name)}
		text := l[annotation+labelHash]
		if text == "" {
			text = l[labelHash]
		}
		if h, err := strconv.ParseUint(text, 16, 32); err == nil {
			h := uint32(h)
			s.hash = &h
		}
		if old, ok := out[k]; !ok || old.created.Before(s.created) {
			out[k] = s
		}
	}
	return out, nil
}

// summary is what is read of stats/summary.
type summary struct {
	Node struct {
		NodeName string
		Memory   *struct{ AvailableBytes *float64 }
		Fs       *disk
		Runtime  *struct{ ImageFs *disk }
	}
}

type disk struct {
	AvailableBytes, CapacityBytes, InodesFree, Inodes *float64
}

func decodeSummary(data []byte) (*summary, error) {
	s := &summary{}
	if err := kubeapi.Decode(data, s); err != nil {
		return nil, err
	}
	if s.Node.Fs == nil && s.Node.Memory == nil {
		return nil, errors.New("the answer has neither disk nor memory")
	}
	return s, nil
}

// amount is what there is of an eviction signal and of how much; nil where it is not known.
func (s *summary) amount(signal string) (have, of *float64) {
	var d *disk
	switch {
	case signal == "memory.available" && s.Node.Memory != nil:
		return s.Node.Memory.AvailableBytes, nil
	case strings.HasPrefix(signal, "nodefs."):
		d = s.Node.Fs
	case strings.HasPrefix(signal, "imagefs.") && s.Node.Runtime != nil:
		d = s.Node.Runtime.ImageFs
	}
	switch {
	case d == nil:
		return nil, nil
	case strings.HasSuffix(signal, ".available"):
		return d.AvailableBytes, d.CapacityBytes
	case strings.HasSuffix(signal, ".inodesFree"):
		return d.InodesFree, d.Inodes
	}
	return nil, nil
}
