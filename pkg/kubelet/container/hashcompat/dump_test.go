// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

import (
	"flag"
	"hash/fnv"
	"math/rand"
	"reflect"
	"testing"

	"github.com/davecgh/go-spew/spew"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	hashutil "k8s.io/kubernetes/pkg/util/hash"
)

var randomContainers = flag.Int("random-containers", 6000, "containers in the randomised tests")

// spewDump is the dump that hashutil.DeepHashObject hashes.
func spewDump(c *v1.Container) string {
	printer := spew.ConfigState{Indent: " ", SortKeys: true, DisableMethods: true, SpewKeys: true}
	return printer.Sprintf("%#v", *c)
}

// stockHash is kubecontainer.HashContainer.
func stockHash(c *v1.Container) uint64 {
	h := fnv.New32a()
	hashutil.DeepHashObject(h, *c)
	return uint64(h.Sum32())
}

func checkDump(t *testing.T, c *v1.Container) {
	want := spewDump(c)
	d := newDump(c, false)
	defer d.release()
	if got := string(d.text); got != want {
		t.Fatalf("dump differs\n got %s\nwant %s", got, want)
	}
	if got, want := d.hash(Native), stockHash(c); got != want {
		t.Fatalf("hash %d, want %d", got, want)
	}
}

// TestDump compares the dump with go-spew's for any fields in any state.
func TestDump(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for i := 0; i < *randomContainers; i++ {
		checkDump(t, randomContainer(r))
	}
}

// TestDumpAliased: equal pointers do not lead to go-spew's "<shown>", wherever
// the types allow them.
func TestDumpAliased(t *testing.T) {
	yes, q := true, resource.MustParse("1.000000000000000000001")
	probe := &v1.Probe{Handler: v1.Handler{TCPSocket: &v1.TCPSocketAction{}}}
	handler := &v1.Handler{Exec: &v1.ExecAction{Command: []string{"a"}}}
	sc := &v1.SecurityContext{Privileged: &yes, RunAsNonRoot: &yes}
	for _, c := range []*v1.Container{
		{LivenessProbe: probe, ReadinessProbe: probe},
		{SecurityContext: sc},
		{Lifecycle: &v1.Lifecycle{PostStart: handler, PreStop: handler}},
		// The address of the probe itself.
		{LivenessProbe: probe, Lifecycle: &v1.Lifecycle{PostStart: &probe.Handler, PreStop: &probe.Handler}},
		{
			EnvFrom: []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{Optional: &yes}}, {SecretRef: &v1.SecretEnvSource{Optional: &yes}}},
			Env:     []v1.EnvVar{{ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Optional: &yes}}}},
		},
		{Resources: v1.ResourceRequirements{
			Limits:   v1.ResourceList{"a": q, "b": q},
			Requests: v1.ResourceList{"a": q},
		}},
	} {
		checkDump(t, c)
	}
	r := rand.New(rand.NewSource(2))
	for i := 0; i < *randomContainers/5; i++ {
		c := randomContainer(r)
		alias(r, reflect.ValueOf(c).Elem(), map[reflect.Type][]reflect.Value{})
		checkDump(t, c)
	}
}

// alias makes some pointers of the same type point to the same value, except
// where that would make a cycle.
func alias(r *rand.Rand, v reflect.Value, seen map[reflect.Type][]reflect.Value) {
	switch v.Kind() {
	case reflect.Ptr:
		if v.IsNil() {
			return
		}
		if known := seen[v.Type()]; len(known) > 0 && v.CanSet() && r.Intn(2) == 0 {
			v.Set(known[r.Intn(len(known))])
			return
		}
		alias(r, v.Elem(), seen)
		seen[v.Type()] = append(seen[v.Type()], v)
	case reflect.Slice:
		for i := 0; i < v.Len(); i++ {
			alias(r, v.Index(i), seen)
		}
	case reflect.Struct:
		if v.Type() != reflect.TypeOf(resource.Quantity{}) {
			for i := 0; i < v.NumField(); i++ {
				alias(r, v.Field(i), seen)
			}
		}
	}
}

// TestReadsOnly: hashing must not fill a quantity's cache.
func TestReadsOnly(t *testing.T) {
	q := resource.MustParse("0.5")
	q.Add(resource.MustParse("1"))
	c := &v1.Container{Resources: v1.ResourceRequirements{Limits: v1.ResourceList{"cpu": q}}}
	before := spewDump(c)
	All(c)
	Match(c, 1)
	Explain(c, 1)
	OldestHash(c, OldestWritten)
	if after := spewDump(c); after != before {
		t.Errorf("the container was changed\nfrom %s\n to %s", before, after)
	}
}

// TestAgree: the ways to ask give the same answers.
func TestAgree(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	for i := 0; i < *randomContainers/5; i++ {
		c := randomContainer(r)
		all, native := All(c), stockHash(c)
		if g, h, ok := OldestHash(c, OldestWritten); g != Oldest(c) || g != all.Records() {
			t.Fatalf("oldest: %v, %v, %v", g, Oldest(c), all.Records())
		} else if want, known := all.Get(g); !ok || !known || h != want {
			t.Fatalf("oldest hash: %v, %v, want %v, %v", h, ok, want, known)
		}
		for _, g := range Generations() {
			h, ok := Hash(c, g)
			if want, known := all.Get(g); h != want || ok != known || ok != (len(Unknown(c, g)) == 0) {
				t.Fatalf("%v: %d, %v, want %d, %v", g, h, ok, want, known)
			}
			e := Explain(c, Explain(c, 0).Tried[Native-g].Hash)
			if found := contains(e.Recorded, g); found != ok {
				t.Fatalf("%v: explained %v, want %v: %+v", g, found, ok, e)
			}
			if g >= Oldest(c) {
				oldest, newest, recorded := RecordedBy(c, h)
				written, _ := all.Get(Oldest(c))
				if want := written != native; recorded != want {
					t.Fatalf("%v: recorded by %v to %v: %v, want %v", g, oldest, newest, recorded, want)
				}
				if nh, _ := all.Get(newest); recorded && (nh != h || newest < g || oldest > g) {
					t.Fatalf("%v: recorded by %v to %v", g, oldest, newest)
				}
				if recorded && (h == written) != (oldest <= OldestWritten) {
					t.Fatalf("%v: recorded by %v to %v, though our own choice is %v", g, oldest, newest, h == written)
				}
			}
			if h == native || !ok {
				continue
			}
			if m, matches := Match(c, h); !matches || m < g || m == Native {
				t.Fatalf("%v: Match = %v, %v", g, m, matches)
			}
		}
		if _, matches := Match(c, native+1); matches {
			t.Fatal("matches a hash of nothing")
		}
		if _, _, recorded := RecordedBy(c, native+1); recorded {
			t.Fatal("somebody recorded a hash of nothing")
		}
	}
}

func contains(list []Generation, g Generation) bool {
	for _, x := range list {
		if x == g {
			return true
		}
	}
	return false
}

func TestUnknownPaths(t *testing.T) {
	mode, no := v1.MountPropagationHostToContainer, false
	empty := v1.MountPropagationMode("")
	c := &v1.Container{
		VolumeMounts:    []v1.VolumeMount{{}, {MountPropagation: &mode}, {MountPropagation: &empty}},
		VolumeDevices:   []v1.VolumeDevice{{Name: "d"}},
		LivenessProbe:   &v1.Probe{Handler: v1.Handler{TCPSocket: &v1.TCPSocketAction{Host: "h"}}},
		Lifecycle:       &v1.Lifecycle{PreStop: &v1.Handler{TCPSocket: &v1.TCPSocketAction{Host: "h"}}},
		SecurityContext: &v1.SecurityContext{AllowPrivilegeEscalation: &no},
	}
	for g, want := range map[Generation][]string{
		Native: nil,
		Gen18:  {"volumeDevices"},
		Gen17:  {"volumeMounts[1].mountPropagation", "volumeMounts[2].mountPropagation", "volumeDevices", "securityContext.allowPrivilegeEscalation"},
		Gen16: {"volumeMounts[1].mountPropagation", "volumeMounts[2].mountPropagation", "volumeDevices", "livenessProbe.tcpSocket.host",
			"lifecycle.preStop.tcpSocket.host", "securityContext.allowPrivilegeEscalation"},
	} {
		if got := Unknown(c, g); !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %v, want %v", g, got, want)
		}
	}
}
