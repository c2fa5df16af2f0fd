// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance is the checks conformance, conformance-swap and conformance-node:
// upstream's own conformance specs on a cluster whose controller manager and kubelets
// are the ones under test, and those of its node suite on one kubelet.
package conformance

import (
	"context"
	"fmt"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/registry"
)

const (
	base     = "v1.9.11"
	allSpecs = `\[Conformance\]`
	serial   = `\[Serial\]`
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return append(conformanceLabs(), nodeLab())
}

func conformanceLabs() []labkit.Lab {
	needs := labkit.ManagerNeeds(base,
		labkit.StockBinary(base, "kube-scheduler"), labkit.StockBinary(base, "kube-proxy"), labkit.StockBinary(base, "kubectl"), labkit.StockBinary(base, "ginkgo"), labkit.StockBinary(base, "e2e.test"), labkit.BinaryUnderTest(base, "kubelet"))
	for _, p := range programs {
		needs = append(needs, labkit.StockBinary(base, p.binary))
	}
	bound := func(p labkit.Profile) time.Duration { return labkit.Pick(p, 20*time.Minute, 150*time.Minute) }
	oracle := []string{"each spec that the suite plans has run and passed, in the first run or when run again alone; each spec that skips itself has its reason in specs.json; " +
		"the planned specs have the number and the sum in specs.json"}
	return []labkit.Lab{{
		Name: "conformance", Folder: "checks/conformance",
		Summary: "upstream's own conformance specs pass on two nodes (PROFILE=short: the specs closest to the patches)",
		Steps:   func(e *labkit.Env) []labkit.Step { return steps(e, false) },
		Oracle:  labkit.Oracle{Text: oracle, Judge: clusterSuite.judge},
		Needs:   needs, Packages: packages, Timeout: bound, OnRequest: true,
	}, {
		Name: "conformance-swap", Folder: "checks/conformance",
		Summary: "the same while controller manager and kubelets are swapped from stock to Holdfast and back",
		Steps:   func(e *labkit.Env) []labkit.Step { return steps(e, true) },
		Oracle: labkit.Oracle{Text: append(oracle, "controller manager and both kubelets were swapped from stock to Holdfast and back while specs ran"),
			Judge: judgeSwap},
		Needs: append([]labkit.Binary{labkit.StockBinary(base, "kube-controller-manager"), labkit.StockBinary(base, "kubelet")}, needs...),
		// Ours is the binary in the middle.
		Variants: []labkit.Variant{labkit.Ours},
		Packages: packages, Timeout: bound, OnRequest: true,
	}}
}

// parallel is how many specs run side by side.
const parallel = 4

// again is how many failed specs are run again, alone; more are not overload.
const again = 10

// planned is what the suite says it would run, by a dry run. A name may come twice.
type planned struct{ Specs []string }

// Results of a spec.
const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
)

type spec struct {
	Name, Result string
	Seconds      float64
	Failure      string `json:",omitempty"` // its first lines
}

// ran is one call of ginkgo.
type ran struct {
	Pass    string // of suite.passes, or passAgain
	Exit    string // "" for status 0
	Seconds float64
	Specs   []spec
}

const (
	passParallel = "parallel"
	passSerial   = "serial"
	passAgain    = "again"
)

// swapped is the whole control plane and node side now being another build.
type swapped struct {
	To string
	// Begun and Of are the specs that had begun then, and all of the pass.
	Begun, Of int
	// During: the pass had not ended when the last kubelet was there.
	During bool
}

// alive says that all components ran in the end.
type alive struct{ Nodes int }

func steps(e *labkit.Env, swap bool) []labkit.Step {
	s := &lab{e: e, images: registry.New(), suite: clusterSuite, swap: swap}
	which := labkit.Pick(e.Profile, "the specs closest to the patches (specs.json)", "all")
	first := labkit.Step{Text: fmt.Sprintf("run them, %d at a time", parallel), Do: s.parallel}
	if swap {
		first.Text += "; after a third of them swap the controller manager and the kubelets to Holdfast, after two thirds back to stock"
	}
	all := []labkit.Step{
		{Text: "build the images that the specs run, from upstream's test programs and Debian's programs, and serve them from a registry", Do: s.registry},
		{Text: "start etcd, kube-apiserver, kube-scheduler, the controller manager and two nodes with the kubelet", Do: s.start},
		{Text: "start kube-proxy on each node, and DNS", Do: s.network},
		{Text: "list the suite's conformance specs in a dry run: " + which, Do: s.plan},
		first,
	}
	if len(s.suite.passes(e.Profile)) > 1 {
		all = append(all, labkit.Step{Text: "run the serial specs", Do: s.serial})
	}
	return append(all, s.lastSteps()...)
}

func (s *lab) lastSteps() []labkit.Step {
	return []labkit.Step{
		{Text: fmt.Sprintf("run the failed specs again, alone, if at most %d failed", again), Do: s.again},
		labkit.AllRun(s.alive),
	}
}

func (s *lab) alive(ctx context.Context) error {
	if err := s.allAlive(ctx); err != nil {
		return err
	}
	s.e.Record(alive{len(s.c.Nodes)})
	return nil
}
