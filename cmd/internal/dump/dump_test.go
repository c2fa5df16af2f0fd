// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// The output is held to the releases' own in packages containerhash and
// podtemplatehash; here is what they do not reach.

var table = map[string]Type{
	"v1.A": {Kind: "struct", Fields: []Field{
		{Name: "Name", JSON: "name", Type: "string"},
		{Name: "B", Type: "v1.B"},
		{Name: "List", JSON: "list", Type: "[]*v1.B", OmitEmpty: true},
		{Name: "Map", JSON: "map", Type: "v1.M"},
	}},
	"v1.B":              {Kind: "struct", Fields: []Field{{Name: "Port", JSON: "port", Type: "int32", OmitEmpty: true}, {Name: "Q", JSON: "q", Type: "resource.Quantity", OmitEmpty: true}}},
	"v1.M":              {Kind: "map", Elem: "bool"},
	"[]*v1.B":           {Kind: "slice", Elem: "*v1.B"},
	"*v1.B":             {Kind: "ptr", Elem: "v1.B"},
	"string":            {Kind: "string"},
	"bool":              {Kind: "bool"},
	"int32":             {Kind: "int32"},
	"resource.Quantity": {Kind: "leaf"},
}

func decode(t *testing.T, text string) any {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPrint(t *testing.T) {
	n, err := Compile(table, "v1.A")
	if err != nil {
		t.Fatal(err)
	}
	const in = `{"name":"a<b","port":7,"list":[null,{"port":0}],"map":{"y":true,"x":false},"other":1}`
	const zero = "{i:(resource.int64Amount){value:(int64)0 scale:(resource.Scale)0} d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string) Format:(resource.Format)}"
	want := "(v1.A){Name:(string)a<b B:(v1.B){Port:(int32)7 Q:(resource.Quantity)" + zero + "} List:([]*v1.B)[<nil> <*>{Port:(int32)0 Q:(resource.Quantity)" + zero + "}] Map:(v1.M)map[x:false y:true]}"
	if got, err := n.Spew(decode(t, in), Layout{}); err != nil || string(got) != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
	want = `{"name":"a\u003cb","port":7,"q":"0","list":[null,{"q":"0"}],"map":{"x":false,"y":true}}`
	if got, err := n.JSON(decode(t, in), Layout{}); err != nil || string(got) != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
	if got, err := n.JSON(nil, Layout{Wire: true}); err != nil || string(got) != `{"name":"","q":"0","map":null}` {
		t.Errorf("%v: %s", err, got)
	}
}

func TestErrors(t *testing.T) {
	n, err := Compile(table, "v1.A")
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		`{"name":1}`:                         "name: a value of type string cannot be 1",
		`{"port":"x"}`:                       `port: a value of type int32 cannot be "x"`,
		`{"port":3000000000}`:                "port: a value of type int32 cannot be 3000000000",
		`{"port":1.5}`:                       "port: a value of type int32 cannot be 1.5",
		`{"list":{}}`:                        "list: a value of type []*v1.B cannot be {}",
		`{"list":[{},[]]}`:                   "list[1]: a value of type v1.B cannot be []",
		`{"map":{"x":"y"}}`:                  `map.x: a value of type bool cannot be "y"`,
		`{"map":[]}`:                         "map: a value of type v1.M cannot be []",
		`{"q":true}`:                         "q: not a quantity: true",
		`{"q":""}`:                           `q: quantity "": it is empty`,
		`{"q":"1x"}`:                         `q: quantity "1x": digits with a suffix`,
		`{"q":"1e99999999999"}`:              `the exponent is no number of 32 bits`,
		`{"q":"12345678901234567890e2e9"}`:   `the exponent is no number`,
		`{"q":"0.0e-2000000000"}`:            "the exponent is too large for this program",
		`{"q":"12345678901234567890e99999"}`: "the exponent is too large for this program",
		`{"list":[{"q":"x"}]}`:               `list[0].q: quantity "x"`,
	} {
		for _, print := range []func(any, Layout) ([]byte, error){n.Spew, n.JSON} {
			if got, err := print(decode(t, in), Layout{}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s, %v, want %q", in, got, err, want)
			}
		}
	}
	for want, types := range map[string]map[string]Type{
		"no table for type v1.A":               {},
		"no table for type string":             {"v1.A": {Kind: "struct", Fields: []Field{{Name: "A", JSON: "a", Type: "string"}}}},
		"no rule for kind chan of type v1.A":   {"v1.A": {Kind: "chan"}},
		"no rule for kind leaf of type v1.A":   {"v1.A": {Kind: "leaf"}},
		"no rule for kind uint8 of type uint8": {"v1.A": {Kind: "slice", Elem: "uint8"}, "uint8": {Kind: "uint8"}},
	} {
		if _, err := Compile(types, "v1.A"); err == nil || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestLargeQuantities: whatever a quantity says, its dump or the error is there at once.
func TestLargeQuantities(t *testing.T) {
	n, err := Compile(table, "v1.B")
	if err != nil {
		t.Fatal(err)
	}
	zeros := strings.Repeat("0", 990)
	began := time.Now()
	for in, want := range map[string]string{
		"0.0e-2000000000":               "exponent is too large",
		"0e-2000000000":                 "exponent is too large",
		"-0.0e-2147483648":              "exponent is too large",
		"12345678901234567890e9999":     "exponent is too large",
		"0e2000000000":                  "0",
		"1e2147483646":                  "1e2147483646",
		"1" + zeros + "e9":              "1e999",
		"1" + zeros + "e1000":           "10e1989",
		"0." + zeros + "1":              "1n",
		strings.Repeat(zeros, 1100):     "longer than the 1000 bytes",
		"1" + strings.Repeat(zeros, 11): "longer than the 1000 bytes",
	} {
		for _, l := range []Layout{{}, {Wire: true}, {Milli: true}, {DecQuantity: true}} {
			v := map[string]any{"q": in}
			_, spewErr := n.Spew(v, l) // a layout may refuse more
			got, err := n.JSON(v, l)
			if err != nil {
				got = []byte(err.Error())
			}
			if !strings.Contains(string(got), want) || spewErr != nil && len(spewErr.Error()) > 1500 {
				t.Errorf("%.40s: %.200s, want %q; %v", in, got, want, spewErr)
			}
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
