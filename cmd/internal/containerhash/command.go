// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package containerhash

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/manifest"
	"holdfast/cmd/internal/output"
)

const files = `FILE is JSON or YAML, or - for standard input: pods as the API server returns them
(kubectl get pods -o json), single, as a list or as several documents, or objects
{"id": …, "spec": {container}}. The command prints a result for each container.`

const modes = `--mode proto (the default) decodes a container like a kubelet that receives the pod from the
API server: JSON, then a protobuf round trip. --mode json leaves out the round trip.`

type options struct {
	releases        []string
	container, mode string
	recorded        string
	format          output.Format
	readings        []uint32
	set             *Set
	chosen          []*Release
	failed, found   int
	// newer have a field that a release does not know, matched record the hash in a release,
	// unmatched in none.
	newer, matched, unmatched int
}

// Command returns the command container-hash.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "container-hash FILE...",
		Short: "Print the hash that each release's kubelet records for a container",
		Long: `Print the hash that the kubelets of each release from 1.6 to 1.36 record for a
container. A kubelet compares this hash to detect a changed spec.

` + files + `

The hash is in the docker label annotation.io.kubernetes.container.hash, in hexadecimal;
events show the hash in decimal. If the spec sets a field that a release does not support, the
release ignores that field and hashes a different spec. So the command prints no hash for
that release.

` + modes + `
Before a kubelet hashes a static pod, the kubelet fills in defaults, and this command does not.
So do not give the manifest of a static pod: give the pod as the API server returns it.

The exit status is 1 if, for at least one release, the hash of a container cannot be computed. A
field that the release does not support does not count as such a failure.`,
		Example: `  kubectl get pod web -o json | kubectl-holdfast container-hash -
  kubectl get pods --all-namespaces -o json | kubectl-holdfast container-hash --release 1.7,1.9 -o json -`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args, o.hashes) },
	}
	o.flags(cmd)
	output.Flag(cmd, &o.format, "one object for each container, each on a line")
	cmd.AddCommand(explainCommand())
	return cmd
}

func explainCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "explain --recorded HASH FILE...",
		Short: "Print which release's kubelet recorded a hash",
		Long: `Print which releases record the given hash for a container. If there is no such release, print
the hashes that were compared and the fields that some releases do not support. The exit
status is 3 if no release records the hash for any of the containers.

` + files + `

--recorded takes the number as in the docker label annotation.io.kubernetes.container.hash
(hexadecimal) or as in events (decimal). If the number can be either, the command tries both.

` + modes,
		Example: `  docker inspect --format '{{index .Config.Labels "annotation.io.kubernetes.container.hash"}}' CONTAINER
  kubectl get pod web -o json | kubectl-holdfast container-hash explain --container app --recorded 5cee1837 -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.readings, err = parseRecorded(o.recorded); err != nil {
				return exit.Usagef("--recorded: %v", err)
			}
			return o.run(cmd, args, o.explain)
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&o.recorded, "recorded", "", "the hash from the label or the event")
	output.Flag(cmd, &o.format, "one object for each container, each on a line")
	return cmd
}

func (o *options) flags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&o.releases, "release", nil, "only these releases, comma separated: 1.6 to 1.36")
	cmd.Flags().StringVar(&o.container, "container", "", "only the containers with this name")
	cmd.Flags().StringVar(&o.mode, "mode", "proto", "proto or json, see above")
	_ = cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{"proto", "json"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("release", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		if set, err := All(); err == nil {
			for _, r := range set.Releases {
				names = append(names, r.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

// container is one container of what was read.
type container struct {
	// id is what the input calls it: text, or NAMESPACE/POD/NAME.
	id   json.RawMessage
	name string
	spec map[string]any
}

// run calls do for every container of every file.
func (o *options) run(cmd *cobra.Command, args []string, do func(w *bufio.Writer, c container) error) error {
	if len(args) == 0 {
		return exit.Usagef("name a FILE, or - for standard input")
	}
	if o.mode != "proto" && o.mode != "json" {
		return exit.Usagef("--mode is %q: use proto or json", o.mode)
	}
	var err error
	if o.set, err = All(); err != nil {
		return err
	}
	o.chosen = o.set.Releases
	if cmd.Flags().Changed("release") {
		if len(o.releases) == 0 {
			return exit.Usagef("--release: name a release, 1.%d to 1.%d", First, Last)
		}
		if o.chosen, err = o.set.Find(o.releases); err != nil {
			return exit.Usagef("--release: %v", err)
		}
	}
	w := bufio.NewWriterSize(cmd.OutOrStdout(), 1<<16)
	complain := func(err error) {
		o.failed++
		_ = w.Flush() // so that a terminal shows both in order
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", cmd.CommandPath(), err)
	}
	for _, name := range args {
		f, err := manifest.Open(name, cmd.InOrStdin())
		if err != nil {
			complain(err)
			continue
		}
		err = manifest.Read(name, f, func(obj manifest.Object) error {
			list, err := containersOf(obj)
			if err != nil {
				complain(fmt.Errorf("%s: %w", obj.Name(), err))
			}
			for _, c := range list {
				if n, _ := c.spec["name"].(string); o.container != "" && n != o.container {
					continue
				}
				o.found++
				if stray := o.set.Stray(c.spec); len(stray) > 0 {
					_ = w.Flush()
					fmt.Fprintf(cmd.ErrOrStderr(), "note: %s: no release supports %s\n", c.name, strings.Join(stray, ", "))
				}
				if err := do(w, c); err != nil {
					complain(fmt.Errorf("%s: %w", c.name, err))
				}
			}
			// Whoever writes an object and waits for the answer gets it.
			return w.Flush()
		})
		_ = f.Close()
		if err != nil {
			complain(err)
		}
	}
	if o.format != output.JSON && o.found > 1 {
		fmt.Fprintln(w, o.summary())
		if err := w.Flush(); err != nil {
			return err
		}
	}
	switch {
	case o.unmatched > 0 && o.matched == 0:
		return exit.Foundf("no release records the hash for this spec")
	case o.failed > 0:
		return exit.Failedf("not everything could be answered, see the errors above: %d", o.failed)
	case o.found == 0 && o.container != "":
		return exit.Failedf("no container %q in what was read", o.container)
	}
	return nil
}

// summary is the last line for several containers.
func (o *options) summary() string {
	out := fmt.Sprintf("%d containers", o.found)
	for _, part := range []struct {
		n    int
		text string
	}{{o.newer, "with a field that an older release does not support"}, {o.unmatched, "whose recorded hash is of no release"}, {o.failed, "not answered"}} {
		if part.n > 0 {
			out += fmt.Sprintf(", %d %s", part.n, part.text)
		}
	}
	return out
}

// containersOf are the containers of an object.
func containersOf(obj manifest.Object) ([]container, error) {
	spec, ok := obj.Value["spec"].(map[string]any)
	if !ok {
		return nil, errors.New(`no "spec": give a pod, or {"id": …, "spec": {container}}`)
	}
	if _, isTemplate := spec["template"].(map[string]any); isTemplate {
		return nil, errors.New("a kubelet does not hash a template: admission adds to it, for example the mount of the token; give its pods")
	}
	_, isPod := spec["containers"].([]any)
	if kind := obj.String("kind"); kind != "" && (kind != "Pod" || !isPod) {
		return nil, fmt.Errorf("%s has no containers: give pods", kind)
	}
	if !isPod {
		id := json.RawMessage("null")
		if v, ok := obj.Value["id"]; ok {
			var err error
			if id, err = json.Marshal(v); err != nil {
				return nil, err
			}
		}
		name := strings.Trim(string(id), `"`)
		if name == "null" {
			name = obj.Where
		}
		return []container{{id, name, spec}}, nil
	}
	pod := strings.Trim(obj.String("metadata", "namespace")+"/"+obj.String("metadata", "name"), "/")
	var out []container
	for _, list := range []string{"initContainers", "containers"} {
		items, _ := spec[list].([]any)
		for i, item := range items {
			c, ok := item.(map[string]any)
			if !ok {
				return out, fmt.Errorf("spec.%s[%d]: not an object", list, i)
			}
			name, _ := c["name"].(string)
			if name == "" {
				return out, fmt.Errorf("spec.%s[%d].name: missing", list, i)
			}
			if pod != "" {
				name = pod + "/" + name
			}
			id, err := json.Marshal(name)
			if err != nil {
				return out, err
			}
			out = append(out, container{id, name, c})
		}
	}
	return out, nil
}

func (o *options) how() Options { return Options{Wire: o.mode == "proto"} }

// errorOf is an error that the releases share, or the first of several.
func errorOf(tried []Attempt) error {
	for _, a := range tried {
		if a.Error != "" {
			return fmt.Errorf("%s: %s", a.Release, a.Error)
		}
	}
	return nil
}

// oldestCompared is the oldest release whose hash Holdfast's kubelet records.
const oldestCompared = 7

// hashes prints the hashes of one container.
func (o *options) hashes(w *bufio.Writer, c container) error {
	tried := o.set.Try(o.chosen, c.spec, o.how())
	if slices.ContainsFunc(tried, func(a Attempt) bool { return len(a.Unknown) > 0 }) {
		o.newer++
	}
	if o.format == output.JSON {
		answer := struct {
			ID json.RawMessage `json:"id"`
			// Hash is null where the release does not know a field that is set, or
			// where the hash is not known.
			Hash    map[string]*uint32  `json:"hash"`
			Oldest  string              `json:"oldest,omitempty"`
			Unknown map[string][]string `json:"unknown,omitempty"`
			Errors  map[string]string   `json:"errors,omitempty"`
		}{ID: c.id, Hash: map[string]*uint32{}, Unknown: map[string][]string{}, Errors: map[string]string{}}
		for i, a := range tried {
			answer.Hash[a.Release] = a.Hash
			switch {
			case a.Error != "":
				answer.Errors[a.Release] = a.Error
			case len(a.Unknown) > 0:
				answer.Hash[a.Release], answer.Unknown[a.Release] = nil, a.Unknown
			case o.chosen[i].minor >= oldestCompared:
				answer.Oldest = a.Release
			}
		}
		if err := output.Line(w, answer); err != nil {
			return err
		}
		return errorOf(tried)
	}
	fmt.Fprintln(w, c.name)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "RELEASES\tHASH\tLABEL")
	for _, r := range runs(tried) {
		switch {
		case r.Error != "":
			fmt.Fprintf(tw, "%s\tnot known: %s\n", r.releases(), r.Error)
		case len(r.Unknown) > 0:
			fmt.Fprintf(tw, "%s\tdoes not support %s\n", r.releases(), strings.Join(r.Unknown, ", "))
		default:
			fmt.Fprintf(tw, "%s\t%d\t%x\n", r.releases(), *r.Hash, *r.Hash)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return errorOf(tried)
}

// explain prints where a recorded hash of one container comes from.
func (o *options) explain(w *bufio.Writer, c container) error {
	e := explain(o.set.Try(o.chosen, c.spec, o.how()), o.readings)
	if o.format == output.JSON {
		if err := output.Line(w, struct {
			ID json.RawMessage `json:"id"`
			Explanation
		}{c.id, e}); err != nil {
			return err
		}
	} else if _, err := w.WriteString(e.text(c.name, o.readings)); err != nil {
		return err
	}
	if e.Recorded != nil || e.Ignoring != nil {
		o.matched++
		return nil
	}
	if err := errorOf(e.Tried); err != nil {
		return err
	}
	o.unmatched++
	return nil
}
