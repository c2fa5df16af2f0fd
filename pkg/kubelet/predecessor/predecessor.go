// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package predecessor knows which kubelet this one replaced, and so which one an
// operator goes back to. What this kubelet leaves behind (hashes of containers,
// sandbox checkpoints, mounts) must be right for that one.
//
// The sources, from strong to weak:
//
//	operator  the file OverrideFile in the kubelet's root directory
//	api       Node.status.nodeInfo.kubeletVersion, read before this kubelet first
//	          writes it, and kept in RecordFile. A version of this project changes
//	          nothing; another one, of a stock kubelet that ran in between,
//	          replaces the record
//	evidence  what the hashes of containers and the format of the newest
//	          checkpoint say
//
// Without any of them nothing is known, and the caller does what the stock
// release does.
//
// The package decides nothing for its callers: they map a Release to a format.
package predecessor

import (
	"path/filepath"
	"sync"
	"time"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"

	"k8s.io/api/core/v1"
)

var (
	info = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "holdfast_predecessor_info",
		Help: "1 for the release of the kubelet that this one replaced (none: not known) and the source of that knowledge (operator, api, evidence, none).",
	}, []string{"release", "source"})
	saveFailed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_predecessor_save_failed_total",
		Help: "Attempts to write " + RecordFile + " in the kubelet's root directory that failed. The next one follows with the next node status.",
	})
)

func init() {
	prometheus.MustRegister(info, saveFailed)
}

// Default is the kubelet's. Until Start it knows nothing.
var Default = New()

// Config is what Start needs.
type Config struct {
	// RootDirectory is the kubelet's --root-dir.
	RootDirectory string
	// Identity is that of this node and machine.
	Identity
	// Version is this kubelet's own.
	Version string
}

// Predecessor collects knowledge. Its methods may be called by many.
type Predecessor struct {
	mu       sync.Mutex
	config   Config
	started  bool
	override *Release
	record   *Record
	unsaved  bool
	observed bool
	evidence evidence
	// shown is what metric and log have last said, "" until Report.
	shown string
}

// New returns a Predecessor that knows nothing.
func New() *Predecessor {
	return &Predecessor{}
}

// NewKnown returns one that knows version ("v1.7.0", or "none") as if from
// the operator. It is for tests of callers.
func NewKnown(version string) *Predecessor {
	p := New()
	p.override = &Release{Source: Operator}
	if r, ok := parseRelease(version, Operator); ok {
		p.override = &r
	}
	return p
}

// Release returns the kubelet that was there before this one. ok is false if
// none is known, or the operator says that there was none; then only Source is
// set, to Nothing or Operator.
func (p *Predecessor) Release() (r Release, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.release()
}

func (p *Predecessor) release() (Release, bool) {
	if p.override != nil {
		return *p.override, p.override.Major > 0
	}
	if p.record != nil {
		return parseRelease(p.record.KubeletVersion, API)
	}
	if minor, ok := p.evidence.minor(); ok {
		r := Release{Major: 1, Minor: minor, Patch: -1, Source: Evidence}
		r.Version = r.String()
		return r, true
	}
	return Release{Source: Nothing}, false
}

// Start reads the files. A file with bad content is named in the log, left as
// it is, and counts as missing.
func (p *Predecessor) Start(c Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.config, p.started = c, true
	file := filepath.Join(c.RootDirectory, OverrideFile)
	override, err := readOverride(file)
	if err != nil {
		glog.Errorf("%s is ignored: %v", file, err)
	}
	p.override = override
	file = filepath.Join(c.RootDirectory, RecordFile)
	record, err := readRecord(file)
	if err != nil {
		glog.Errorf("%s is ignored: %v", file, err)
	}
	if record != nil {
		if why := c.Identity.differs(record.Identity); why != "" {
			glog.Warningf("%s is ignored, it is about another node: %s. If it is right, say so in %s and restart the kubelet", file, why,
				filepath.Join(c.RootDirectory, OverrideFile))
			record = nil
		}
	}
	p.record = record
}

// Report shows the state of knowledge in the metric and the log; from then on
// each change of it is shown.
func (p *Predecessor) Report() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.show(true)
}

// Observed reports whether the Node at the API server was seen by this process,
// before anything that this process wrote. True without Start.
func (p *Predecessor) Observed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.observed || !p.started
}

// Observe takes the version of the kubelet that last wrote node, which is this
// kubelet's own as the API server has it now (no cache), or nil if there is none.
// The first call after Start counts, and it has to come before this kubelet's
// first write; further ones only try again to save what could not be saved.
func (p *Predecessor) Observe(node *v1.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started {
		return
	}
	if !p.observed {
		p.observed = true
		if node != nil {
			p.take(node)
		}
		p.show(false)
	}
	if p.unsaved {
		p.save()
	}
}

// take replaces the record if node was last written by a kubelet that is not
// ours, on this machine, after what the record has.
func (p *Predecessor) take(node *v1.Node) {
	n := &node.Status.NodeInfo
	if _, ok := parseRelease(n.KubeletVersion, API); !ok {
		// Ours, or empty in a Node that nobody but an operator has written.
		return
	}
	found := &Record{
		KubeletVersion: n.KubeletVersion,
		Identity:       Identity{NodeName: node.Name, MachineID: n.MachineID, SystemUUID: n.SystemUUID},
		LastHeartbeat:  lastHeartbeat(node),
		WrittenBy:      p.config.Version,
	}
	if why := p.config.Identity.differs(found.Identity); why != "" {
		glog.Warningf("Node %s was last written by kubelet %s of another machine (%s): it is not the kubelet before this one", node.Name, n.KubeletVersion, why)
		return
	}
	if p.record != nil {
		if p.record.KubeletVersion == found.KubeletVersion && p.record.LastHeartbeat.Equal(found.LastHeartbeat) {
			return
		}
		// A Node from a backup of etcd is older than the record. A record of the
		// future was made with a wrong clock and proves nothing.
		if found.LastHeartbeat.Before(p.record.LastHeartbeat) && !p.record.LastHeartbeat.After(time.Now()) {
			glog.Warningf("Node %s says kubelet %s, last seen %v, which is older than what %s says: ignored", node.Name, n.KubeletVersion,
				found.LastHeartbeat, filepath.Join(p.config.RootDirectory, RecordFile))
			return
		}
	}
	// This machine's own, as the API may lack some.
	found.Identity = p.config.Identity
	p.record, p.unsaved = found, true
}

func lastHeartbeat(node *v1.Node) time.Time {
	var last time.Time
	for _, c := range node.Status.Conditions {
		if c.LastHeartbeatTime.Time.After(last) {
			last = c.LastHeartbeatTime.Time
		}
	}
	return last.UTC()
}

func (p *Predecessor) save() {
	file := filepath.Join(p.config.RootDirectory, RecordFile)
	if err := writeRecord(file, p.record); err != nil {
		saveFailed.Inc()
		glog.Errorf("Failed to write %s, without which a restart of the kubelet forgets that kubelet %s was here: %v", file, p.record.KubeletVersion, err)
		return
	}
	p.unsaved = false
}

// NeedsEvidence reports whether evidence would count: nothing stronger is known.
func (p *Predecessor) NeedsEvidence() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.override == nil && p.record == nil
}

// AddContainer says that the newest container of that key (a pod's UID and a
// container's name) was recorded by a kubelet from 1.oldest to 1.newest.
func (p *Predecessor) AddContainer(key string, oldest, newest int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evidence.add(key, minors{oldest, newest})
	p.show(false)
}

// SetCheckpoints says of which format the newest sandbox checkpoint was.
func (p *Predecessor) SetCheckpoints(c Checkpoints) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evidence.checkpoints = c
	p.show(false)
}

func (p *Predecessor) show(first bool) {
	if p.shown == "" && !first {
		return
	}
	r, ok := p.release()
	name := none
	if ok {
		name = r.String()
	}
	shown := name + " " + string(r.Source)
	if shown == p.shown {
		return
	}
	p.shown = shown
	info.Reset()
	info.WithLabelValues(name, string(r.Source)).Set(1)
	before := "none is known"
	if ok {
		before = name
	}
	glog.Infof("The kubelet before this one: %s (source: %s). To correct it, write the release into %s and restart the kubelet",
		before, r.Source, filepath.Join(p.config.RootDirectory, OverrideFile))
}
