// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pod-template-hash prints the hashes that the Deployment controllers
// of old Kubernetes releases give to a pod template, and finds image tags that
// make one hash. See docs/patches/hash-collision.md.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/ghodss/yaml"

	"holdfast/pkg/util/podtemplatehash"
)

const usage = `usage:
  pod-template-hash [--release R] [--counts N] [--dump] FILE
      the hash of FILE's template, per release, without a collision count and with 0…N
  pod-template-hash collide [--release R] [--container C] [--limit N] (--tags LIST | --pattern P) FILE
      the pairs of tags of container C (default: the first) whose templates have one hash
  pod-template-hash odds [--container C] [--trials N] [--seed S] --releases N,N,… (--tags LIST | --pattern P) FILE
      how often a Deployment that is released N times, with different tags out of these, meets a collision

FILE is a Deployment (or ReplicaSet, DaemonSet, PodTemplate spec) in JSON or YAML as the API server
returns it (kubectl get -o json), or - for standard input.
R is one of 1.2 to 1.9; default: all of them.
LIST is a file with a tag a line, or - for standard input. P is a pattern: v1.{0..99}.{0..999}, {2016..2017}{01..12}.
`

// usageError is a wrong command line: exit status 2.
type usageError struct{ error }

func usagef(format string, a ...any) error { return usageError{fmt.Errorf(format, a...)} }

func main() {
	err := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(usage)
	case errors.As(err, &usageError{}):
		fmt.Fprintf(os.Stderr, "pod-template-hash: %v\n%s", err, usage)
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "pod-template-hash: %v\n", err)
		os.Exit(1)
	}
}

// options are the flags of all commands.
type options struct {
	release, container, tags, pattern, releases string
	counts, limit, trials                       int
	seed                                        int64
	dump                                        bool
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	command := "hash"
	if len(args) > 0 && (args[0] == "collide" || args[0] == "odds") {
		command, args = args[0], args[1:]
	}
	var o options
	fs := flag.NewFlagSet(command, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	switch command {
	case "hash":
		fs.StringVar(&o.release, "release", "", "")
		fs.IntVar(&o.counts, "counts", 2, "")
		fs.BoolVar(&o.dump, "dump", false, "")
	case "collide":
		fs.StringVar(&o.release, "release", "", "")
		fs.IntVar(&o.limit, "limit", 10, "")
	case "odds":
		fs.StringVar(&o.releases, "releases", "32,50,100", "")
		fs.IntVar(&o.trials, "trials", 10000, "")
		fs.Int64Var(&o.seed, "seed", 1, "")
	}
	if command != "hash" {
		fs.StringVar(&o.container, "container", "", "")
		fs.StringVar(&o.tags, "tags", "", "")
		fs.StringVar(&o.pattern, "pattern", "", "")
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{err}
	}
	if fs.NArg() != 1 {
		return usagef("give one FILE, or - for standard input")
	}
	releases := podtemplatehash.Releases
	if o.release != "" {
		r, err := podtemplatehash.Find(o.release)
		if err != nil {
			return usagef("--release: %v", err)
		}
		releases = []*podtemplatehash.Release{r}
	}
	if o.counts < 0 || o.limit < 0 || o.trials < 0 {
		return usagef("--counts, --limit and --trials take no negative number")
	}
	if command != "hash" && (o.tags == "") == (o.pattern == "") {
		return usagef("give either --tags or --pattern")
	}
	if o.tags == "-" && fs.Arg(0) == "-" {
		return usagef("standard input cannot be both FILE and the list of tags")
	}

	template, err := readTemplate(fs.Arg(0), stdin)
	if err != nil {
		return err
	}
	notes(stderr, releases, template)
	if command == "hash" {
		return printHashes(stdout, releases, template, o)
	}
	tags, err := readTags(o, stdin)
	if err != nil {
		return err
	}
	marked, err := podtemplatehash.WithMark(template, o.container)
	if err != nil {
		return fmt.Errorf("%s: %w", fs.Arg(0), err)
	}
	if command == "collide" {
		return collide(stdout, releases, marked, tags, o)
	}
	return odds(stdout, releases, marked, tags, o)
}

func readTemplate(file string, stdin io.Reader) (map[string]any, error) {
	data, err := readFile(file, stdin)
	if err != nil {
		return nil, err
	}
	if trimmed := strings.TrimSpace(string(data)); !strings.HasPrefix(trimmed, "{") {
		if data, err = yaml.YAMLToJSON(data); err != nil {
			return nil, fmt.Errorf("%s: neither JSON nor YAML: %w", file, err)
		}
	}
	template, err := podtemplatehash.Template(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return template, nil
}

func readFile(file string, stdin io.Reader) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(file)
}

// notes says, once for all releases, what makes the hashes other than the
// controllers'.
func notes(w io.Writer, releases []*podtemplatehash.Release, template map[string]any) {
	for _, r := range releases {
		if missing := r.Missing(template); len(missing) > 0 {
			fmt.Fprintf(w, "note: %s: not as the API server returns it, which fills in %s; the controller's hash is another\n", r.Name, strings.Join(missing, ", "))
		}
	}
}

func readTags(o options, stdin io.Reader) ([]string, error) {
	if o.pattern != "" {
		tags, err := podtemplatehash.Expand(o.pattern)
		if err != nil {
			return nil, usagef("--pattern: %v", err)
		}
		return tags, nil
	}
	data, err := readFile(o.tags, stdin)
	if err != nil {
		return nil, err
	}
	var tags []string
	seen := map[string]bool{}
	sc := bufio.NewScanner(strings.NewReader(string(data)))
	for sc.Scan() {
		if t := strings.TrimSpace(sc.Text()); t != "" && !seen[t] {
			seen[t] = true
			tags = append(tags, t)
		}
	}
	if len(tags) == 0 {
		return nil, fmt.Errorf("%s: no tags; write one a line", o.tags)
	}
	return tags, sc.Err()
}

func printHashes(w io.Writer, releases []*podtemplatehash.Release, template map[string]any, o options) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(tw, "RELEASE\tALGORITHM\tNO COUNT\tNAME ENDS IN")
	for i := 0; i <= o.counts; i++ {
		fmt.Fprintf(tw, "\tCOUNT %d", i)
	}
	fmt.Fprintln(tw)
	for _, r := range releases {
		dump, err := r.Dump(template)
		if err != nil {
			fmt.Fprintf(tw, "%s\t%s\tnot known: %v\n", r.Name, r.Algorithm, err)
			continue
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t-%s", r.Name, r.Algorithm, r.Sum(dump, -1), r.Suffix(r.Sum(dump, -1)))
		for i := 0; i <= o.counts && r.Counts; i++ {
			fmt.Fprintf(tw, "\t%d", r.Sum(dump, i))
		}
		fmt.Fprintln(tw)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if o.dump {
		for _, r := range releases {
			dump, err := r.Dump(template)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "\n%s:\n%s\n", r.Name, dump)
		}
	}
	return nil
}

func collide(w io.Writer, releases []*podtemplatehash.Release, marked map[string]any, tags []string, o options) error {
	out := bufio.NewWriter(w)
	defer out.Flush()
	fmt.Fprintf(out, "%d tags\n", len(tags))
	for _, r := range releases {
		pieces, err := r.Pieces(marked)
		if err != nil {
			return err
		}
		groups := r.Collide(pieces, tags)
		printPairs(out, fmt.Sprintf("%s (%s)", r.Name, r.Algorithm), groups, tags, o.limit, func(tag string) string {
			return fmt.Sprint(r.SumTag(pieces, tag, -1))
		})
	}
	return out.Flush()
}

func printPairs(w io.Writer, title string, groups []podtemplatehash.Group, tags []string, limit int, hash func(string) string) {
	fmt.Fprintf(w, "%s: %d pairs\n", title, podtemplatehash.Pairs(groups))
	shown := 0
	for _, g := range groups {
		for i, a := range g {
			for _, b := range g[i+1:] {
				if shown == limit {
					fmt.Fprintln(w, "  …  (--limit shows more)")
					return
				}
				shown++
				fmt.Fprintf(w, "  %s  %s  hash %s\n", tags[a], tags[b], hash(tags[a]))
			}
		}
	}
}

// odds draws releases out of the tags, without putting them back, and counts
// the draws that hold a collision. Beside it stands what the number of pairs
// in the whole gives, 1-(1-p)^(n(n-1)/2), which is all there is to see where a
// collision is rare.
func odds(w io.Writer, releases []*podtemplatehash.Release, marked map[string]any, tags []string, o options) error {
	var counts []int
	for _, s := range strings.Split(o.releases, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 2 || n > len(tags) {
			return usagef("--releases: %q is not a number from 2 to %d, that of the tags", s, len(tags))
		}
		counts = append(counts, n)
	}
	fmt.Fprintf(w, "%d tags, %d trials, seed %d\n", len(tags), o.trials, o.seed)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(tw, "RELEASE\tALGORITHM\tPAIRS")
	for _, n := range counts {
		fmt.Fprintf(tw, "\tAFTER %d\tBY PAIRS", n)
	}
	fmt.Fprintln(tw)
	for _, r := range releases {
		pieces, err := r.Pieces(marked)
		if err != nil {
			return err
		}
		groups := r.Collide(pieces, tags)
		member := make([]int32, len(tags)) // 0, or 1 + the tag's group
		for g, group := range groups {
			for _, i := range group {
				member[i] = int32(g) + 1
			}
		}
		pairs := podtemplatehash.Pairs(groups)
		fmt.Fprintf(tw, "%s\t%s\t%d", r.Name, r.Algorithm, pairs)
		for _, n := range counts {
			rnd := rand.New(rand.NewSource(o.seed))
			hit := 0
			for t := 0; t < o.trials; t++ {
				if draw(rnd, member, n) {
					hit++
				}
			}
			p := 2 * float64(pairs) / float64(len(tags)) / float64(len(tags)-1)
			fmt.Fprintf(tw, "\t%.1f%%\t%.2g%%", 100*float64(hit)/float64(max(o.trials, 1)), 100*atLeastOne(p, n*(n-1)/2))
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

// draw takes n different tags and reports whether two of them are of one group.
func draw(rnd *rand.Rand, member []int32, n int) bool {
	taken, groups := map[int]bool{}, map[int32]bool{}
	for len(taken) < n {
		i := rnd.Intn(len(member))
		if taken[i] {
			continue
		}
		taken[i] = true
		if g := member[i]; g != 0 {
			if groups[g] {
				return true
			}
			groups[g] = true
		}
	}
	return false
}

// atLeastOne is the chance of one or more in n independent chances of p, also
// where p is too small for 1-p to differ from 1.
func atLeastOne(p float64, n int) float64 {
	return -math.Expm1(float64(n) * math.Log1p(-p))
}
