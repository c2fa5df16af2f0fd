// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/kubelet/container/hashcompat"
	kubehash "k8s.io/kubernetes/pkg/util/hash"
)

type goldenRow struct {
	ID, Oldest string
	Manifest   json.RawMessage
	UID        map[string][]types.UID
}

func golden(t *testing.T) []goldenRow {
	data, err := os.ReadFile("testdata/golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var rows []goldenRow
	for _, line := range bytes.Split(bytes.TrimSpace(data), []byte("\n")) {
		var row goldenRow
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

func decode(t *testing.T, manifest []byte) *core.Pod {
	obj, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), manifest)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*core.Pod)
}

func native(pod *core.Pod) types.UID {
	hasher := md5.New()
	kubehash.DeepHashObject(hasher, pod)
	return types.UID(hex.EncodeToString(hasher.Sum(nil)))
}

// TestGolden: the UIDs are those that the code of the releases gave the manifests.
func TestGolden(t *testing.T) {
	if d := Drift(); len(d) > 0 {
		t.Fatal(strings.Join(d, "\n"))
	}
	rows := golden(t)
	if len(rows) < 60 {
		t.Fatalf("%d manifests", len(rows))
	}
	known := map[string]int{}
	seen := map[types.UID]types.UID{}
	for _, row := range rows {
		pod := decode(t, row.Manifest)
		if uid := native(pod); uid != row.UID["1.9"][0] || uid != row.UID["1.9"][1] {
			t.Errorf("%s: this release gives %s, golden is %v", row.ID, uid, row.UID["1.9"])
		}
		got, want := map[string][]types.UID{}, map[string][]types.UID{}
		for _, u := range Older(pod) {
			got[u.Release] = append(got[u.Release], u.UID)
		}
		for release, uids := range row.UID {
			if release != "1.9" && release >= row.Oldest {
				want[release] = uids
				known[release]++
			}
			if release < row.Oldest {
				continue
			}
			for _, uid := range uids {
				// What this release tells apart, an older one must.
				if other, ok := seen[uid]; ok && other != native(pod) {
					t.Errorf("%s has a UID of another pod, %s", row.ID, uid)
				}
				seen[uid] = native(pod)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, the releases give %v", row.ID, got, want)
		}
	}
	if known["1.8"] <= known["1.7"] || known["1.7"] < 50 || known["1.8"] == len(rows) {
		t.Errorf("the manifests do not tell the releases apart: %v of %d", known, len(rows))
	}
}

// TestSeen: these UIDs were printed by docker ps on masters that kubeadm 1.7 had made, with
// upstream's own builds of the kubelet: kubicorn's walkthrough of July 2017, and notes on a
// cluster of kubelets v1.7.5. The manifests are what kubeadm 1.7 writes for these components;
// the order of the arguments differed from one kubeadm init to the next.
func TestSeen(t *testing.T) {
	want := map[string]types.UID{
		"seen-1.7.1-scheduler": "b08d9a4015830eea5e3141df2788b07f",
		"seen-1.7-etcd":        "fcc8d05cc29da0dc1f9e34c2e2cefa6e",
		"seen-1.7.6-scheduler": "6705be51ceb05190da8e37fa641165e0",
	}
	for _, row := range golden(t) {
		uid, ok := want[row.ID]
		if !ok {
			continue
		}
		delete(want, row.ID)
		for _, u := range Older(decode(t, row.Manifest)) {
			if u.Release == "1.7" && u.UID == uid {
				uid = ""
			}
		}
		if uid != "" {
			t.Errorf("%s: no 1.7 UID is %s", row.ID, uid)
		}
	}
	if len(want) > 0 {
		t.Errorf("not in the golden data: %v", want)
	}
}

// TestNative: with the names of this release the printer prints what go-spew does.
func TestNative(t *testing.T) {
	r, drift := hashcompat.NewRelease(podType, table, reflect.Type.String)
	if r == nil {
		t.Fatal(drift)
	}
	for _, row := range golden(t) {
		pod := decode(t, row.Manifest)
		if text, ok := r.Print(pod, hashcompat.Gen19, true); !ok || sum(text) != native(pod) {
			t.Errorf("%s: %v %s", row.ID, ok, text)
		}
	}
}

// TestLeavesThePodAlone: the UID of this release is the same before and after.
func TestLeavesThePodAlone(t *testing.T) {
	for _, row := range golden(t) {
		pod := decode(t, row.Manifest)
		before := native(pod)
		Older(pod)
		if after := native(pod); after != before {
			t.Errorf("%s: %s, then %s", row.ID, before, after)
		}
	}
}

// TestWithheld: a field that a release does not know, and a time, whose text depends on the
// machine.
func TestWithheld(t *testing.T) {
	for meta, want := range map[string]string{
		`"creationTimestamp":null`:                   "1.8 1.8 1.7 1.7",
		`"creationTimestamp":"2018-01-01T00:00:00Z"`: "",
		`"deletionTimestamp":"2018-01-01T00:00:00Z"`: "",
	} {
		var got []string
		for _, u := range Older(decode(t, []byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a",%s},"spec":{"containers":[{"name":"a","image":"b"}]}}`, meta)))) {
			got = append(got, u.Release)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", meta, got, want)
		}
	}
	// A limit that needs a big.Int is printed in a place of its own by 1.7.
	pod := decode(t, []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"a","image":"b"}],"volumes":[{"name":"v","emptyDir":{"sizeLimit":"12345678901234567890"}}]}}`))
	for _, u := range Older(pod) {
		if u.Release != "1.8" {
			t.Errorf("a UID of %s", u.Release)
		}
	}
	// What a newer release adds to a type makes older UIDs unknown, not wrong.
	if r, drift := hashcompat.NewRelease(reflect.TypeOf(&struct{ Pod core.Pod }{}), table, reflect.Type.String); r != nil || len(drift) == 0 {
		t.Error("types that the table lacks are taken")
	}
}
