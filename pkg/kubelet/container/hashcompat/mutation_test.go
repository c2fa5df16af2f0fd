// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

import (
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// mutate calls check after each single change that can be made below v, with
// the place and the kind of change, and undoes it.
func mutate(v reflect.Value, place string, check func(what string)) {
	old := reflect.New(v.Type()).Elem()
	old.Set(v)
	try := func(what string, to reflect.Value) {
		v.Set(to)
		check(place + " " + what)
		v.Set(old)
	}
	if q, ok := v.Interface().(resource.Quantity); ok {
		other := resource.MustParse("7919m")
		if q.Cmp(other) == 0 {
			other = resource.MustParse("7920m")
		}
		try("value", reflect.ValueOf(other))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		try("flip", reflect.ValueOf(!v.Bool()).Convert(v.Type()))
	case reflect.String:
		try("text", reflect.ValueOf(v.String()+"x").Convert(v.Type()))
		try("dump word", reflect.ValueOf(v.String()+" VolumeDevices:([]v1.VolumeDevice)<nil>").Convert(v.Type()))
	case reflect.Int, reflect.Int32, reflect.Int64:
		try("number", reflect.ValueOf(v.Int()^1).Convert(v.Type()))
	case reflect.Ptr:
		if v.IsNil() {
			try("set", reflect.New(v.Type().Elem()))
			return
		}
		try("unset", reflect.Zero(v.Type()))
		mutate(v.Elem(), place, check)
	case reflect.Slice:
		longer := reflect.MakeSlice(v.Type(), v.Len()+1, v.Len()+1)
		reflect.Copy(longer, v)
		try("longer", longer)
		switch {
		case v.IsNil():
			try("empty", reflect.MakeSlice(v.Type(), 0, 0))
		case v.Len() == 0:
			try("empty", reflect.Zero(v.Type()))
		default:
			try("shorter", v.Slice(0, v.Len()-1))
		}
		for i := 0; i < v.Len(); i++ {
			mutate(v.Index(i), fmt.Sprintf("%s[%d]", place, i), check)
		}
	case reflect.Map:
		longer := reflect.MakeMap(v.Type())
		for _, k := range v.MapKeys() {
			longer.SetMapIndex(k, v.MapIndex(k))
		}
		longer.SetMapIndex(reflect.ValueOf("other").Convert(v.Type().Key()), reflect.Zero(v.Type().Elem()))
		try("longer", longer)
		switch {
		case v.IsNil():
			try("empty", reflect.MakeMap(v.Type()))
		case v.Len() == 0:
			try("empty", reflect.Zero(v.Type()))
		}
		for _, k := range v.MapKeys() {
			was, elem := v.MapIndex(k), reflect.New(v.Type().Elem()).Elem()
			elem.Set(was)
			mutate(elem, fmt.Sprintf("%s[%s]", place, k), func(what string) {
				v.SetMapIndex(k, elem)
				check(what)
				v.SetMapIndex(k, was)
			})
		}
	case reflect.Struct:
		for i := 0; i < v.NumField(); i++ {
			mutate(v.Field(i), place+"."+v.Type().Field(i).Name, check)
		}
	}
}

// TestMutation: whichever generation recorded the hash, any single change of
// any field of the spec is a change of the container, with two exceptions. One
// is the rule's own: a list of volumeDevices that is empty or missing says the
// same to a kubelet that does not know the field. The other is in the dump, so
// upstream does not see it either: it prints [] for an empty list and for a
// list of one empty text, and <nil> for no pointer and for one to that text.
func TestMutation(t *testing.T) {
	r := rand.New(rand.NewSource(4))
	mutations, allowed, blind := 0, 0, 0
	places := map[string]bool{}
	for i := 0; i < *randomContainers/60; i++ {
		base := randomContainer(r)
		recorded, baseDump := All(base), spewDump(base)
		c := base.DeepCopy()
		mutate(reflect.ValueOf(c).Elem(), "", func(what string) {
			native := stockHash(c)
			if spewDump(c) == baseDump {
				if !strings.HasSuffix(what, " longer") && !strings.HasSuffix(what, " shorter") && !strings.HasSuffix(what, ".MountPropagation unset") && !strings.HasSuffix(what, ".ProcMount unset") {
					t.Fatalf("%s is not in the dump", what)
				}
				blind++
				return
			}
			for _, g := range Generations() {
				h, ok := recorded.Get(g)
				if !ok {
					continue
				}
				mutations++
				places[stripIndexes(what)] = true
				_, matches := Match(c, h)
				if !matches && native != h {
					continue
				}
				if what == ".VolumeDevices empty" && g < Gen19 {
					allowed++
					continue
				}
				t.Fatalf("%s is not seen by a container recorded by %v\nbase %#v\n now %#v", what, g, base, c)
			}
		})
		if want := stockHash(base); stockHash(c) != want {
			t.Fatal("the test did not undo a change")
		}
	}
	t.Logf("%d mutations of %d kinds, %d allowed by the rule, %d that no dump shows", mutations, len(places), allowed, blind)
	if len(places) < 150 || allowed == 0 {
		t.Errorf("too few kinds of mutations: %d, allowed %d", len(places), allowed)
	}
}

func stripIndexes(place string) string {
	var b strings.Builder
	depth := 0
	for _, c := range place {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case depth == 0:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// TestIgnoredField: a container that an old kubelet started without a field it
// did not know has to be recreated, although the shortened hash is there.
func TestIgnoredField(t *testing.T) {
	no := false
	empty := v1.MountPropagationMode("")
	for name, tc := range map[string]struct {
		c, asSeen v1.Container
		g         Generation
	}{
		"allowPrivilegeEscalation": {
			v1.Container{SecurityContext: &v1.SecurityContext{AllowPrivilegeEscalation: &no}},
			v1.Container{SecurityContext: &v1.SecurityContext{}}, Gen17},
		"mountPropagation, empty text": {
			v1.Container{VolumeMounts: []v1.VolumeMount{{MountPropagation: &empty}}},
			v1.Container{VolumeMounts: []v1.VolumeMount{{}}}, Gen17},
		"volumeDevices": {
			v1.Container{VolumeDevices: []v1.VolumeDevice{{}}},
			v1.Container{}, Gen18},
		"tcpSocket.host": {
			v1.Container{LivenessProbe: &v1.Probe{Handler: v1.Handler{TCPSocket: &v1.TCPSocketAction{Host: "h"}}}},
			v1.Container{LivenessProbe: &v1.Probe{Handler: v1.Handler{TCPSocket: &v1.TCPSocketAction{}}}}, Gen16},
	} {
		recorded, _ := Hash(&tc.asSeen, tc.g)
		if _, ok := Match(&tc.c, recorded); ok {
			t.Errorf("%s: accepted", name)
		}
		if e := Explain(&tc.c, recorded); len(e.Ignoring) != 1 || e.IgnoringGeneration > tc.g+1 {
			t.Errorf("%s: %+v", name, e)
		}
		if _, ok := Match(&tc.asSeen, recorded); !ok {
			t.Errorf("%s: without the field it is not accepted", name)
		}
	}
}
