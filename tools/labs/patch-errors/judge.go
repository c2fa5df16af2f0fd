// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package patcherrors

import (
	"encoding/json"
	"fmt"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// answered is the answer to a patch of the table, by its name.
type answered struct {
	Patch string
	Code  int
	Body  string
}

// rolledBack is the answer to a rollback of the table, and the Deployments that went
// back to their template of before.
type rolledBack struct {
	Version  string // of the API
	Rollback rollback
	Code     int
	Body     string
	Reached  []string
}

// fatally is what became of the kube-apiserver at a patch of fatals.
type fatally struct {
	Patch string // its Name
	Ended bool
	Code  int // of the answer; 0 if there was none
	Body  string
	Later int // status of /healthz after it; 0 if there was none
}

// printed is what kubectl v1.9.11 did when its JSON patch did not apply.
type printed struct {
	Exit   int
	Output string
}

// message is that of a Status, "" if body is not one of a failure with that code and
// a reason.
func message(body string, code int) string {
	var s struct {
		Kind, Status, Message, Reason string
		Code                          int
	}
	if json.Unmarshal([]byte(body), &s) != nil || s.Kind != "Status" || s.Status != "Failure" || s.Code != code || s.Reason == "" {
		return ""
	}
	return s.Message
}

var oracle = labkit.Oracle{
	Text: []string{
		"each bad patch gets 400 or 422 with a Status that has a reason and a message; good patches get 200, and all others the same answer as with stock",
		"kubectl v1.9.11 prints why its patch does not apply",
		"a rollback reaches only the Deployment that its URL names; it gets 400 for another name in the body, and 404 if the Deployment does not exist",
		"the kube-apiserver keeps running after each patch that makes stock exit",
	},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	var bad, facts []string
	odd := ""     // what neither stock nor ours should answer
	missing := "" // what was not tried; it hides nothing that was
	wrong, reached := 0, 0
	seen := map[string]answered{}
	for _, a := range history.Of[answered](h) {
		seen[a.Patch] = a
	}
	for _, p := range patches {
		a, ok := seen[p.Name]
		switch {
		case !ok:
			missing = p.Name
		case a.Code == p.Want && (a.Code == 200 || message(a.Body, a.Code) != ""):
		case a.Code == 500 && !p.Same:
			if wrong++; wrong == 1 {
				bad = append(bad, p.Name+" answers 500")
			}
		default:
			odd = fmt.Sprintf("%s answers %d: %.200s", p.Name, a.Code, a.Body)
		}
	}
	at := map[string]rolledBack{}
	for _, o := range history.Of[rolledBack](h) {
		at[fmt.Sprint(o.Version, o.Rollback.User, o.Rollback.URL, o.Rollback.Body)] = o
	}
	for _, v := range versions {
		for _, r := range rollbacks {
			what := fmt.Sprintf("%s: rollback by %s, URL %s, body %s", v, r.User, r.URL, r.Body)
			o, ok := at[fmt.Sprint(v, r.User, r.URL, r.Body)]
			got := strings.Join(o.Reached, " and ")
			switch {
			case !ok:
				missing = what
			case o.Code == r.Want && got == r.Reaches && (o.Code == 201 || message(o.Body, o.Code) != ""):
			case o.Code == 201 && got != "" && got == r.StockReaches && r.Reaches == "":
				reached++
				bad = append(bad, fmt.Sprintf("%s: %s is rolled back", what, got))
			default:
				odd = fmt.Sprintf("%s gets %d, and %q is rolled back: %.200s", what, o.Code, got, o.Body)
			}
		}
	}
	said := history.Of[printed](h)
	if len(said) != 1 {
		missing = "kubectl's patch"
	}
	for _, k := range said {
		if k.Exit != 1 || !strings.Contains(k.Output, failedTest) {
			odd = fmt.Sprintf("kubectl ends with status %d and prints %.300q", k.Exit, k.Output)
		}
	}
	ends, tried := 0, map[string]fatally{}
	for _, f := range history.Of[fatally](h) {
		tried[f.Patch] = f
	}
	for _, p := range fatals {
		f, ok := tried[p.Name]
		switch {
		case !ok:
			missing = p.Name
		case f.Ended:
			ends++
			bad = append(bad, fmt.Sprintf("%s, of %d bytes, makes the kube-apiserver exit", p.Name, len(p.Body)))
		case f.Code != p.Want || f.Code != 200 && message(f.Body, f.Code) == "" || f.Later != 200:
			odd = fmt.Sprintf("%s answers %d, /healthz after it %d: %.200s", p.Name, f.Code, f.Later, f.Body)
		}
	}
	facts = append(facts, fmt.Sprintf("bad patches that answer 500: %d of %d", wrong, count()),
		fmt.Sprintf("rollbacks of a Deployment that the URL does not name: %d", reached), fmt.Sprintf("patches that end the kube-apiserver: %d of %d", ends, len(fatals)))
	var res labkit.Outcome
	switch all := wrong == count() && reached == 2*len(versions) && ends == len(fatals); {
	case missing != "" && (len(bad) == 0 || h.Variant != string(labkit.Ours)):
		res = labkit.InconclusiveBecause("%s was not sent", missing)
	case odd != "" && (len(bad) == 0 || h.Variant != string(labkit.Ours)):
		res = labkit.InconclusiveBecause("%s", odd)
	case len(bad) == 0:
		res = labkit.AbsentBecause("%d bad patches get 400 or 422, no rollback reaches another Deployment, the kube-apiserver keeps running", count())
	case !all && h.Variant != string(labkit.Ours):
		res = labkit.InconclusiveBecause("only some of the faults occurred: %s", strings.Join(bad, "; "))
	default:
		res = labkit.ReproducedBecause("%s", strings.Join(bad, "; "))
	}
	res.Facts = facts
	res.Measure("bad patches that answer 500", float64(wrong), "")
	res.Measure("rollbacks of a Deployment that the URL does not name", float64(reached), "")
	res.Measure("patches that end the kube-apiserver", float64(ends), "")
	return res
}

// count is the number of bad patches.
func count() int {
	n := 0
	for _, p := range patches {
		if !p.Same {
			n++
		}
	}
	return n
}
