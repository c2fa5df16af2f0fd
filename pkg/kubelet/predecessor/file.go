// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package predecessor

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/ioutil"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// OverrideFile, in the kubelet's root directory, is the operator's: one line
	// with a release, or "none". The kubelet reads it when it starts.
	OverrideFile = "holdfast-predecessor-override"
	// RecordFile, in the kubelet's root directory, is the kubelet's: a Record as
	// JSON. No stock kubelet reads or removes it.
	RecordFile = "holdfast-predecessor.json"

	// none in OverrideFile: no kubelet was there before.
	none = "none"
	// maxFileSize is far above what either file needs.
	maxFileSize = 64 << 10
)

// Identity tells nodes and machines apart. Fields may be empty: not known.
type Identity struct {
	NodeName string `json:"nodeName,omitempty"`
	// MachineID and SystemUUID are those of Node.status.nodeInfo.
	MachineID  string `json:"machineID,omitempty"`
	SystemUUID string `json:"systemUUID,omitempty"`
}

// differs says in which respect b is another node or machine than a; "" if in
// none. The UUID of the firmware decides before the machine ID, which cloned
// images share.
func (a Identity) differs(b Identity) string {
	if a.NodeName != b.NodeName {
		return fmt.Sprintf("node name %q, not %q", b.NodeName, a.NodeName)
	}
	if a.SystemUUID != "" && b.SystemUUID != "" {
		if canonicalUUID(a.SystemUUID) != canonicalUUID(b.SystemUUID) {
			return fmt.Sprintf("system UUID %q, not %q", b.SystemUUID, a.SystemUUID)
		}
		return ""
	}
	if a.MachineID != "" && b.MachineID != "" && a.MachineID != b.MachineID {
		return fmt.Sprintf("machine ID %q, not %q", b.MachineID, a.MachineID)
	}
	return ""
}

// canonicalUUID hides how a kernel prints the UUID of the firmware: in upper or
// lower case, and with the first three fields in either byte order (Linux 4.2
// changed it). A new kernel does not make another machine.
func canonicalUUID(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	b, err := hex.DecodeString(strings.Replace(s, "-", "", -1))
	if err != nil || len(b) != 16 {
		return s
	}
	swapped := append([]byte{}, b...)
	binary.LittleEndian.PutUint32(swapped[0:], binary.BigEndian.Uint32(b[0:]))
	binary.LittleEndian.PutUint16(swapped[4:], binary.BigEndian.Uint16(b[4:]))
	binary.LittleEndian.PutUint16(swapped[6:], binary.BigEndian.Uint16(b[6:]))
	x, y := hex.EncodeToString(b), hex.EncodeToString(swapped)
	if y < x {
		return y
	}
	return x
}

// Record is what the kubelet keeps of the Node that it found, or of the evidence.
type Record struct {
	// KubeletVersion is Node.status.nodeInfo.kubeletVersion of the last kubelet
	// that is not ours, for example "v1.7.16". From Evidence it is a minor release,
	// "1.7", or "none".
	KubeletVersion string `json:"kubeletVersion"`
	// Source is empty, which means API, or Evidence.
	Source Source `json:"source,omitempty"`
	Identity
	// LastHeartbeat is the newest one of that kubelet; from Evidence, when it was
	// kept.
	LastHeartbeat time.Time `json:"lastHeartbeat"`
	// WrittenBy is the version of the kubelet that wrote the record.
	WrittenBy string `json:"writtenBy,omitempty"`
}

// release is as Predecessor.Release.
func (r *Record) release() (Release, bool) {
	if r.Source == Evidence {
		if r.KubeletVersion == none {
			return Release{Source: Evidence}, false
		}
		return parseRelease(r.KubeletVersion, Evidence)
	}
	return parseRelease(r.KubeletVersion, API)
}

// readRecord returns nil if there is no file.
func readRecord(file string) (*Record, error) {
	b, err := readFile(file)
	if err != nil || b == nil {
		return nil, err
	}
	r := &Record{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, err
	}
	if r.Source != "" && r.Source != Evidence {
		return nil, fmt.Errorf("source is %q, not %q", r.Source, Evidence)
	}
	if _, ok := r.release(); !ok && !(r.Source == Evidence && r.KubeletVersion == none) {
		return nil, fmt.Errorf("kubeletVersion is %q, not a release of Kubernetes", r.KubeletVersion)
	}
	return r, nil
}

// readOverride returns nil if there is no file. Release{Source: Operator} is
// "none".
func readOverride(file string) (*Release, error) {
	b, err := readFile(file)
	if err != nil || b == nil {
		return nil, err
	}
	s := strings.TrimSpace(string(b))
	if s == none {
		return &Release{Source: Operator}, nil
	}
	r, ok := parseRelease(s, Operator)
	if !ok {
		return nil, fmt.Errorf("it says %q; allowed is one line with a release of Kubernetes, such as 1.7, 1.8.15 or v1.9.11, or with the word none", shorten(s))
	}
	return &r, nil
}

func shorten(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
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
	b, err := ioutil.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(b) > maxFileSize {
		err = fmt.Errorf("it is larger than %d bytes", maxFileSize)
	}
	if b == nil {
		b = []byte{}
	}
	return b, err
}

// writeRecord replaces the file. What a crash leaves is the old file or the new
// one, and at worst a temporary one that the next write replaces.
func writeRecord(file string, r *Record) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	tmp := file + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp, file)
	}
	if err != nil {
		os.Remove(tmp)
		return err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
