// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

// reports is where the JUnit files of a pass go. They are kept, whatever the answer.
func (s *lab) reports(pass string) string {
	return filepath.Join(s.e.Root, "_output", "lab", s.e.Lab.Name, "junit-"+string(s.e.Profile), s.e.Variant.Dir(), pass)
}

// flags are those of the suite itself.
func (s *lab) flags(pass string) []string {
	reports := []string{"--report-dir=" + s.reports(pass), "--report-prefix=" + pass + "-"}
	if s.suite == nodeSuite {
		return append(s.nodeFlags(), reports...)
	}
	return append(reports, "--provider=skeleton", fmt.Sprintf("--num-nodes=%d", len(s.c.Nodes)), "--kubeconfig="+s.c.APIServer.AdminKubeconfig, "--host="+s.c.APIServer.URL,
		"--kubectl-path="+s.e.Stock(base, "kubectl").Path)
}

// call runs a program of the suite to its end.
func (s *lab) call(ctx context.Context, pass, path string, args ...string) (exit string, err error) {
	p, err := s.begin(ctx, pass, path, args...)
	if err != nil {
		return "", err
	}
	return s.end(ctx, p)
}

func (s *lab) begin(ctx context.Context, pass, path string, args ...string) (*process.Proc, error) {
	if err := os.RemoveAll(s.reports(pass)); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.reports(pass), 0o755); err != nil {
		return nil, err
	}
	return s.e.Start(ctx, process.Process{Name: "suite-" + pass, Path: path, Args: args, In: s.in})
}

func (s *lab) end(ctx context.Context, p *process.Proc) (exit string, err error) {
	select {
	case <-p.Done():
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if p.Err() != nil {
		exit = process.DescribeExit(p.Err())
	}
	return exit, nil
}

func (s *lab) plan(ctx context.Context) error {
	exit, err := s.call(ctx, "plan", s.e.Stock(base, s.suite.binary).Path, append([]string{"--ginkgo.dryRun", "--ginkgo.focus=" + s.suite.focus(s.e.Profile)}, s.flags("plan")...)...)
	if err != nil {
		return err
	}
	if exit != "" {
		return fmt.Errorf("the suite's dry run ended with %s; its log is suite-plan.log", exit)
	}
	specs, err := readReports(s.reports("plan"))
	if err != nil {
		return err
	}
	for _, x := range specs {
		if x.Result == passed {
			s.planned.Specs = append(s.planned.Specs, x.Name)
		}
	}
	slices.Sort(s.planned.Specs)
	s.e.Record(s.planned)
	s.e.Step("%d specs", len(s.planned.Specs))
	return nil
}

// ginkgo is the command line of a pass.
func (s *lab) ginkgo(pass string, nodes int, focus, skip string) []string {
	args := []string{"-noColor", fmt.Sprintf("-nodes=%d", nodes), "-focus=" + focus}
	if skip != "" {
		args = append(args, "-skip="+skip)
	}
	return append(append(args, s.e.Stock(base, s.suite.binary).Path, "--"), s.flags(pass)...)
}

func (s *lab) parallel(ctx context.Context) error {
	const pass = passParallel
	p, err := s.begin(ctx, pass, s.e.Stock(base, "ginkgo").Path, s.ginkgo(pass, parallel, s.suite.focus(s.e.Profile), serial)...)
	if err != nil {
		return err
	}
	if s.swap {
		if err := s.swapDuring(ctx, p); err != nil {
			return err
		}
	}
	exit, err := s.end(ctx, p)
	if err != nil {
		return err
	}
	return s.ended(pass, exit, time.Since(p.Started))
}

func (s *lab) serial(ctx context.Context) error {
	const pass = passSerial
	began := time.Now()
	exit, err := s.call(ctx, pass, s.e.Stock(base, "ginkgo").Path, s.ginkgo(pass, 1, serial+".*"+allSpecs, "")...)
	if err != nil {
		return err
	}
	return s.ended(pass, exit, time.Since(began))
}

// ended records what a pass has given.
func (s *lab) ended(pass, exit string, took time.Duration) error {
	specs, err := readReports(s.reports(pass))
	if err != nil {
		return err
	}
	// Each of ginkgo's processes also reports what it was not to run.
	known := map[string]bool{}
	for _, n := range s.planned.Specs {
		known[n] = true
	}
	specs = slices.DeleteFunc(specs, func(x spec) bool { return x.Result == skipped && !known[x.Name] })
	o := ran{Pass: pass, Exit: exit, Seconds: took.Seconds(), Specs: specs}
	s.runs = append(s.runs, o)
	s.e.Record(o)
	n := count(specs)
	s.e.Step("%s: %d passed, %d failed in %.0f s", pass, n[passed], n[failed], o.Seconds)
	return nil
}

func count(specs []spec) map[string]int {
	n := map[string]int{}
	for _, x := range specs {
		n[x.Result]++
	}
	return n
}

// again runs what failed once more, with nothing beside it: a spec that starved on
// a busy computer passes then, and a fault stays.
func (s *lab) again(ctx context.Context) error {
	var names []string
	for _, r := range s.runs {
		for _, x := range r.Specs {
			if x.Result == failed {
				names = append(names, regexp.QuoteMeta(x.Name)+"$")
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 || len(names) > again {
		s.e.Step("%d to run again", len(names))
		return nil
	}
	began := time.Now()
	exit, err := s.call(ctx, passAgain, s.e.Stock(base, "ginkgo").Path, s.ginkgo(passAgain, 1, strings.Join(names, "|"), "")...)
	if err != nil {
		return err
	}
	return s.ended(passAgain, exit, time.Since(began))
}

// swapDuring swaps while p runs. Each spec has a namespace of its own, so the
// namespaces that were made count the specs that have begun.
func (s *lab) swapDuring(ctx context.Context, p *process.Proc) error {
	rec, err := s.c.Client.Record(ctx, kube.Namespaces, "")
	if err != nil {
		return err
	}
	defer rec.Stop()
	all := 0
	for _, n := range s.planned.Specs {
		if !strings.Contains(n, "[Serial]") {
			all++
		}
	}
	begun := func() int {
		names := map[string]bool{}
		for _, ev := range rec.Events() {
			if ev.Object != nil && strings.HasPrefix(ev.Object.GetName(), "e2e-tests-") {
				names[ev.Object.GetName()] = true
			}
		}
		return len(names)
	}
	for i, to := range []struct {
		name  string
		which func(base, name string) kube.Program
	}{{"ours", s.e.Ours}, {"stock", s.e.Stock}} {
		err := wait.Until(ctx, "enough specs of the pass have begun", time.Hour, func(context.Context) (bool, error) {
			return begun() >= all*(i+1)/3 || !p.Alive(), nil
		})
		if err != nil {
			return err
		}
		o := swapped{To: to.name, Begun: begun(), Of: all}
		s.e.Step("%d of %d specs have begun: swap to %s", o.Begun, o.Of, o.To)
		if err := s.become(ctx, to.which); err != nil {
			return err
		}
		o.During = p.Alive()
		s.e.Record(o)
	}
	return nil
}

// junit is what the suite writes.
type junit struct {
	Cases []struct {
		Name    string    `xml:"name,attr"`
		Time    float64   `xml:"time,attr"`
		Failure *string   `xml:"failure"`
		Skipped *struct{} `xml:"skipped"`
	} `xml:"testcase"`
}

// readReports reads the JUnit files in dir: one for each of ginkgo's processes.
func readReports(dir string) ([]spec, error) {
	files, err := filepath.Glob(filepath.Join(dir, "junit_*.xml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("the suite has written no JUnit file into " + dir)
	}
	var out []spec
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		more, err := readReport(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		out = append(out, more...)
	}
	return out, nil
}

func readReport(b []byte) ([]spec, error) {
	var j junit
	if err := xml.Unmarshal(b, &j); err != nil {
		return nil, err
	}
	var out []spec
	for _, c := range j.Cases {
		x := spec{Name: c.Name, Result: passed, Seconds: c.Time}
		switch {
		case c.Failure != nil:
			x.Result, x.Failure = failed, head(*c.Failure, 600)
		case c.Skipped != nil:
			x.Result = skipped
		}
		out = append(out, x)
	}
	return out, nil
}

// head is the beginning of a text, in valid UTF-8.
func head(s string, n int) string {
	s = strings.TrimSpace(s)
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}
