// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package predecessor

import (
	"flag"
	"fmt"
	"io/ioutil"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const own = "v1.9.11+holdfast.2"

var (
	me = Identity{NodeName: "node1", MachineID: "a1", SystemUUID: "EC2A1B2C-0102-0304-0506-070809101112"}
	t0 = time.Date(2018, 3, 1, 12, 0, 0, 0, time.UTC)
)

func rootDir(t *testing.T) string {
	dir, err := ioutil.TempDir("", "predecessor")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// start is a kubelet that starts on the root directory.
func start(dir string, id Identity) *Predecessor {
	p := New()
	p.Start(Config{RootDirectory: dir, Identity: id, Version: own})
	p.Report()
	return p
}

func node(version string, id Identity, heartbeat time.Time) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: id.NodeName}}
	n.Status.NodeInfo = v1.NodeSystemInfo{KubeletVersion: version, MachineID: id.MachineID, SystemUUID: id.SystemUUID}
	n.Status.Conditions = []v1.NodeCondition{
		{Type: v1.NodeOutOfDisk, LastHeartbeatTime: metav1.NewTime(heartbeat.Add(-time.Hour))},
		{Type: v1.NodeReady, LastHeartbeatTime: metav1.NewTime(heartbeat)},
	}
	return n
}

// want holds what p says, as "release source".
func want(t *testing.T, what string, p *Predecessor, say string) {
	r, ok := p.Release()
	got := none
	if ok {
		got = r.String()
	}
	if got += " " + string(r.Source); got != say {
		t.Errorf("%s: %q, want %q", what, got, say)
	}
}

func TestParseRelease(t *testing.T) {
	for version, want := range map[string]string{
		"v1.7.0": "1.7.0", "1.8": "1.8", "v1.8.15-gke.0": "1.8.15", "v1.9.11+rancher1": "1.9.11", "v1.10.0-beta.1": "1.10.0", "1.6.13": "1.6.13",
		own: "", own + ".post.g0123456789ab": "", own + ".post.g0123456789ab.dirty": "", own + ".post.unknown": "", "v1.9.11-foo+holdfast.1": "", "": "", "1": "", "v2.0.0": "", "v0.0.0-master+$Format:%h$": "", "1.7.0.1 ": "", "1.7\n1.8": "", "1.07": "", "none": "",
		"1.7.99999999999": "",
	} {
		r, ok := parseRelease(version, API)
		if got := r.String(); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v, want %q", version, got, ok, want)
		}
	}
}

func TestBefore(t *testing.T) {
	for _, tc := range []struct {
		version       string
		before, known bool
	}{
		{"v1.7.0", true, true}, {"v1.7.13", true, true}, {"v1.7.14", false, true}, {"1.7", false, false}, {"1.6", true, true}, {"1.8", false, true},
	} {
		r, _ := parseRelease(tc.version, API)
		before, known := r.Before(7, 14)
		if known != tc.known || known && before != tc.before {
			t.Errorf("%s before 1.7.14: %v, %v", tc.version, before, known)
		}
	}
}

// TestLife: what one node's disk knows through swaps of the kubelet.
func TestLife(t *testing.T) {
	dir := rootDir(t)
	defer os.RemoveAll(dir)
	p := start(dir, me)
	want(t, "nothing yet", p, "none none")
	p.Observe(node("v1.7.0", me, t0))
	want(t, "1.7", p, "1.7.0 api")
	p.Observe(node(own, me, t0.Add(time.Minute)))
	want(t, "the own version", p, "1.7.0 api")
	p.Observe(node("v1.8.15", me, t0.Add(time.Minute)))
	want(t, "only the first read of a process counts", p, "1.7.0 api")

	p = start(dir, me)
	want(t, "after a reboot, no API server yet", p, "1.7.0 api")
	p.Observe(node(own, me, t0.Add(time.Hour)))
	want(t, "after a reboot", p, "1.7.0 api")

	p = start(dir, me)
	p.Observe(nil)
	want(t, "the Node object was deleted", p, "1.7.0 api")
	p = start(dir, me)
	p.Observe(node("", me, time.Time{}))
	want(t, "the Node object was made by an operator", p, "1.7.0 api")

	p = start(dir, me)
	p.Observe(node("v1.9.11", me, t0.Add(2*time.Hour)))
	want(t, "a stock kubelet ran in between", p, "1.9.11 api")
	want(t, "and stays", start(dir, me), "1.9.11 api")

	p = start(dir, me)
	p.Observe(node("v1.7.0", me, t0))
	want(t, "a Node from a backup", p, "1.9.11 api")
	want(t, "and on disk", start(dir, me), "1.9.11 api")
	p = start(dir, me)
	p.Observe(node("v1.8.15", me, t0.Add(3*time.Hour)))
	want(t, "another swap", p, "1.8.15 api")
}

// TestFutureRecord: a record that was made with a clock that was ahead does not
// hide what comes later.
func TestFutureRecord(t *testing.T) {
	dir := rootDir(t)
	defer os.RemoveAll(dir)
	start(dir, me).Observe(node("v1.7.0", me, time.Now().Add(24*time.Hour)))
	p := start(dir, me)
	p.Observe(node("v1.9.11", me, time.Now()))
	want(t, "later", p, "1.9.11 api")
}

func TestIdentity(t *testing.T) {
	with := func(f func(*Identity)) Identity {
		id := me
		f(&id)
		return id
	}
	for name, tc := range map[string]struct {
		id   Identity
		same bool
	}{
		"itself":                 {me, true},
		"clone: other UUID":      {with(func(i *Identity) { i.SystemUUID = "00000000-0102-0304-0506-070809101112" }), false},
		"renamed":                {with(func(i *Identity) { i.NodeName = "node2" }), false},
		"UUID in lower case":     {with(func(i *Identity) { i.SystemUUID = strings.ToLower(i.SystemUUID) }), true},
		"UUID in the other way":  {with(func(i *Identity) { i.SystemUUID = "2c1b2aec-0201-0403-0506-070809101112" }), true},
		"new machine ID":         {with(func(i *Identity) { i.MachineID = "b2" }), true},
		"no UUID, same ID":       {with(func(i *Identity) { i.SystemUUID = "" }), true},
		"no UUID, other ID":      {with(func(i *Identity) { i.SystemUUID, i.MachineID = "", "b2" }), false},
		"nothing but the name":   {Identity{NodeName: "node1"}, true},
		"UUID that is not one":   {with(func(i *Identity) { i.SystemUUID = "Not Specified" }), false},
		"other name, no machine": {Identity{NodeName: "node2"}, false},
	} {
		dir := rootDir(t)
		p := start(dir, me)
		p.Observe(node("v1.7.0", me, t0))
		say := "none none"
		if tc.same {
			say = "1.7.0 api"
		}
		want(t, name+": record", start(dir, tc.id), say)
		os.RemoveAll(dir)

		// The same for a Node that is there: of this machine or another's.
		dir = rootDir(t)
		p = start(dir, me)
		n := node("v1.7.0", tc.id, t0)
		p.Observe(n)
		want(t, name+": Node", p, say)
		os.RemoveAll(dir)
	}
}

func TestOverride(t *testing.T) {
	for content, say := range map[string]string{
		"1.8\n": "1.8 operator", "v1.7.16": "1.7.16 operator", " none \n": "none operator",
		"": "1.7.0 api", "1.7 or 1.8": "1.7.0 api", own: "1.7.0 api", "auto": "1.7.0 api", "{}": "1.7.0 api", "\x00\xff": "1.7.0 api",
		strings.Repeat("1", maxFileSize+1): "1.7.0 api",
	} {
		dir := rootDir(t)
		start(dir, me).Observe(node("v1.7.0", me, t0))
		if err := ioutil.WriteFile(filepath.Join(dir, OverrideFile), []byte(content), 0644); err != nil {
			t.Fatal(err)
		}
		p := start(dir, me)
		want(t, fmt.Sprintf("%.20q", content), p, say)
		if refused := gaugeValue(t, overrideRefused); (refused == 1) != strings.HasSuffix(say, " api") {
			t.Errorf("%.20q: holdfast_predecessor_override_refused is %v", content, refused)
		}
		p.Observe(node(own, me, t0))
		p.AddContainer("a", 9, 9)
		want(t, fmt.Sprintf("%.20q, later", content), p, say)
		if b, err := ioutil.ReadFile(filepath.Join(dir, OverrideFile)); err != nil || string(b) != content {
			t.Errorf("%.20q: the operator's file was changed (%v)", content, err)
		}
		if err := os.Remove(filepath.Join(dir, OverrideFile)); err != nil {
			t.Fatal(err)
		}
		want(t, fmt.Sprintf("%.20q, removed", content), start(dir, me), "1.7.0 api")
		if refused := gaugeValue(t, overrideRefused); refused != 0 {
			t.Errorf("%.20q, removed: holdfast_predecessor_override_refused is %v", content, refused)
		}
		os.RemoveAll(dir)
	}
	_, err := readOverride("/dev/null")
	if err == nil || !strings.Contains(err.Error(), "allowed is one line with a release of Kubernetes, such as 1.7, 1.8.15 or v1.9.11, or with the word none") {
		t.Errorf("an empty file: %v", err)
	}
}

// TestOverrideInLog: an override is in the log at each start, as a disk's image may have brought it.
func TestOverrideInLog(t *testing.T) {
	if err := flag.Set("logtostderr", "true"); err != nil {
		t.Fatal(err)
	}
	for content, say := range map[string]string{"1.7.16\n": "is 1.7.16.", "none": "is none.", "": "", "auto": ""} {
		dir := rootDir(t)
		file := filepath.Join(dir, OverrideFile)
		if content != "" {
			if err := ioutil.WriteFile(file, []byte(content), 0644); err != nil {
				t.Fatal(err)
			}
		}
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		stderr := os.Stderr
		os.Stderr = write
		start(dir, me)
		glog.Flush()
		os.Stderr = stderr
		write.Close()
		b, err := ioutil.ReadAll(read)
		if err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(string(b), file+" is there and counts before all") && strings.Contains(string(b), say); told != (say != "") {
			t.Errorf("%q: the log has %s", content, b)
		}
		os.RemoveAll(dir)
	}
}

// TestRecordHasOwnIdentity: the record is about this machine as it knows itself. A Node that lacks
// the UUID, or has it in another form, would make a record that fits a clone too.
func TestRecordHasOwnIdentity(t *testing.T) {
	dir := rootDir(t)
	defer os.RemoveAll(dir)
	start(dir, me).Observe(node("v1.7.0", Identity{NodeName: me.NodeName, MachineID: me.MachineID}, t0))
	r, err := readRecord(filepath.Join(dir, RecordFile))
	if err != nil || r == nil || r.Identity != me {
		t.Errorf("the record is %+v (%v), want it about %+v", r, err, me)
	}
	clone := me
	clone.SystemUUID = "00000000-0102-0304-0506-070809101112"
	want(t, "a clone of the disk", start(dir, clone), "none none")
}

// TestBadRecord: what is no record is ignored, not fatal, and replaced by the
// next one.
func TestBadRecord(t *testing.T) {
	for _, content := range []string{"", "{", "null", `{"kubeletVersion":""}`, `{"kubeletVersion":"` + own + `","nodeName":"node1"}`,
		`{"kubeletVersion":"none","nodeName":"node1"}`, `{"kubeletVersion":"1.7","source":"operator","nodeName":"node1"}`, strings.Repeat(" ", maxFileSize+1)} {
		dir := rootDir(t)
		if err := ioutil.WriteFile(filepath.Join(dir, RecordFile), []byte(content), 0644); err != nil {
			t.Fatal(err)
		}
		p := start(dir, me)
		want(t, fmt.Sprintf("%.20q", content), p, "none none")
		p.Observe(node("v1.8.15", me, t0))
		want(t, fmt.Sprintf("%.20q, replaced", content), start(dir, me), "1.8.15 api")
		os.RemoveAll(dir)
	}
}

// TestCrashWhileWriting: a write that did not end leaves the old record.
func TestCrashWhileWriting(t *testing.T) {
	dir := rootDir(t)
	defer os.RemoveAll(dir)
	start(dir, me).Observe(node("v1.7.0", me, t0))
	whole, err := ioutil.ReadFile(filepath.Join(dir, RecordFile))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n <= len(whole); n += 7 {
		if err := ioutil.WriteFile(filepath.Join(dir, RecordFile+".tmp"), whole[:n], 0600); err != nil {
			t.Fatal(err)
		}
		want(t, "half a temporary file", start(dir, me), "1.7.0 api")
	}
	start(dir, me).Observe(node("v1.9.11", me, t0.Add(time.Hour)))
	want(t, "the next write", start(dir, me), "1.9.11 api")
	files, err := ioutil.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("%d files are left, %v", len(files), err)
	}
}

// TestReadOnlyRoot: what cannot be saved is known to the process, and saved
// when it can be.
func TestReadOnlyRoot(t *testing.T) {
	parent := rootDir(t)
	defer os.RemoveAll(parent)
	dir := filepath.Join(parent, "missing") // for root nothing is read-only
	p := start(dir, me)
	before := failures(t)
	p.Observe(node("v1.7.0", me, t0))
	want(t, "not saved", p, "1.7.0 api")
	p.Observe(node(own, me, t0))
	if got := failures(t) - before; got != 2 {
		t.Errorf("%v failures counted, want 2", got)
	}
	if err := os.Mkdir(dir, 0755); err != nil {
		t.Fatal(err)
	}
	want(t, "nothing on disk", start(dir, me), "none none")
	p.Observe(node(own, me, t0))
	want(t, "saved later", start(dir, me), "1.7.0 api")
	if got := failures(t) - before; got != 2 {
		t.Errorf("%v failures counted, want 2", got)
	}
}

func gaugeValue(t *testing.T, g prometheus.Gauge) float64 {
	m := &dto.Metric{}
	if err := g.Write(m); err != nil {
		t.Fatal(err)
	}
	return m.GetGauge().GetValue()
}

func failures(t *testing.T) float64 {
	m := &dto.Metric{}
	if err := saveFailed.Write(m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// TestNotStarted: tools and tests that never call Start see nothing and write
// nothing.
func TestNotStarted(t *testing.T) {
	p := New()
	p.Observe(node("v1.7.0", me, t0))
	want(t, "not started", p, "none none")
	if !p.Observed() {
		t.Error("there is something to observe")
	}
	p = start("/nonexistent", me)
	if p.Observed() {
		t.Error("observed before it was")
	}
	p.Observe(nil)
	if !p.Observed() {
		t.Error("not observed")
	}
}

func TestEvidence(t *testing.T) {
	type c struct{ oldest, newest, n int }
	for name, tc := range map[string]struct {
		containers  []c
		checkpoints Checkpoints
		say         string
	}{
		"none":                                  {nil, NoCheckpoints, "none none"},
		"native checkpoint":                     {nil, CheckpointsNative, "none none"},
		"1.7 checkpoint":                        {nil, Checkpoints17, "1.7 evidence"},
		"1.7":                                   {[]c{{6, 7, 3}}, Checkpoints17, "1.7 evidence"},
		"1.7, no docker":                        {[]c{{7, 7, 3}}, NoCheckpoints, "1.7 evidence"},
		"born with +holdfast.1":                 {[]c{{7, 7, 3}}, CheckpointsNative, "none none"},
		"1.8":                                   {[]c{{8, 8, 3}}, CheckpointsNative, "1.8 evidence"},
		"1.8, old checkpoint":                   {[]c{{8, 8, 1}}, Checkpoints17, "1.8 evidence"},
		"1.7 or 1.8, 1.7 checkpoint":            {[]c{{7, 8, 1}}, Checkpoints17, "1.7 evidence"},
		"1.7 or 1.8":                            {[]c{{7, 8, 1}}, NoCheckpoints, "none none"},
		"1.9, the checkpoints outlived it":      {[]c{{9, 9, 2}}, Checkpoints17, "none none"},
		"one of a gate-off time among 1.7":      {[]c{{9, 9, 1}, {7, 7, 3}}, Checkpoints17, "1.7 evidence"},
		"one of a gate-off time among 1.8":      {[]c{{9, 9, 1}, {8, 8, 1}, {7, 8, 1}}, CheckpointsNative, "1.8 evidence"},
		"one 1.7 container that outlived a 1.9": {[]c{{9, 9, 3}, {7, 7, 1}}, Checkpoints17, "none none"},
		"no difference between 1.7 and 1.9":     {[]c{{7, 9, 3}}, NoCheckpoints, "none none"},
	} {
		p := start("/nonexistent", me)
		p.SetCheckpoints(tc.checkpoints)
		for i, c := range tc.containers {
			for j := 0; j < c.n; j++ {
				p.AddContainer(fmt.Sprint(i, j), c.oldest, c.newest)
			}
		}
		want(t, name, p, tc.say)
		if !p.NeedsEvidence() {
			t.Errorf("%s: evidence is not wanted", name)
		}
	}
}

// TestEvidenceReplaced: a container's successor takes its vote, and what is
// remembered is bounded.
func TestEvidenceReplaced(t *testing.T) {
	p := start("/nonexistent", me)
	p.AddContainer("pod/app", 7, 7)
	want(t, "the first", p, "1.7 evidence")
	p.AddContainer("pod/app", 9, 9)
	want(t, "replaced", p, "none none")
	for i := 0; i < maxVotes+5; i++ {
		p.AddContainer(fmt.Sprint(i), 8, 8)
		if len(p.evidence.containers) > maxVotes {
			t.Fatalf("%d votes", len(p.evidence.containers))
		}
	}
	want(t, "many", p, "1.8 evidence")
}

// TestKeptEvidence: on a node where +holdfast.1 ran and kept no record, what the
// containers say stays through a reboot or a drain, which end them.
func TestKeptEvidence(t *testing.T) {
	dir := rootDir(t)
	defer os.RemoveAll(dir)
	now := t0
	boot := func() *Predecessor {
		p := New()
		p.now = func() time.Time { return now }
		p.Start(Config{RootDirectory: dir, Identity: me, Version: own})
		p.Report()
		return p
	}
	learned := 0
	p := boot()
	p.Notify(func() { learned++ })
	p.AddContainer("a", 7, 7)
	now = now.Add(settleTime)
	want(t, "before the API server was asked", boot(), "none none")
	p.Observe(node("v1.9.11+holdfast.1", me, now))
	want(t, "settled when it was asked", p, "1.7 evidence")
	if p.NeedsEvidence() || learned != 1 {
		t.Errorf("evidence is still wanted, or it was not told: %d", learned)
	}
	p.AddContainer("b", 9, 9)
	p.AddContainer("c", 9, 9)
	want(t, "a time with the gate off", p, "1.7 evidence")
	p.Observe(node(own, me, now))
	if learned != 1 {
		t.Errorf("told %d times", learned)
	}

	p = boot()
	want(t, "after a reboot of the drained node", p, "1.7 evidence")
	p.SetCheckpoints(CheckpointsNative)
	p.Observe(node(own, me, now))
	want(t, "and later", p, "1.7 evidence")
	other := me
	other.NodeName, other.SystemUUID = "node2", ""
	want(t, "a cloned image", start(dir, other), "none none")

	now = now.Add(time.Hour)
	p = boot()
	p.Observe(node("v1.7.0", me, t0.Add(-time.Hour)))
	want(t, "a Node from a backup", p, "1.7 evidence")
	p = boot()
	p.Observe(node("v1.9.11", me, now.Add(-time.Minute)))
	want(t, "a stock kubelet ran in between", p, "1.9.11 api")
	want(t, "and stays", boot(), "1.9.11 api")
}

// TestEvidenceSettles: what is kept is not the first container's vote.
func TestEvidenceSettles(t *testing.T) {
	type c struct{ oldest, newest int }
	for name, tc := range map[string]struct {
		containers  []c
		checkpoints Checkpoints
		say         string // after a reboot that took everything
	}{
		"1.7":                          {[]c{{7, 7}}, Checkpoints17, "1.7 evidence"},
		"1.8":                          {[]c{{7, 8}, {8, 8}}, CheckpointsNative, "1.8 evidence"},
		"born with +holdfast.1":        {[]c{{7, 7}}, CheckpointsNative, "none evidence"},
		"one 1.7 that outlived a 1.9":  {[]c{{7, 7}, {9, 9}}, Checkpoints17, "none evidence"},
		"only 1.9":                     {[]c{{9, 9}}, NoCheckpoints, "none none"},
		"1.7 or 1.8":                   {[]c{{7, 8}}, CheckpointsNative, "none none"},
		"1.7 or 1.8, 1.7 checkpoint":   {[]c{{7, 8}}, Checkpoints17, "1.7 evidence"},
		"only a checkpoint":            {nil, Checkpoints17, "none none"},
		"no difference between 7 to 9": {[]c{{7, 9}}, NoCheckpoints, "none none"},
	} {
		dir := rootDir(t)
		now := t0
		p := New()
		p.now = func() time.Time { return now }
		p.Start(Config{RootDirectory: dir, Identity: me, Version: own})
		p.Observe(node("v1.9.11+holdfast.1", me, t0))
		p.SetCheckpoints(tc.checkpoints)
		for i, c := range tc.containers {
			p.AddContainer(fmt.Sprint(i), c.oldest, c.newest)
			p.Observe(node(own, me, now))
			if !p.NeedsEvidence() {
				t.Errorf("%s: kept after %d containers, at once", name, i+1)
			}
			now = now.Add(settleTime - time.Second)
		}
		p.Observe(node(own, me, now))
		if len(tc.containers) == 1 && !p.NeedsEvidence() {
			t.Errorf("%s: kept too early", name)
		}
		now = now.Add(settleTime)
		p.Observe(node(own, me, now))
		want(t, name, start(dir, me), tc.say)
		os.RemoveAll(dir)
	}
}

// TestKeptEvidenceStandalone: without an API server nobody tells of a stock
// kubelet in between, so that what is there decides at each start.
func TestKeptEvidenceStandalone(t *testing.T) {
	dir := rootDir(t)
	defer os.RemoveAll(dir)
	p := start(dir, me)
	now := t0
	p.now = func() time.Time { return now }
	p.AddContainer("a", 7, 7)
	now = now.Add(time.Hour)
	p.AddContainer("b", 7, 7)
	want(t, "as long as it is there", p, "1.7 evidence")
	want(t, "and then", start(dir, me), "none none")
}

// TestKeptEvidenceOverride: the operator's word is not evidence, and hides it.
func TestKeptEvidenceOverride(t *testing.T) {
	dir := rootDir(t)
	defer os.RemoveAll(dir)
	if err := ioutil.WriteFile(filepath.Join(dir, OverrideFile), []byte("1.8"), 0644); err != nil {
		t.Fatal(err)
	}
	p := start(dir, me)
	p.AddContainer("a", 7, 7)
	p.now = func() time.Time { return time.Now().Add(time.Hour) }
	p.Observe(node("v1.9.11+holdfast.1", me, t0))
	want(t, "override", p, "1.8 operator")
	if err := os.Remove(filepath.Join(dir, OverrideFile)); err != nil {
		t.Fatal(err)
	}
	want(t, "removed", start(dir, me), "none none")
}

// TestNotify: whoever wrote for another kubelet learns of a better knowledge, and
// may ask for it.
func TestNotify(t *testing.T) {
	dir := rootDir(t)
	defer os.RemoveAll(dir)
	var said []string
	boot := func() *Predecessor {
		p := start(dir, me)
		p.Notify(func() {
			r, _ := p.Release()
			said = append(said, r.String())
		})
		return p
	}
	p := boot()
	p.Observe(nil)
	p = boot()
	p.Observe(node(own, me, t0))
	p = boot()
	p.Observe(node("v1.7.0", me, t0))
	p.Observe(node("v1.8.15", me, t0.Add(time.Hour))) // does not count
	p = boot()
	p.Observe(node(own, me, t0))
	p = boot()
	p.Observe(node("v1.9.11", me, t0.Add(time.Hour)))
	if strings.Join(said, " ") != "1.7.0 1.9.11" {
		t.Errorf("told of %v", said)
	}
}

func TestMetric(t *testing.T) {
	dir := rootDir(t)
	defer os.RemoveAll(dir)
	sample := func(release string, source Source) float64 {
		m := &dto.Metric{}
		if err := info.WithLabelValues(release, string(source)).Write(m); err != nil {
			t.Fatal(err)
		}
		return m.GetGauge().GetValue()
	}
	p := start(dir, me)
	if sample("none", Nothing) != 1 {
		t.Error("none")
	}
	p.AddContainer("a", 8, 8)
	if sample("1.8", Evidence) != 1 || sample("none", Nothing) != 0 {
		t.Error("evidence")
	}
	p.Observe(node("v1.7.0", me, t0))
	if sample("1.7.0", API) != 1 || sample("1.8", Evidence) != 0 {
		t.Error("api")
	}
}

func TestNewKnown(t *testing.T) {
	want(t, "1.7.0", NewKnown("v1.7.0"), "1.7.0 operator")
	want(t, "none", NewKnown("none"), "none operator")
}
