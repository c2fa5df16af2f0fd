// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kcm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"holdfast/cmd/internal/manifest"
)

// image is where upstream's image has the controller manager, and volume what the mount is called.
const (
	image  = "/usr/local/bin/kube-controller-manager"
	volume = "holdfast"
	// maxManifest bounds what is read of a manifest, in bytes.
	maxManifest = 1 << 20
)

type object = map[string]any

// pod is a static pod's manifest.
type pod struct {
	value     object
	container object
	// words are command and args; flags those that the controller manager gets.
	words, flags []string
	// hyperkube: the first two words are hyperkube and its word for the controller manager.
	hyperkube bool
	// path is what the container runs: the mount goes over it.
	path string
}

// parse reads a manifest and finds the controller manager in it.
func parse(name string, text []byte) (*pod, error) {
	var p *pod
	err := manifest.Read(name, bytes.NewReader(text), func(o manifest.Object) error {
		if p != nil || o.String("kind") != "Pod" {
			return fmt.Errorf("%s: it is not a single Pod", name)
		}
		p = &pod{value: o.Value}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, fmt.Errorf("%s: it contains no Pod", name)
	}
	spec, _ := p.value["spec"].(object)
	list, _ := spec["containers"].([]any)
	for _, c := range list {
		c, _ := c.(object)
		q := pod{value: p.value, container: c, words: slices.Concat(texts(c["command"]), texts(c["args"]))}
		is, err := q.find()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if !is {
			continue
		}
		if p.container != nil {
			return nil, fmt.Errorf("%s: two containers run a controller manager", name)
		}
		*p = q
	}
	if p.container == nil {
		return nil, fmt.Errorf("%s: no container has kube-controller-manager in its command", name)
	}
	return p, nil
}

// texts are the strings of a list.
func texts(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, x := range list {
		s, _ := x.(string)
		out = append(out, s)
	}
	return out
}

var (
	inScript = regexp.MustCompile(`(?:^|[\s;&|(])((?:/[A-Za-z0-9._/-]*)?kube-controller-manager)(?:\s|$)`)
	ends     = regexp.MustCompile(`^([0-9&]*[<>|;&)].*|.*[;])$`)
)

// find tells whether the container runs a controller manager, and how.
func (p *pod) find() (bool, error) {
	if len(p.words) == 0 {
		return false, nil
	}
	switch base := path.Base(p.words[0]); {
	case base == "kube-controller-manager":
		p.path, p.flags = p.words[0], p.words[1:]
	case base == "hyperkube" && len(p.words) > 1 && (p.words[1] == "controller-manager" || p.words[1] == "kube-controller-manager"):
		p.hyperkube, p.path, p.flags = true, image, p.words[2:]
	case base == "sh" || base == "bash" || base == "ash":
		i := slices.IndexFunc(p.words, func(w string) bool { return w != "--" && strings.HasPrefix(w, "-") && strings.HasSuffix(w, "c") })
		if i < 0 || i+1 == len(p.words) {
			return false, nil
		}
		script := p.words[i+1]
		m := inScript.FindStringSubmatchIndex(script)
		if m == nil {
			if strings.Contains(script, "hyperkube") && strings.Contains(script, "controller-manager") {
				return false, errors.New("a shell starts hyperkube: first write its command as a list of words, without the shell")
			}
			return false, nil
		}
		p.path = script[m[2]:m[3]]
		for _, w := range strings.Fields(script[m[3]:]) {
			if ends.MatchString(w) {
				break
			}
			p.flags = append(p.flags, w)
		}
	default:
		return false, nil
	}
	if !path.IsAbs(p.path) {
		p.path = image
	}
	return true, nil
}

// items are a list of objects of a field.
func items(m object, field string) []object {
	list, _ := m[field].([]any)
	var out []object
	for _, x := range list {
		if o, ok := x.(object); ok {
			out = append(out, o)
		}
	}
	return out
}

func text(m object, field string) string {
	s, _ := m[field].(string)
	return s
}

// spec is the pod's; parse has found a container in it.
func (p *pod) spec() object { return p.value["spec"].(object) }

// mounted are the names of the volumes that are the file binary of the host.
func (p *pod) mounted(binary string) []string {
	var out []string
	for _, v := range items(p.spec(), "volumes") {
		if h, _ := v["hostPath"].(object); h != nil && text(h, "path") == binary {
			out = append(out, text(v, "name"))
		}
	}
	return out
}

// swap makes the pod run the host's file binary.
func (p *pod) swap(binary string) error {
	for _, m := range items(p.container, "volumeMounts") {
		if text(m, "mountPath") == p.path && text(m, "name") != volume {
			return fmt.Errorf("its volumeMount %q is at %s already", text(m, "name"), p.path)
		}
	}
	p.without(volume)
	for _, v := range items(p.spec(), "volumes") {
		if text(v, "name") == volume {
			return fmt.Errorf("its volume %q is used by another container", volume)
		}
	}
	mount := object{"name": volume, "mountPath": p.path, "readOnly": true}
	source := object{"name": volume, "hostPath": object{"path": binary, "type": "File"}}
	list, _ := p.container["volumeMounts"].([]any)
	p.container["volumeMounts"] = append(slices.Clone(list), mount)
	list, _ = p.spec()["volumes"].([]any)
	p.spec()["volumes"] = append(slices.Clone(list), source)
	if p.hyperkube {
		p.first(2, p.path)
	}
	return nil
}

// back takes the host's file binary out. An image of hyperkube gets its own words again.
func (p *pod) back(binary string) {
	for _, name := range p.mounted(binary) {
		p.without(name)
	}
	if name, _, _ := strings.Cut(path.Base(text(p.container, "image")), ":"); strings.HasPrefix(name, "hyperkube") && !p.hyperkube && p.words[0] == p.path {
		p.first(1, "/hyperkube", "controller-manager")
	}
}

// without removes a volume of the controller manager's container, unless another one uses it.
func (p *pod) without(name string) {
	drop := func(m object, field string) {
		list, ok := m[field].([]any)
		if !ok {
			return
		}
		list = slices.DeleteFunc(slices.Clone(list), func(x any) bool {
			o, _ := x.(object)
			return text(o, "name") == name
		})
		if m[field] = list; len(list) == 0 {
			delete(m, field)
		}
	}
	drop(p.container, "volumeMounts")
	for _, field := range []string{"containers", "initContainers"} {
		for _, c := range items(p.spec(), field) {
			for _, m := range items(c, "volumeMounts") {
				if text(m, "name") == name {
					return
				}
			}
		}
	}
	drop(p.spec(), "volumes")
}

// first puts other words in the place of the first n of command and args.
func (p *pod) first(n int, with ...string) {
	for _, field := range []string{"command", "args"} {
		list, _ := p.container[field].([]any)
		gone := min(n, len(list))
		list, n = list[gone:], n-gone
		if field == "command" {
			var words []any
			for _, w := range with {
				words = append(words, w)
			}
			list = append(words, list...)
		}
		if p.container[field] = list; len(list) == 0 {
			delete(p.container, field)
		}
	}
}

// yaml is the manifest as this program writes it: as kubeadm, with the fields in order of their names.
func (p *pod) yaml() ([]byte, error) {
	b, err := json.Marshal(p.value)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(b)
}

// hostFile is the file on the host that the container sees under a path, "" if that is in its image.
func (p *pod) hostFile(file string) string {
	best, out := 0, ""
	for _, m := range items(p.container, "volumeMounts") {
		at := strings.TrimSuffix(text(m, "mountPath"), "/")
		if file != at && !strings.HasPrefix(file, at+"/") || len(at) < best {
			continue
		}
		for _, v := range items(p.spec(), "volumes") {
			if h, _ := v["hostPath"].(object); h != nil && text(v, "name") == text(m, "name") {
				best, out = len(at), filepath.Join(text(h, "path"), text(m, "subPath"), strings.TrimPrefix(file, at))
			}
		}
	}
	return out
}

// readManifest reads FILE. It must be a file of its own, or the write would replace a link.
func readManifest(file string) ([]byte, os.FileInfo, error) {
	s, err := os.Lstat(file)
	if err != nil {
		return nil, nil, err
	}
	if !s.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is a link: name the file that it leads to", file)
	}
	if s.Size() > maxManifest {
		return nil, nil, fmt.Errorf("%s has more than %d bytes", file, maxManifest)
	}
	b, err := os.ReadFile(file)
	return b, s, err
}

// diff are the lines that go, with "-", and those that come, with "+". Nothing else of a manifest is
// shown: its environment may have secrets.
func diff(from, to string) []string {
	a, b := strings.Split(strings.TrimRight(from, "\n"), "\n"), strings.Split(strings.TrimRight(to, "\n"), "\n")
	// long[i][j] is how many lines a[i:] and b[j:] have in common, in order.
	long := make([][]int, len(a)+1)
	for i := range long {
		long[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if long[i][j] = max(long[i+1][j], long[i][j+1]); a[i] == b[j] {
				long[i][j] = long[i+1][j+1] + 1
			}
		}
	}
	var out []string
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || long[i+1][j] >= long[i][j+1]):
			out = append(out, "-"+a[i])
			i++
		default:
			out = append(out, "+"+b[j])
			j++
		}
	}
	return out
}
