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
//	          checkpoint say. What they have said for settleTime is kept in
//	          RecordFile too, as a reboot or a drain ends them
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
	overrideRefused = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "holdfast_predecessor_override_refused",
		Help: "1 if " + OverrideFile + " in the kubelet's root directory could not be read or is not a release when the kubelet started, so that it is ignored; else 0.",
	})
)

func init() {
	prometheus.MustRegister(info, saveFailed, overrideRefused)
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
	// learned are called when the record changes.
	learned []func()
	now     func() time.Time
}

// New returns a Predecessor that knows nothing.
func New() *Predecessor {
	return &Predecessor{now: time.Now}
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
		return p.record.release()
	}
	if minor, ok := p.evidence.minor(); ok {
		return minorRelease(minor), true
	}
	return Release{Source: Nothing}, false
}

func minorRelease(minor int) Release {
	r := Release{Major: 1, Minor: minor, Patch: -1, Source: Evidence}
	r.Version = r.String()
	return r
}

// Start reads the files. A file with bad content is named in the log, left as
// it is, and counts as missing.
func (p *Predecessor) Start(c Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.config, p.started = c, true
	file := filepath.Join(c.RootDirectory, OverrideFile)
	override, err := readOverride(file)
	overrideRefused.Set(0)
	if err != nil {
		overrideRefused.Set(1)
		glog.Errorf("%s is ignored: %v", file, err)
	}
	p.override = override
	if override != nil {
		// It comes with an image of the node's disk too, and nothing in it names the node.
		says := none
		if override.Major > 0 {
			says = override.String()
		}
		glog.Warningf("%s is there and counts before all that is known of this node: the kubelet before this one is %s. If the file is not about this node, as in an image, remove it and restart the kubelet", file, says)
	}
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
// first write; further ones keep the evidence if it has settled, and try again to
// save what could not be saved.
func (p *Predecessor) Observe(node *v1.Node) {
	for _, f := range p.observe(node) {
		f()
	}
}

// observe returns what is to be called, without the lock.
func (p *Predecessor) observe(node *v1.Node) []func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started {
		return nil
	}
	before := p.record
	if !p.observed {
		p.observed = true
		if node != nil {
			p.take(node)
		}
		p.show(false)
	}
	p.keepEvidence()
	if p.unsaved {
		p.save()
	}
	if p.record == before {
		return nil
	}
	return p.learned
}

// Notify has f called each time that Observe learns what is kept in RecordFile,
// in Observe's goroutine. What was written for another kubelet before, as the API
// server could not be reached, can be put right then.
func (p *Predecessor) Notify(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.learned = append(p.learned, f)
}

// keepEvidence makes what the evidence says permanent, as it goes with the
// containers: a node of v1.9.11+holdfast.1, which kept no record, or one whose Node
// was deleted, has nothing else. It comes after the API server was asked, which
// knows better, and never without one: there nobody tells of a stock kubelet that
// ran in between.
func (p *Predecessor) keepEvidence() {
	if p.override != nil || p.record != nil || !p.evidence.settled(p.now()) {
		return
	}
	version := none
	if minor, ok := p.evidence.minor(); ok {
		version = minorRelease(minor).Version
	}
	p.record = &Record{KubeletVersion: version, Source: Evidence, Identity: p.config.Identity, LastHeartbeat: p.now().UTC(), WrittenBy: p.config.Version}
	p.unsaved = true
	glog.Infof("The kubelet before this one as the containers tell it, %s, is kept in %s", version, filepath.Join(p.config.RootDirectory, RecordFile))
	p.show(false)
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
		if found.LastHeartbeat.Before(p.record.LastHeartbeat) && !p.record.LastHeartbeat.After(p.now()) {
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
	p.evidence.add(key, minors{oldest, newest}, p.now())
	p.show(false)
}

// SetCheckpoints says of which format the newest sandbox checkpoint was.
func (p *Predecessor) SetCheckpoints(c Checkpoints) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evidence.setCheckpoints(c, p.now())
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
