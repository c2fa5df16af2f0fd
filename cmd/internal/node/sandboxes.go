// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"holdfast/cmd/internal/dump"
	"holdfast/cmd/internal/kubeapi"
)

// maxSandboxes is how many files are looked at: a node has 110 pods, and files of some that ended.
const maxSandboxes = 5000

// sandboxFile is what is read of a sandbox's file in /var/lib/dockershim/sandbox.
type sandboxFile struct {
	Checksum uint64 `json:"checksum"`
	Data     *struct {
		Ports []any `json:"port_mappings"`
	} `json:"data"`
}

// The types of the file in kubelets 1.6 and 1.7, and since 1.8.0.
var sandboxForms = sync.OnceValues(func() (forms [2]*dump.Node, err error) {
	types := map[string]dump.Type{
		"string":                          {Kind: "string"},
		"bool":                            {Kind: "bool"},
		"uint64":                          {Kind: "int64"},
		"int32":                           {Kind: "int32"},
		"*int32":                          {Kind: "ptr", Elem: "int32"},
		"dockershim.Protocol":             {Kind: "string"},
		"*dockershim.Protocol":            {Kind: "ptr", Elem: "dockershim.Protocol"},
		"[]*dockershim.PortMapping":       {Kind: "slice", Elem: "*dockershim.PortMapping"},
		"*dockershim.PortMapping":         {Kind: "ptr", Elem: "dockershim.PortMapping"},
		"*dockershim.CheckpointData":      {Kind: "ptr", Elem: "dockershim.CheckpointData"},
		"dockershim.PortMapping":          {Kind: "struct", Fields: []dump.Field{{Name: "Protocol", JSON: "protocol", Type: "*dockershim.Protocol"}, {Name: "ContainerPort", JSON: "container_port", Type: "*int32"}, {Name: "HostPort", JSON: "host_port", Type: "*int32"}}},
		"dockershim.PodSandboxCheckpoint": {Kind: "struct", Fields: []dump.Field{{Name: "Version", JSON: "version", Type: "string"}, {Name: "Name", JSON: "name", Type: "string"}, {Name: "Namespace", JSON: "namespace", Type: "string"}, {Name: "Data", JSON: "data", Type: "*dockershim.CheckpointData"}, {Name: "CheckSum", JSON: "none", Type: "uint64"}}},
	}
	data := []dump.Field{{Name: "PortMappings", JSON: "port_mappings", Type: "[]*dockershim.PortMapping"}}
	for i := range forms {
		types["dockershim.CheckpointData"] = dump.Type{Kind: "struct", Fields: data}
		if forms[i], err = dump.Compile(types, "dockershim.PodSandboxCheckpoint"); err != nil {
			return forms, err
		}
		data = append(data, dump.Field{Name: "HostNetwork", JSON: "host_network", Type: "bool"})
	}
	return forms, nil
})

// readers says which kubelets accept a sandbox's file; neither do if it is damaged.
// patches/checkpoint-compat says why no file is accepted by both.
func readers(b []byte) (to17, from18 bool, ports int, err error) {
	var f sandboxFile
	var v any
	if json.Unmarshal(b, &f) != nil || kubeapi.Decode(b, &v) != nil || f.Data == nil {
		return false, false, 0, nil
	}
	forms, err := sandboxForms()
	if err != nil {
		return false, false, 0, err
	}
	var sums [2]uint64
	for i, form := range forms {
		text, err := form.Spew(v, dump.Layout{})
		if err != nil {
			return false, false, 0, nil
		}
		h := fnv.New32a()
		_, _ = h.Write(text)
		sums[i] = uint64(h.Sum32())
	}
	return f.Checksum == sums[0], f.Checksum == sums[1], len(f.Data.Ports), nil
}

// judgeSandboxes asks whether the target reads the files that say which host ports a pod has.
func (m *machine) judgeSandboxes(v version) {
	if m.line.dockerSocket() == "" {
		return
	}
	dir := filepath.Join(m.line.or("experimental-dockershim-root-directory", "/var/lib/dockershim"), "sandbox")
	files, err := configs(dir, maxSandboxes)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	total, old, damaged, lost := 0, 0, 0, 0
	for _, file := range files {
		var b []byte
		if b, err = readConfig(file); errors.Is(err, fs.ErrNotExist) {
			continue // its pod has gone meanwhile
		}
		if err != nil {
			break
		}
		var to17, from18 bool
		var ports int
		if to17, from18, ports, err = readers(b); err != nil {
			break
		}
		total++
		switch {
		case !to17 && !from18:
			damaged++
			continue
		case to17:
			old++
		}
		switch {
		case v.holdfast:
		case v.minor <= 7 && !to17: // it never stops the pod's sandbox, with host ports or without
			lost++
		case v.minor > 7 && !from18 && ports > 0:
			lost++
		}
	}
	if err != nil {
		m.found("sandbox files", "HF509", "", err.Error(), "")
		return
	}
	var wrong []string
	if damaged > 0 {
		wrong = append(wrong, fmt.Sprintf("%d files in %s are damaged, so their host ports are not known", damaged, dir))
	}
	if lost > 0 {
		wrong = append(wrong, fmt.Sprintf("%s does not accept the files of %d pods", v.text, lost))
	}
	if len(wrong) > 0 {
		m.found("sandbox files", "HF532", "", strings.Join(wrong, "; "), "with CNI or kubenet, delete such pods before the swap: afterwards their host ports are not released, or 1.7 does not stop them")
		return
	}
	m.ok("sandbox files", "%d, %d of them for 1.7: %s accepts all", total, old, v.text)
}
