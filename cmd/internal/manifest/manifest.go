// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifest reads API objects from files as kubectl writes and takes
// them: JSON or YAML, one document or several, single objects or lists.
package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// Object is one object of a file.
type Object struct {
	// Where names the object for errors: "web.yaml", "web.yaml, document 2",
	// "list.json, items[3]".
	Where string
	// Value has its fields; numbers are json.Number.
	Value map[string]any
}

// String of a field of the object, given by its path; "" if it is not there.
func (o Object) String(path ...string) string {
	m := o.Value
	for _, p := range path[:len(path)-1] {
		m, _ = m[p].(map[string]any)
	}
	s, _ := m[path[len(path)-1]].(string)
	return s
}

// Name is KIND NAMESPACE/NAME as far as the object has them, or Where.
func (o Object) Name() string {
	kind, namespace, name := o.String("kind"), o.String("metadata", "namespace"), o.String("metadata", "name")
	if name == "" {
		return o.Where
	}
	if namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(kind + " " + name)
}

// Open opens a file, or standard input for "-".
func Open(name string, stdin io.Reader) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(stdin), nil
	}
	return os.Open(name)
}

// Read calls do for every object in r, whose name is for errors, in order and as
// soon as it is read. The items of a list (kind List, PodList, …) are objects of
// their own. It ends with the first error of do, or where a document is not what
// JSON or YAML can be, for nothing tells then where the next one begins.
func Read(name string, r io.Reader, do func(Object) error) error {
	if name == "-" {
		name = "standard input"
	}
	br := bufio.NewReader(r)
	first, err := firstByte(br)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: it is empty", name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	d := documents{name: name, do: do}
	if first == '{' || first == '[' {
		return d.json(br)
	}
	return d.yaml(br)
}

// firstByte is the first byte that is no white space. It is not taken.
func firstByte(br *bufio.Reader) (byte, error) {
	for {
		b, err := br.ReadByte()
		if err != nil {
			return 0, err
		}
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return b, br.UnreadByte()
		}
	}
}

type documents struct {
	name string
	do   func(Object) error
	// n counts the documents.
	n int
}

// where names the present document. The first is the file: most have no other.
func (d *documents) where() string {
	if d.n > 1 {
		return fmt.Sprintf("%s, document %d", d.name, d.n)
	}
	return d.name
}

func (d *documents) json(r io.Reader) error {
	dec := json.NewDecoder(r)
	dec.UseNumber()
	for {
		d.n++
		var v any
		err := dec.Decode(&v)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: not JSON after byte %d: %w", d.where(), dec.InputOffset(), err)
		}
		if err := d.object(v, d.where()); err != nil {
			return err
		}
	}
}

func (d *documents) yaml(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	for _, doc := range splitYAML(data) {
		asJSON, err := yaml.YAMLToJSONStrict(doc)
		if err != nil {
			d.n++
			return fmt.Errorf("%s: neither JSON nor YAML: %w", d.where(), err)
		}
		if string(asJSON) == "null" {
			continue // nothing but comments
		}
		d.n++
		dec := json.NewDecoder(bytes.NewReader(asJSON))
		dec.UseNumber()
		var v any
		if err := dec.Decode(&v); err != nil {
			return fmt.Errorf("%s: %w", d.where(), err)
		}
		if err := d.object(v, d.where()); err != nil {
			return err
		}
	}
	if d.n == 0 {
		return fmt.Errorf("%s: it is empty", d.name)
	}
	return nil
}

// splitYAML cuts a stream at its document markers.
func splitYAML(data []byte) [][]byte {
	var docs [][]byte
	var doc []byte
	for line := range bytes.Lines(data) {
		marker := bytes.HasPrefix(line, []byte("---")) && (len(line) == 3 || bytes.ContainsRune([]byte(" \t\r\n"), rune(line[3])))
		if marker {
			docs = append(docs, doc)
			doc = bytes.TrimPrefix(line, []byte("---"))
			doc = append([]byte(nil), doc...)
			continue
		}
		doc = append(doc, line...)
	}
	return append(docs, doc)
}

func (d *documents) object(v any, where string) error {
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: not an object", where)
	}
	items, isList := m["items"].([]any)
	if kind, _ := m["kind"].(string); isList && (kind == "" || strings.HasSuffix(kind, "List")) {
		of := strings.TrimSuffix(kind, "List")
		for i, item := range items {
			// The API server leaves the kind out of the items of a DeploymentList.
			if o, ok := item.(map[string]any); ok && of != "" && unset(o["kind"]) {
				o["kind"] = of
				if unset(o["apiVersion"]) && m["apiVersion"] != nil {
					o["apiVersion"] = m["apiVersion"]
				}
			}
			if err := d.object(item, fmt.Sprintf("%s, items[%d]", where, i)); err != nil {
				return err
			}
		}
		return nil
	}
	return d.do(Object{Where: where, Value: m})
}

// unset is true for a field that is missing, null or an empty text.
func unset(v any) bool { return v == nil || v == "" }
