// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockershim

import (
	"encoding/json"
	"hash/fnv"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/predecessor"
	utilstore "k8s.io/kubernetes/pkg/kubelet/util/store"
	hashutil "k8s.io/kubernetes/pkg/util/hash"
)

// A checkpoint's checksum is the hash of a dump of its Go value, so that it
// depends on the fields that the release's types have. CheckpointData has
// HostNetwork since 1.8.0; 1.6 and 1.7 have the types without it. Three kinds of
// valid file exist on a node that came from 1.7:
//
//	native  checksum over today's types. Written by 1.8, 1.9 and, where the
//	        kubelet before us was not 1.7 or older, by us.
//	1.7     checksum over the types without HostNetwork, no host_network key.
//	dual    the 1.7 checksum, and today's in a key that the other releases
//	        ignore. Written by us where 1.7 must be able to take over again. 1.7
//	        accepts it; 1.8 and 1.9 do not.
//
// There is no value of a checkpoint for which both checksums are equal (see
// patches/checkpoint-compat/README.md), and a file has room for one checksum that
// the old releases read: hence dual, and no file that all releases accept.
type checkpointKind int

const (
	checkpointCorrupt checkpointKind = iota
	checkpointNative
	checkpoint17
	checkpointDual
)

// dualCheckpoint is the JSON of the dual kind.
type dualCheckpoint struct {
	PodSandboxCheckpoint
	// NativeCheckSum covers host_network, which the 1.7 checksum does not.
	NativeCheckSum *uint64 `json:"holdfast_native_checksum,omitempty"`
}

var (
	checkpointsAccepted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_checkpoint_compat_accepted_total",
		Help: "Sandbox checkpoints of kubelet 1.7 or older that were found at start and accepted.",
	})
	checkpointsRewriteFailed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_checkpoint_compat_rewrite_failed_total",
		Help: "Sandbox checkpoints that were accepted but could not be written back; they stay usable.",
	})
	checkpointsWouldAccept = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_checkpoint_compat_would_accept_total",
		Help: "Sandbox checkpoints removed as corrupt because the gate CheckpointCompat is off, that it would have accepted.",
	})
	checkpointsLegacyWritten = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_checkpoint_compat_legacy_written_total",
		Help: "New sandbox checkpoints written so that kubelet 1.7 accepts them (gate LegacyCheckpointWrite).",
	})
)

func init() {
	prometheus.MustRegister(checkpointsAccepted, checkpointsRewriteFailed, checkpointsWouldAccept, checkpointsLegacyWritten)
}

// checksum17 returns the checksum that kubelets 1.6 and 1.7 compute for the
// checkpoint. The types below are theirs, name for name: the dump that is hashed
// contains the names.
func checksum17(c *PodSandboxCheckpoint) uint64 {
	type CheckpointData struct {
		PortMappings []*PortMapping
	}
	type PodSandboxCheckpoint struct {
		Version   string
		Name      string
		Namespace string
		Data      *CheckpointData
		CheckSum  uint64
	}
	old := PodSandboxCheckpoint{Version: c.Version, Name: c.Name, Namespace: c.Namespace}
	if c.Data != nil {
		old.Data = &CheckpointData{PortMappings: c.Data.PortMappings}
	}
	hash := fnv.New32a()
	hashutil.DeepHashObject(hash, old)
	return uint64(hash.Sum32())
}

// classifyCheckpoint says which kind of file blob is. For every kind but
// checkpointCorrupt the checkpoint is returned with its native checksum.
func classifyCheckpoint(blob []byte) (checkpointKind, *PodSandboxCheckpoint) {
	var file dualCheckpoint
	if err := json.Unmarshal(blob, &file); err != nil {
		return checkpointCorrupt, nil
	}
	checkpoint := file.PodSandboxCheckpoint
	recorded, native := checkpoint.CheckSum, calculateChecksum(checkpoint)
	checkpoint.CheckSum = native
	if recorded == native {
		return checkpointNative, &checkpoint
	}
	if recorded != checksum17(&checkpoint) || !complete(&checkpoint) {
		return checkpointCorrupt, nil
	}
	switch {
	case file.NativeCheckSum != nil && *file.NativeCheckSum == native:
		return checkpointDual, &checkpoint
	case file.NativeCheckSum == nil && !checkpoint.Data.HostNetwork:
		return checkpoint17, &checkpoint
	}
	// host_network is not covered by the 1.7 checksum, and no 1.7 kubelet writes it.
	return checkpointCorrupt, nil
}

// complete reports whether the checkpoint has all that its readers follow
// without a check. Every release writes all of it.
func complete(c *PodSandboxCheckpoint) bool {
	if c.Data == nil {
		return false
	}
	for _, m := range c.Data.PortMappings {
		if m == nil || m.Protocol == nil || m.ContainerPort == nil || m.HostPort == nil {
			return false
		}
	}
	return true
}

// encodeCheckpoint returns what is written to the store: the dual kind, or what
// stock writes. The checkpoint has its native checksum set.
func encodeCheckpoint(checkpoint *PodSandboxCheckpoint, dual bool) ([]byte, error) {
	if !dual {
		return json.Marshal(checkpoint)
	}
	native := checkpoint.CheckSum
	file := dualCheckpoint{PodSandboxCheckpoint: *checkpoint, NativeCheckSum: &native}
	file.CheckSum = checksum17(checkpoint)
	return json.Marshal(file)
}

// writeDual reports whether kubelet 1.7 must be able to read what we write: it,
// or an older one, was here before us.
func writeDual() bool {
	if !utilfeature.DefaultFeatureGate.Enabled(features.CheckpointCompat) || !utilfeature.DefaultFeatureGate.Enabled(features.LegacyCheckpointWrite) {
		return false
	}
	r, ok := predecessor.Default.Release()
	return ok && r.Minor <= 7
}

// mayRewrite reports whether what writeDual says is sure enough to change files
// that are there. If nothing is known but what these files themselves suggest, or
// only that the evidence speaks for no release, they stay as they are: we accept each
// kind.
func mayRewrite() bool {
	if !utilfeature.DefaultFeatureGate.Enabled(features.LegacyCheckpointWrite) {
		return true
	}
	r, ok := predecessor.Default.Release()
	return !predecessor.Default.NeedsEvidence() && (ok || r.Source == predecessor.Operator)
}

// acceptLegacy is asked when the native checksum does not match. It reports
// whether the file is nevertheless what an older kubelet, or we for it, wrote;
// then the checkpoint is as if it had been read from a native file.
func (handler *PersistentCheckpointHandler) acceptLegacy(podSandboxID string, blob []byte, checkpoint *PodSandboxCheckpoint) bool {
	kind, accepted := classifyCheckpoint(blob)
	if kind == checkpointCorrupt {
		return false
	}
	if !utilfeature.DefaultFeatureGate.Enabled(features.CheckpointCompat) {
		checkpointsWouldAccept.Inc()
		glog.Warningf("Checkpoint %q is valid for kubelet 1.7 but the feature gate CheckpointCompat is off", podSandboxID)
		return false
	}
	*checkpoint = *accepted
	return true
}

// adopt looks through the store before the handler is used, and again whenever
// more is known of the kubelet that was here before us. dir is the store's.
func (handler *PersistentCheckpointHandler) adopt(dir string) *PersistentCheckpointHandler {
	if !utilfeature.DefaultFeatureGate.Enabled(features.CheckpointCompat) {
		return handler
	}
	store := &checkpointStore{Store: handler.store, dir: dir}
	handler.store = store
	predecessor.Default.Notify(func() { store.adopt(false) })
	store.adopt(true)
	return handler
}

// checkpointStore is the store with files that the kubelet accepts which was here
// before us. Its lock keeps a file that is written or deleted out of adopt.
type checkpointStore struct {
	utilstore.Store
	dir string
	mu  sync.Mutex
}

// Write turns what CreateCheckpoint writes, which is native, into the dual kind
// where 1.7 must be able to read it. It asks under the lock, so that adopt finds
// what was written for another kubelet.
func (s *checkpointStore) Write(id string, blob []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if writeDual() {
		if kind, checkpoint := classifyCheckpoint(blob); kind == checkpointNative {
			dual, err := encodeCheckpoint(checkpoint, true)
			if err != nil {
				return err
			}
			blob = dual
			checkpointsLegacyWritten.Inc()
		}
	}
	return s.Store.Write(id, blob)
}

func (s *checkpointStore) Delete(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.Delete(id)
}

// adopt rewrites the files that the kubelet which was here before us would not
// accept. At the start it also counts what it finds and tells package predecessor. A
// file that it cannot explain is left to GetCheckpoint, which treats it as
// upstream does.
func (s *checkpointStore) adopt(start bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids, err := s.Store.List()
	if err != nil {
		glog.Errorf("Failed to list the sandbox checkpoints, they are not looked at: %v", err)
		return
	}
	checkpoints := map[string]*PodSandboxCheckpoint{}
	kinds := map[string]checkpointKind{}
	found := map[checkpointKind]int{}
	newest, newestKind := time.Time{}, checkpointCorrupt
	for _, id := range ids {
		blob, err := s.Store.Read(id)
		if err != nil {
			continue
		}
		kind, checkpoint := classifyCheckpoint(blob)
		found[kind]++
		if kind == checkpointCorrupt {
			continue
		}
		checkpoints[id], kinds[id] = checkpoint, kind
		if f, err := os.Stat(filepath.Join(s.dir, id)); err == nil && !f.ModTime().Before(newest) {
			newest, newestKind = f.ModTime(), kind
		}
	}
	if start {
		switch newestKind {
		case checkpointNative:
			predecessor.Default.SetCheckpoints(predecessor.CheckpointsNative)
		case checkpoint17, checkpointDual:
			predecessor.Default.SetCheckpoints(predecessor.Checkpoints17)
		}
		checkpointsAccepted.Add(float64(found[checkpoint17]))
	}
	dual, may, rewritten, failed := writeDual(), mayRewrite(), 0, 0
	for id, checkpoint := range checkpoints {
		// 1.7 accepts its own files and the dual ones, 1.8 and 1.9 the native.
		if !may || (kinds[id] != checkpointNative) == dual {
			continue
		}
		blob, err := encodeCheckpoint(checkpoint, dual)
		if err == nil {
			err = s.Store.Write(id, blob)
		}
		if err != nil {
			failed++
			glog.Errorf("Failed to rewrite the checkpoint of sandbox %q: %v", id, err)
			continue
		}
		rewritten++
	}
	checkpointsRewriteFailed.Add(float64(failed))
	if rewritten+failed > 0 || start && found[checkpoint17]+found[checkpointDual] > 0 {
		glog.Warningf("Sandbox checkpoints: accepted %d of kubelet 1.7 or older and %d that were written for it, rewrote %d, failed to rewrite %d. "+
			"New checkpoints are written so that kubelet 1.7 accepts them: %v (feature gate LegacyCheckpointWrite)",
			found[checkpoint17], found[checkpointDual], rewritten, failed, dual)
	}
}
