// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	goruntime "runtime"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/evanphx/json-patch"
)

// manyOperations are patches of 10,000 operations each, for the object of manyDoc.
var manyOperations = map[string]func(i int) string{
	"add":     func(i int) string { return fmt.Sprintf(`{"op":"add","path":"/data/n%d","value":"x"}`, i) },
	"remove":  func(i int) string { return fmt.Sprintf(`{"op":"remove","path":"/data/k%d"}`, i) },
	"replace": func(i int) string { return fmt.Sprintf(`{"op":"replace","path":"/data/k%d","value":"x"}`, i) },
	"test":    func(i int) string { return fmt.Sprintf(`{"op":"test","path":"/data/k%d","value":"v"}`, i) },
	"move":    func(i int) string { return fmt.Sprintf(`{"op":"move","from":"/data/k%d","path":"/data/n%d"}`, i, i) },
	"copy":    func(i int) string { return fmt.Sprintf(`{"op":"copy","from":"/data/k%d","path":"/data/n%d"}`, i, i) },
	"move to a name that is a number": func(i int) string {
		return fmt.Sprintf(`{"op":"move","from":"/data/k%d","path":"/data/%d"}`, i, 1000000000+i)
	},
	"copy to a name that is a number": func(i int) string {
		return fmt.Sprintf(`{"op":"copy","from":"/data/k%d","path":"/data/%d"}`, i, 1000000000+i)
	},
	"chain of moves": func(i int) string {
		from := fmt.Sprint(1000000000 + i - 1)
		if i == 0 {
			from = "k0"
		}
		return fmt.Sprintf(`{"op":"move","from":"/data/%s","path":"/data/%d"}`, from, 1000000000+i)
	},
}

func manyPatch(t testing.TB, op func(int) string) jsonpatch.Patch {
	var ops []string
	for i := 0; i < 10000; i++ {
		ops = append(ops, op(i))
	}
	patch, err := jsonpatch.DecodePatch([]byte("[" + strings.Join(ops, ",") + "]"))
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

func manyDoc() []byte {
	var members []string
	for i := 0; i < 10000; i++ {
		members = append(members, fmt.Sprintf(`"k%d":"v"`, i))
	}
	return []byte(`{"data":{` + strings.Join(members, ",") + `}}`)
}

// applications are the library's and Holdfast's.
var applications = []func(jsonpatch.Patch, []byte) ([]byte, error){jsonpatch.Patch.Apply, applyJSONPatch}

// TestPatchCost: no kind of operation costs more with its number than in the library. Both
// run in turn, the best of five is compared, and twice its time is allowed on a machine that
// is busy: what each operation did again for all before it took a thousand times as long.
func TestPatchCost(t *testing.T) {
	doc := manyDoc()
	for kind, op := range manyOperations {
		patch := manyPatch(t, op)
		var text [2]string
		var least [2]time.Duration
		for i := 0; i < 5; i++ {
			for k, apply := range applications {
				began := time.Now()
				got, err := apply(patch, doc)
				if took := time.Since(began); i == 0 || took < least[k] {
					least[k] = took
				}
				if err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
				text[k] = string(got)
			}
		}
		if text[0] != text[1] || least[1] > 2*least[0]+50*time.Millisecond {
			t.Errorf("%s: %v, the library %v, same answer: %v", kind, least[1], least[0], text[0] == text[1])
		}
	}
}

// BenchmarkPatch compares each kind of operation with the library. Both run in turn, so that
// what else the machine does meets both; the metrics are the medians, and their ratio.
func BenchmarkPatch(b *testing.B) {
	doc := manyDoc()
	var kinds []string
	for kind := range manyOperations {
		kinds = append(kinds, kind)
	}
	sort.Strings(kinds)
	for _, kind := range kinds {
		patch := manyPatch(b, manyOperations[kind])
		b.Run(strings.Replace(kind, " ", "_", -1), func(b *testing.B) {
			var took [2][]float64
			for i := 0; i < b.N; i++ {
				for k := range applications {
					k = (k + i) % 2
					goruntime.GC() // or one pays for what the other left
					began := time.Now()
					if _, err := applications[k](patch, doc); err != nil {
						b.Fatal(err)
					}
					took[k] = append(took[k], time.Since(began).Seconds()*1000)
				}
			}
			for k := range took {
				sort.Float64s(took[k])
			}
			stock, holdfast := took[0][b.N/2], took[1][b.N/2]
			b.ReportMetric(stock, "stock-ms")
			b.ReportMetric(holdfast, "holdfast-ms")
			b.ReportMetric(holdfast/stock, "holdfast/stock")
		})
	}
}

// TestPatchLongLists: lists that indexes make longer are limited together.
func TestPatchLongLists(t *testing.T) {
	var ops []string
	for i := 0; i < 1000; i++ {
		ops = append(ops, fmt.Sprintf(`{"op":"add","path":"/l%d","value":[]},{"op":"move","from":"/pad","path":"/l%d/9000"},{"op":"add","path":"/pad","value":1}`, i, i))
	}
	doc := `{"pad":1,"x":"` + strings.Repeat("x", 10000) + `"}`
	if got, err := applyJSONPatch(decodePatch(t, "["+strings.Join(ops, ",")+"]"), []byte(doc)); err == nil || !strings.Contains(err.Error(), "more than 8 MiB") {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := applyJSONPatch(decodePatch(t, "["+strings.Join(ops[:100], ",")+"]"), []byte(doc)); err != nil {
		t.Error(err)
	}
}

// TestPatchLikeLibrary: without "copy" the answer and the error are the library's, to the
// byte, wherever the library survives.
func TestPatchLikeLibrary(t *testing.T) {
	n := 20000
	if os.Getenv("HOLDFAST_EXHAUSTIVE") != "" {
		n = 2000000
	}
	r := rand.New(rand.NewSource(2))
	pointers := []interface{}{"", "/", "/a", "/a/b", "/a/b/0", "/l", "/l/0", "/l/1", "/l/-", "/l/-1", "/l/-9", "/l/3", "/l/9", "/l/x", "/l/0/y", "/m~1n", "/a~0", "/none", "/none/x", "/s", "/s/x", "/z", "/<q", "/\"é\\", "x", nil, 5}
	docs := []string{`{"a":{"b":[1,{"c":"<&>"}]},"l":[{"y":null},2.50,[3]],"m/n":"x","a~":1e3,"s":"t","z":null,"<q":1,"\"é\\":[1]}`, `{ "l" : [ ] }`, `{}`}
	values := []interface{}{nil, 1, "<a>", []interface{}{1, nil}, map[string]interface{}{"b": []interface{}{1}}, map[string]interface{}{}, []interface{}{}, "t"}
	died, good, bad := 0, 0, 0
	for i := 0; i < n; i++ {
		var ops []interface{}
		for k := r.Intn(5); k >= 0; k-- {
			op := map[string]interface{}{}
			if r.Intn(20) > 0 {
				op["op"] = []interface{}{"add", "add", "remove", "replace", "move", "test", "move", "none", 1, nil}[r.Intn(10)]
			}
			if r.Intn(20) > 0 {
				op["path"] = pointers[r.Intn(len(pointers))]
			}
			if r.Intn(10) > 0 {
				op["value"] = values[r.Intn(len(values))]
			}
			if r.Intn(4) > 0 {
				op["from"] = pointers[r.Intn(len(pointers))]
			}
			ops = append(ops, op)
		}
		text, err := json.Marshal(ops)
		if err != nil {
			t.Fatal(err)
		}
		doc := []byte(docs[r.Intn(len(docs))])
		got, gotErr := applyJSONPatch(decodePatch(t, string(text)), doc)
		var want []byte
		var wantErr error
		survived := func() (ok bool) {
			defer func() { ok = recover() == nil }()
			want, wantErr = decodePatch(t, string(text)).Apply(doc)
			return
		}()
		switch {
		case !survived:
			died++
			continue
		case wantErr == nil:
			good++
		default:
			bad++
		}
		if string(got) != string(want) || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
			t.Errorf("%s of %s: %s, %v, the library %s, %v", text, doc, got, gotErr, want, wantErr)
		}
	}
	if died == 0 || good == 0 || bad == 0 {
		t.Errorf("the library died of %d patches, applied %d and refused %d", died, good, bad)
	}
}
