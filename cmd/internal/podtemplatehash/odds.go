// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplatehash

import (
	"fmt"
	"io"
	"math"
	"math/rand"
	"strconv"
	"strings"
	"text/tabwriter"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/output"
)

// pair is two tags whose templates have one hash, without a collision count.
type pair struct {
	Tags [2]string `json:"tags"`
	Hash uint32    `json:"hash"`
}

// collide prints the pairs of one template, which is marked.
func (o *options) collide(w io.Writer, name string, releases []*Release, marked map[string]any, tags []string) error {
	if o.format == output.Table {
		fmt.Fprintf(w, "%s: %d tags\n", name, len(tags))
	}
	for _, r := range releases {
		pieces, err := r.Pieces(marked)
		if err != nil {
			return err
		}
		groups := r.Collide(pieces, tags)
		shown := []pair{}
	all:
		for _, g := range groups {
			for i, a := range g {
				for _, b := range g[i+1:] {
					if len(shown) == o.limit {
						break all
					}
					shown = append(shown, pair{[2]string{tags[a], tags[b]}, r.SumTag(pieces, tags[a], -1)})
				}
			}
		}
		n := Pairs(groups)
		if o.format == output.JSON {
			if err := output.Line(w, struct {
				Object    string `json:"object"`
				Release   string `json:"release"`
				Algorithm string `json:"algorithm"`
				Tags      int    `json:"tags"`
				Pairs     int    `json:"pairs"`
				Shown     []pair `json:"shown"`
			}{name, r.Name, r.Algorithm, len(tags), n, shown}); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s (%s): %d pairs\n", r.Name, r.Algorithm, n)
		for _, p := range shown {
			fmt.Fprintf(w, "  %s  %s  hash %d\n", p.Tags[0], p.Tags[1], p.Hash)
		}
		if n > len(shown) {
			fmt.Fprintln(w, "  …  (--limit shows more)")
		}
	}
	return nil
}

// odd is how often so many draws held a collision, and how often they do by the
// number of pairs; both from 0 to 1.
type odd struct {
	Draws   int     `json:"draws"`
	Met     float64 `json:"met"`
	ByPairs float64 `json:"byPairs"`
}

// readDraws reads --draws, where there is one.
func (o *options) readDraws(tags int) error {
	if o.draws == "" {
		return nil
	}
	for _, s := range strings.Split(o.draws, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 2 || n > tags {
			return exit.Usagef("--draws: %q is not a number from 2 to %d, that of the tags", s, tags)
		}
		o.drawn = append(o.drawn, n)
	}
	return nil
}

// odds draws releases out of the tags, without putting them back, and counts
// the draws that hold a collision. Beside it stands what the number of pairs
// in the whole gives, 1-(1-p)^(n(n-1)/2), which is all there is to see where a
// collision is rare.
func (o *options) odds(w io.Writer, name string, releases []*Release, marked map[string]any, tags []string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if o.format == output.Table {
		fmt.Fprintf(w, "%s: %d tags, %d trials, seed %d\n", name, len(tags), o.trials, o.seed)
		fmt.Fprint(tw, "RELEASE\tALGORITHM\tPAIRS")
		for _, n := range o.drawn {
			fmt.Fprintf(tw, "\tAFTER %d\tBY PAIRS", n)
		}
		fmt.Fprintln(tw)
	}
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
		pairs := Pairs(groups)
		var answers []odd
		for _, n := range o.drawn {
			rnd := rand.New(rand.NewSource(o.seed))
			hit := 0
			for t := 0; t < o.trials; t++ {
				if draw(rnd, member, n) {
					hit++
				}
			}
			p := 2 * float64(pairs) / float64(len(tags)) / float64(len(tags)-1)
			answers = append(answers, odd{n, float64(hit) / float64(max(o.trials, 1)), atLeastOne(p, n*(n-1)/2)})
		}
		if o.format == output.JSON {
			if err := output.Line(w, struct {
				Object    string `json:"object"`
				Release   string `json:"release"`
				Algorithm string `json:"algorithm"`
				Tags      int    `json:"tags"`
				Trials    int    `json:"trials"`
				Seed      int64  `json:"seed"`
				Pairs     int    `json:"pairs"`
				Odds      []odd  `json:"odds"`
			}{name, r.Name, r.Algorithm, len(tags), o.trials, o.seed, pairs, answers}); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(tw, "%s\t%s\t%d", r.Name, r.Algorithm, pairs)
		for _, a := range answers {
			fmt.Fprintf(tw, "\t%.1f%%\t%.2g%%", 100*a.Met, 100*a.ByPairs)
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
