// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

import (
	"math/rand"
	"reflect"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// dumpWords are texts that a container's user can write and that look like the
// dump itself.
var dumpWords = []string{
	"", "a", "app", "/data", "ä€\x00\xff", "%#v %d", "<nil>", "<shown>", " ", "{", "}", "] ", "map[",
	" VolumeDevices:([]v1.VolumeDevice)<nil>", " MountPropagation:(*v1.MountPropagationMode)<nil>",
	" AllowPrivilegeEscalation:(*bool)<nil>", " Host:(string)", "(*v1.Probe)<nil>", "Name:(string)a Image:(string)b",
	"x VolumeDevices:([]v1.VolumeDevice)<nil> LivenessProbe:(*v1.Probe)<nil>",
}

var quantities = []string{
	"0", "1", "100m", "0.5", ".1", "1.5", "1e3", "1E6", "1e-3", "128974848", "129e6", "129M", "123Mi", "1.5Gi", "1n", "0.1n", "1u",
	"4Ki", "0Ki", "-1", "+5", "1000m", "1024Mi", "12345678901234567890", "9999999999999999999999", "1.000000000000000000001",
	"9223372036854775807", "9223372036854775808", "1Ei", "100E", "0.0", "00012", "3e0", "-0.5m", "1e18", "1e19",
}

// randomQuantity returns a quantity in one of the states that code can leave
// it in: parsed, with the cache filled, or computed.
func randomQuantity(r *rand.Rand) resource.Quantity {
	q := resource.MustParse(quantities[r.Intn(len(quantities))])
	switch r.Intn(6) {
	case 0:
		_ = q.String()
	case 1:
		q.Add(resource.MustParse(quantities[r.Intn(len(quantities))]))
	case 2:
		q.Neg()
	case 3:
		q.ToDec()
	case 4:
		return resource.Quantity{}
	}
	return q
}

// fill sets v to a random value. density is the chance in percent that an
// optional part is there.
func fill(r *rand.Rand, v reflect.Value, density int) {
	if v.Type() == reflect.TypeOf(resource.Quantity{}) {
		v.Set(reflect.ValueOf(randomQuantity(r)))
		return
	}
	present := r.Intn(100) < density
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(present && r.Intn(2) == 0)
	case reflect.String:
		if present {
			v.SetString(dumpWords[r.Intn(len(dumpWords))])
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if present {
			v.SetInt([]int64{0, 1, -1, 7, 65535, 1 << 31, -1 << 31, 1<<63 - 1}[r.Intn(8)])
		}
	case reflect.Ptr:
		if present {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), density)
		}
	case reflect.Slice:
		if present {
			n := r.Intn(4)
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := 0; i < n; i++ {
				fill(r, v.Index(i), density)
			}
		}
	case reflect.Map:
		if present {
			v.Set(reflect.MakeMap(v.Type()))
			for i := r.Intn(4); i > 0; i-- {
				key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				key.SetString([]string{"cpu", "memory", "", "nvidia.com/gpu", "a b:c"}[r.Intn(5)])
				fill(r, elem, density)
				v.SetMapIndex(key, elem)
			}
		}
	case reflect.Struct:
		for i := 0; i < v.NumField(); i++ {
			fill(r, v.Field(i), density)
		}
	}
}

// randomContainer returns a container with any fields of any generation.
func randomContainer(r *rand.Rand) *v1.Container {
	c := &v1.Container{}
	fill(r, reflect.ValueOf(c).Elem(), []int{0, 20, 50, 80, 100}[r.Intn(5)])
	// Otherwise most would have a field that only 1.9 knows.
	if r.Intn(2) == 0 {
		strip(reflect.ValueOf(c).Elem(), Generation(r.Intn(generations)))
	}
	return c
}

// strip unsets the fields that g lacks, leaving some empty lists.
func strip(v reflect.Value, g Generation) {
	switch v.Kind() {
	case reflect.Ptr:
		if !v.IsNil() {
			strip(v.Elem(), g)
		}
	case reflect.Slice:
		for i := 0; i < v.Len(); i++ {
			strip(v.Index(i), g)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeOf(resource.Quantity{}) {
			return
		}
		fields, _ := tableFields(table, v.Type().String())
		for i, f := range fields {
			switch fv := v.Field(i); {
			case f.since <= g:
				strip(fv, g)
			case fv.Kind() == reflect.Slice && !fv.IsNil():
				fv.SetLen(0)
			default:
				fv.Set(reflect.Zero(fv.Type()))
			}
		}
	}
}
