// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Command container-hash computes the hashes that the kubelets of releases 1.6
// to 1.9 record for a container, and says where a recorded one comes from.
//
// It reads JSON lines {"id":…,"spec":{container}} on standard input.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"k8s.io/api/core/v1"

	"holdfast/pkg/kubelet/container/hashcompat"
)

const usage = `usage: container-hash [--mode proto|json] <containers.jsonl
       container-hash explain --recorded HEX|DEC [--mode proto|json] <containers.jsonl

Standard input has one container a line, {"id":…,"spec":{…}}, where spec is an
entry of a pod's spec.containers or spec.initContainers.

container-hash answers every line with the hash that the kubelets of 1.9, 1.8,
1.7 and 1.6 record for the container, null where a release does not know a field
that the spec sets, and the release whose hash Holdfast's kubelet records:
  {"id":"a","hash":{"1.9":1428860573,"1.8":77704989,"1.7":1559107639,"1.6":1559107639},"records":"1.7"}

container-hash explain says which releases record the hash given by --recorded
for the container, or what was tried and which fields stand in the way. It takes
the number as it is in the label io.kubernetes.container.hash (hexadecimal) and
in events (decimal); if it can be read both ways, both are tried.

--mode proto (the default) decodes the spec as a kubelet gets it from the API:
JSON, then a protobuf round trip. --mode json leaves out the round trip.

A line that cannot be answered is reported on standard error with its number,
the others are answered, and the exit status is 1. It is 2 for a usage error.
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	explaining := len(args) > 0 && args[0] == "explain"
	if explaining {
		args = args[1:]
	}
	flags := flag.NewFlagSet("container-hash", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	mode := flags.String("mode", "proto", "")
	recorded := ""
	if explaining {
		flags.StringVar(&recorded, "recorded", "", "")
	}
	usageError := func(format string, args ...interface{}) int {
		fmt.Fprintf(stderr, "container-hash: "+format+"; container-hash -h shows the usage\n", args...)
		return 2
	}
	if err := flags.Parse(args); err == flag.ErrHelp {
		fmt.Fprint(stdout, usage)
		return 0
	} else if err != nil {
		return usageError("%v", err)
	}
	if flags.NArg() > 0 {
		return usageError("unexpected argument %q: containers are read from standard input", flags.Arg(0))
	}
	if *mode != "proto" && *mode != "json" {
		return usageError("--mode is %q, want proto or json", *mode)
	}
	if drift := hashcompat.Drift(); len(drift) > 0 {
		fmt.Fprintf(stderr, "container-hash: built from API types that it does not know: %s\n", strings.Join(drift, "; "))
		return 1
	}

	answer := appendHashes
	if explaining {
		readings, err := parseRecorded(recorded)
		if err != nil {
			return usageError("--recorded: %v", err)
		}
		answer = func(out []byte, id []byte, c *v1.Container) []byte { return appendExplanation(out, id, c, readings) }
	}
	bad, err := eachLine(stdin, stdout, stderr, decoder(*mode == "proto"), answer)
	if err != nil {
		fmt.Fprintf(stderr, "container-hash: %v\n", err)
		return 1
	}
	if bad {
		return 1
	}
	return 0
}

// eachLine answers every line of in that is not blank. It reports whether one
// could not be answered, and the error that ended reading or writing.
func eachLine(in io.Reader, out, errs io.Writer,
	decode func(line []byte) (id []byte, c *v1.Container, err error),
	answer func(out, id []byte, c *v1.Container) []byte) (bad bool, err error) {
	r, w := bufio.NewReaderSize(in, 1<<16), bufio.NewWriterSize(out, 1<<16)
	var text []byte
	for n := 1; ; n++ {
		line, err := readLine(r)
		if err != nil && err != io.EOF {
			w.Flush()
			return bad, fmt.Errorf("standard input, line %d: %v", n, err)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			if id, c, derr := decode(line); derr != nil {
				bad = true
				// Keep the order in which the lines come on a terminal.
				if ferr := w.Flush(); ferr != nil {
					return bad, ferr
				}
				fmt.Fprintf(errs, "container-hash: line %d: %v\n", n, derr)
			} else {
				text = answer(text[:0], id, c)
				if _, werr := w.Write(text); werr != nil {
					return bad, werr
				}
			}
		}
		if err == io.EOF {
			return bad, w.Flush()
		}
		// Whoever writes a line and waits for the answer gets it.
		if r.Buffered() == 0 {
			if ferr := w.Flush(); ferr != nil {
				return bad, ferr
			}
		}
	}
}

// readLine returns a line of any length, valid until the next read.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return line, err
	}
	long := append([]byte(nil), line...)
	rest, err := r.ReadBytes('\n')
	return append(long, rest...), err
}

// decoder returns a function that decodes a line. The container is valid until
// the next call.
func decoder(roundTrip bool) func([]byte) ([]byte, *v1.Container, error) {
	var wire []byte
	return func(line []byte) ([]byte, *v1.Container, error) {
		var in struct {
			ID   json.RawMessage `json:"id"`
			Spec *v1.Container   `json:"spec"`
		}
		if err := json.Unmarshal(line, &in); err != nil {
			return nil, nil, describe(err)
		}
		if in.Spec == nil {
			return nil, nil, errors.New(`no "spec": want {"id":…,"spec":{container}}`)
		}
		if in.ID == nil {
			in.ID = json.RawMessage("null")
		}
		if !roundTrip {
			return in.ID, in.Spec, nil
		}
		size := in.Spec.Size()
		if cap(wire) < size {
			wire = make([]byte, 2*size)
		}
		n, err := in.Spec.MarshalTo(wire[:size])
		if err != nil {
			return nil, nil, fmt.Errorf("the spec has no protobuf form: %v", err)
		}
		c := &v1.Container{}
		if err := c.Unmarshal(wire[:n]); err != nil {
			return nil, nil, fmt.Errorf("the spec's protobuf form does not decode: %v", err)
		}
		return in.ID, c, nil
	}
}

// describe names the field of a decoding error as the API does.
func describe(err error) error {
	var typeErr *json.UnmarshalTypeError
	if errors.As(err, &typeErr) {
		if typeErr.Field == "" {
			return fmt.Errorf(`%s instead of an object {"id":…,"spec":{container}}`, typeErr.Value)
		}
		return fmt.Errorf("%s: %s instead of %s", typeErr.Field, typeErr.Value, typeErr.Type)
	}
	return fmt.Errorf("not a container: %v", err)
}

func appendHashes(out, id []byte, c *v1.Container) []byte {
	all := hashcompat.All(c)
	out = append(append(append(out, `{"id":`...), id...), `,"hash":{`...)
	for i, g := range hashcompat.Generations() {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), g.String()...), `":`...)
		if h, ok := all.Get(g); ok {
			out = strconv.AppendUint(out, h, 10)
		} else {
			out = append(out, "null"...)
		}
	}
	return append(append(append(out, `},"records":"`...), all.Records().String()...), "\"}\n"...)
}

// parseRecorded returns the numbers that text can mean: hexadecimal as in the
// container's label, decimal as in events and logs, hexadecimal with 0x.
func parseRecorded(text string) ([]uint64, error) {
	if text == "" {
		return nil, errors.New("no hash given")
	}
	digits, bases := text, []int{16, 10}
	if hex := strings.TrimPrefix(strings.ToLower(text), "0x"); hex != strings.ToLower(text) {
		digits, bases = hex, []int{16}
	}
	var readings []uint64
	for _, base := range bases {
		h, err := strconv.ParseUint(digits, base, 64)
		if err == nil && h <= math.MaxUint32 && (len(readings) == 0 || readings[0] != h) {
			readings = append(readings, h)
		}
	}
	if len(readings) == 0 {
		return nil, fmt.Errorf("%q is not a 32 bit number, hexadecimal as in the label io.kubernetes.container.hash or decimal as in events", text)
	}
	return readings, nil
}

func appendExplanation(out, id []byte, c *v1.Container, readings []uint64) []byte {
	name := string(id)
	if text := ""; json.Unmarshal(id, &text) == nil {
		name = text
	}
	var e hashcompat.Explanation
	for _, h := range readings {
		e = hashcompat.Explain(c, h)
		if len(e.Recorded) > 0 {
			var releases []string
			for _, g := range e.Recorded {
				releases = append(releases, g.String())
			}
			return append(out, fmt.Sprintf("%s: %s is the hash of %s for this spec\n", name, both(h), strings.Join(releases, ", "))...)
		}
		if e.Ignoring != nil {
			return append(out, fmt.Sprintf("%s: %s is what a %v kubelet records for this spec without %s, which it does not know and ignores; the container has to be recreated\n",
				name, both(h), e.IgnoringGeneration, strings.Join(e.Ignoring, ", "))...)
		}
	}
	var tried []string
	for _, h := range readings {
		tried = append(tried, both(h))
	}
	out = append(out, fmt.Sprintf("%s: no release from %v to %v records %s for this spec\n",
		name, hashcompat.Gen16, hashcompat.Gen19, strings.Join(tried, " or "))...)
	for _, a := range e.Tried {
		if len(a.Unknown) > 0 {
			out = append(out, fmt.Sprintf("  %v: does not know %s\n", a.Generation, strings.Join(a.Unknown, ", "))...)
		} else {
			out = append(out, fmt.Sprintf("  %v: records %s\n", a.Generation, both(a.Hash))...)
		}
	}
	return out
}

// both returns a hash as it is in events and as it is in the label.
func both(h uint64) string {
	return fmt.Sprintf("%d (label %x)", h, h)
}
