// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplatehash

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/manifest"
	"holdfast/cmd/internal/output"
)

const files = `FILE is JSON or YAML as the API server returns it (kubectl get -o json), or - for
standard input: a Deployment, ReplicaSet, DaemonSet or pod template, a list of such
objects, or several documents. The command prints a result for each object.`

// options are the flags of all three commands.
type options struct {
	release, container, tags, pattern, draws string
	counts, limit, trials                    int
	seed                                     int64
	dump                                     bool
	format                                   output.Format
	// drawn is draws, read.
	drawn []int
}

// Command returns the command pod-template-hash.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "pod-template-hash FILE...",
		Short: "Print the hash that each release gives to a pod template, and the image tags that collide",
		Long: `Print the hash that the controllers of each release from 1.2 to 1.9 give to a pod
template: without a collision count, and with the counts 0, 1, ….

` + files + `

For a Deployment the hash is the label pod-template-hash of its ReplicaSets and pods.
For a ReplicaSet the hash is that of its Deployment: the command removes the ReplicaSet's own
label first. For a DaemonSet the hash is the label controller-revision-hash of its pods, from
1.7 on. A StatefulSet has no such hash: the names of its revisions contain a checksum of other
text. For a Pod the command reports an error.

The exit status is 1 if, for at least one release, the hash of an object cannot be computed.`,
		Example: `  kubectl get deployment web -o json | kubectl-holdfast pod-template-hash -
  kubectl get deployments,daemonsets --all-namespaces -o yaml |
    kubectl-holdfast pod-template-hash --release 1.9 -o json -`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args, nil) },
	}
	o.releaseFlag(cmd)
	cmd.Flags().IntVar(&o.counts, "counts", 2, "print the hash with collision counts up to this one")
	cmd.Flags().BoolVar(&o.dump, "dump", false, "also print the text that is hashed")
	output.Flag(cmd, &o.format, "one object for each object read, each on a line")
	cmd.AddCommand(collideCommand(), oddsCommand())
	return cmd
}

func (o *options) releaseFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.release, "release", "", "this release only, 1.2 to 1.9")
	var names []string
	for _, r := range Releases {
		names = append(names, r.Name)
	}
	_ = cmd.RegisterFlagCompletionFunc("release", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

func (o *options) tagFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.container, "container", "", "the container whose image's tag changes (default: the first)")
	cmd.Flags().StringVar(&o.tags, "tags", "", "file with one tag on each line, or - for standard input")
	cmd.Flags().StringVar(&o.pattern, "pattern", "", "tags as a pattern: v1.{0..99}.{0..999}, {2016..2017}{01..12}")
}

func collideCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "collide (--tags LIST | --pattern P) FILE...",
		Short: "Print the pairs of image tags whose templates have the same hash",
		Long: `Print the pairs of tags, from a list or a pattern, that give a template the same hash.
A Deployment that changes from one tag of a pair to the other collides.

` + files,
		Example: `  kubectl get deployment web -o json |
    kubectl-holdfast pod-template-hash collide --pattern '2017{01..12}{01..28}{09..17}{00..59}' -`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args, o.collide) },
	}
	o.releaseFlag(cmd)
	o.tagFlags(cmd)
	cmd.Flags().IntVar(&o.limit, "limit", 10, "print at most this many pairs for each release")
	output.Flag(cmd, &o.format, "one object for each object and release, each on a line")
	return cmd
}

func oddsCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "odds (--tags LIST | --pattern P) FILE...",
		Short: "Print how likely it is that a Deployment with N rollouts has a collision",
		Long: `Print how likely it is that a Deployment has at least one collision in N rollouts with different
tags from a list or a pattern. The command prints two numbers: an estimate from random draws, and
a number that it computes from the number of colliding pairs.

` + files,
		Example: `  kubectl-holdfast pod-template-hash odds --draws 50,100 --pattern 'v1.{0..99}.{0..99}' web.json`,
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd, args, o.odds) },
	}
	o.tagFlags(cmd)
	cmd.Flags().StringVar(&o.draws, "draws", "32,50,100", "numbers N of rollouts, comma separated")
	cmd.Flags().IntVar(&o.trials, "trials", 10000, "how many times the tags are drawn")
	cmd.Flags().Int64Var(&o.seed, "seed", 1, "seed of the draws")
	output.Flag(cmd, &o.format, "one object for each object and release, each on a line")
	return cmd
}

// withTags answers one template; the releases and tags are the same for all.
type withTags func(w io.Writer, name string, releases []*Release, template map[string]any, tags []string) error

// run answers every object of every file. do is nil for the hash itself.
func (o *options) run(cmd *cobra.Command, args []string, do withTags) error {
	if len(args) == 0 {
		return exit.Usagef("name a FILE, or - for standard input")
	}
	releases := Releases
	if o.release != "" {
		r, err := Find(o.release)
		if err != nil {
			return exit.Usagef("--release: %v", err)
		}
		releases = []*Release{r}
	}
	if o.counts < 0 || o.limit < 0 || o.trials < 0 {
		return exit.Usagef("--counts, --limit and --trials take no negative number")
	}
	var tags []string
	if do != nil {
		if (o.tags == "") == (o.pattern == "") {
			return exit.Usagef("give either --tags or --pattern")
		}
		for _, a := range args {
			if o.tags == "-" && a == "-" {
				return exit.Usagef("standard input cannot be both FILE and the list of tags")
			}
		}
		var err error
		if tags, err = o.readTags(cmd.InOrStdin()); err != nil {
			return err
		}
		if err := o.readDraws(len(tags)); err != nil {
			return err
		}
	}
	w := bufio.NewWriter(cmd.OutOrStdout())
	defer w.Flush()
	failed := 0
	fail := func(err error) {
		failed++
		_ = w.Flush() // so that a terminal shows both in order
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", cmd.CommandPath(), err)
	}
	for _, name := range args {
		f, err := manifest.Open(name, cmd.InOrStdin())
		if err == nil {
			err = manifest.Read(name, f, func(obj manifest.Object) error {
				if do == nil {
					return o.hashes(w, cmd.ErrOrStderr(), obj, releases, fail)
				}
				releases, err := hashing(obj.String("kind"), releases)
				var template map[string]any
				if err == nil {
					template, err = o.template(cmd.ErrOrStderr(), obj, releases)
				}
				if err == nil {
					template, err = WithMark(template, o.container)
				}
				if err == nil {
					err = do(w, obj.Name(), releases, template, tags)
				}
				if err != nil {
					fail(fmt.Errorf("%s: %w", obj.Name(), err))
				}
				return w.Flush()
			})
			_ = f.Close()
		}
		if err != nil {
			fail(err)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if failed > 0 {
		return exit.Failedf("not everything could be answered, see the errors above: %d", failed)
	}
	return nil
}

// template is the object's template, with a note on the defaults that it lacks.
func (o *options) template(notes io.Writer, obj manifest.Object, releases []*Release) (map[string]any, error) {
	if why := noHash(obj.String("kind")); why != "" {
		return nil, fmt.Errorf("no hash: %s", why)
	}
	template, err := Template(obj.Value)
	if err != nil {
		return nil, err
	}
	// One note for all releases: a later one may fill in more.
	var in, missing []string
	for _, r := range releases {
		m := r.Missing(template)
		if len(m) == 0 {
			continue
		}
		in = append(in, r.Name)
		for _, field := range m {
			if !slices.Contains(missing, field) {
				missing = append(missing, field)
			}
		}
	}
	if len(in) > 0 {
		fmt.Fprintf(notes, "note: %s, %s: not as the API server returns it: it would fill in %s, so the controller's hash is different\n", obj.Name(), strings.Join(in, ", "), strings.Join(missing, ", "))
	}
	return template, nil
}

// answer is what is said about one object in one release.
type answer struct {
	Release   string `json:"release"`
	Algorithm string `json:"algorithm"`
	// Label is the label that has the hash.
	Label string `json:"label,omitempty"`
	// Hash is without a collision count, Counts with 0, 1, ….
	Hash   *uint32  `json:"hash,omitempty"`
	Counts []uint32 `json:"counts,omitempty"`
	// Suffix is what the name of a ReplicaSet or ControllerRevision ends in.
	Suffix string `json:"suffix,omitempty"`
	// None says why there is no hash, Error why it is not known.
	None    string   `json:"none,omitempty"`
	Error   string   `json:"error,omitempty"`
	Missing []string `json:"missing,omitempty"`
	Dump    string   `json:"dump,omitempty"`
}

// hashes prints the hashes of one object.
func (o *options) hashes(w *bufio.Writer, notes io.Writer, obj manifest.Object, releases []*Release, fail func(error)) error {
	kind := obj.String("kind")
	var template map[string]any
	if noHash(kind) == "" {
		var err error
		if template, err = o.template(notes, obj, releases); err != nil {
			fail(fmt.Errorf("%s: %w", obj.Name(), err))
			return nil
		}
	}
	var answers []answer
	var reasons []string
	failed := map[string][]string{} // by the reason, the releases
	for _, r := range releases {
		a := answer{Release: r.Name, Algorithm: r.Algorithm, Label: templateHashLabel}
		if a.None = noHash(kind); a.None == "" && kind == "DaemonSet" {
			a.Label = "controller-revision-hash"
			if !r.Counts {
				a.None = "a DaemonSet has none before 1.7"
			}
		}
		if a.None != "" {
			answers = append(answers, answer{Release: r.Name, Algorithm: r.Algorithm, None: a.None})
			continue
		}
		a.Missing = r.Missing(template)
		dump, err := r.Dump(template)
		if err != nil {
			a.Error = strings.TrimPrefix(err.Error(), "Kubernetes "+r.Name+": ")
			if failed[a.Error] == nil {
				reasons = append(reasons, a.Error)
			}
			failed[a.Error] = append(failed[a.Error], r.Name)
			answers = append(answers, a)
			continue
		}
		hash := r.Sum(dump, -1)
		a.Hash, a.Suffix = &hash, r.Suffix(hash)
		for i := 0; i <= o.counts && r.Counts; i++ {
			a.Counts = append(a.Counts, r.Sum(dump, i))
		}
		if o.dump {
			a.Dump = string(dump)
		}
		answers = append(answers, a)
	}
	defer func() {
		for _, reason := range reasons {
			fail(fmt.Errorf("%s: %s: %s", obj.Name(), strings.Join(failed[reason], ", "), reason))
		}
	}()
	if o.format == output.JSON {
		if err := output.Line(w, struct {
			Object   string   `json:"object"`
			Where    string   `json:"where"`
			Releases []answer `json:"releases"`
		}{obj.Name(), obj.Where, answers}); err != nil {
			return err
		}
		return w.Flush()
	}
	return o.table(w, obj.Name(), answers)
}

func (o *options) table(w *bufio.Writer, name string, answers []answer) error {
	fmt.Fprintln(w, name)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(tw, "RELEASE\tALGORITHM\tNO COUNT\tNAME ENDS IN")
	for i := 0; i <= o.counts; i++ {
		fmt.Fprintf(tw, "\tCOUNT %d", i)
	}
	fmt.Fprintln(tw)
	for _, a := range answers {
		switch {
		case a.None != "":
			fmt.Fprintf(tw, "%s\t%s\tnone: %s\n", a.Release, a.Algorithm, a.None)
		case a.Error != "":
			fmt.Fprintf(tw, "%s\t%s\tnot known\n", a.Release, a.Algorithm)
		default:
			fmt.Fprintf(tw, "%s\t%s\t%d\t-%s", a.Release, a.Algorithm, *a.Hash, a.Suffix)
			for _, c := range a.Counts {
				fmt.Fprintf(tw, "\t%d", c)
			}
			fmt.Fprintln(tw)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, a := range answers {
		if a.Dump != "" {
			fmt.Fprintf(w, "\n%s:\n%s\n", a.Release, a.Dump)
		}
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// readTags reads the list, or writes the pattern out.
func (o *options) readTags(stdin io.Reader) ([]string, error) {
	if o.pattern != "" {
		tags, err := Expand(o.pattern)
		if err != nil {
			return nil, exit.Usagef("--pattern: %v", err)
		}
		return tags, nil
	}
	f, err := manifest.Open(o.tags, stdin)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var tags []string
	seen := map[string]bool{}
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if t := strings.TrimSpace(sc.Text()); t != "" && !seen[t] {
			seen[t] = true
			tags = append(tags, t)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", o.tags, err)
	}
	if len(tags) == 0 {
		return nil, fmt.Errorf("%s: no tags: write one on each line", o.tags)
	}
	return tags, nil
}
