// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vulncheck asks govulncheck for the known vulnerabilities of the product's
// binaries and compares its findings with the table of package security. It is a help and no gate:
// docs/security.md says what govulncheck does not see in these binaries.
package vulncheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/vuln/scan"

	"holdfast/tools/build/exit"
	"holdfast/tools/verify/security"
)

// HowToGet says where a database comes from.
const HowToGet = `no database is named: make vulncheck DB=FOLDER|URL
  DB=https://vuln.go.dev     the Go project's database, read over the network
  DB=/path/to/folder         a copy of it: index/db.json, index/modules.json, ID/*.json (https://go.dev/doc/security/vuln/database)`

// URL is the database as govulncheck takes it: a URL as it is, a folder as file:.
func URL(db string) (string, error) {
	if db == "" {
		return "", exit.Usagef("%s", HowToGet)
	}
	if u, err := url.Parse(db); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
		return db, nil
	}
	folder, err := filepath.Abs(strings.TrimPrefix(db, "file://"))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(folder, "index", "modules.json")); err != nil {
		return "", exit.Usagef("DB=%s is neither a URL (https://…) nor the folder of a Go vulnerability database: %v", db, err)
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(folder)}).String(), nil
}

// Finding is a vulnerability that govulncheck sees in a program.
type Finding struct {
	// ID is the database's own, for example GO-2022-0322; Aliases are its CVE and
	// other numbers.
	ID      string
	Aliases []string
	Module  string
	Version string
	// Symbol is a function of the program that has it, empty where only the package
	// or the module is known to be there.
	Symbol string
	// By are the entries that explain it.
	By []*security.Entry
}

// Scan asks govulncheck, as a library, for the findings in one program.
func Scan(ctx context.Context, database, program string) ([]Finding, error) {
	if _, err := os.Stat(program); err != nil {
		return nil, exit.Preconditionf("%v: build it first (make)", err)
	}
	var out, said bytes.Buffer
	cmd := scan.Command(ctx, "-mode=binary", "-format=json", "-db="+database, program)
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := cmd.Wait(); err != nil {
		return nil, exit.Preconditionf("govulncheck, %s with the database %s: %v\n%s", program, database, err, said.Bytes())
	}
	return Read(&out)
}

// Read reads what govulncheck -format=json prints. Of several findings of one
// vulnerability the most precise is kept.
func Read(r io.Reader) ([]Finding, error) {
	aliases := map[string][]string{}
	var out []Finding
	configured := false
	for d := json.NewDecoder(r); ; {
		var m struct {
			Config *struct{}
			OSV    *struct {
				ID      string
				Aliases []string
			}
			Finding *struct {
				OSV   string
				Trace []struct{ Module, Version, Package, Function string }
			}
		}
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("what govulncheck printed: %w", err)
		}
		configured = configured || m.Config != nil
		if m.OSV != nil {
			aliases[m.OSV.ID] = m.OSV.Aliases
		}
		if m.Finding == nil {
			continue
		}
		f := Finding{ID: m.Finding.OSV}
		if len(m.Finding.Trace) > 0 {
			t := m.Finding.Trace[0]
			f.Module, f.Version = t.Module, t.Version
			if t.Function != "" {
				f.Symbol = t.Package + "." + t.Function
			}
		}
		if i := slices.IndexFunc(out, func(o Finding) bool { return o.ID == f.ID }); i < 0 {
			out = append(out, f)
		} else if out[i].Symbol == "" {
			out[i] = f
		}
	}
	if !configured {
		return nil, fmt.Errorf("govulncheck printed no configuration: it did not run to its end")
	}
	for i := range out {
		out[i].Aliases = aliases[out[i].ID]
	}
	slices.SortFunc(out, func(a, b Finding) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// Explain fills By of each finding in a program of the product and returns those that
// no entry explains. An entry explains a finding that has one of its numbers, in that
// program; a vulnerability of another component explains it in both.
func Explain(t *security.Table, component string, found []Finding) (unexplained []Finding) {
	for i := range found {
		f := &found[i]
		for _, e := range t.Entries {
			if !slices.Contains(e.Components, component) && e.Status != security.NotOurs {
				continue
			}
			if slices.ContainsFunc(e.CVE, func(c string) bool { return c == f.ID || slices.Contains(f.Aliases, c) }) {
				f.By = append(f.By, e)
			}
		}
		if len(f.By) == 0 {
			unexplained = append(unexplained, *f)
		}
	}
	return unexplained
}

// Check scans each program (by component) and prints every finding with what explains
// it. It is an error if one is not explained.
func Check(ctx context.Context, w io.Writer, t *security.Table, database string, programs map[string]string) error {
	var open []string
	for _, c := range security.Ours {
		found, err := Scan(ctx, database, programs[c])
		if err != nil {
			return err
		}
		Explain(t, c, found)
		for _, f := range found {
			what := fmt.Sprintf("%s: %s (%s) in %s@%s", c, f.ID, strings.Join(f.Aliases, ", "), f.Module, f.Version)
			if f.Symbol != "" {
				what += ", " + f.Symbol
			}
			if len(f.By) == 0 {
				open = append(open, what)
				continue
			}
			for _, e := range f.By {
				fmt.Fprintf(w, "%s: %s: %s\n", what, e.Status, e.What)
			}
		}
		fmt.Fprintf(w, "%s: %d findings\n", c, len(found))
	}
	if len(open) > 0 {
		return exit.Preconditionf("%s does not explain %d findings, nor does a fix; judge each and give it an entry there:\n%s", security.File(t.Base), len(open), strings.Join(open, "\n"))
	}
	return nil
}
