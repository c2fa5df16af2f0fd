// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/tools/build/exit"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/process"
)

// testLabs are labs that need no cluster.
var testLabs = map[string]func(context.Context, *labkit.Env) (labkit.Outcome, error){
	"t-fine": func(ctx context.Context, e *labkit.Env) (labkit.Outcome, error) {
		_, err := e.Start(ctx, process.Process{Name: "x", Path: process.Self(), Env: []string{sleeperEnv + "=1"}})
		e.Fact("chance %d", e.Rand.IntN(1000))
		return labkit.AbsentBecause("nothing happened"), err
	},
	"t-runaway": func(ctx context.Context, e *labkit.Env) (labkit.Outcome, error) {
		c := exec.Command("sleep", "3600")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return labkit.AbsentBecause("looks good"), c.Start()
	},
	"t-mount": func(ctx context.Context, e *labkit.Env) (labkit.Outcome, error) {
		d := e.Path("m")
		return labkit.AbsentBecause("looks good"), errors.Join(os.Mkdir(d, 0o755), unix.Mount("t", d, "tmpfs", 0, ""))
	},
	"t-device": func(ctx context.Context, e *labkit.Env) (labkit.Outcome, error) {
		return labkit.AbsentBecause("looks good"), machine.Run(ctx, "ip", "link", "add", "stray0", "type", "bridge")
	},
	"t-panic": func(ctx context.Context, e *labkit.Env) (labkit.Outcome, error) { panic("on purpose") },
	"t-error": func(ctx context.Context, e *labkit.Env) (labkit.Outcome, error) {
		return labkit.AbsentBecause("x"), errors.New("broken")
	},
	"t-exit": func(ctx context.Context, e *labkit.Env) (labkit.Outcome, error) {
		os.Exit(7)
		return labkit.Outcome{}, nil
	},
	"t-nonsense": func(ctx context.Context, e *labkit.Env) (labkit.Outcome, error) {
		return labkit.Outcome{Verdict: "fine"}, nil
	},
	"t-slow": func(ctx context.Context, e *labkit.Env) (labkit.Outcome, error) {
		<-ctx.Done()
		return labkit.AbsentBecause("too late"), ctx.Err()
	},
	"t-dump": func(ctx context.Context, e *labkit.Env) (labkit.Outcome, error) {
		e.OnDump(func(_ context.Context, dir string) error { return os.WriteFile(filepath.Join(dir, "x"), nil, 0o644) })
		return labkit.ReproducedBecause("it happened"), nil
	},
	"t-swept": sweptLab, "t-fooled": fooledLab,
}

// stepResult is what the one step of such a lab answers.
type stepResult struct{ Result labkit.Outcome }

// oracle repeats it.
var oracle = labkit.Oracle{Text: []string{"what was told"}, Judge: func(h *history.History) labkit.Outcome { return history.One[stepResult](h).Result }}

// allTestLabs are the labs of this package's tests.
func allTestLabs() []labkit.Lab {
	all := []labkit.Lab{steppedLab}
	for name, run := range testLabs {
		all = append(all, labkit.Lab{Name: name, Summary: "test", Oracle: oracle,
			Variants: []labkit.Variant{labkit.Ours}, Timeout: func(labkit.Profile) time.Duration { return 2 * time.Second },
			Steps: func(e *labkit.Env) []labkit.Step {
				return []labkit.Step{{Text: "do it", Do: func(ctx context.Context) error {
					res, err := run(ctx, e)
					e.Record(stepResult{res})
					return err
				}}}
			}})
	}
	return all
}

// testLab is one of them.
func testLab(t *testing.T, name string) *labkit.Lab { return judgetest.Lab(t, allTestLabs(), name) }

func TestMachine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a machine's namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs iproute2, which the first lab installs")
	}
	for _, tt := range []struct {
		lab     string
		verdict labkit.Verdict
		why     string // contained
		kept    bool
	}{
		{"t-fine", labkit.Absent, "nothing happened", false},
		{"t-runaway", labkit.Inconclusive, "sleep 3600 (answered absent: looks good)", true},
		{"t-mount", labkit.Inconclusive, "/m (answered absent", true},
		{"t-device", labkit.Inconclusive, "network device stray0", true},
		{"t-panic", labkit.Inconclusive, "panic: on purpose", true},
		{"t-error", labkit.Inconclusive, "broken", true},
		{"t-exit", labkit.Inconclusive, "ended without an answer: exit status 7", true},
		{"t-nonsense", labkit.Inconclusive, `answered "fine", which is no verdict`, true},
		{"t-slow", labkit.Inconclusive, "the lab's time limit of 2s is exceeded", true},
		{"t-dump", labkit.Reproduced, "it happened", true},
	} {
		t.Run(tt.lab, func(t *testing.T) {
			t.Parallel() // machines do not see each other
			var out bytes.Buffer
			root := t.TempDir()
			l := testLab(t, tt.lab)
			outs, err := runLab(context.Background(), l, l.Runs(), root, &labkit.Binaries{}, Options{Profile: labkit.Short, Seed: 3, Out: &out})
			if err != nil {
				t.Fatal(err)
			}
			if len(outs) != 1 || outs[0].Verdict != tt.verdict || !strings.Contains(outs[0].Why, tt.why) {
				t.Errorf("got %+v\n%s", outs, out.String())
			}
			if outs[0].AsExpected() == tt.kept {
				t.Errorf("as expected: %v", outs[0].AsExpected())
			}
			_, err = os.Stat(filepath.Join(root, "_output", "lab", tt.lab))
			entries, _ := os.ReadDir(filepath.Join(root, "_output", "lab", tt.lab))
			if kept := err == nil && len(entries) > 0; kept != tt.kept {
				t.Errorf("artefacts kept: %v, want %v", kept, tt.kept)
			}
			if !strings.Contains(out.String(), "1. do it") {
				t.Errorf("no plan in:\n%s", out.String())
			}
			if tt.lab == "t-dump" {
				if m, _ := filepath.Glob(filepath.Join(root, outs[0].Artefacts, "dump", "x")); len(m) != 1 {
					t.Error("no dump")
				}
			}
		})
	}
}

// callOn is a writer that calls when a text is written.
type callOn struct {
	text string
	call func()
}

func (c *callOn) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.text) {
		c.call()
	}
	return len(p), nil
}

// TestMachineInterrupted ends a lab when its step has begun.
func TestMachineInterrupted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a machine's namespaces need root")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := testLab(t, "t-slow")
	outs, err := runLab(ctx, l, l.Runs(), t.TempDir(), &labkit.Binaries{}, Options{Profile: labkit.Short, Timeout: 2 * time.Minute, Out: &callOn{text: "1 of 1: do it", call: cancel}})
	if err != nil || len(outs) != 1 || outs[0].Why != "interrupted" {
		t.Errorf("got %+v, %v", outs, err)
	}
}

func TestSeed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a machine's namespaces need root")
	}
	facts := func(seed uint64) string {
		l := testLab(t, "t-fine")
		outs, err := runLab(context.Background(), l, l.Runs(), t.TempDir(), &labkit.Binaries{}, Options{Profile: labkit.Short, Seed: seed, Out: &bytes.Buffer{}})
		if err != nil || len(outs[0].Facts) != 1 {
			t.Fatalf("%v %+v", err, outs)
		}
		return outs[0].Facts[0]
	}
	if a, b := facts(1), facts(1); a != b {
		t.Errorf("seed 1 gives %q and %q", a, b)
	}
	if a, b := facts(1), facts(2); a == b {
		t.Errorf("seeds 1 and 2 both give %q", a)
	}
}

func TestLabsErrors(t *testing.T) {
	needy := labkit.Lab{Name: "needy", Summary: "wants binaries", Steps: func(*labkit.Env) []labkit.Step { return nil }, Oracle: oracle,
		Needs: []labkit.Binary{labkit.StockBinary("v1.9.11", "kube-apiserver"), labkit.BinaryUnderTest("v1.9.11", "kubelet")}}.With([]string{"G"}, nil)
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte("module holdfast\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOLDFAST_BIN_DIR", "")
	t.Setenv("HOLDFAST_BIN_MAP", "")
	for _, tt := range []struct {
		o    Options
		code int
		want string
	}{
		{Options{Profile: "medium", Root: root}, 2, "--profile"},
		{Options{Profile: labkit.Short, Root: root, Only: []labkit.Variant{"theirs"}}, 2, "--variant"},
		{Options{Profile: labkit.Short, Root: root, Bins: []string{"v1.9.11=/x"}}, 2, "--bin"},
		{Options{Profile: labkit.Short, Root: root}, 1, "_output/bin/v1.9.11/ours/kubelet"},
	} {
		if tt.code == 1 && os.Geteuid() != 0 {
			tt.want = "needs root"
		}
		tt.o.Out = &bytes.Buffer{}
		_, err := Labs(context.Background(), []*labkit.Lab{needy}, tt.o)
		if err == nil || exit.Code(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: status %d, %v; want status %d and %q", tt.o, exit.Code(err), err, tt.code, tt.want)
		}
	}
}

// TestFailed: what is not as expected is named, with the first line of why.
func TestFailed(t *testing.T) {
	err := failed([]labkit.Outcome{
		{Lab: "x", Variant: labkit.Stock, Expected: labkit.Reproduced, Verdict: labkit.Reproduced},
		{Lab: "x", Variant: labkit.Stock, Expected: labkit.Reproduced, Verdict: labkit.Inconclusive},
		{Lab: "x", Variant: labkit.Ours, Expected: labkit.Absent, Verdict: labkit.Reproduced, Why: "a pod was lost\nand more"},
	})
	if want := "not as expected:\n  x (stock): inconclusive: \n  x (ours): reproduced: a pod was lost"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := failed([]labkit.Outcome{{Expected: labkit.Passed, Verdict: labkit.Passed}}); err != nil {
		t.Error(err)
	}
}
