// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rollingupdates

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
)

// served is what the pods of an app are and answer.
type served struct {
	App, Version string
	Images       []string // of the pods
	Answers      []string // of the ready addresses
}

// fault says what is wrong, "" if nothing is.
func (o served) fault() string {
	image := node.WebImage(o.Version)
	if len(o.Images) != replicas || slices.ContainsFunc(o.Images, func(i string) bool { return i != image }) {
		return fmt.Sprintf("%s: the pods have the images %q, want %d of %s", o.App, o.Images, replicas, image)
	}
	pods := map[string]bool{}
	for _, a := range o.Answers {
		version, pod, _ := strings.Cut(a, " ")
		if version != o.Version {
			return fmt.Sprintf("%s: an address answers %q, want %s", o.App, a, o.Version)
		}
		pods[pod] = true
	}
	if len(pods) != replicas {
		return fmt.Sprintf("%s: %d pods answer, want %d", o.App, len(pods), replicas)
	}
	return ""
}

// ran is a command of kubectl that has ended.
type ran struct {
	Name   string
	Exit   int
	Output string
}

// asked is a request of the API.
type asked struct {
	Name string
	Code int
	Body string
}

// loaded is the load on an app's addresses.
type loaded struct {
	App  string
	Load load.Report
	Gaps int // in what the load knew of the addresses
}

// killed are the ReplicationControllers, with their replicas, when rolling-update was
// killed; finished, when the one after it had ended.
type (
	killed   struct{ Replicas map[string]int64 }
	finished struct{ Replicas map[string]int64 }
)

// Names of commands and requests.
const (
	rollingUpdate = "rolling-update"
	otherImage    = "rolling-update to another image while one is in progress"
	resumed       = "rolling-update again"
	create        = "create --record"
	applied       = "apply --record"
	status        = "rollout status"
	histories     = "rollout history"
	undone        = "rollout undo"
	undoneTo      = "rollout undo --to-revision"
	strategic     = "strategic merge patch"
	mergePatch    = "merge patch"
	jsonPatch     = "JSON patch"
	rolledBack    = "rollback"
)

// commands are how each ends, and what it has to print.
var commands = []struct {
	name string
	exit int
	says string
}{
	{rollingUpdate, 0, "Update succeeded"},
	{otherImage, 1, "Found existing in-progress update"},
	{resumed, 0, "Update succeeded"},
	{create, 0, "created"},
	{applied, 0, "configured"},
	{status, 0, "successfully rolled out"},
	{histories, 0, "kubectl apply"},
	{undone, 0, "web"},
	{undoneTo, 0, "web"},
}

// versions are what is served, in this order.
var versions = []string{"rc v1", "rc v2", "rc v1", "web v1", "web v2", "web v1", "web v2", "web v1", "web v2", "web v1", "web v2"}

// newest is the last revision that rollout history lists.
func newest(out string) string {
	last := ""
	for _, l := range strings.Split(out, "\n") {
		if f := strings.Fields(l); len(f) > 0 && strings.Trim(f[0], "0123456789") == "" {
			last = f[0]
		}
	}
	return last
}

var oracle = labkit.Oracle{
	Text: []string{
		"each command ends with the expected status and message; each PATCH answers 200, the rollback 201 with a Status of success and code 200",
		"after each rollout 3 pods serve the version; one ReplicationController is left; when the update was killed, both ReplicationControllers had replicas",
		"no request of the load fails",
	},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	var wrong, facts, seen []string
	bad := func(format string, a ...any) { wrong = append(wrong, fmt.Sprintf(format, a...)) }
	for _, o := range history.Of[served](h) {
		seen = append(seen, o.App+" "+o.Version)
		if f := o.fault(); f != "" {
			bad("%s", f)
		}
	}
	whole := slices.Equal(seen, versions)
	byName := map[string]ran{}
	for _, o := range history.Of[ran](h) {
		byName[o.Name] = o
	}
	for _, c := range commands {
		o, ok := byName[c.name]
		whole = whole && ok
		if ok && (o.Exit != c.exit || !strings.Contains(o.Output, c.says)) {
			bad("kubectl %s ends with status %d, want %d and %q: %.300s", c.name, o.Exit, c.exit, c.says, o.Output)
		}
	}
	answers := map[string]asked{}
	for _, o := range history.Of[asked](h) {
		answers[o.Name] = o
	}
	for _, name := range []string{strategic, mergePatch, jsonPatch, rolledBack} {
		o, ok := answers[name]
		whole = whole && ok
		switch {
		case !ok:
		case name == rolledBack && !success(o):
			bad("the rollback answers %d: %.300s", o.Code, o.Body)
		case name != rolledBack && o.Code != 200:
			bad("the %s answers %d: %.300s", name, o.Code, o.Body)
		}
	}
	loads := map[string]bool{}
	requests := 0
	for _, o := range history.Of[loaded](h) {
		loads[o.App] = true
		requests += o.Load.OK + o.Load.Failed
		facts = append(facts, fmt.Sprintf("%s: %v", o.App, o.Load))
		if o.Load.OK == 0 || o.Gaps > 0 {
			return labkit.InconclusiveBecause("the load on %s had %d answers and its addresses %d gaps", o.App, o.Load.OK, o.Gaps)
		}
		if o.Load.Failed > 0 {
			bad("%s lost requests: %v", o.App, o.Load)
		}
	}
	halfway, ended := history.Of[killed](h), history.Of[finished](h)
	whole = whole && len(halfway) == 1 && len(ended) == 1 && loads["rc"] && loads["web"]
	for _, o := range halfway {
		if len(o.Replicas) != 2 || o.Replicas["rc"] == 0 {
			return labkit.InconclusiveBecause("rolling-update was not killed half-way: %v", o.Replicas)
		}
	}
	for _, o := range ended {
		if len(o.Replicas) != 1 || o.Replicas["rc"] != replicas {
			bad("after rolling-update there are the ReplicationControllers %v", o.Replicas)
		}
	}
	var res labkit.Outcome
	switch {
	case len(wrong) > 0:
		res = labkit.FailedBecause("%s", strings.Join(wrong, "; "))
	case !whole:
		res = labkit.InconclusiveBecause("not all observations were recorded: served %q", seen)
	default:
		res = labkit.PassedBecause("%d rollouts, %d requests, none failed", len(versions)-2, requests)
	}
	res.Facts = facts
	res.Measure("requests", float64(requests), "")
	return res
}

// success says whether a rollback's answer is one: HTTP 201, as stock, with a Status
// whose code is 200.
func success(o asked) bool {
	var s struct {
		Kind, Status string
		Code         int
	}
	return o.Code == 201 && json.Unmarshal([]byte(o.Body), &s) == nil && s.Kind == "Status" && s.Status == "Success" && s.Code == 200
}
