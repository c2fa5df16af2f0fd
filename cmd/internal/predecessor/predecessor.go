// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package predecessor is the command predecessor: which kubelet our kubelet
// takes for the one before it, by its metrics or by the files in its root
// directory. What the files are: pkg/kubelet/predecessor/file.go.
package predecessor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The kubelet's files and metrics, as in pkg/kubelet/predecessor.
const (
	overrideFile    = "holdfast-predecessor-override"
	recordFile      = "holdfast-predecessor.json"
	overrideRefused = "holdfast_predecessor_override_refused 1"

	evidence   = "evidence"
	none       = "none"
	maxFile    = 64 << 10
	maxMetrics = 64 << 20
)

// Answer is what is known of one node.
type Answer struct {
	// Node is the name of the file or folder that was read.
	Node string `json:"node"`
	// Release is the kubelet before ours, "1.7.16", "1.8" if the patch release is
	// not known, or "none".
	Release string `json:"release"`
	// Source is operator, api, evidence or none.
	Source string `json:"source"`
	// Hash is the release whose container hash new containers record.
	Hash string `json:"hash"`
	// Checkpoints is "1.7" if new sandbox checkpoints are written so that 1.7
	// reads them, else "1.9".
	Checkpoints string `json:"checkpoints"`
	// Note is what an operator should know besides.
	Note string `json:"note,omitempty"`
}

// writes fills in what follows from Release, with all gates at their defaults.
func (a Answer) writes(minor int) Answer {
	a.Hash, a.Checkpoints = "1.9", "1.9"
	if a.Release != none && minor <= 8 {
		a.Hash = fmt.Sprintf("1.%d", max(minor, 7))
	}
	if a.Release != none && minor <= 7 {
		a.Checkpoints = "1.7"
	}
	return a
}

var (
	metric  = regexp.MustCompile(`^holdfast_predecessor_info\{release="([^"]*)",source="([^"]*)"\} 1$`)
	version = regexp.MustCompile(`^v?1\.(0|[1-9][0-9]{0,3})(?:\.(0|[1-9][0-9]{0,5})([-+.][0-9A-Za-z.+_~-]*)?)?$`)
)

// parse returns a release as the kubelet's metric has it, and its minor number.
func parse(s string) (release string, minor int, ok bool) {
	m := version.FindStringSubmatch(s)
	if m == nil || strings.Contains(s, "+holdfast") {
		return "", 0, false
	}
	minor, _ = strconv.Atoi(m[1])
	release = "1." + m[1]
	if m[2] != "" {
		release += "." + m[2]
	}
	return release, minor, true
}

// FromMetrics answers from the text of a kubelet's /metrics; node is the Node of the answer.
func FromMetrics(node string, text []byte) (Answer, error) {
	return fromMetrics(node, bytes.NewReader(text))
}

// fromMetrics answers from the text of a kubelet's /metrics.
func fromMetrics(node string, r io.Reader) (Answer, error) {
	b, err := read(r, maxMetrics)
	if err != nil {
		return Answer{}, err
	}
	a, minor := Answer{Node: node}, 0
	for _, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		if line == overrideRefused {
			a.Note = overrideFile + " is invalid and is ignored: write one line with a release or the word none, and restart the kubelet"
		}
		m := metric.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		a.Release, a.Source = m[1], m[2]
		if a.Release == none {
			continue
		}
		var ok bool
		if a.Release, minor, ok = parse(m[1]); !ok {
			return Answer{}, fmt.Errorf("holdfast_predecessor_info names the release %q, which is not a Kubernetes release", m[1])
		}
	}
	if a.Release == "" {
		return Answer{}, fmt.Errorf("holdfast_predecessor_info is missing: this is not the /metrics of a kubelet of v1.9.11+holdfast.2 or later")
	}
	return a.writes(minor), nil
}

// fromRoot answers from the files in a kubelet's root directory. Whether the
// record is about this node only the kubelet can tell, so the note has its name.
func fromRoot(dir string) (Answer, error) {
	if _, err := os.ReadDir(dir); err != nil {
		return Answer{}, err
	}
	// What the operator says comes first, as in the kubelet: also where the record is broken.
	file := filepath.Join(dir, overrideFile)
	b, err := readFile(file)
	if err != nil {
		return Answer{}, err
	}
	if b != nil {
		s := strings.TrimSpace(string(b))
		release, minor, ok := parse(s)
		switch {
		case s == none:
			release, minor = none, 0
		case !ok:
			return Answer{}, fmt.Errorf("%s: the kubelet ignores its content, %.60q: write one line with a release, such as 1.7, 1.8.15 or v1.9.11, or with the word none", file, s)
		}
		return Answer{Node: dir, Release: release, Source: "operator", Note: "in effect from the kubelet's next start after it was written"}.writes(minor), nil
	}
	a := Answer{Node: dir, Release: none, Source: none}
	minor := 0
	var record struct {
		KubeletVersion, Source, NodeName string
		LastHeartbeat                    time.Time
	}
	file = filepath.Join(dir, recordFile)
	if b, err = readFile(file); err != nil {
		return Answer{}, err
	}
	if b == nil {
		a.Note = "no record: the containers and checkpoints on the node decide"
		return a.writes(minor), nil
	}
	if err := json.Unmarshal(b, &record); err != nil {
		return Answer{}, fmt.Errorf("%s: %w: the kubelet ignores it; remove it, or set %s", file, err, overrideFile)
	}
	release, n, ok := parse(record.KubeletVersion)
	a.Source = "api"
	if record.Source == evidence {
		a.Source = evidence
		if record.KubeletVersion == none {
			release, ok = none, true
		}
	}
	if !ok || record.Source != "" && record.Source != evidence {
		return Answer{}, fmt.Errorf("%s: kubeletVersion is %q, which is not a release of Kubernetes, or source is not one of the kubelet's: the kubelet ignores the file; remove it, or set %s", file, record.KubeletVersion, overrideFile)
	}
	a.Release, minor = release, n
	seen := "last seen"
	if a.Source == evidence {
		seen = "by its containers, kept"
	}
	a.Note = fmt.Sprintf("of node %s, %s %s; another node or machine ignores it", record.NodeName, seen, record.LastHeartbeat.Format(time.RFC3339))
	return a.writes(minor), nil
}

// readFile returns nil without an error if there is no file.
func readFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := read(f, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return b, nil
}

// read returns what r has, never nil.
func read(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("it is larger than %d bytes", limit)
	}
	return append([]byte{}, b...), err
}
