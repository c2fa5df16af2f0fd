// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// row is a container of the golden data.
type row struct {
	ID   string          `json:"id"`
	Spec json.RawMessage `json:"spec"`
	runs []span
}

// span is a run of releases with one pair of hashes.
type span struct {
	from, to int
	hash     [2]uint32
}

func (r *row) add(minor int, hash [2]uint32) {
	if n := len(r.runs); n > 0 && r.runs[n-1].hash == hash {
		r.runs[n-1].to = minor
		return
	}
	r.runs = append(r.runs, span{minor, minor, hash})
}

// quantities are amounts in unusual forms: with a sign, with zeros, of no canonical
// form, beyond an int64, below a billionth, with exponents.
var quantities = []string{
	"-0", "+5", "005", "000", "0.0", "1.", ".5", "0.5", "1.50", "-1500m", "-1.5", "100000m", "1000", "1500", "2000", "1234567", "+1500m",
	"1n", "0.1n", "-0.1n", "1234567890123n", "7u", "0.0000000001", "0.00000000000000000001", "1.0000000001",
	"8Ki", "9Ki", "2000Ki", "1024Ki", "1024", "1536Mi", "1.5Ki", "0.5Ki", "0.0001Ki", "-1.5Gi", "1.0005Gi", "9Ei", "8Ei", "7Ei", "100Ei", "-9Ei", "17Pi", "1023Ki",
	"1e3", "1E3", "12e1", "1e-3", "1e-9", "7e-7", "1e-10", "1e30", "1e29", "-1e30", "12345e20", "123456789012345678e2",
	"3E", "1000E", "999999999999999999", "1000000000000000000", "12345678901234567890", "123456789012345678901234567890", "12345678901234567890m", "100000000000000000000n",
}

// containers are those of the kubelet's golden data, and one for every field of
// the newest release that sets this field, and one for each of quantities.
func containers(file string, newest types) ([]row, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var rows []row
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var r row
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	var all []string
	var walk func(path string, name string, wrap func(string) string)
	walk = func(path, name string, wrap func(string) string) {
		t := newest[name]
		switch t.Kind {
		case "ptr":
			walk(path, t.Elem, wrap)
		case "slice":
			walk(path, t.Elem, func(s string) string { return wrap("[" + s + "]") })
		case "map":
			walk(path, t.Elem, func(s string) string { return wrap(`{"cpu":` + s + "}") })
		case "struct":
			for _, f := range t.Fields {
				if f.JSON == "" {
					walk(path, f.Type, wrap)
					continue
				}
				walk(path+"."+f.JSON, f.Type, func(s string) string { return wrap(`{"` + f.JSON + `":` + s + "}") })
			}
		default:
			value := map[string]string{"string": `"a<b"`, "bool": "true", "leaf": `"1500"`, "int32": "7", "int64": "7"}[t.Kind]
			rows = append(rows, row{ID: "field" + path, Spec: json.RawMessage(wrap(value))})
			all = append(all, path)
		}
	}
	walk("", "v1.Container", func(s string) string { return s })
	for _, q := range quantities {
		rows = append(rows, row{ID: "quantity." + q, Spec: json.RawMessage(`{"resources":{"limits":{"cpu":"` + q + `"}}}`)})
	}
	fmt.Fprintf(os.Stderr, "%d containers, %d of them for a field each, %d for a quantity\n", len(rows), len(all), len(quantities))
	return rows, nil
}

func writeGolden(file string, rows []row) error {
	var b bytes.Buffer
	for _, r := range rows {
		spec := ""
		if strings.HasPrefix(r.ID, "field.") || strings.HasPrefix(r.ID, "quantity.") {
			spec = `,"spec":` + string(r.Spec)
		}
		fmt.Fprintf(&b, `{"id":%s%s,"hash":{`, strconv.Quote(r.ID), spec)
		for i, run := range r.runs {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `"1.%d-1.%d":[%d,%d]`, run.from, run.to, run.hash[0], run.hash[1])
		}
		b.WriteString("}}\n")
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
