// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package containerhashcompat

import (
	"fmt"
	"path"
	"slices"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/kubeletlab"
)

// from17 and from111 are the labs' setups.
var from17, from111 = setups["v1.9.11"], setups["v1.12.10"]

// chainOf is a short history in which every swap went well, with change applied to the i-th.
func chainOf(v labkit.Variant, at int, change func(*swapped)) *history.History {
	return from17.made(v, labkit.Short, at, change)
}

// profile is chainOf in that profile.
func profile(v labkit.Variant, p labkit.Profile, at int, change func(*swapped)) *history.History {
	return from17.made(v, p, at, change)
}

// made is such a history of a setup.
func (on setup) made(v labkit.Variant, p labkit.Profile, at int, change func(*swapped)) *history.History {
	var all []any
	for i, s := range on.chain(v, p) {
		o := swapped{Step: i, Name: fmt.Sprint("swap ", i), Judged: s.judged(), Before: kubeletlab.Snapshot{}, After: kubeletlab.Snapshot{},
			CountsBefore: map[string]int64{}, CountsAfter: map[string]int64{}, Changes: int64(i + 1), HostPorts: map[string]string{}}
		for _, k := range on.kinds(v, p) {
			key := ns + "/" + k.name + "/main"
			o.Before[key] = kubeletlab.Container{ID: "a", StartedAt: "1", Pod: k.name}
			o.After[key] = o.Before[key]
			if on.ignored(k) && i == 0 || k.name == changed {
				o.After[key] = kubeletlab.Container{ID: "b", StartedAt: "2", Pod: k.name}
			}
			if k.hostPort != 0 {
				o.HostPorts[k.name] = ""
			}
		}
		o.CountsAfter[changed+"/main"] = o.Changes
		if i == at && change != nil {
			change(&o)
		}
		if o.Forecast == nil {
			o.Forecast = told(o)
		}
		if on.byProgram(v, p) && o.By == nil {
			o.By = &kubeletlab.Swapped{Command: "node swap", Kept: len(kubeletlab.Compare(o.Before, o.After, func(_ string, c kubeletlab.Container) bool { return !c.Sandbox }).Kept)}
		}
		if o.False == nil { // each container is another than this says
			o.False = told(o)
			for i := range o.False {
				o.False[i].Answer = map[string]string{"kept": "new", "new": "kept"}[o.False[i].Answer]
			}
		}
		all = append(all, o)
	}
	name := of(on.base).Name
	if on.base == from111.base {
		name = labkit.OnBase(of, on.base).Name
	}
	return history.Make(history.Begin{Lab: name, Variant: string(v), Profile: string(p)}, all...)
}

// told is a forecast that comes true.
func told(s swapped) []kubeletlab.Told {
	all := []kubeletlab.Told{}
	for key, c := range s.Before {
		if c.Sandbox {
			continue
		}
		answer := "new"
		if s.After[key] == c {
			answer = "kept"
		}
		all = append(all, kubeletlab.Told{Pod: path.Dir(key), Container: path.Base(key), ID: c.ID, Answer: answer})
	}
	return all
}

// answer has the forecast say this of the pod plain, which is kept, and what comes true of the others.
func answer(s *swapped, is string) {
	s.Forecast = told(*s)
	i := slices.IndexFunc(s.Forecast, func(t kubeletlab.Told) bool { return t.Pod == ns+"/plain" })
	s.Forecast[0], s.Forecast[i] = s.Forecast[i], s.Forecast[0]
	s.Forecast[0].Answer = is
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "container-hash-compat")
	judgetest.Cut(t, l, chainOf(labkit.Ours, 0, nil))
	judgetest.Cut(t, l, chainOf(labkit.Stock, 0, nil))
	const plain = ns + "/plain/main"
	anew := func(s *swapped) { s.After[plain] = kubeletlab.Container{ID: "z"} }
	judgetest.Judge(t, l, chainOf(labkit.Ours, 0, anew), labkit.Reproduced)
	judgetest.Judge(t, l, chainOf(labkit.Ours, 1, anew), labkit.Reproduced)              // back to an old kubelet
	judgetest.Judge(t, l, profile(labkit.Ours, labkit.Long, 3, anew), labkit.Absent)     // among old kubelets
	judgetest.Judge(t, l, profile(labkit.Ours, labkit.Long, 5, anew), labkit.Reproduced) // back to 1.8.15
	judgetest.Judge(t, l, chainOf(labkit.Stock, 0, anew), labkit.Reproduced)
	for what, change := range map[string]func(*swapped){
		"gone":               func(s *swapped) { delete(s.After, plain) },
		"started again":      func(s *swapped) { s.After[plain] = kubeletlab.Container{ID: "a", StartedAt: "2"} },
		"a sandbox":          func(s *swapped) { s.Before[ns+"/plain/POD"] = kubeletlab.Container{ID: "p", Sandbox: true} },
		"restart count":      func(s *swapped) { s.CountsAfter["plain/main"] = 1 },
		"control not once":   func(s *swapped) { s.CountsAfter[changed+"/main"]++ },
		"control not at all": func(s *swapped) { s.After[ns+"/"+changed+"/main"] = s.Before[ns+"/"+changed+"/main"] },
		"host port": func(s *swapped) {
			for k := range s.HostPorts {
				s.HostPorts[k] = "refused"
			}
		},
	} {
		t.Log(what)
		judgetest.Judge(t, l, chainOf(labkit.Ours, 0, change), labkit.Reproduced)
	}
	for what, change := range map[string]func(*swapped){
		"told to be new":  func(s *swapped) { answer(s, "new") },
		"not known":       func(s *swapped) { answer(s, "?") },
		"not named":       func(s *swapped) { s.Forecast = []kubeletlab.Told{} },
		"miscounted":      func(s *swapped) { s.By = &kubeletlab.Swapped{Command: "node swap", Kept: 1} },
		"another is told": func(s *swapped) { answer(s, "kept"); s.Forecast[0].ID = "z" },
		"told to be kept": func(s *swapped) { answer(s, "kept"); anew(s) },
	} {
		t.Log(what)
		judgetest.Judge(t, l, chainOf(labkit.Ours, 1, change), labkit.Reproduced)
		judgetest.Judge(t, l, profile(labkit.Ours, labkit.Long, 3, change), labkit.Reproduced) // among old kubelets
		judgetest.Judge(t, l, chainOf(labkit.Stock, 0, change), labkit.Inconclusive)
	}
	static := func(name string) func(s *swapped) {
		return func(s *swapped) {
			key := ns + "/static-node1/main"
			s.Name, s.Before[key] = name, kubeletlab.Container{ID: "s", StartedAt: "1", Pod: "static-node1"}
			s.After[key] = s.Before[key]
			s.Forecast = told(*s)
			i := slices.IndexFunc(s.Forecast, func(t kubeletlab.Told) bool { return isStatic(t.Pod) })
			s.Forecast[i].Answer = "?"
		}
	}
	judgetest.Judge(t, l, chainOf(labkit.Ours, 1, static("ours → v1.7.0")), labkit.Absent)
	judgetest.Judge(t, l, chainOf(labkit.Ours, 0, static("v1.7.0 → ours")), labkit.Reproduced)
	for what, c := range map[string]*history.History{
		// The control is as true as the forecast in all swaps.
		"the false one is true": chainOf(labkit.Stock, 0, func(s *swapped) { s.False = told(*s) }),
		// Nothing but the pod whose image changes was recreated.
		"kept is true": chainOf(labkit.Stock, 0, func(s *swapped) {
			for key := range s.After {
				if key != ns+"/"+changed+"/main" {
					s.After[key] = s.Before[key]
				}
			}
		}),
		"no host port asked": chainOf(labkit.Ours, 0, func(s *swapped) { s.HostPorts = nil }),
		"nothing ran":        chainOf(labkit.Ours, 0, func(s *swapped) { s.Before = nil }),
		"not compared": profile(labkit.Ours, labkit.Long, 3, func(s *swapped) {
			s.After[ns+"/"+changed+"/main"] = s.Before[ns+"/"+changed+"/main"]
		}),
	} {
		t.Log(what)
		judgetest.Judge(t, l, c, labkit.Inconclusive)
	}
	// What one swap of ours did stays, whatever the next one cannot tell.
	h := chainOf(labkit.Ours, 0, anew)
	all := history.Of[swapped](h)
	all[1].Before = nil
	judgetest.Judge(t, l, history.Make(h.Begin, all[0], all[1]), labkit.Reproduced)
	judgetest.Judge(t, l, history.Make(h.Begin, all[0]), labkit.Reproduced)
	stock := h.Begin
	stock.Variant = string(labkit.Stock)
	judgetest.Judge(t, l, history.Make(stock, all[0], all[1]), labkit.Inconclusive)
}

// TestJudgeFrom111: stock 1.12 recreates the containers of 1.11 that have a securityContext.
func TestJudgeFrom111(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "container-hash-compat-v1.12.10")
	judgetest.Cut(t, l, from111.made(labkit.Ours, labkit.Short, 0, nil))
	judgetest.Judge(t, l, from111.made(labkit.Ours, labkit.Short, 0, nil), labkit.Absent)
	judgetest.Judge(t, l, from111.made(labkit.Ours, labkit.Long, 0, nil), labkit.Absent)
	judgetest.Judge(t, l, from111.made(labkit.Stock, labkit.Short, 0, nil), labkit.Absent)
	anew := func(pods ...string) func(*swapped) {
		return func(s *swapped) {
			for _, pod := range pods {
				s.After[ns+"/"+pod+"/main"] = kubeletlab.Container{ID: "z"}
			}
		}
	}
	same := func(pod string) func(*swapped) {
		return func(s *swapped) { s.After[ns+"/"+pod+"/main"] = s.Before[ns+"/"+pod+"/main"] }
	}
	stock, ours := labkit.Stock, labkit.Ours
	for what, tc := range map[string]struct {
		v      labkit.Variant
		at     int
		change func(*swapped)
		want   labkit.Verdict
	}{
		"the incident":             {stock, 0, anew("privileged", "proc-mount-default"), labkit.Reproduced},
		"a plain one too":          {stock, 0, anew("privileged", "plain"), labkit.Inconclusive},
		"one whose pod has one":    {stock, 0, anew("pod-security"), labkit.Inconclusive},
		"gate off":                 {labkit.GateOff, 0, anew("privileged"), labkit.Reproduced},
		"ours, secured":            {ours, 0, anew("privileged"), labkit.Reproduced},
		"ours, plain":              {ours, 0, anew("plain"), labkit.Reproduced},
		"ours, back":               {ours, 1, anew("by-ours-run-as-user"), labkit.Absent}, // it was not there before
		"ours, back, of 1.11":      {ours, 1, anew("run-as-group"), labkit.Reproduced},
		"Unmasked is kept":         {ours, 0, same("proc-mount"), labkit.Reproduced},
		"Unmasked, by 1.11, again": {ours, 1, anew("proc-mount"), labkit.Absent},
		"Default is new":           {ours, 0, anew("proc-mount-default"), labkit.Reproduced},
	} {
		t.Log(what)
		judgetest.Judge(t, l, from111.made(tc.v, labkit.Short, tc.at, tc.change), tc.want)
	}
}
