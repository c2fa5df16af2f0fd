// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/davecgh/go-spew/spew"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// TestControlEscapes: the JSON that DaemonSet and StatefulSet controllers
// store in a ControllerRevision and compare with, byte by byte. The wanted
// form is that of encoding/json before Go 1.22.
func TestControlEscapes(t *testing.T) {
	for in, want := range map[string]string{
		"\b":           `"\u0008"`,
		"\f":           `"\u000c"`,
		`\b`:           `"\\b"`,
		"\\\b\\\\\f":   `"\\\u0008\\\\\u000c"`,
		"\n\r\t\x00":   `"\n\r\t\u0000"`,
		"\x7f":         "\"\x7f\"",
		"<&>\u2028\"/": `"\u003c\u0026\u003e\u2028\"/"`,
		"\xff":         `"\ufffd"`,
		"plain":        `"plain"`,
	} {
		got, err := utiljson.Marshal(map[string]interface{}{"a": in})
		if err != nil || string(got) != `{"a":`+want+`}` {
			t.Errorf("%q: %s, %v; want %s", in, got, err, want)
		}
		var back map[string]string
		if err := json.Unmarshal(got, &back); err != nil || (back["a"] != in && in != "\xff") {
			t.Errorf("%q came back as %q, %v", in, back["a"], err)
		}
	}
}

// TestNumbers: floats and integers in templates decoded to interface{}.
func TestNumbers(t *testing.T) {
	for in, want := range map[string]string{
		`1`: `1`, `1.0`: `1`, `0.1`: `0.1`, `1e21`: `1e+21`, `1e20`: `100000000000000000000`, `1e-7`: `1e-7`, `9007199254740991`: `9007199254740991`,
	} {
		var v map[string]interface{}
		if err := json.Unmarshal([]byte(`{"a":`+in+`}`), &v); err != nil {
			t.Fatal(err)
		}
		if got, err := utiljson.Marshal(v); err != nil || string(got) != `{"a":`+want+`}` {
			t.Errorf("%s: %s, %v; want %s", in, got, err, want)
		}
	}
}

// TestTimeDump: what DeepHashObject prints for the creationTimestamp of a pod
// template. The fields are those of Go 1.9 (wall, ext, loc); a Go that changes
// them changes the hash of every template.
func TestTimeDump(t *testing.T) {
	printer := spew.ConfigState{Indent: " ", SortKeys: true, DisableMethods: true, SpewKeys: true}
	want := `(v1.ObjectMeta){Name:(string)a GenerateName:(string) Namespace:(string) SelfLink:(string) UID:(types.UID) ResourceVersion:(string) ` +
		`Generation:(int64)0 CreationTimestamp:(v1.Time){Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}} ` +
		`DeletionTimestamp:(*v1.Time)<nil> DeletionGracePeriodSeconds:(*int64)<nil> Labels:(map[string]string)map[a:1 b:2] Annotations:(map[string]string)<nil> ` +
		`OwnerReferences:([]v1.OwnerReference)<nil> Initializers:(*v1.Initializers)<nil> Finalizers:([]string)<nil> ClusterName:(string)}`
	meta := metav1.ObjectMeta{Name: "a", Labels: map[string]string{"b": "2", "a": "1"}}
	if got := printer.Sprintf("%#v", meta); got != want {
		t.Errorf("dump\n%s\nwant\n%s", got, want)
	}
	for name, decode := range map[string]func(*metav1.Time) error{
		"JSON null":      func(m *metav1.Time) error { return json.Unmarshal([]byte("null"), m) },
		"empty protobuf": func(m *metav1.Time) error { return m.Unmarshal(nil) },
	} {
		m := metav1.Time{Time: time.Now()}
		if err := decode(&m); err != nil || m != (metav1.Time{}) {
			t.Errorf("%s decodes to %s, %v: not the zero time", name, fmt.Sprintf("%#v", m), err)
		}
	}
}
