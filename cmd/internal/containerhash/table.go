// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package containerhash

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"holdfast/cmd/internal/dump"
)

//go:embed table.json
var tableJSON []byte

// Table has the types that a v1.Container holds, in all releases from First to
// Last at once. The program in generate/ writes it from the types themselves.
type Table struct {
	// Named are types that are neither structs nor told by their name, such as
	// v1.Protocol, with their kind, and for a map, "map ELEMENT".
	Named map[string]string `json:"named"`
	// Structs have their fields in order, see ParseField.
	Structs map[string][]string `json:"structs"`
}

// Field is a field of a struct, in the releases 1.From to 1.To.
type Field struct {
	dump.Field
	From, To int
}

// First and Last are the minor releases that the table begins and ends with.
const (
	First = 6
	Last  = 36
)

// String is the field as a line of the table: its name in Go, its type, its name
// in JSON as a Go tag has it ("-" where the struct is inlined), and the releases
// that have it where not all do: "RunAsGroup *int64 runAsGroup,omitempty 1.10-".
func (f Field) String() string {
	tag := f.JSON
	if tag == "" {
		tag = "-"
	}
	if f.OmitEmpty {
		tag += ",omitempty"
	}
	text := f.Name + " " + f.Type + " " + tag
	if f.From == First && f.To == Last {
		return text
	}
	text += fmt.Sprintf(" 1.%d-", f.From)
	if f.To < Last {
		text += fmt.Sprintf("1.%d", f.To)
	}
	return text
}

// ParseField reads what Field.String writes.
func ParseField(line string) (Field, error) {
	bad := fmt.Errorf("table.json: %q is no field: want NAME TYPE TAG [1.FROM-[1.TO]]", line)
	words := strings.Fields(line)
	if len(words) != 3 && len(words) != 4 {
		return Field{}, bad
	}
	f := Field{Field: dump.Field{Name: words[0], Type: words[1]}, From: First, To: Last}
	f.JSON, f.OmitEmpty = strings.CutSuffix(words[2], ",omitempty")
	if f.JSON == "-" {
		f.JSON = ""
	}
	if len(words) == 4 {
		from, to, ok := strings.Cut(words[3], "-")
		var err error
		if f.From, err = minor(from); err != nil || !ok {
			return Field{}, bad
		}
		if to != "" {
			if f.To, err = minor(to); err != nil {
				return Field{}, bad
			}
		}
	}
	return f, nil
}

func minor(release string) (int, error) {
	digits, ok := strings.CutPrefix(release, "1.")
	if !ok {
		return 0, fmt.Errorf("release %q is not 1.X", release)
	}
	return strconv.Atoi(digits)
}

// types are the types of release 1.m.
func (t *Table) types(m int) (map[string]dump.Type, error) {
	out := map[string]dump.Type{}
	var add func(name string) error
	add = func(name string) error {
		if _, ok := out[name]; ok {
			return nil
		}
		switch {
		case strings.HasPrefix(name, "*"):
			out[name] = dump.Type{Kind: "ptr", Elem: name[1:]}
			return add(name[1:])
		case strings.HasPrefix(name, "[]"):
			out[name] = dump.Type{Kind: "slice", Elem: name[2:]}
			return add(name[2:])
		}
		lines, ok := t.Structs[name]
		if !ok {
			kind, elem, _ := strings.Cut(t.Named[name], " ")
			if kind == "" {
				kind = name // string, bool, int32, int64
			}
			out[name] = dump.Type{Kind: kind, Elem: elem}
			if elem != "" {
				return add(elem)
			}
			return nil
		}
		typ := dump.Type{Kind: "struct"}
		out[name] = typ
		for _, line := range lines {
			f, err := ParseField(line)
			if err != nil {
				return err
			}
			if m < f.From || m > f.To {
				continue
			}
			typ.Fields = append(typ.Fields, f.Field)
			if err := add(f.Type); err != nil {
				return err
			}
		}
		out[name] = typ
		return nil
	}
	return out, add(root)
}

const root = "v1.Container"

// compile returns root as release 1.m has it.
func (t *Table) compile(m int) (*dump.Node, error) {
	types, err := t.types(m)
	if err != nil {
		return nil, err
	}
	return dump.Compile(types, root)
}

// load reads the table that the program carries.
func load() (*Table, error) {
	t := &Table{}
	return t, json.Unmarshal(tableJSON, t)
}
