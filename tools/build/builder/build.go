// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package builder makes binaries from materialised trees. Everything is built
// from the root module, which replaces k8s.io/kubernetes by the tree, so that
// all variants share the go command's build cache.
package builder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/progress"
	"holdfast/tools/build/tree"
)

// Options say how to build.
type Options struct {
	Variant base.Variant
	// Binaries of the base to build; empty: those of the product.
	Binaries []string
	// Offline builds from vendor/ and never asks the network.
	Offline bool
	// BinDir overrides the base's own folder for binaries.
	BinDir string
	// Overlay is a list for the go command's flag -overlay, see Overlay.
	Overlay string
}

// Build materialises the tree and builds the binaries, and returns their
// paths.
func Build(ctx context.Context, b *base.Base, o Options) ([]string, error) {
	names := o.Binaries
	if len(names) == 0 {
		names = b.BinaryNames(true)
	}
	for _, n := range names {
		if _, ok := b.Binaries[n]; !ok {
			return nil, exit.Usagef("base %s has no binary %q: it has %s", b.Name, n, strings.Join(b.BinaryNames(false), ", "))
		}
	}
	if err := b.HasVariant(o.Variant); err != nil {
		return nil, err
	}
	if c := b.Component(o.Variant); c != "" {
		return nil, exit.Usagef("variant %q is the source of our %s: build it with holdfast build %s", o.Variant, c, c)
	}
	if o.BinDir == "" {
		o.BinDir = b.BinDir(o.Variant)
	}
	modfiles := map[base.Variant]string{}
	for _, n := range names {
		tree := b.TreeOf(o.Variant, n)
		if _, ok := modfiles[tree]; ok {
			continue
		}
		modfile := ""
		var err error
		if o.Offline {
			err = checkVendor(b, tree)
		} else {
			modfile, err = Source(ctx, b, tree)
		}
		if err != nil {
			return nil, err
		}
		modfiles[tree] = modfile
	}
	var out []string
	for _, n := range names {
		file := filepath.Join(o.BinDir, n)
		tree := b.TreeOf(o.Variant, n)
		if err := one(ctx, b, o, tree, n, modfiles[tree], file); err != nil {
			return nil, err
		}
		out = append(out, file)
	}
	return out, nil
}

// Source brings the tree of variant up to date, generated code included, and
// returns the -modfile with which the root module builds it ("" where that is
// the root's own go.mod).
func Source(ctx context.Context, b *base.Base, variant base.Variant) (string, error) {
	t := &tree.Tree{Base: b, Variant: variant}
	s := progress.Start("source %s %s", b.Name, variant)
	res, err := t.Materialise()
	if err != nil {
		s.Fail()
		return "", err
	}
	if b.Mode == base.ModeGOPATH {
		s.Done(res.String())
		return "", nil
	}
	modfile, err := t.RootMod()
	if err == nil {
		err = OpenAPI(ctx, t, modfile, s)
	}
	if err != nil {
		s.Fail()
		return "", err
	}
	s.Done(res.String())
	return modfile, nil
}

// one builds a binary of the tree of variant.
func one(ctx context.Context, b *base.Base, o Options, variant base.Variant, name, modfile, file string) error {
	bin := b.Binaries[name]
	version, err := versionFlags(b, variant)
	if err != nil {
		return err
	}
	s := progress.Start("build %s %s %s", b.Name, variant, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.Fail()
		return err
	}
	args := []string{"build", "-v", "-trimpath", "-buildvcs=false"}
	if bin.Test {
		args = []string{"test", "-c", "-vet=off", "-trimpath", "-buildvcs=false"}
	}
	if o.Offline {
		args = append(args, vendorFlags(b)...)
	} else {
		args = append(args, ModFlags(b, modfile)...)
	}
	args = append(args, LangFlags(b)...)
	overlay := o.Overlay
	if bin.Assets != nil {
		s.Now("its assets")
		if overlay, err = assets(ctx, b, variant, modfile, bin.Assets); err != nil {
			s.Fail()
			return err
		}
	}
	if overlay != "" {
		args = append(args, "-overlay="+overlay)
	}
	args = append(args, "-ldflags="+strings.TrimSpace(version+" "+bin.LDFlags),
		"-o", file, b.ImportPath(bin))
	cmd := Command(ctx, "go", args...)
	cmd.Dir = b.Root
	cmd.Env = Env(b, variant, bin)
	if o.Offline {
		cmd.Dir, cmd.Env = offlineDir(b), env(b, vendoredSrc(b), bin)
	}
	var log bytes.Buffer
	cmd.Stderr = s.LastLine(&log)
	cmd.Stdout = cmd.Stderr
	if err := cmd.Run(); err != nil {
		s.Fail()
		return exit.Preconditionf("go %s: %v\n%s", strings.Join(args, " "), err, compileErrors(log.String()))
	}
	notes := ""
	if ru, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		notes = fmt.Sprintf("peak memory of one process %d MiB", ru.Maxrss/1024)
		if !bin.Test { // go test has no such list
			notes = fmt.Sprintf("%d packages compiled, %s", compiled(log.String()), notes)
		}
	}
	s.Done(notes)
	return nil
}

// ModFlags are the flags with which the go command builds the tree that
// modfile (see Source) names, and not what a vendor/ may hold.
func ModFlags(b *base.Base, modfile string) []string {
	switch {
	case b.Mode == base.ModeGOPATH:
		return nil
	case modfile == "":
		return []string{"-mod=readonly"}
	}
	return []string{"-mod=readonly", "-modfile=" + modfile}
}

// LangFlags tell the compiler which Go the base is written in, where no go.mod
// does.
func LangFlags(b *base.Base) []string {
	var flags []string
	for _, pattern := range b.LangPackages {
		flags = append(flags, "-gcflags="+pattern+"=-lang="+b.Lang)
	}
	return flags
}

// compiled counts the lines in which -v names packages.
func compiled(log string) int {
	n := 0
	for _, l := range strings.Split(log, "\n") {
		if l != "" && !strings.ContainsAny(l, " #") {
			n++
		}
	}
	return n
}

// compileErrors leaves out the lines in which -v names packages.
func compileErrors(log string) string {
	var out []string
	for _, l := range strings.Split(strings.TrimSpace(log), "\n") {
		if strings.ContainsAny(l, " #") {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}

// Env is the environment in which the go command builds bin: ours alone, so
// that a user's settings cannot change the binary. Where modules and caches
// are stays the user's choice.
func Env(b *base.Base, variant base.Variant, bin base.Binary) []string {
	return env(b, b.SrcDir(variant), bin)
}

// env is Env for the tree src.
func env(b *base.Base, src string, bin base.Binary) []string {
	env := GoEnv()
	if b.Mode == base.ModeGOPATH {
		top := strings.TrimSuffix(src, string(filepath.Separator)+filepath.Join("src", filepath.FromSlash(b.Module)))
		env = append(env, "GO111MODULE=off", "GOPATH="+filepath.Join(src, "Godeps", "_workspace")+string(filepath.ListSeparator)+top)
	}
	cgo := "0"
	if bin.Cgo {
		cgo = "1"
	}
	if bin.CgoInclude != "" {
		dir := filepath.Join(b.Root, filepath.FromSlash(bin.CgoInclude))
		env = append(env, "C_INCLUDE_PATH="+dir, "LIBRARY_PATH="+dir)
	}
	return append(env, "CGO_ENABLED="+cgo, "CGO_CFLAGS="+strings.TrimSpace("-O2 -g "+expand(b, bin.CgoCFLAGS)), "CGO_LDFLAGS="+strings.TrimSpace("-O2 -g "+expand(b, bin.CgoLDFLAGS)))
}

// TestEnv is the environment for upstream's tests: with cgo where the kubelet
// has it, but without its flags for an old glibc. Those need the external
// linker, which the go command does not take for tests with no cgo of their own.
func TestEnv(b *base.Base, variant base.Variant) []string {
	return Env(b, variant, base.Binary{Cgo: b.Binaries["kubelet"].Cgo})
}

func expand(b *base.Base, s string) string { return strings.ReplaceAll(s, "${ROOT}", b.Root) }

// compilerGC is GOGC of the go command and of what it runs, where the user has none. The compiler
// then takes less of the processors and more memory; what it writes is the same. The numbers are in
// docs/design/build.md.
const compilerGC = "GOGC=800"

// GoEnv is the process's environment less what changes what the go command
// builds.
func GoEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		k, _, _ := strings.Cut(e, "=")
		switch k {
		case "GOFLAGS", "GOEXPERIMENT", "GOAMD64", "GOOS", "GOARCH", "GODEBUG", "GOWORK", "GO111MODULE", "CGO_ENABLED",
			"CGO_CFLAGS", "CGO_CPPFLAGS", "CGO_CXXFLAGS", "CGO_LDFLAGS", "GOTOOLCHAIN", "GOENV",
			"CC", "CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "GOFIPS140", "GO_EXTLINK_ENABLED":
			continue
		}
		env = append(env, e)
	}
	if os.Getenv("GOGC") == "" {
		env = append(env, compilerGC)
	}
	env = append(env, "GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=local", "GOAMD64=v1", "GOENV=off")
	return append(env, goenv("GOPROXY", "GOMODCACHE", "GOCACHE", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GONOPROXY", "GOINSECURE", "GOAUTH")...)
}

// goenv asks the go command for settings, which a user may have put into its
// own file (go env -w): where modules come from and are kept.
func goenv(names ...string) []string {
	out, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	values := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if err != nil || len(values) != len(names) {
		return nil
	}
	env := make([]string, len(names))
	for i, n := range names {
		env[i] = n + "=" + values[i]
	}
	return env
}

// Release is what a binary of variant says that it is: the base's release only at the release's
// tag, see post. One that leaves fixes of ours out names them, so that nobody takes it for the
// product.
func Release(b *base.Base, variant base.Variant) (string, error) {
	if !b.IsOurs(variant) {
		return b.Version, nil
	}
	rev, err := revision(b.Root)
	if err != nil {
		return "", err
	}
	return release(b, variant, rev)
}

func release(b *base.Base, variant base.Variant, rev rev) (string, error) {
	version := b.Release + rev.post(b.Release)
	gone, err := b.MinusOf(variant)
	for _, s := range gone {
		version += ".minus." + s
	}
	return version, err
}

// versionFlags are the linker flags that fill the version in.
func versionFlags(b *base.Base, variant base.Variant) (string, error) {
	major, rest, _ := strings.Cut(strings.TrimPrefix(b.Version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	set := map[string]string{"gitVersion": b.Version, "gitMajor": major, "gitMinor": minor}
	if b.IsOurs(variant) {
		rev, err := revision(b.Root)
		if err != nil {
			return "", err
		}
		if set["gitVersion"], err = release(b, variant, rev); err != nil {
			return "", err
		}
		set["gitCommit"], set["gitTreeState"], set["buildDate"] = rev.commit, rev.state, rev.date
	} else {
		set["gitCommit"], set["gitTreeState"], set["buildDate"] = b.GitCommit, "clean", b.BuildDate
	}
	var flags []string
	for _, pkg := range b.VersionPackages() {
		for _, k := range []string{"gitVersion", "gitMajor", "gitMinor", "gitCommit", "gitTreeState", "buildDate"} {
			if v := set[k]; v != "" {
				flags = append(flags, "-X "+pkg+"."+k+"="+v)
			}
		}
	}
	return strings.Join(flags, " "), nil
}

// revision says which commit of ours is built. The date is the commit's, so
// that one commit gives one binary; SOURCE_DATE_EPOCH overrides it. Outside a
// git checkout the date is left as the patch series has it.
func revision(root string) (rev, error) {
	git := func(args ...string) (string, error) {
		cmd := exec.Command("git", append([]string{"-C", root}, args...)...)
		cmd.Env = append(os.Environ(), "TZ=UTC")
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	if _, err := os.Stat(filepath.Join(root, ".git")); errors.Is(err, fs.ErrNotExist) {
		return archived(root)
	}
	commit, err := git("rev-parse", "HEAD")
	if err != nil {
		return rev{state: "archive"}, nil // a checkout without a commit yet
	}
	tags, err := git("tag", "--points-at", "HEAD")
	if err != nil {
		return rev{}, fmt.Errorf("git tag: %w", err)
	}
	date, err := git("log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd")
	if err != nil {
		return rev{}, fmt.Errorf("git log: %w", err)
	}
	if e := os.Getenv("SOURCE_DATE_EPOCH"); e != "" {
		d, err := epoch(e)
		if err != nil {
			return rev{}, exit.Usagef("SOURCE_DATE_EPOCH=%q is not a number of seconds", e)
		}
		date = d
	}
	changed, err := git("status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return rev{}, fmt.Errorf("git status: %w", err)
	}
	// A new file there becomes part of the binary.
	added, err := git("status", "--porcelain", "--untracked-files=normal", "--", "pkg", "staging", "patches", "bases")
	if err != nil {
		return rev{}, fmt.Errorf("git status: %w", err)
	}
	state := "clean"
	if changed != "" || added != "" {
		state = "dirty"
	}
	return rev{commit, state, date, strings.Fields(tags)}, nil
}
