// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	ita "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	provenanceFile = "provenance.intoto.jsonl"
	payloadType    = "application/vnd.in-toto+json"
	unsignedFile   = "UNSIGNED"
)

// provenance writes what was built from what: an in-toto statement of SLSA's form in a DSSE
// envelope, or without keys the statement alone.
func (b *builder) provenance() error {
	list, err := digests(b.out)
	if err != nil {
		return err
	}
	predicate, err := b.predicate()
	if err != nil {
		return err
	}
	s := &ita.Statement{Type: ita.StatementTypeUri, PredicateType: "https://slsa.dev/provenance/v1", Predicate: predicate}
	for _, d := range list {
		s.Subject = append(s.Subject, &ita.ResourceDescriptor{Name: d.name, Digest: map[string]string{"sha256": d.sum}})
	}
	if err := s.Validate(); err != nil {
		return err
	}
	raw, err := protojson.Marshal(s)
	if err != nil {
		return err
	}
	var body bytes.Buffer // protojson puts spaces by chance
	if err := json.Compact(&body, raw); err != nil {
		return err
	}
	text := body.Bytes()
	if b.keys != nil {
		signer, err := dsse.NewEnvelopeSigner(b.keys)
		if err != nil {
			return err
		}
		envelope, err := signer.SignPayload(context.Background(), payloadType, text)
		if err != nil {
			return err
		}
		if text, err = json.Marshal(envelope); err != nil {
			return err
		}
	}
	return b.text(provenanceFile, string(text)+"\n")
}

func (b *builder) predicate() (*structpb.Struct, error) {
	gcc, err := output(b.root, "gcc", "-dumpfullversion")
	if err != nil {
		return nil, err
	}
	settings, versions := map[string]any{}, map[string]any{"gcc": gcc}
	for _, p := range slices.Sorted(maps.Keys(b.programs)) {
		info, err := buildinfo.ReadFile(b.programs[p])
		if err != nil {
			return nil, err
		}
		versions["go"] = info.GoVersion
		flags := map[string]any{}
		for _, s := range info.Settings {
			flags[s.Key] = s.Value
		}
		settings[p] = flags
	}
	return structpb.NewStruct(map[string]any{
		"buildDefinition": map[string]any{
			"buildType":          homepage + "/release/v1",
			"externalParameters": map[string]any{"version": b.version, "base": b.base.Name},
			"internalParameters": map[string]any{"tools": versions, "settings": settings},
			"resolvedDependencies": []any{
				map[string]any{"uri": "git+" + homepage, "digest": map[string]any{"gitCommit": b.commit}},
				map[string]any{"uri": "pkg:golang/" + b.base.Module + "@" + b.base.Version, "annotations": map[string]any{"go.sum": b.base.Sum}},
			},
		},
		"runDetails": map[string]any{"builder": map[string]any{"id": homepage + "/release"}},
	})
}

// texts writes NOTES.md, alerts.yaml, vex.json and, without keys, the file that says so.
func (b *builder) texts() error {
	title := b.version
	if b.snapshot {
		title += ", a snapshot: no release"
	}
	if b.keys == nil {
		title += ", not signed"
		if err := b.text(unsignedFile, "Nobody has signed this release: nothing says who made it.\n"); err != nil {
			return err
		}
	}
	open, err := b.open()
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, p := range slices.Sorted(maps.Keys(b.programs)) {
		sum, err := sha256File(b.programs[p])
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, p)
	}
	if err := b.text("NOTES.md", fmt.Sprintf("# Holdfast %s\n\nCommit %s. linux/amd64, for the kubelet glibc 2.17 or later.\n\n%s\n\n## Known vulnerabilities that are open\n\n%s\n\n## SHA-256 of the programs\n\n```\n%s```\n",
		title, b.commit, b.notes, open, sums.String())); err != nil || !b.base.Default {
		return err
	}
	alerts, err := os.ReadFile(filepath.Join(b.root, "docs/user/alerts.yaml"))
	if err != nil {
		return err
	}
	if err := b.text("alerts.yaml", string(alerts)); err != nil {
		return err
	}
	// make security writes it, for the release that base.json names.
	raw, err := os.ReadFile(filepath.Join(b.root, "_output/vex.json"))
	if err != nil {
		return failf("%v: run make security first", err)
	}
	if product := "@" + strings.ReplaceAll(b.base.Release, "+", "%2B"); !bytes.Contains(raw, []byte(product)) {
		return failf("_output/vex.json is not of %s: run make security", b.base.Release)
	}
	// A snapshot is named by its commit.
	release := func(s string) []byte { return []byte("@" + strings.ReplaceAll(s, "+", "%2B") + `"`) }
	return b.text("vex.json", string(bytes.ReplaceAll(raw, release(b.base.Release), release(b.version))))
}

// open are the rows of vulnerabilities.json that nothing of the release closes.
func (b *builder) open() (string, error) {
	file := "bases/" + b.base.Name + "/vulnerabilities.json"
	raw, err := os.ReadFile(filepath.Join(b.root, file))
	if os.IsNotExist(err) {
		return "No known vulnerability of " + b.base.Version + " is closed.", nil
	}
	var table struct {
		Entries []struct {
			Name, What, Status, Do string
			CVE                    []string
		}
	}
	if err == nil {
		err = json.Unmarshal(raw, &table)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	rows := []string{"| what | number | what to do |", "|---|---|---|"}
	for _, e := range table.Entries {
		if e.Status == "not-affected" || e.Status == "not-ours" {
			continue
		}
		what := e.What
		if what == "" {
			what = e.Name
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |", what, strings.Join(e.CVE, ", "), e.Do))
	}
	return strings.Join(rows, "\n"), nil
}
