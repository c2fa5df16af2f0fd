// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etchosts says how much disk the /etc/hosts of a pod takes. The kubelet makes the
// file in the pod's directory and mounts it writable into each container, so it is on the
// node's disk, and in no container's file system and no volume (CVE-2020-8557).
package etchosts

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// large is from where on a file is logged and counted, in bytes. The kubelet writes about
// 200, and a line for each of the pod's hostAliases.
const large = 1 << 20

var (
	largeFiles = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_etc_hosts_eviction_large_total",
		Help: "Pods whose /etc/hosts was larger than 1 MiB and was counted as their ephemeral storage.",
	})
	removed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_etc_hosts_eviction_removed_total",
		Help: "Files /etc/hosts larger than 1 MiB that were removed as their pod was evicted.",
	})
	wouldCount = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_etc_hosts_eviction_would_count_total",
		Help: "Pods whose /etc/hosts was larger than 1 MiB and would have been counted if the feature gate CountEtcHosts were on.",
	})
)

func init() {
	prometheus.MustRegister(largeFiles, wouldCount, removed)
}

var state struct {
	sync.Mutex
	podDir func(types.UID) string
	seen   map[types.UID]bool // pods that were logged
}

// SetPodDir says where a pod's directory is. Until it is called no file is found.
func SetPodDir(podDir func(types.UID) string) {
	state.Lock()
	defer state.Unlock()
	state.podDir, state.seen = podDir, map[types.UID]bool{}
}

// Usage is the disk that the pod's /etc/hosts takes, in bytes, and its inodes: 0 and 0 if
// there is none, and with the feature gate CountEtcHosts off.
func Usage(uid types.UID) (disk, inodes uint64) {
	state.Lock()
	podDir := state.podDir
	state.Unlock()
	if podDir == nil {
		return 0, 0
	}
	bytes, there := taken(file(podDir, uid))
	if !there {
		return 0, 0
	}
	on := utilfeature.DefaultFeatureGate.Enabled(features.CountEtcHosts)
	if bytes > large {
		tell(uid, bytes, on)
	}
	if !on {
		return 0, 0
	}
	return bytes, 1
}

// file is the /etc/hosts of a pod.
func file(podDir func(types.UID) string, uid types.UID) string {
	return filepath.Join(podDir(uid), "etc-hosts")
}

// taken is the disk that a file takes, in bytes, and whether it is there.
func taken(file string) (bytes uint64, there bool) {
	info, err := os.Lstat(file)
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Blocks) * 512, true // a hole takes no disk
	}
	return uint64(info.Size()), true
}

// Evicted removes the /etc/hosts of a pod whose containers have ended for good, if it is
// larger than 1 MiB: the pod's directory stays as long as the pod is in the API, and while
// the disk is not free another pod is evicted. Nothing happens with the gate off.
func Evicted(uid types.UID) {
	state.Lock()
	podDir := state.podDir
	state.Unlock()
	if podDir == nil || !utilfeature.DefaultFeatureGate.Enabled(features.CountEtcHosts) {
		return
	}
	name := file(podDir, uid)
	bytes, there := taken(name)
	if !there || bytes <= large {
		return
	}
	if err := os.Remove(name); err != nil {
		glog.Errorf("The /etc/hosts of the evicted pod %s keeps %d bytes of the disk: %v", uid, bytes, err)
		return
	}
	removed.Inc()
	glog.Infof("The /etc/hosts of the evicted pod %s, %d bytes, was removed (feature gate %s)", uid, bytes, features.CountEtcHosts)
}

// remembered bounds how many pods are known as logged.
const remembered = 1000

func tell(uid types.UID, bytes uint64, on bool) {
	state.Lock()
	defer state.Unlock()
	if state.seen[uid] {
		return
	}
	if len(state.seen) >= remembered {
		state.seen = map[types.UID]bool{}
	}
	state.seen[uid] = true
	if !on {
		wouldCount.Inc()
		return
	}
	largeFiles.Inc()
	glog.Warningf("The /etc/hosts of pod %s takes %d bytes, which count as its ephemeral storage (feature gate %s)", uid, bytes, features.CountEtcHosts)
}
