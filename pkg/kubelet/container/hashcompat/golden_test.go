// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// goldenRow is one line of testdata/golden.jsonl.
type goldenRow struct {
	ID      string              `json:"id"`
	Spec    json.RawMessage     `json:"spec"`
	Hash    map[string][]uint64 `json:"hash"`
	Unknown []string            `json:"unknown"`
}

const (
	modeJSON = iota
	modeProto
)

func readGolden(t testing.TB) []goldenRow {
	data, err := os.ReadFile("testdata/golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var rows []goldenRow
	s := bufio.NewScanner(bytes.NewReader(data))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var row goldenRow
		if err := json.Unmarshal(s.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if len(rows) != 103 {
		t.Fatalf("%d rows, want 103", len(rows))
	}
	return rows
}

func (r *goldenRow) decode(t testing.TB, mode int) *v1.Container {
	c := &v1.Container{}
	if err := json.Unmarshal(r.Spec, c); err != nil {
		t.Fatalf("%s: %v", r.ID, err)
	}
	if mode == modeProto {
		c = roundTrip(t, c)
	}
	return c
}

// roundTrip returns the container as a kubelet gets it from the API.
func roundTrip(t testing.TB, c *v1.Container) *v1.Container {
	data, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	out := &v1.Container{}
	if err := out.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	return out
}

func (r *goldenRow) unknownTo(release string) bool {
	for _, u := range r.Unknown {
		if u == release {
			return true
		}
	}
	return false
}

// TestGolden compares every generation with what the releases computed.
func TestGolden(t *testing.T) {
	compared, withheld := 0, 0
	for _, row := range readGolden(t) {
		for mode := modeJSON; mode <= modeProto; mode++ {
			c := row.decode(t, mode)
			before := c.DeepCopy()
			for release, g := range goldenReleases {
				want := row.Hash[release][mode]
				got, ok := Hash(c, g)
				// Fields newer than this release's are lost in decoding here as in
				// the releases, so only those up to it make a hash unknown.
				if len(Unknown(c, g)) > 0 {
					if ok {
						t.Errorf("%s: %s: got a hash in spite of %v", row.ID, release, Unknown(c, g))
					}
					if !row.unknownTo(release) {
						t.Errorf("%s: %s knows the spec, but Unknown says %v", row.ID, release, Unknown(c, g))
					}
					// The shortened hash is what the release recorded.
					if e := Explain(c, want); len(e.Recorded) != 0 || !reflect.DeepEqual(e.Ignoring, Unknown(c, g)) {
						t.Errorf("%s: %s: Explain = %+v", row.ID, release, e)
					}
					if _, matches := Match(c, want); matches {
						t.Errorf("%s: %s: the shortened hash is accepted", row.ID, release)
					}
					withheld++
					continue
				}
				if !ok || got != want {
					t.Errorf("%s: %s mode %d: got %d (%v), want %d", row.ID, release, mode, got, ok, want)
				}
				compared++
				m, matches := Match(c, want)
				native, _ := Hash(c, Native)
				if g < Native && want != native && (!matches || m < g) {
					t.Errorf("%s: %s: Match = %v, %v", row.ID, release, m, matches)
				}
			}
			if !reflect.DeepEqual(before, c) {
				t.Errorf("%s: the container was changed", row.ID)
			}
			if got, want := Oldest(c), oldestKnown(c); got != want {
				t.Errorf("%s: Oldest = %v, want %v", row.ID, got, want)
			}
		}
	}
	t.Logf("%d hashes compared, %d withheld because a field is unknown", compared, withheld)
	if compared != goldenCompared || withheld != goldenWithheld {
		t.Errorf("compared %d and withheld %d, want %d and %d", compared, withheld, goldenCompared, goldenWithheld)
	}
}

// TestNewerGo: upstream built 1.6 to 1.8 with Go 1.7 and 1.8, whose big.Word go-spew
// prints otherwise. What they record is what is written for them; what a build with a
// newer Go records, as v1.9.11+holdfast.1 did for 1.7, is kept as well. From 1.9 on
// there is one hash.
func TestNewerGo(t *testing.T) {
	const wordIsZero = "7Ei"
	for limit, hashes := range map[string]struct{ own, newer uint64 }{
		"9999999999999999999999": {1020617282, 367638098}, // as in the golden data
		wordIsZero:               {},
	} {
		row := goldenRow{ID: limit, Spec: []byte(`{"name":"app","image":"registry.example.com/app:v1.2.3","terminationMessagePath":"/dev/termination-log",` +
			`"terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent","resources":{"limits":{"memory":"` + limit + `"}}}`)}
		c := row.decode(t, modeProto)
		d := newDump(c, false)
		own, newer := d.hashBuilt(Gen17, false), d.hashBuilt(Gen17, true)
		if d.hashBuilt(Gen19, false) != d.hashBuilt(Gen19, true) || d.hash(Native) != stockHash(c) {
			t.Errorf("%s: 1.9 or this release has two hashes", limit)
		}
		d.release()
		if own == newer || limit != wordIsZero && (own != hashes.own || newer != hashes.newer) {
			t.Errorf("%s: %d and %d, want %+v", limit, own, newer, hashes)
		}
		for _, h := range []uint64{own, newer} {
			g, ok := Match(c, h)
			if !ok || g != Gen18 {
				t.Errorf("%s: Match(%d) = %v, %v", limit, h, g, ok)
			}
			oldest, newest, ok := RecordedBy(c, h)
			if e := Explain(c, h); !ok || oldest > Gen17 || newest != Gen18 || len(e.Recorded) == 0 {
				t.Errorf("%s: %d is recorded by %v to %v (%v), %+v", limit, h, oldest, newest, ok, e)
			}
		}
		if g, h, ok := OldestHash(c, Gen17); !ok || g != Gen17 || h != own {
			t.Errorf("%s: recorded is %d of %v (%v), want %d", limit, h, g, ok, own)
		}
		all := All(c)
		if h, ok := all.Get(Gen17); !ok || h != own {
			t.Errorf("%s: All has %d", limit, h)
		}
	}
}

// TestWordsInDump: a word that is 0 is printed as an address that is nil.
func TestWordsInDump(t *testing.T) {
	for limit, want := range map[string]string{"7Ei": "[<nil> 0x1a13b860]", "9999999999999999999999": "[0xc0914b2644653600 0x7e37be2022]"} {
		d := newDump(&v1.Container{Resources: v1.ResourceRequirements{Limits: v1.ResourceList{"memory": resource.MustParse(limit)}}}, false)
		found := false
		for _, s := range d.spans {
			if s.older != nil {
				found = true
				if string(s.older) != want {
					t.Errorf("%s: %s, want %s", limit, s.older, want)
				}
			}
		}
		if !found {
			t.Errorf("%s: no words", limit)
		}
		d.release()
	}
}

func oldestKnown(c *v1.Container) Generation {
	for g := Gen17; g < Native; g++ {
		if len(Unknown(c, g)) == 0 {
			return g
		}
	}
	return Native
}

// TestOf: the generation of a minor release.
func TestOf(t *testing.T) {
	for minor := 0; minor < 20; minor++ {
		want := OldestWritten
		for _, g := range goldenReleases {
			if g.Minor() <= minor && g > want {
				want = g
			}
		}
		if got := Of(minor); got != want {
			t.Errorf("1.%d: %v, want %v", minor, got, want)
		}
	}
}

// TestReport holds the numbers of the incident report.
func TestReport(t *testing.T) {
	for _, row := range readGolden(t) {
		if row.ID != "article-node-exporter" {
			continue
		}
		h := All(row.decode(t, modeProto))
		for g, want := range map[Generation]uint64{Gen16: 1559107639, Gen17: 1559107639, Gen18: 77704989, Gen19: 1428860573} {
			if got, ok := h.Get(g); !ok || got != want {
				t.Errorf("%v: %d, %v, want %d", g, got, ok, want)
			}
		}
		if h.Records() != Gen17 {
			t.Errorf("records %v", h.Records())
		}
		return
	}
	t.Fatal("no article-node-exporter in the data")
}
