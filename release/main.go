// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// The release command makes of the built binaries what people install, and checks it:
//
//	release build [--base v1.2.0] [--snapshot] [--keys DIR] OUT
//	release keygen DIR
//	release verify [--keys DIR] [--unsigned] [--rebuild] OUT
//
// docs/user/packages.md and docs/user/verify.md are the pages of who installs them,
// docs/design/release.md says what is made how.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

// fault is an error with its exit status: 2 for usage, 1 for all else.
type fault struct {
	code int
	text string
}

func (f fault) Error() string { return f.text }

func failf(format string, a ...any) error  { return fault{1, fmt.Sprintf(format, a...)} }
func usagef(format string, a ...any) error { return fault{2, fmt.Sprintf(format, a...)} }

const usage = `usage: release build [--base NAME] [--snapshot] [--keys DIR] OUT
       release keygen DIR
       release verify [--keys DIR] [--unsigned] [--rebuild] OUT
The passphrase of the keys is read from the file that HOLDFAST_PASSPHRASE_FILE names.`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		var f fault
		if errors.As(err, &f) {
			os.Exit(f.code)
		}
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return usagef("%s", usage)
	}
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	f.SetOutput(os.Stderr)
	f.Usage = func() { fmt.Fprintln(os.Stderr, usage) }
	var o options
	f.StringVar(&o.base, "base", "", "the folder below bases/; the default one without it")
	f.BoolVar(&o.snapshot, "snapshot", false, "build what is no release, for trials")
	f.StringVar(&o.keys, "keys", "", "the folder that release keygen wrote, or of its public keys")
	f.BoolVar(&o.unsigned, "unsigned", false, "accept what is not signed: nothing then says who made it")
	f.BoolVar(&o.rebuild, "rebuild", false, "build the same once more from this checkout, and compare")
	if err := f.Parse(args[1:]); err != nil {
		return usagef("%v", err)
	}
	if f.NArg() != 1 {
		return usagef("%s", usage)
	}
	switch args[0] {
	case "build":
		return build(o, f.Arg(0))
	case "keygen":
		return keygen(f.Arg(0))
	case "verify":
		return verify(o, f.Arg(0), os.Stdout)
	}
	return usagef("unknown command %q\n%s", args[0], usage)
}

type options struct {
	base, keys                  string
	snapshot, unsigned, rebuild bool
}
