// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	ita "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"google.golang.org/protobuf/encoding/protojson"
)

// verify looks whether a folder is the release that its keys' owner made, whole and unchanged. The
// public keys come from o.keys: those inside of the folder say nothing about who made it.
func verify(o options, dir string, w io.Writer) error {
	_, err := os.Stat(filepath.Join(dir, unsignedFile))
	unsigned := err == nil
	if unsigned && !o.unsigned {
		return failf("%s is not signed: nothing says who made it; --unsigned checks its sums alone", dir)
	}
	if !unsigned && o.keys == "" {
		return usagef("--keys DIR is needed: a folder with %s and %s that you have from somewhere else than the release", pgpPublic, ecdsaPublic)
	}
	list, err := checkSums(dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d files are as %s says, and no other is there\n", len(list), sums)
	var k *keys
	if !unsigned {
		if k, err = publicKeys(o.keys); err != nil {
			return err
		}
		if err := k.signatures(dir); err != nil {
			return err
		}
		fmt.Fprintf(w, "signed with %X\n", k.pgp.PrimaryKey.Fingerprint)
	}
	version, commit, err := checkProvenance(dir, list, k)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s, built of commit %s\n", version, commit)
	if root, err := output("", "git", "rev-parse", "--show-toplevel"); err == nil {
		if err := checkCommitted(filepath.Join(root, "release/sums", version), dir, w); err != nil {
			return err
		}
	}
	if !o.rebuild {
		return nil
	}
	return rebuild(o, dir, commit, list, w)
}

// checkSums compares a folder with its SHA256SUMS.
func checkSums(dir string) ([]digest, error) {
	raw, err := os.ReadFile(filepath.Join(dir, sums))
	if err != nil {
		return nil, err
	}
	want := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if _, twice := want[name]; !ok || len(sum) != 64 || twice || !filepath.IsLocal(name) {
			return nil, failf("%s: %q is no line of sha256sum", sums, strings.TrimSpace(line))
		}
		want[name] = sum
	}
	list, err := digests(dir)
	if err != nil {
		return nil, err
	}
	var bad []string
	for _, d := range list {
		switch sum, ok := want[d.name]; {
		case !ok:
			bad = append(bad, d.name+" is not in "+sums)
		case sum != d.sum:
			bad = append(bad, d.name+" was changed")
		}
		delete(want, d.name)
	}
	for name := range want {
		bad = append(bad, name+" is missing")
	}
	if len(bad) > 0 {
		slices.Sort(bad)
		return nil, failf("%s:\n%s", dir, strings.Join(bad, "\n"))
	}
	return list, nil
}

// signatures checks all signatures but that of the provenance.
func (k *keys) signatures(dir string) error {
	read := func(name string) []byte {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil // no signature of nothing is good
		}
		return raw
	}
	ring := openpgp.EntityList{k.pgp}
	var bad []string
	if err := k.Verify(context.Background(), read(sums), read(sums+".sig")); err != nil {
		bad = append(bad, sums+".sig: "+err.Error())
	}
	signed := []string{sums}
	if _, err := os.Stat(filepath.Join(dir, "apt")); err == nil {
		signed = append(signed, "apt/Release", "yum/repodata/repomd.xml")
		if block, _ := clearsign.Decode(read("apt/InRelease")); block == nil {
			bad = append(bad, "apt/InRelease is not signed")
		} else if _, err := block.VerifySignature(ring, nil); err != nil {
			bad = append(bad, "apt/InRelease: "+err.Error())
		} else if !bytes.Equal(bytes.TrimSpace(block.Plaintext), bytes.TrimSpace(read("apt/Release"))) {
			bad = append(bad, "apt/InRelease and apt/Release differ")
		}
	}
	for _, name := range signed {
		file := name + ".asc"
		if name == "apt/Release" {
			file = name + ".gpg"
		}
		if _, err := openpgp.CheckArmoredDetachedSignature(ring, bytes.NewReader(read(name)), bytes.NewReader(read(file)), nil); err != nil {
			bad = append(bad, file+": "+err.Error())
		}
	}
	if len(bad) > 0 {
		return failf("%s is not signed with these keys:\n%s", dir, strings.Join(bad, "\n"))
	}
	return nil
}

// checkCommitted compares SHA256SUMS with the one that was committed after that release.
func checkCommitted(file, dir string, w io.Writer) error {
	want, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(w, "this checkout has no sums of that version in release/sums")
		return nil
	}
	if err != nil {
		return err
	}
	have, err := os.ReadFile(filepath.Join(dir, sums))
	if err != nil {
		return err
	}
	if !bytes.Equal(have, want) {
		return failf("%s is not %s: a release of that version was made before, of other files", filepath.Join(dir, sums), file)
	}
	fmt.Fprintf(w, "%s is %s\n", sums, file)
	return nil
}

// checkProvenance compares the provenance's files with those of the folder. It returns version and
// commit.
func checkProvenance(dir string, list []digest, k *keys) (version, commit string, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, provenanceFile))
	if err != nil {
		return "", "", err
	}
	if k != nil {
		var e dsse.Envelope
		if err := json.Unmarshal(raw, &e); err != nil {
			return "", "", failf("%s: %v", provenanceFile, err)
		}
		v, err := dsse.NewEnvelopeVerifier(k)
		if err == nil {
			_, err = v.Verify(context.Background(), &e)
		}
		if err == nil && e.PayloadType != payloadType {
			err = fmt.Errorf("its type is %q", e.PayloadType)
		}
		if err != nil {
			return "", "", failf("%s: %v", provenanceFile, err)
		}
		if raw, err = e.DecodeB64Payload(); err != nil {
			return "", "", err
		}
	}
	s := &ita.Statement{}
	if err := protojson.Unmarshal(raw, s); err != nil {
		return "", "", failf("%s: %v", provenanceFile, err)
	}
	said := map[string]string{}
	for _, d := range s.Subject {
		said[d.Name] = d.Digest["sha256"]
	}
	for _, d := range list {
		if said[d.name] != d.sum {
			return "", "", failf("%s has another sum of %s", provenanceFile, d.name)
		}
	}
	if len(said) != len(list) {
		return "", "", failf("%s names %d files, and %d are there", provenanceFile, len(said), len(list))
	}
	var p struct {
		BuildDefinition struct {
			ExternalParameters   struct{ Version string }
			ResolvedDependencies []struct{ Digest map[string]string }
		}
	}
	text, err := s.Predicate.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil || len(p.BuildDefinition.ResolvedDependencies) == 0 {
		return "", "", failf("%s names no commit: %v", provenanceFile, err)
	}
	version = p.BuildDefinition.ExternalParameters.Version
	if !filepath.IsLocal(version) || filepath.Base(version) != version {
		return "", "", failf("%s names no version: %q", provenanceFile, version)
	}
	return version, p.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"], nil
}

// rebuild builds the same once more from what make has built here, and compares byte by byte. What
// only the owner of the keys can make is left out: signatures, and in an rpm its signature's header.
func rebuild(o options, dir, commit string, list []digest, w io.Writer) error {
	if here, err := output("", "git", "rev-parse", "HEAD"); err != nil || here != commit {
		return errors.Join(err, failf("this checkout is of commit %s, the release of %s: check that out, run make, and try again", here, commit))
	}
	temp, err := os.MkdirTemp("", "holdfast-rebuild-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	o.keys = ""
	if err := build(o, temp); err != nil {
		return err
	}
	var differ []string
	n := 0
	for _, d := range list {
		if signedOnly(d.name) {
			continue
		}
		n++
		theirs, err := contentSum(filepath.Join(dir, d.name))
		if err != nil {
			return err
		}
		if ours, err := contentSum(filepath.Join(temp, d.name)); err != nil || ours != theirs {
			differ = append(differ, d.name)
		}
	}
	if len(differ) > 0 {
		return failf("what this checkout builds differs in %s", strings.Join(differ, ", "))
	}
	fmt.Fprintf(w, "%d files are, byte by byte, what this checkout builds\n", n)
	return nil
}

// signedOnly tells whether a file is another one, or is not there, without the keys. NOTES.md says
// in its title that it is not signed, and yum's lists have the rpms' sums with their signatures.
func signedOnly(name string) bool {
	switch filepath.Ext(name) {
	case ".asc", ".gpg", ".pem":
		return true
	}
	return name == "apt/InRelease" || name == "NOTES.md" || name == unsignedFile || strings.HasPrefix(name, "yum/repodata/")
}

// contentSum is the SHA-256 of a file; of an rpm, that of all behind its signature.
func contentSum(file string) (string, error) {
	if filepath.Ext(file) != ".rpm" {
		return sha256File(file)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	const lead, intro = 96, 16 // of the file, and of a header: magic, number and size of its entries
	if len(raw) < lead+intro {
		return "", failf("%s is no rpm", file)
	}
	n := int(binary.BigEndian.Uint32(raw[lead+8:]))
	size := int(binary.BigEndian.Uint32(raw[lead+12:]))
	end := lead + intro + 16*n + size
	end += (8 - end%8) % 8
	if end > len(raw) || n < 0 || size < 0 {
		return "", failf("%s is no rpm", file)
	}
	sum := sha256.Sum256(raw[end:])
	return hex.EncodeToString(sum[:]), nil
}
