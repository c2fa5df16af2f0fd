// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
)

// Told is a container as forecast -o json of kubectl-holdfast has it. Pod is namespace/name, Answer
// kept, new or "?".
type Told struct{ Pod, Container, ID, Answer string }

// Answer is what a run of kubectl-holdfast with -o json has printed.
type Answer struct {
	// Plan is its lines that are JSON, as verify --plan takes them.
	Plan string
	// Told are the containers, Codes those of the findings.
	Told  []Told
	Codes []string
}

// ParseAnswer reads what such a run has printed; what is no JSON is left out.
func ParseAnswer(out string) Answer {
	var a Answer
	for line := range strings.Lines(out) {
		var o struct {
			Kind, Code, Pod, Container, Answer string
			ID                                 string `json:"containerID"`
		}
		if json.Unmarshal([]byte(line), &o) != nil {
			continue
		}
		a.Plan += line
		switch o.Kind {
		case "container":
			a.Told = append(a.Told, Told{o.Pod, o.Container, o.ID, o.Answer})
		case "finding":
			a.Codes = append(a.Codes, o.Code)
		}
	}
	return a
}

// target is p as forecast's --to has it. Without a fix, and with its gate off, p is to keep no more than
// upstream's kubelet.
func target(p kube.Program) string {
	if p.Variant == labkit.Ours && len(p.Gates) == 0 {
		return "holdfast"
	}
	return strings.TrimPrefix(p.Base, "v")
}

// Forecast asks kubectl-holdfast what becomes of a node's containers when its kubelet is replaced
// by p. It asks again for a minute until the node has answered everything.
func Forecast(ctx context.Context, e *labkit.Env, server, node string, p kube.Program) ([]Told, error) {
	return forecast(ctx, e, server, node, target(p))
}

// FalseForecast is the forecast for another kubelet than p: upstream's for Holdfast's, and the
// reverse. It is a control: NotAsTold must notice it.
func FalseForecast(ctx context.Context, e *labkit.Env, server, node string, p kube.Program) ([]Told, error) {
	if target(p) == "holdfast" {
		return forecast(ctx, e, server, node, strings.TrimPrefix(p.Base, "v"))
	}
	return forecast(ctx, e, server, node, "holdfast")
}

// All is a forecast that gives each container the same answer, which is a control too.
func All(told []Told, answer string) []Told {
	out := slices.Clone(told)
	for i := range out {
		out[i].Answer = answer
	}
	return out
}

func forecast(ctx context.Context, e *labkit.Env, server, node, to string) ([]Told, error) {
	pki, err := e.GetPKI()
	if err != nil {
		return nil, err
	}
	kubeconfig, err := pki.Kubeconfig("forecast", server, "admin", "system:masters")
	if err != nil {
		return nil, err
	}
	program, err := e.Holdfast()
	if err != nil {
		return nil, err
	}
	var a Answer
	err = wait.Until(ctx, "kubectl-holdfast forecast gets all answers of "+node, time.Minute, func(ctx context.Context) (bool, error) {
		out, err := exec.CommandContext(ctx, program, "forecast", "--kubeconfig", kubeconfig, "--node", node, "--to", to, "-o", "json").Output()
		e.Logf("kubectl-holdfast forecast --to %s: %v\n%s", to, err, out)
		var status *exec.ExitError
		if err != nil && !(errors.As(err, &status) && status.ExitCode() == 3) { // 3: it has found something
			return false, err
		}
		if a = ParseAnswer(string(out)); slices.Contains(a.Codes, notAsked) {
			return false, errors.New(notAsked + ": forecast did not get all answers of the node")
		}
		return true, nil
	})
	return a.Told, err
}

// notAsked is the code of what a busy node or API server did not answer in time.
const notAsked = "HF002"

// NotAsTold says in what a swap was not as the forecast had told: each container of before that is
// no sandbox must be told, and be kept or another as told. What becomes of those that are left open
// is not compared; nil leaves none.
func NotAsTold(told []Told, before, after Snapshot, open func(Told) bool) (wrong []string) {
	bad := func(format string, a ...any) { wrong = append(wrong, fmt.Sprintf(format, a...)) }
	left := maps.Clone(before)
	for _, t := range told {
		key := t.Pod + "/" + t.Container
		delete(left, key)
		b, a := before[key], after[key]
		if b.ID == "" || b.ID != t.ID {
			bad("the forecast names %.12s for %s, and %.12s ran", t.ID, key, b.ID)
			continue
		}
		if open != nil && open(t) {
			continue
		}
		is := "new"
		switch {
		case a.ID == b.ID && a.StartedAt == b.StartedAt:
			is = "kept"
		case a.ID == "":
			is = "gone"
		}
		if is != t.Answer {
			bad("the forecast for %s was %s, but it is %s", key, t.Answer, is)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(left)) {
		if !left[key].Sandbox {
			bad("the forecast does not name %s", key)
		}
	}
	return wrong
}
