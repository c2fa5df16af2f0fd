// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"encoding/json"
	"fmt"
	"hash/adler32"
	"io/ioutil"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/davecgh/go-spew/spew"

	"k8s.io/kubernetes/pkg/api"
	_ "k8s.io/kubernetes/pkg/api/install"
	"k8s.io/kubernetes/pkg/api/resource"
	"k8s.io/kubernetes/pkg/api/unversioned"
	"k8s.io/kubernetes/pkg/apis/extensions"
	_ "k8s.io/kubernetes/pkg/apis/extensions/install"
	"k8s.io/kubernetes/pkg/runtime"
	podutil "k8s.io/kubernetes/pkg/util/pod"
)

func init() {
	// The local zone is read once; with an empty TZ it is a bare UTC in Go 1.4.
	os.Setenv("TZ", "")
}

// dump is what pkg/util/hash hashes.
func dump(obj interface{}) string {
	printer := spew.ConfigState{Indent: " ", SortKeys: true, DisableMethods: true, SpewKeys: true}
	return printer.Sprintf("%#v", obj)
}

func decode(t *testing.T, manifest []byte) *extensions.Deployment {
	obj, err := runtime.Decode(api.Codecs.UniversalDecoder(), manifest)
	if err != nil {
		t.Fatalf("%s: %v", manifest, err)
	}
	return obj.(*extensions.Deployment)
}

// The names in published.json were made by released controllers, and published
// by the people who ran them.
func TestPublishedReplicaSetNames(t *testing.T) {
	raw, err := ioutil.ReadFile("testdata/published.json")
	if err != nil {
		t.Fatal(err)
	}
	var published []struct {
		ReplicaSet, Source string
		Deployment         json.RawMessage
	}
	if err := json.Unmarshal(raw, &published); err != nil {
		t.Fatal(err)
	}
	if len(published) < 8 {
		t.Fatalf("only %d names in testdata/published.json", len(published))
	}
	for _, p := range published {
		d := decode(t, p.Deployment)
		name := fmt.Sprintf("%s-%d", d.Name, podutil.GetPodTemplateSpecHash(d.Spec.Template))
		if name != p.ReplicaSet {
			t.Errorf("%s: the template gives %s; published: %s", p.Source, name, p.ReplicaSet)
		}
	}
}

// The expected dumps do not come from the mirror types: the old layout is put
// as text into the dump of a template without a timestamp.
func TestCreationTimestamp(t *testing.T) {
	const (
		zero  = "{Time:(time.Time){sec:(int64)0 nsec:(int32)0 loc:(*time.Location)<nil>}}"
		utc   = "(*time.Location){name:(string)UTC zone:([]time.zone)<nil> tx:([]time.zoneTrans)<nil> cacheStart:(int64)0 cacheEnd:(int64)0 cacheZone:(*time.zone)<nil>}"
		field = "CreationTimestamp:(unversioned.Time)"
	)
	template := func(timestamp string) api.PodTemplateSpec {
		return decode(t, []byte(`{"kind":"Deployment","apiVersion":"extensions/v1beta1","metadata":{"name":"a"},"spec":{"template":{
			"metadata":{"creationTimestamp":`+timestamp+`,"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)).Spec.Template
	}
	without := dump(template("null"))
	if strings.Count(without, field+zero) != 1 {
		t.Fatalf("the dump does not have %s%s once: %s", field, zero, without)
	}
	for timestamp, layout := range map[string]string{
		`null`:                          zero,
		`"2016-03-16T22:01:03Z"`:        "{Time:(time.Time){sec:(int64)63593762463 nsec:(int32)0 loc:" + utc + "}}",
		`"2016-03-16T23:01:03+01:00"`:   "{Time:(time.Time){sec:(int64)63593762463 nsec:(int32)0 loc:" + utc + "}}",
		`"2016-03-16T22:01:03.000007Z"`: "{Time:(time.Time){sec:(int64)63593762463 nsec:(int32)7000 loc:" + utc + "}}",
		// Not null, so decoded, and so in the local zone.
		`"0001-01-01T00:00:00Z"`: "{Time:(time.Time){sec:(int64)0 nsec:(int32)0 loc:" + utc + "}}",
	} {
		want := strings.Replace(without, field+zero, field+layout, 1)
		spec := template(timestamp)
		if got := dump(spec); got != want {
			t.Errorf("creationTimestamp %s:\n got %s\nwant %s", timestamp, got, want)
		}
		if got, want := podutil.GetPodTemplateSpecHash(spec), adler32.Checksum([]byte(want)); got != want {
			t.Errorf("creationTimestamp %s: hash %d, want %d", timestamp, got, want)
		}
	}
}

func TestDeletionTimestamp(t *testing.T) {
	when := unversioned.NewTime(time.Unix(0, 0).UTC())
	got := dump(&api.ObjectMeta{DeletionTimestamp: &when})
	want := "DeletionTimestamp:(*unversioned.Time){Time:(time.Time){sec:(int64)62135596800 nsec:(int32)0 loc:(*time.Location){name:(string)UTC "
	if !strings.Contains(got, want) {
		t.Errorf("%s is not in %s", want, got)
	}
}

// Digits of quantities were printed as pointers are: in hexadecimal, and as
// <nil> when they are 0. A quantity of 0 has no digits.
func TestQuantity(t *testing.T) {
	for amount, want := range map[string]string{
		"0":    "abs:(big.nat)<nil>} scale:(inf.Scale)0}",
		"0Gi":  "abs:(big.nat)<nil>} scale:(inf.Scale)0}",
		"2":    "abs:(big.nat)[0x77359400]} scale:(inf.Scale)9}",
		"500m": "abs:(big.nat)[0x1dcd6500]} scale:(inf.Scale)9}",
		"4Gi":  "abs:(big.nat)[0x3b9aca0000000000]} scale:(inf.Scale)9}",
		"32Pi": "abs:(big.nat)[<nil> 0x1dcd65]} scale:(inf.Scale)9}",
	} {
		if got := dump(resource.MustParse(amount)); !strings.Contains(got, want) {
			t.Errorf("%s: %s is not in %s", amount, want, got)
		}
	}
}

// TestReachableTypes fails when a type of the standard library that a pod
// template reaches is not one of those whose old layout is known, or when such
// a type changes once more.
func TestReachableTypes(t *testing.T) {
	layouts := map[string]string{}
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		std := typ.PkgPath() != "" && !strings.Contains(strings.SplitN(typ.PkgPath(), "/", 2)[0], ".")
		if typ == reflect.TypeOf(time.Time{}) {
			layouts[typ.String()] = "mirrored"
			return
		}
		if std && typ.Kind() != reflect.Struct {
			layouts[typ.String()] = typ.Kind().String()
		}
		switch typ.Kind() {
		case reflect.Ptr, reflect.Slice, reflect.Array:
			walk(typ.Elem())
		case reflect.Map:
			if typ.Key().Kind() != reflect.String {
				t.Errorf("%v: keys of maps are strings in hashed types: others are sorted by what they print", typ)
			}
			walk(typ.Elem())
		case reflect.Struct:
			var fields []string
			for i := 0; i < typ.NumField(); i++ {
				f := typ.Field(i)
				fields = append(fields, f.Name+" "+f.Type.String())
				if f.PkgPath != "" && !f.Anonymous && strings.Contains(f.Type.String(), "time.Time") {
					t.Errorf("%v.%s: a time in an unexported field is not mirrored", typ, f.Name)
				}
				walk(f.Type)
			}
			if std {
				layouts[typ.String()] = strings.Join(fields, "; ")
			}
		case reflect.Interface, reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Uintptr:
			t.Errorf("%v: its dump depends on more than the value", typ)
		}
	}
	walk(reflect.TypeOf(api.PodTemplateSpec{}))
	want := map[string]string{
		"time.Time": "mirrored",
		"big.Int":   "neg bool; abs big.nat", // as in Go 1.4
		"big.nat":   "slice",
		"big.Word":  "uint", // mirrored
	}
	if !reflect.DeepEqual(layouts, want) {
		t.Errorf("types of the standard library in a pod template:\n got %v\nwant %v", layouts, want)
	}
}
