// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/kubeletflags"
	"holdfast/cmd/internal/manifest"
)

// VerifyCommand returns the command verify.
func VerifyCommand() *cobra.Command {
	var o options
	var plan string
	cmd := &cobra.Command{
		Use:   "verify --plan FILE",
		Short: "Compare what a swap did to the containers with what forecast had predicted",
		Long: `Compare the containers that run now with a forecast from before the swap, by the UID of
the pod, the name of the container and docker's ID. FILE is the output of forecast -o
json, or - for standard input. verify checks only the nodes that this output names.

If a pod no longer exists, verify counts its containers as gone and prints no finding, because the
pod can have been deleted for another reason than the swap. Run verify only after the kubelet has
had time to sync all pods.

Exit status: 3 if a container was recreated although forecast had predicted that it would be kept
(see --fail-on); otherwise 1 if verify could not check everything; otherwise 0. It is 2 if the
command line is wrong.`,
		Example: `  kubectl-holdfast forecast --node node1 --to holdfast -o json > plan
  kubectl-holdfast verify --plan plan`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usagef("the command takes no arguments, but got %q", args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if plan == "" {
				return exit.Usagef("--plan is missing: give the output of forecast -o json")
			}
			f, err := manifest.Open(plan, cmd.InOrStdin())
			if err != nil {
				return exit.Failedf("--plan: %w", err)
			}
			defer f.Close()
			rows, err := readPlan(f)
			if err != nil {
				return exit.Failedf("%s: %w", plan, err)
			}
			a, err := kubeapi.Connect(o.kubeconfig, o.context, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			return o.verify(ctx, a, rows, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&plan, "plan", "", "the output of forecast -o json from before the swap, or - for standard input")
	o.flags(cmd)
	finding.Flags(cmd, &o.format, &o.failOn)
	return cmd
}

// maxLine bounds a line of a plan.
const maxLine = 1 << 20

// readPlan reads the containers of a plan, by node.
func readPlan(r io.Reader) (map[string][]row, error) {
	out, n := map[string][]row{}, 0
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		n++
		var c row
		if err := json.Unmarshal(s.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("line %d is not a line of forecast -o json", n)
		}
		if c.Version != finding.Version {
			return nil, fmt.Errorf("line %d has version %d, this program reads %d", n, c.Version, finding.Version)
		}
		if c.Kind == "container" {
			out[c.Node] = append(out[c.Node], c)
		}
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("it names no container (%d lines)", n)
	}
	return out, nil
}

// verify asks the plan's nodes, compares and prints.
func (o *options) verify(ctx context.Context, a kubeapi.Asker, plan map[string][]row, out io.Writer) error {
	table, err := kubeletflags.Load()
	if err != nil {
		return err
	}
	var found []finding.Finding
	count := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(plan)) {
		one := &options{nodes: []string{name}}
		nodes, err := one.list(ctx, a)
		if err != nil {
			why, _ := reason(err, "GET")
			found = append(found, finding.Of("HF002", name, "it could not be checked: "+why, ""))
			continue
		}
		now := ask(ctx, a, table, nodes[0])
		if now.seen == nil || now.pods == nil {
			for _, m := range now.missing {
				found = append(found, finding.Of("HF002", name, "could not read "+m, ""))
			}
			continue
		}
		found = append(found, compare(plan[name], now, count)...)
	}
	sum := fmt.Sprintf("%d kept, %d recreated, %d gone, %d not compared", count[kept], count[isNew], count["gone"], count[unknown])
	if err := finding.Write(out, found, o.failOn, o.format, sum); err != nil {
		return err
	}
	return finding.Err(found, o.failOn)
}

// compare holds the containers of a node against its plan, and counts what was seen.
func compare(plan []row, now *answers, count map[string]int) []finding.Finding {
	var found []finding.Finding
	pods := map[string]bool{}
	for _, p := range now.pods {
		if !p.ended() {
			pods[p.uid()] = true
			pods[p.name()] = pods[p.name()] || p.static()
		}
	}
	for _, r := range plan {
		object := r.Node + ": " + r.Pod + " " + r.Container
		s, runs := now.seen[key{r.UID, r.Container}]
		is := isNew
		switch {
		case r.ID == "" || runs && s.id == "":
			count[unknown]++
			continue
		case runs && s.id == r.ID:
			is = kept
		case !runs && !pods[r.UID] && !(r.Why == staticPod && pods[r.Pod]):
			count["gone"]++
			continue
		}
		count[is]++
		switch {
		case r.Answer == kept && is == isNew:
			found = append(found, finding.Of("HF601", object, "forecast predicted that it is kept, but it was recreated", "check its events and the kubelet's log"))
		case r.Answer == isNew && is == kept:
			found = append(found, finding.Of("HF602", object, "forecast predicted that it is recreated, but it still runs", "it is possible that the kubelet has not synced the pod yet"))
		}
	}
	return found
}
