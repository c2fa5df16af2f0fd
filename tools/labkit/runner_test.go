// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/slugs"
)

// testLabs are labs that need no cluster. They are hidden, not registered.
var testLabs = map[string]func(context.Context, *Env) (Result, error){
	"t-fine": func(ctx context.Context, e *Env) (Result, error) {
		_, err := e.Start(ctx, helperProc("x", "sleep"))
		e.Fact("chance %d", e.Rand.IntN(1000))
		return AbsentBecause("nothing happened"), err
	},
	"t-runaway": func(ctx context.Context, e *Env) (Result, error) {
		c := exec.Command("sleep", "3600")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return AbsentBecause("looks good"), c.Start()
	},
	"t-mount": func(ctx context.Context, e *Env) (Result, error) {
		d := e.Path("m")
		return AbsentBecause("looks good"), errors.Join(os.Mkdir(d, 0o755), unix.Mount("t", d, "tmpfs", 0, ""))
	},
	"t-device": func(ctx context.Context, e *Env) (Result, error) {
		return AbsentBecause("looks good"), run(ctx, "ip", "link", "add", "stray0", "type", "bridge")
	},
	"t-panic":    func(ctx context.Context, e *Env) (Result, error) { panic("on purpose") },
	"t-error":    func(ctx context.Context, e *Env) (Result, error) { return AbsentBecause("x"), errors.New("broken") },
	"t-exit":     func(ctx context.Context, e *Env) (Result, error) { os.Exit(7); return Result{}, nil },
	"t-nonsense": func(ctx context.Context, e *Env) (Result, error) { return Result{Verdict: "fine"}, nil },
	"t-slow": func(ctx context.Context, e *Env) (Result, error) {
		<-ctx.Done()
		return AbsentBecause("too late"), ctx.Err()
	},
	"t-dump": func(ctx context.Context, e *Env) (Result, error) {
		e.OnDump(func(_ context.Context, dir string) error { return os.WriteFile(filepath.Join(dir, "x"), nil, 0o644) })
		return ReproducedBecause("it happened"), nil
	},
}

func init() {
	for name, run := range testLabs {
		hidden[name] = &Lab{Name: name, Summary: "test", Plan: func(Profile) []string { return []string{"do it"} },
			Variants: []Variant{Ours}, Timeout: func(Profile) time.Duration { return 2 * time.Second }, Run: run}
	}
}

func TestMachine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a machine's namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs iproute2, which the first lab installs")
	}
	for _, tt := range []struct {
		lab     string
		verdict Verdict
		why     string // contained
		kept    bool
	}{
		{"t-fine", Absent, "nothing happened", false},
		{"t-runaway", Inconclusive, "sleep 3600 (answered absent: looks good)", true},
		{"t-mount", Inconclusive, "/m (answered absent", true},
		{"t-device", Inconclusive, "network device stray0", true},
		{"t-panic", Inconclusive, "panic: on purpose", true},
		{"t-error", Inconclusive, "broken", true},
		{"t-exit", Inconclusive, "ended without an answer: exit status 7", true},
		{"t-nonsense", Inconclusive, `answered "fine", which is no verdict`, true},
		{"t-slow", Inconclusive, "the lab's bound of 2s is over", true},
		{"t-dump", Reproduced, "it happened", true},
	} {
		t.Run(tt.lab, func(t *testing.T) {
			t.Parallel() // machines do not see each other
			var out bytes.Buffer
			root := t.TempDir()
			l, err := Find(tt.lab)
			if err != nil {
				t.Fatal(err)
			}
			outs, err := runLab(context.Background(), l, l.variants(), root, &Binaries{}, Options{Profile: Short, Seed: 3, Out: &out})
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

func TestMachineInterrupted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a machine's namespaces need root")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 700*time.Millisecond)
	defer cancel()
	l, _ := Find("t-slow")
	outs, err := runLab(ctx, l, l.variants(), t.TempDir(), &Binaries{}, Options{Profile: Short, Timeout: time.Minute, Out: &bytes.Buffer{}})
	if err != nil || len(outs) != 1 || outs[0].Why != "interrupted" {
		t.Errorf("got %+v, %v", outs, err)
	}
}

func TestSeed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a machine's namespaces need root")
	}
	facts := func(seed uint64) string {
		l, _ := Find("t-fine")
		outs, err := runLab(context.Background(), l, l.variants(), t.TempDir(), &Binaries{}, Options{Profile: Short, Seed: seed, Out: &bytes.Buffer{}})
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

func TestRunLabsErrors(t *testing.T) {
	Register(Lab{Name: "needy", Summary: "wants binaries", Plan: func(Profile) []string { return nil },
		Needs: []Binary{StockBinary("v1.9.11", "kube-apiserver"), BinaryUnderTest("v1.9.11", "kubelet")},
		Run:   func(context.Context, *Env) (Result, error) { return Result{}, nil }})
	t.Cleanup(func() { delete(registry, "needy") })
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte("module holdfast\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "slugs.json"), []byte(`{"slugs": [{"slug": "need", "kind": "fix",
		"forms": [{"bases": ["v1.9.11"], "gates": {"G": true}, "labs": {"needy": ["G"]}}]}], "checks": [`+others("needy")+`]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOLDFAST_BIN_DIR", "")
	t.Setenv("HOLDFAST_BIN_MAP", "")
	for _, tt := range []struct {
		names []string
		o     Options
		code  int
		want  string
	}{
		{[]string{"nope"}, Options{Profile: Short, Root: root}, 2, `no lab "nope"; there are: needy`},
		{[]string{"needy"}, Options{Profile: "medium", Root: root}, 2, "--profile"},
		{[]string{"needy"}, Options{Profile: Short, Root: root, Only: []Variant{"theirs"}}, 2, "--variant"},
		{[]string{"needy"}, Options{Profile: Short, Root: root, Bins: []string{"v1.9.11=/x"}}, 2, "--bin"},
		{[]string{"needy"}, Options{Profile: Short, Root: root}, 1, "_output/bin/v1.9.11/ours/kubelet"},
	} {
		if tt.code == 1 && os.Geteuid() != 0 {
			tt.want = "needs root"
		}
		tt.o.Out = &bytes.Buffer{}
		_, err := RunLabs(context.Background(), tt.names, tt.o)
		if err == nil || exit.Code(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v %+v: status %d, %v; want status %d and %q", tt.names, tt.o, exit.Code(err), err, tt.code, tt.want)
		}
	}
}

// others lists the registered labs but one, as JSON strings.
func others(but string) string {
	var out []string
	for _, l := range Labs() {
		if l.Name != but {
			out = append(out, fmt.Sprintf("%q", l.Name))
		}
	}
	return strings.Join(out, ",")
}

func TestUseTable(t *testing.T) {
	saved := registry
	defer func() { registry = saved }()
	registry = map[string]*Lab{}
	for _, n := range []string{"a", "b"} {
		Register(Lab{Name: n, Summary: "s", Plan: func(Profile) []string { return nil }, Run: func(context.Context, *Env) (Result, error) { return Result{}, nil }})
	}
	use := func(labs, checks string) error {
		table, err := slugs.Parse([]byte(`{"slugs": [{"slug": "x", "kind": "fix", "forms": [{"bases": ["v1.9.11"], "gates": {"G": true, "H": false}, "labs": {` + labs + `}}]}], "checks": [` + checks + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		return UseTable(table)
	}
	if err := use(`"a": ["H", "G"]`, `"b"`); err != nil {
		t.Fatal(err)
	}
	if a := registry["a"]; strings.Join(a.Gates(), " ") != "G H" || len(a.variants()) != 3 || len(registry["b"].variants()) != 2 {
		t.Errorf("%+v", a)
	}
	if err := use(`"a": []`, ``); exit.Code(err) != 1 || !strings.Contains(err.Error(), "lab b is not in slugs.json") {
		t.Error(err)
	}
	if err := use(`"a": [], "c": []`, `"b"`); exit.Code(err) != 1 || !strings.Contains(err.Error(), "names the lab c") {
		t.Error(err)
	}
}

func TestValidate(t *testing.T) {
	ok := Lab{Name: "a-b", Summary: "s", Plan: func(Profile) []string { return nil }, Run: func(context.Context, *Env) (Result, error) { return Result{}, nil }}
	if err := ok.validate(); err != nil {
		t.Error(err)
	}
	for want, f := range map[string]func(*Lab){
		"Name must be":    func(l *Lab) { l.Name = "A" },
		"Summary must be": func(l *Lab) { l.Summary = "a\nb" },
		"Plan is missing": func(l *Lab) { l.Plan = nil },
		"Run is missing":  func(l *Lab) { l.Run = nil },
		"has no Expect":   func(l *Lab) { l.Variants = []Variant{"x"} },
	} {
		l := ok
		f(&l)
		if err := l.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestExpectedAndVariants(t *testing.T) {
	l := Lab{}
	if l.Expected(Stock) != Reproduced || l.Expected(Ours) != Absent || l.Expected(GateOff) != Reproduced {
		t.Error("defaults")
	}
	if n := len(l.variants()); n != 2 {
		t.Errorf("%d variants without gates", n)
	}
	for v, want := range map[Variant]Verdict{"ours -a": Reproduced, "ours -b": Absent, "ours -a -b": Reproduced, "stock -a": "", "x": ""} {
		l := Lab{slugs: []string{"a"}}
		if got := l.Expected(v); got != want {
			t.Errorf("%s: %q, want %q", v, got, want)
		}
	}
	l = Lab{gates: []string{"X", "Y"}, Expect: map[Variant]Verdict{Stock: Absent}}
	if l.Expected(Stock) != Absent || l.Expected(Ours) != Absent || len(l.variants()) != 3 {
		t.Error("overridden")
	}
	e := &Env{Lab: &l, Variant: GateOff, bins: &Binaries{Dir: "/b"}}
	p := e.UnderTest("v1.9.11", "kubelet")
	if got := strings.Join(p.GateArgs(), " "); got != "--feature-gates=X=false,Y=false" || p.Path != "/b/v1.9.11/ours/kubelet" {
		t.Errorf("%+v %s", p, got)
	}
	if p = e.Stock("v1.8.15", "kubelet"); len(p.GateArgs()) != 0 || p.Path != "/b/v1.8.15/stock/kubelet" || p.minor() != 8 {
		t.Errorf("%+v", p)
	}
	e.Variant = Ours
	if p = e.UnderTest("v1.9.11", "kubelet").WithGates(map[string]bool{"Z": true}); strings.Join(p.GateArgs(), "") != "--feature-gates=Z=true" {
		t.Errorf("%+v", p)
	}
}

func TestBinaries(t *testing.T) {
	t.Setenv("HOLDFAST_BIN_DIR", "")
	t.Setenv("HOLDFAST_BIN_MAP", "v1.9.11/stock=/env")
	b, err := NewBinaries("/repo", []string{"v1.9.11/ours/kubelet=/k", "v1.8.15/stock=/old"})
	if err != nil {
		t.Fatal(err)
	}
	for bin, want := range map[Binary]string{
		{"v1.9.11", "stock", "kubelet"}: "/env/kubelet",
		{"v1.9.11", "ours", "kubelet"}:  "/k",
		{"v1.9.11", "ours", "kcm"}:      "/repo/_output/bin/v1.9.11/ours/kcm",
		{"v1.8.15", "stock", "kubelet"}: "/old/kubelet",
	} {
		if got := b.Path(bin); got != want {
			t.Errorf("%v: %s, want %s", bin, got, want)
		}
	}
	err = b.Check([]Binary{{"v1.9.11", "ours", "kubelet"}})
	if err == nil || !strings.Contains(err.Error(), "/k (v1.9.11/ours/kubelet)") {
		t.Errorf("got %v", err)
	}
	t.Setenv("HOLDFAST_BIN_DIR", "/elsewhere")
	if b, err = NewBinaries("/repo", nil); err != nil || b.Path(Binary{"v1", "ours", "x"}) != "/elsewhere/v1/ours/x" {
		t.Errorf("%v %v", b, err)
	}
	for _, bad := range []string{"x", "x=y", "a/b/c/d=e", "a/b="} {
		if _, err := NewBinaries("/repo", []string{bad}); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}

func TestParseHierarchies(t *testing.T) {
	const info = `68 67 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
69 68 0:29 /.. /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
71 68 0:31 / /sys/fs/cgroup/cpuset rw,relatime shared:9 - cgroup cgroup rw,cpuset
72 68 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
77 68 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,release_agent=/x,name=systemd
78 68 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw`
	hs, err := parseHierarchies(info)
	if err != nil {
		t.Fatal(err)
	}
	want := []hierarchy{{"cpu,cpuacct", "cpu,cpuacct"}, {"cpuset", "cpuset"}, {"memory", "memory"}, {"systemd", "none,name=systemd"}}
	if len(hs) != len(want) {
		t.Fatalf("got %v", hs)
	}
	for i := range hs {
		if hs[i] != want[i] {
			t.Errorf("%d: %v, want %v", i, hs[i], want[i])
		}
	}
	if _, err := parseHierarchies("78 68 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw"); err == nil || !strings.Contains(err.Error(), "cgroup v1") {
		t.Errorf("got %v", err)
	}
}
