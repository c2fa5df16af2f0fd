// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package flagtable

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/builder"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/progress"
)

//go:embed program.go.txt
var program string

// source says where a column of a table comes from.
type source struct {
	release, base string
	variant       base.Variant
	// register is what the component's main does before it parses its flags.
	register string
	// without are flags that only our build of the release has, see leftOut;
	// with are those that only upstream's has.
	without []string
	with    []leftOut
}

// leftOut is a flag of a package that the toolchain series of a historical base
// leaves out. Its line is looked for in the tree, which still has the file.
type leftOut struct{ flag, file, line string }

const (
	kubelet17 = `options.NewKubeletServer().AddFlags(pflag.CommandLine)`
	kubelet18 = `options.NewKubeletFlags().AddFlags(pflag.CommandLine)
	c, err := options.NewKubeletConfiguration()
	if err != nil {
		return err
	}
	options.AddKubeletConfigFlags(pflag.CommandLine, c)`
	manager19 = `options.NewCMServer().AddFlags(pflag.CommandLine, app.KnownControllers(), app.ControllersDisabledByDefault.List())`
)

// In 1.12 the kubelet has a set of its own, and the controller manager one for each controller.
const (
	kubelet112 = `set = pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetNormalizeFunc(flag.WordSepNormalizeFunc)
	options.NewKubeletFlags().AddFlags(set)
	c, err := options.NewKubeletConfiguration()
	if err != nil {
		return err
	}
	options.AddKubeletConfigFlags(set, c)
	options.AddGlobalFlags(set)`
	manager112 = `s, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return err
	}
	for _, f := range s.Flags(app.KnownControllers(), app.ControllersDisabledByDefault.List()).FlagSets {
		set.AddFlagSet(f)
	}`
)

var azure = leftOut{"azure-container-registry-config", "pkg/credentialprovider/azure/azure_credentials.go", `pflag.String("azure-container-registry-config", "",`}

// components are the tables. The historical bases are built with the third-party
// versions of 1.9.11 (see their README), and of those only cadvisor adds flags
// that the releases' own lack: v0.26.1 of 1.7.0 has neither docker-tls nor
// containerd; 1.8.15 names v0.27.4, which is not available, and v0.27.1 has no
// containerd. glog and pflag are at the same revision in all Godeps.json.
var components = map[string][]source{
	"kubelet": {
		{"v1.7.0", "v1.7.0", base.Stock, kubelet17, []string{"containerd", "docker-tls", "docker-tls-ca", "docker-tls-cert", "docker-tls-key"}, []leftOut{azure}},
		{"v1.8.0", "v1.8.0", base.Stock, kubelet18, []string{"containerd"}, []leftOut{azure}},
		{"v1.8.15", "v1.8.15", base.Stock, kubelet18, []string{"containerd"}, []leftOut{azure}},
		{"v1.9.11", "v1.9.11", base.Stock, kubelet18, nil, nil},
		{Ours, "v1.9.11", base.Ours, kubelet18, nil, nil},
	},
	"kube-controller-manager": {
		{"v1.9.11", "v1.9.11", base.Stock, manager19, nil, nil},
		{Ours, "v1.9.11", base.Ours, manager19, nil, nil},
	},
}

// compared are builds that no table has a column of: the command dropin asks for their flags.
var compared = map[string][]source{
	"kubelet":                 {{"v1.12.10", "v1.12.10", base.Stock, kubelet112, nil, nil}, {Ours, "v1.12.10", base.Ours, kubelet112, nil, nil}},
	"kube-controller-manager": {{"v1.12.10", "v1.12.10", base.Stock, manager112, nil, nil}, {Ours, "v1.12.10", base.Ours, manager112, nil, nil}},
}

// Components are the names of the tables.
func Components() []string {
	var out []string
	for c := range components {
		out = append(out, c)
	}
	slices.Sort(out)
	return out
}

// File is where a component's table is committed, relative to the root.
func File(component string) string { return filepath.Join("bases", "flags", component+".json") }

// Page is the page that is written from the tables, relative to the root.
const Page = "docs/user/flags-1.7-to-1.9.md"

// Generate makes a component's table: it compiles a program with each release's
// own code and runs it. The trees are brought up to date.
func Generate(ctx context.Context, root, component string) (*Table, error) {
	of := map[string]one{}
	var releases []string
	for _, s := range components[component] {
		o, err := s.run(ctx, root, component)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", component, s.release, err)
		}
		releases = append(releases, s.release)
		of[s.release] = o
	}
	return merge(component, releases, of), nil
}

// run prints what a release has, with what our build of it lacks or has too
// much put right.
func (s source) run(ctx context.Context, root, component string) (one, error) {
	b, err := base.Load(root, s.base)
	if err != nil {
		return one{}, err
	}
	file, err := s.compile(ctx, b, component)
	if err != nil {
		return one{}, err
	}
	var o one
	for i, env := range environments {
		out, err := execute(file, env)
		if err != nil {
			return one{}, err
		}
		var got one
		if err := json.Unmarshal(out, &got); err != nil {
			return one{}, fmt.Errorf("%s: %v", file, err)
		}
		if f, ok := got.Flags[unordered]; ok {
			f.Default = sorted(f.Default)
			got.Flags[unordered] = f
		}
		if i > 0 && !equal(o, got) {
			return one{}, fmt.Errorf("a default depends on the environment: %s prints something else with %q", file, env)
		}
		o = got
	}
	if len(o.Flags) < 50 || len(o.Gates) < 10 {
		return one{}, fmt.Errorf("%s prints %d flags and %d gates, which cannot be all", file, len(o.Flags), len(o.Gates))
	}
	if name := machineDependent(o); name != "" {
		return one{}, fmt.Errorf("the default of --%s, %q, has this machine's name in it", name, o.Flags[name].Default)
	}
	for _, name := range s.without {
		if _, ok := o.Flags[name]; !ok {
			return one{}, fmt.Errorf("--%s is to be taken away and is not there: correct tools/build/flagtable/generate.go", name)
		}
		delete(o.Flags, name)
	}
	for _, l := range s.with {
		text, err := os.ReadFile(filepath.Join(b.SrcDir(s.variant), filepath.FromSlash(l.file)))
		if err != nil {
			return one{}, err
		}
		if _, ok := o.Flags[l.flag]; ok || !bytes.Contains(text, []byte(l.line)) {
			return one{}, fmt.Errorf("--%s is there already, or %s does not say %q: correct tools/build/flagtable/generate.go", l.flag, l.file, l.line)
		}
		o.Flags[l.flag] = Flag{Type: "string"}
	}
	return o, nil
}

// execute runs a compiled program.
func execute(file string, env []string) ([]byte, error) {
	cmd := exec.Command(file)
	cmd.Env, cmd.Dir = env, os.TempDir()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %v\n%s", file, err, stderr.Bytes())
	}
	return out, nil
}

// unordered is a flag whose default is a set, printed in the order of a Go map.
const unordered = "cloud-provider-gce-lb-src-cidrs"

func sorted(list string) string {
	l := strings.Split(list, ",")
	slices.Sort(l)
	return strings.Join(l, ",")
}

// environments are two that differ in what a default could be made of.
var environments = [][]string{
	{"PATH=/usr/bin:/bin", "HOME=/nonexistent/a", "USER=a", "GOMAXPROCS=1", "TZ=UTC"},
	{"PATH=/bin", "HOME=/nonexistent/b", "USER=b", "GOMAXPROCS=3", "TZ=Asia/Tokyo", "LC_ALL=C", "KUBECONFIG=/nonexistent/c"},
}

func equal(a, b one) bool {
	x, _ := json.Marshal(a) // maps are printed in order
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

func machineDependent(o one) string {
	host, err := os.Hostname()
	if err != nil || len(host) < 4 {
		return ""
	}
	for name, f := range o.Flags {
		if strings.Contains(f.Default, host) {
			return name
		}
	}
	return ""
}

// compile builds the release's program with the settings of the component's own
// binary, so that all but the link is in the build cache. more are further flags of
// the go command.
func (s source) compile(ctx context.Context, b *base.Base, component string, more ...string) (string, error) {
	modfile, err := builder.Source(ctx, b, s.variant)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.Output(), "flagtable", b.Name, component+"-"+s.release)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	text := strings.NewReplacer("COMPONENT", component, "REGISTER", s.register).Replace(program)
	main, out := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(main, []byte(text), 0o644); err != nil {
		return "", err
	}
	step := progress.Start("flags %s %s", component, s.release)
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w"}, builder.ModFlags(b, modfile)...)
	args = append(append(append(args, builder.LangFlags(b)...), more...), "-o", out, main)
	cmd := builder.Command(ctx, "go", args...)
	cmd.Dir, cmd.Env = b.Root, builder.Env(b, s.variant, b.Binaries[component])
	if text, err := cmd.CombinedOutput(); err != nil {
		step.Fail()
		return "", exit.Preconditionf("go %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	step.Done("")
	return out, nil
}

// Load reads a committed table.
func Load(root, component string) (*Table, error) {
	data, err := os.ReadFile(filepath.Join(root, File(component)))
	if err != nil {
		return nil, err
	}
	t, err := Decode(data)
	if err != nil {
		return nil, exit.Preconditionf("%s: %v: make flags rewrites it", File(component), err)
	}
	return t, nil
}
