// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/webhook/internal/names"
	"holdfast/webhook/internal/rules"
)

// fake decides by UIDs.
type fake struct {
	skip  string
	by    map[string]Decision
	sleep time.Duration
}

func (f *fake) Skip(string, string) string { return f.skip }

func (f *fake) Decide(_, _ string, a Address) Decision {
	time.Sleep(f.sleep)
	return f.by[a.UID]
}

func decided(place rules.Place, rule string) Decision {
	return Decision{Known: true, Place: place, Rule: rule}
}

// addr is an address as 1.9 encodes it.
func addr(uid string, more ...string) string {
	return fmt.Sprintf(`{"ip":"10.0.0.%s","nodeName":"n1","targetRef":{"kind":"Pod","namespace":"d","name":"p%s","uid":"%s","resourceVersion":"7"}%s}`, uid, uid, uid, strings.Join(more, ""))
}

func endpoints(meta, subsets string) string {
	return `{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":"web","namespace":"d"` + meta + `},"subsets":` + subsets + `}`
}

func request(object, old string) *Request {
	return &Request{UID: "u", Kind: "Endpoints", Namespace: "d", Name: "web", Operation: "UPDATE", Object: object, OldObject: old}
}

// stored is what 1.9 has after the answer: UIDs by place, and the annotation.
func stored(t *testing.T, object string, res Result) (ready, notReady []string, note string) {
	t.Helper()
	o, err := parseObject(object)
	if err != nil {
		t.Fatal(err)
	}
	if res.Patch != nil {
		after, err := apply19(object, res.Patch)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := json.Marshal(after)
		if o, err = parseObject(string(raw)); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range o.subsets {
		if len(s.ready)+len(s.notReady) == 0 {
			t.Errorf("an empty subset: %v", s.node.raw)
		}
		for _, a := range s.ready {
			ready = append(ready, a.text("ip")+"/"+addressOf(a).UID)
		}
		for _, a := range s.notReady {
			notReady = append(notReady, a.text("ip")+"/"+addressOf(a).UID)
		}
	}
	return ready, notReady, o.annotations().text(names.Rules)
}

func TestDo(t *testing.T) {
	ports := `"ports":[{"port":80,"protocol":"TCP"}]`
	one := `[{"addresses":[` + addr("1") + "," + addr("2") + "," + addr("3") + `],` + ports + `}]`
	note := `,"annotations":{"a":"b","holdfast/rules":"x=1"}`
	for _, c := range []struct {
		name, object, old string
		by                map[string]Decision
		ready, notReady   string
		note              string
		noPatch           bool
	}{
		{"nothing known", endpoints("", one), "", nil, "[10.0.0.1/1 10.0.0.2/2 10.0.0.3/3]", "[]", "", true},
		{"leave", endpoints("", one), "", map[string]Decision{"1": decided(rules.Leave, "l")}, "[10.0.0.1/1 10.0.0.2/2 10.0.0.3/3]", "[]", "", true},
		{"one not ready", endpoints("", one), "", map[string]Decision{"2": decided(rules.NotReady, "x")}, "[10.0.0.1/1 10.0.0.3/3]", "[10.0.0.2/2]", "x=1", false},
		{"already said", endpoints(note, one), "", map[string]Decision{"2": decided(rules.Ready, "x")}, "[10.0.0.1/1 10.0.0.2/2 10.0.0.3/3]", "[]", "x=1", true},
		{"the annotation is cleared", endpoints(note, one), "", nil, "[10.0.0.1/1 10.0.0.2/2 10.0.0.3/3]", "[]", "", false},
		{"all not ready", endpoints(note, one), "", map[string]Decision{"1": decided(rules.NotReady, "y"), "2": decided(rules.NotReady, "x"), "3": decided(rules.NotReady, "x")}, "[]", "[10.0.0.1/1 10.0.0.2/2 10.0.0.3/3]", "x=2,y=1", false},
		{"one dropped", endpoints("", one), "", map[string]Decision{"1": decided(rules.Drop, "x")}, "[10.0.0.2/2 10.0.0.3/3]", "[]", "x=1", false},
		{"all dropped", endpoints("", one), "", map[string]Decision{"1": decided(rules.Drop, "x"), "2": decided(rules.Drop, "x"), "3": decided(rules.Drop, "x")}, "[]", "[]", "x=3", false},
		{"a subset goes", endpoints("", `[{"addresses":[`+addr("1")+`],"ports":[{"name":"a","port":1}]},{"notReadyAddresses":[`+addr("2")+`],"ports":[{"port":2}]}]`), "",
			map[string]Decision{"1": decided(rules.Drop, "x")}, "[]", "[10.0.0.2/2]", "x=1", false},
		{"ready", endpoints("", `[{"notReadyAddresses":[`+addr("2")+","+addr("1")+`],`+ports+`}]`), "", map[string]Decision{"1": decided(rules.Ready, "x")}, "[10.0.0.1/1]", "[10.0.0.2/2]", "x=1", false},
		// An element must not inherit targetRef, hostname or nodeName of its index.
		{"no pod", endpoints("", `[{"addresses":[`+addr("1", `,"hostname":"h"`)+`,{"ip":"10.0.0.9"}],`+ports+`}]`), "", map[string]Decision{"1": decided(rules.NotReady, "x")}, "[10.0.0.9/]", "[10.0.0.1/1]", "x=1", false},
		{"behind, stays off", endpoints("", one), endpoints("", `[{"addresses":[`+addr("1")+`],"notReadyAddresses":[`+addr("2")+`]}]`),
			map[string]Decision{"1": {Known: true, Behind: true}, "2": {Known: true, Behind: true, Place: rules.Ready}, "3": {Known: true, Behind: true}}, "[10.0.0.1/1]", "[10.0.0.2/2 10.0.0.3/3]", "", false},
		{"behind, goes off", endpoints("", `[{"notReadyAddresses":[`+addr("1")+`]}]`), endpoints("", `[{"addresses":[`+addr("1")+`]}]`), map[string]Decision{"1": {Known: true, Behind: true}}, "[]", "[10.0.0.1/1]", "", true},
		{"no subsets", endpoints("", "null"), "", nil, "[]", "[]", "", true},
		{"unknown fields survive", endpoints(`,"future":{"a":1}`, `[{"addresses":[`+addr("1", `,"zone":"z"`)+`],"notReadyAddresses":null,"new":[1]}]`), "", map[string]Decision{"1": decided(rules.NotReady, "x")}, "[]", "[10.0.0.1/1]", "x=1", false},
	} {
		res, err := Do(request(c.object, c.old), &fake{by: c.by})
		if err != nil || res.Unpatchable != nil {
			t.Errorf("%s: %v, %v", c.name, err, res.Unpatchable)
			continue
		}
		ready, notReady, note := stored(t, c.object, res)
		if fmt.Sprint(ready) != c.ready || fmt.Sprint(notReady) != c.notReady || note != c.note || c.noPatch != (res.Patch == nil) {
			t.Errorf("%s: ready %v, not ready %v, note %q, patch %s", c.name, ready, notReady, note, res.Patch)
		}
		if c.name == "unknown fields survive" && !bytes.Contains(res.Patch, []byte(`"zone":"z"`)) {
			t.Errorf("%s: %s", c.name, res.Patch)
		}
		// What is stored once stays: the next request has no patch.
		if res.Patch != nil && c.old == "" {
			after, _ := apply19(c.object, res.Patch)
			raw, _ := json.Marshal(canonical(after))
			if again, err := Do(request(string(raw), ""), &fake{by: c.by}); err != nil || again.Unpatchable != nil || again.Patch != nil && !strings.Contains(c.name, "drop") && !strings.Contains(c.name, "goes") {
				t.Errorf("%s, again: %v %v %s", c.name, err, again.Unpatchable, again.Patch)
			}
		}
	}
}

// TestVerify: a patch of any other form is noticed.
func TestVerify(t *testing.T) {
	object := endpoints(`,"annotations":{"a":"b"}`, `[{"addresses":[`+addr("1")+","+addr("2")+`],"ports":[{"port":80}]}]`)
	o, err := parseObject(object)
	if err != nil {
		t.Fatal(err)
	}
	s := o.subsets[0]
	c := &change{o: o, note: "x=1", subsets: []subset{{s.node, s.ready[1:], s.ready[:1]}}}
	good, err := c.patch()
	if err != nil {
		t.Fatal(err)
	}
	for _, patch := range []string{
		`[{"op":"remove","path":"/subsets/0/addresses/0"}]`,
		`[{"op":"add","path":"/subsets/0/addresses","value":[` + addr("2") + `]}]`,
		`[{"op":"remove","path":"/subsets"}]`,
		`[{"op":"add","path":"/subsets","value":[]}]`,
		`[{"op":"add","path":"/subsets/7/addresses","value":[]}]`,
		`[{"op":"test","path":"/kind","value":"Pod"}]`,
		strings.Replace(string(good), `"value"`, `"valve"`, 1),
		strings.Replace(string(good), `10.0.0.1`, `10.0.0.77`, 1),
		strings.Replace(string(good), `"uid":"1"`, `"udi":"1"`, 1),
		strings.Replace(string(good), "[", "", 1),
	} {
		if patch == string(good) {
			t.Fatal("it changes nothing")
		}
		if err := c.verify(patch, true); err == nil {
			t.Errorf("%s passes", patch)
		}
	}
}

// TestInherit: what 1.9 makes of what is left out, as it was seen on the real one.
func TestInherit(t *testing.T) {
	for _, c := range []struct{ name, before, patch, want string }{
		{"a key that is removed stays", endpoints("", `[{"addresses":[{"ip":"1.1.1.1"}]}]`), `[{"op":"remove","path":"/subsets"}]`, endpoints("", `[{"addresses":[{"ip":"1.1.1.1"}]}]`)},
		{"an annotation that is removed stays", endpoints(`,"annotations":{"a":"b"}`, "[]"), `[{"op":"remove","path":"/metadata/annotations/a"}]`, endpoints(`,"annotations":{"a":"b"}`, "[]")},
		{"an element inherits", endpoints("", `[{"addresses":[{"ip":"1.1.1.1","nodeName":"n"}]}]`), `[{"op":"add","path":"/subsets/0/addresses","value":[{"ip":"2.2.2.2"}]}]`, endpoints("", `[{"addresses":[{"ip":"2.2.2.2","nodeName":"n"}]}]`)},
		{"null clears a pointer", endpoints("", `[{"addresses":[{"ip":"1.1.1.1","nodeName":"n"}]}]`), `[{"op":"add","path":"/subsets/0/addresses","value":[{"ip":"2.2.2.2","nodeName":null}]}]`, endpoints("", `[{"addresses":[{"ip":"2.2.2.2"}]}]`)},
		{"[] empties", endpoints("", `[{"addresses":[{"ip":"1.1.1.1"}]}]`), `[{"op":"add","path":"/subsets","value":[]}]`, endpoints("", "[]")},
	} {
		got, err := apply19(c.before, []byte(c.patch))
		want, _ := decode([]byte(c.want))
		if err != nil || !equal(canonical(got), canonical(want)) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

func TestSkips(t *testing.T) {
	lock := endpoints(`,"annotations":{"`+names.Leader+`":"x"}`, "[]")
	for name, c := range map[string]struct {
		req  *Request
		skip string
	}{
		"a lock":     {request(lock, ""), ""},
		"the judge":  {request(endpoints("", "[]"), ""), "no"},
		"a delete":   {&Request{Kind: "Endpoints", Operation: "DELETE"}, ""},
		"other kind": {&Request{Kind: "Pod", Operation: "UPDATE"}, ""},
	} {
		if res, err := Do(c.req, &fake{skip: c.skip}); err != nil || res.Skipped == "" || res.Patch != nil {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
}

func review(version, object, old string) string {
	if old == "" {
		old = "null"
	}
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/` + version + `","request":{"uid":"0a1b","kind":{"group":"","version":"v1","kind":"Endpoints"},"resource":{"group":"","version":"v1","resource":"endpoints"},"namespace":"d","name":"web","operation":"UPDATE","userInfo":{},"object":` + object + `,"oldObject":` + old + `}}`
}

// response is an answer as kube-apiserver reads it.
type response struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Response   struct {
		UID       string  `json:"uid"`
		Allowed   bool    `json:"allowed"`
		Patch     []byte  `json:"patch"`
		PatchType *string `json:"patchType"`
	} `json:"response"`
}

type seen struct{ outcomes []string }

func (s *seen) observe(o string, _ time.Duration, _ Result) { s.outcomes = append(s.outcomes, o) }

func post(h http.Handler, body string) (int, response) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/mutate", strings.NewReader(body)))
	var r response
	_ = json.Unmarshal(w.Body.Bytes(), &r)
	return w.Code, r
}

func TestHandler(t *testing.T) {
	object := endpoints("", `[{"addresses":[`+addr("1")+`]}]`)
	j := &fake{by: map[string]Decision{"1": decided(rules.NotReady, "x")}}
	s := &seen{}
	h := NewHandler(j, slog.New(slog.DiscardHandler), s.observe)
	for _, v := range []string{"v1beta1", "v1"} {
		code, r := post(h, review(v, object, ""))
		if code != 200 || !r.Response.Allowed || r.Response.UID != "0a1b" || r.APIVersion != "admission.k8s.io/"+v || *r.Response.PatchType != "JSONPatch" || !bytes.Contains(r.Response.Patch, []byte("notReadyAddresses")) {
			t.Errorf("%s: %d %+v", v, code, r)
		}
	}
	for body, outcome := range map[string]string{
		"":     Bad,
		"{":    Bad,
		"null": Bad,
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v2","request":{"uid":"a"}}`: Bad,
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`:                       Bad,
	} {
		if code, _ := post(h, body); code != 400 || s.outcomes[len(s.outcomes)-1] != outcome {
			t.Errorf("%q: %d %v", body, code, s.outcomes)
		}
	}
	if code, r := post(h, review("v1", `{"subsets":3}`, "")); code != 200 || !r.Response.Allowed || r.Response.Patch != nil || s.outcomes[len(s.outcomes)-1] != Bad {
		t.Errorf("an object of another form: %d %+v %v", code, r, s.outcomes)
	}
}

func TestLimits(t *testing.T) {
	object := endpoints("", `[{"addresses":[`+addr("1")+`]}]`)
	j := &fake{by: map[string]Decision{"1": decided(rules.NotReady, "x")}, sleep: 300 * time.Millisecond}
	s := &seen{}
	h := NewHandler(j, slog.New(slog.DiscardHandler), s.observe)
	h.Deadline = 50 * time.Millisecond
	check := func(outcome string) {
		t.Helper()
		start := time.Now()
		code, r := post(h, review("v1", object, ""))
		if code != 200 || !r.Response.Allowed || r.Response.UID != "0a1b" || r.APIVersion != V1 || r.Response.Patch != nil || s.outcomes[len(s.outcomes)-1] != outcome || time.Since(start) > 250*time.Millisecond {
			t.Errorf("%s: %d %+v %v after %v", outcome, code, r, s.outcomes, time.Since(start))
		}
	}
	check(TooLate)
	h.slots = make(chan struct{}, 1)
	check(TooLate)
	check(TooMany)
	h.slots, h.MaxBody = make(chan struct{}, 1), 100
	check(TooLarge)
	if len(h.slots) != 0 {
		t.Error("a body that is too large keeps its slot")
	}
}

func FuzzReview(f *testing.F) {
	f.Add(review("v1beta1", endpoints("", `[{"addresses":[`+addr("1")+","+addr("2")+`],"ports":[{"port":80}]}]`), ""))
	f.Add(review("v1", endpoints(`,"annotations":{"a":"b"}`, `[{"notReadyAddresses":[`+addr("2")+`]},{"addresses":[`+addr("3")+`]}]`), endpoints("", "[]")))
	f.Add(review("v1", `{"metadata":null,"subsets":[{"addresses":[{"ip":"1.1.1.1"},{"targetRef":{"kind":"Pod","uid":"1"}}]}]}`, "3"))
	j := &fake{by: map[string]Decision{"1": decided(rules.NotReady, "x"), "2": decided(rules.Drop, "y"), "3": {Known: true, Behind: true}}}
	// No HTTP: its goroutines and timers make coverage differ from run to run, and the
	// fuzzer then spends its time on making inputs smaller that are not new at all.
	h := NewHandler(j, slog.New(slog.DiscardHandler), func(string, time.Duration, Result) {})
	f.Fuzz(func(t *testing.T, body string) {
		a := h.judge(body)
		if a.status == 400 {
			return
		}
		var r response
		if err := json.Unmarshal(a.body, &r); err != nil || a.status != 200 || !r.Response.Allowed {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if r.Response.Patch == nil {
			return
		}
		// Every patch that goes out applies as 1.9 applies it, and loses no address
		// but those that are dropped.
		in, err := Parse(body)
		if err != nil {
			t.Fatal(err)
		}
		before, err := parseObject(in.Request.Object)
		if err != nil {
			t.Fatal(err)
		}
		after, err := apply19(in.Request.Object, r.Response.Patch)
		if err != nil {
			t.Fatalf("%v: %s", err, base64.StdEncoding.EncodeToString(r.Response.Patch))
		}
		raw, _ := json.Marshal(after)
		o, err := parseObject(string(raw))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := ips(o, ""), ips(before, "2"); !slices.Equal(got, want) {
			t.Fatalf("addresses %v, want %v", got, want)
		}
	})
}

func ips(o *endpointsObject, without string) []string {
	var out []string
	for _, s := range o.subsets {
		for _, a := range append(slices.Clone(s.ready), s.notReady...) {
			if uid := addressOf(a).UID; without == "" || uid != without {
				out = append(out, a.text("ip")+"/"+uid)
			}
		}
	}
	slices.Sort(out)
	return out
}
