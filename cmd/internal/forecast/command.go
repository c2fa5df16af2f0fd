// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forecast is the command forecast: what a swap of a node's kubelet would do to its pods,
// told before, through the API server, without a change.
package forecast

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/kubeletflags"
	"holdfast/cmd/internal/output"
	"holdfast/cmd/internal/servercert"
)

type options struct {
	nodes               []string
	selector, to        string
	all                 bool
	kubeconfig, context string
	format              finding.Format
	failOn              finding.FailOn
}

// Command returns the command forecast.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "forecast (--node NODE... | -l SELECTOR | --all) --to holdfast|1.7|1.8|1.9|back",
		Short: "Predict what another kubelet would do to the pods of a node",
		Long: `Predict what happens to each container, static pod and Service of a node when the node's
kubelet is replaced. A container is kept, new (recreated), or ? (forecast lacks a fact, which it
names). forecast changes nothing.

--to names the new kubelet: holdfast, an upstream release such as 1.8.9 (1.7 means 1.7.0, 1.8
means 1.8.15, 1.9 means 1.9.11), or back, which means the kubelet that Holdfast replaced on each
node.

forecast sends requests to the API server, and to the kubelets through its node proxy. The user
needs the verbs get and create on nodes/proxy, and get and list on nodes, pods, endpoints and
persistentvolumes. If a kubelet does not return the recorded hashes, forecast estimates the
result and marks it as an estimate. It hashes environment variables, arguments and annotations
in memory, and never shows them.

Without --kubeconfig, forecast reads the first file of $KUBECONFIG, or ~/.kube/config.

Exit status: 3 if a finding is at or above the level of --fail-on; otherwise 1 if forecast could
not find out something; otherwise 0. It is 2 if the command line is wrong. docs/user/codes.md explains
the codes.`,
		Example: `  kubectl-holdfast forecast --node node1 --to holdfast
  kubectl-holdfast forecast --all --to 1.9 --fail-on new -o json
  kubectl-holdfast forecast -l pool=a --to holdfast -o html > ticket.html`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usagef("the command takes no arguments, but got %q: name nodes by --node", args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			to, err := o.check()
			if err != nil {
				return err
			}
			a, err := kubeapi.Connect(o.kubeconfig, o.context, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			return o.run(ctx, a, to, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringSliceVar(&o.nodes, "node", nil, "nodes by name, comma separated or repeated")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "nodes by their labels")
	cmd.Flags().BoolVar(&o.all, "all", false, "all nodes")
	cmd.Flags().StringVar(&o.to, "to", "", "the new kubelet: holdfast, 1.7, 1.8, 1.9, a patch release such as 1.8.9, or back")
	o.flags(cmd)
	finding.FlagsHTML(cmd, &o.format, &o.failOn)
	_ = cmd.RegisterFlagCompletionFunc("to", cobra.FixedCompletions([]string{"holdfast", "1.7", "1.8", "1.9", "back"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// flags are those that forecast and verify have in common, but -o.
func (o *options) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "the kubeconfig of the API server (default $KUBECONFIG, or ~/.kube/config)")
	cmd.Flags().StringVar(&o.context, "context", "", "the context in the kubeconfig (default: its current context)")
}

// interruptible is the command's context until Ctrl-C: what is known by then is printed.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

func (o *options) check() (*target, error) {
	given := 0
	for _, is := range []bool{len(o.nodes) > 0, o.selector != "", o.all} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, exit.Usagef("give one of --node, -l and --all")
	}
	return parseTo(o.to)
}

// server is what the program asks: kubeapi.Client.
type server interface {
	kubeapi.Asker
	Certificates(ctx context.Context) ([]*x509.Certificate, error)
}

// run asks and prints. It is nil, or an error with the status.
func (o *options) run(ctx context.Context, a server, to *target, out, errs io.Writer) error {
	j, err := newJudge()
	if err != nil {
		return err
	}
	table, err := kubeletflags.Load()
	if err != nil {
		return err
	}
	c := &checker{judge: j, table: table, to: to}
	var found []finding.Finding
	if to != nil && to.holdfast {
		chain, err := a.Certificates(ctx)
		if err == nil {
			found = append(found, servercert.Findings("API server", servercert.Kubelet, chain)...)
		} else {
			found = append(found, finding.Of("HF002", "API server", "its certificate could not be read: "+err.Error(), ""))
		}
	}
	nodes, err := o.list(ctx, a)
	if err != nil {
		// This program is of today's Go, too: what it refuses is what Holdfast refuses.
		var refused *tls.CertificateVerificationError
		if !errors.As(err, &refused) {
			return exit.Failedf("the API server: %w", err)
		}
		if to == nil || !to.holdfast {
			if chain, err := a.Certificates(ctx); err == nil {
				found = servercert.Findings("API server", servercert.Kubelet, chain)
			}
		}
		if len(found) > 0 {
			const none = "no node was checked"
			if o.format == finding.HTML {
				err = finding.WriteHTML(out, "Forecast of a swap of kubelets", nil, found, none)
			} else {
				err = finding.Write(out, found, o.failOn, o.format, none)
			}
			if err != nil {
				return err
			}
			return finding.Err(found, o.failOn)
		}
		return exit.Failedf("the API server: %w", err)
	}
	if len(nodes) == 0 {
		return exit.Failedf("no node has these labels")
	}
	if c.server, c.serverKnown, err = serverVersion(ctx, a); err != nil {
		found = append(found, finding.Of("HF002", "API server", "its version could not be read: "+err.Error(), ""))
	}
	forecasts := c.each(ctx, a, nodes, errs)
	if slices.ContainsFunc(forecasts, func(f *forecast) bool { return len(f.claims) > 0 }) {
		all, err := kubeapi.List[persistentVolume](ctx, a, "/api/v1/persistentvolumes", maxEndpoints, listTimeout)
		if err != nil {
			found = append(found, notListed("persistentvolumes", err))
		}
		withClaims(forecasts, all)
	}
	for _, f := range forecasts {
		found = append(found, f.findings...)
	}
	var all []endpoints
	known := true
	if slices.ContainsFunc(forecasts, func(f *forecast) bool { return len(f.unready) > 0 }) {
		all, err = kubeapi.List[endpoints](ctx, a, "/api/v1/endpoints", maxEndpoints, listTimeout)
		if err != nil {
			found = append(found, notListed("endpoints", err))
			known = false
		}
		found = append(found, services(forecasts, all)...)
	}
	var sets [][]string
	if known && len(forecasts) > 1 {
		sets = batches(forecasts, all)
	}
	if err := o.print(out, forecasts, found, sets); err != nil {
		return err
	}
	return finding.Err(found, o.failOn)
}

// notListed says that there is no list of a resource.
func notListed(resource string, err error) finding.Finding {
	why, _ := reason(err, http.MethodGet)
	if strings.HasPrefix(why, "403") {
		why = "403: the user needs the verb list on " + resource
	}
	return finding.Of("HF002", "API server", resource+" could not be read: "+why, "")
}

func serverVersion(ctx context.Context, a kubeapi.Asker) (version, bool, error) {
	b, err := a.Ask(ctx, http.MethodGet, "/version", "", 1<<20, nodeTimeout)
	if err != nil {
		why, _ := reason(err, http.MethodGet)
		return version{}, false, errors.New(why)
	}
	var v struct{ GitVersion string }
	if err := kubeapi.Decode(b, &v); err != nil {
		return version{}, false, err
	}
	out, ok := parseVersion(v.GitVersion)
	if !ok {
		return out, false, errors.New("it is not a Kubernetes version")
	}
	return out, true, nil
}

// list reads the nodes that were chosen.
func (o *options) list(ctx context.Context, a kubeapi.Asker) ([]*node, error) {
	if len(o.nodes) == 0 {
		path := "/api/v1/nodes"
		if o.selector != "" {
			path += "?" + url.Values{"labelSelector": {o.selector}}.Encode()
		}
		return kubeapi.List[*node](ctx, a, path, maxNodes, listTimeout)
	}
	var out []*node
	names := slices.Clone(o.nodes)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		b, err := a.Ask(ctx, http.MethodGet, "/api/v1/nodes/"+url.PathEscape(name), "", maxNodes, nodeTimeout)
		if err != nil {
			return nil, err
		}
		n := &node{}
		if err := kubeapi.Decode(b, n); err != nil {
			return nil, fmt.Errorf("node %s: %w", name, err)
		}
		if n.Metadata.Name != name {
			return nil, fmt.Errorf("node %s: the answer is about another object", name)
		}
		out = append(out, n)
	}
	return out, nil
}

// each asks all nodes, some at a time, and answers in their order. A node that could not be asked
// before an interrupt says so.
func (c *checker) each(ctx context.Context, a kubeapi.Asker, nodes []*node, errs io.Writer) []*forecast {
	out := make([]*forecast, len(nodes))
	kubeapi.EachNode(len(nodes), errs, func(i int) { out[i] = c.check(ask(ctx, a, c.table, nodes[i])) })
	return out
}

// nodeLine is a node in -o json.
type nodeLine struct {
	Version int    `json:"version"`
	Kind    string `json:"kind"` // "node"
	Node    string `json:"node"`
	Kubelet string `json:"kubelet"`
	To      string `json:"to"`
	Pods    int    `json:"pods"`
	Kept    int    `json:"kept"`
	New     int    `json:"new"`
	Unknown int    `json:"unknown"`
}

func (o *options) print(out io.Writer, forecasts []*forecast, found []finding.Finding, batches [][]string) error {
	kinds := map[string]int{}
	for _, f := range forecasts {
		for _, r := range f.rows {
			kinds[r.Answer]++
		}
	}
	nodes := "1 node"
	if len(forecasts) != 1 {
		nodes = fmt.Sprintf("%d nodes", len(forecasts))
	}
	sum := fmt.Sprintf("%s, %d kept, %d new, %d not known", nodes, kinds[kept], kinds[isNew], kinds[unknown])
	nodeHead, batchHead := []string{"NODE", "KUBELET", "TO", "PODS", "KEPT", "NEW", "?"}, []string{"BATCH", "NODES"}
	if o.format == finding.HTML {
		tables := []finding.Rows{{Head: nodeHead, Rows: nodeRows(forecasts)}}
		if len(batches) > 0 {
			tables = append(tables, finding.Rows{Head: batchHead, Rows: batchRows(batches)})
		}
		return finding.WriteHTML(out, "Forecast of a swap of kubelets", tables, found, sum)
	}
	if o.format == finding.JSON {
		for _, f := range forecasts {
			if err := output.Line(out, nodeLine{finding.Version, "node", f.node, f.kubelet, f.to, f.pods, f.count(kept), f.count(isNew), f.count(unknown)}); err != nil {
				return err
			}
			for _, r := range f.rows {
				if err := output.Line(out, r); err != nil {
					return err
				}
			}
		}
		for i, b := range batches {
			if err := output.Line(out, batchLine{finding.Version, "batch", i + 1, b}); err != nil {
				return err
			}
		}
		return finding.Write(out, found, o.failOn, o.format, sum)
	}
	if err := finding.WriteTable(out, o.format, nodeHead, nodeRows(forecasts)); err != nil {
		return err
	}
	if len(batches) > 0 {
		fmt.Fprintln(out)
		if err := finding.WriteTable(out, o.format, batchHead, batchRows(batches)); err != nil {
			return err
		}
	}
	fmt.Fprintln(out)
	return finding.Write(out, found, o.failOn, o.format, sum)
}

// nodeRows are the nodes, those that answer alike in one row; one with a STOP or a ? has its own.
func nodeRows(forecasts []*forecast) [][]string {
	var rows [][]string
	at, more := map[string]int{}, map[int]int{}
	for _, f := range forecasts {
		r := []string{f.node, f.kubelet, f.to}
		for _, n := range []int{f.pods, f.count(kept), f.count(isNew), f.count(unknown)} {
			r = append(r, strconv.Itoa(n))
		}
		alone := slices.ContainsFunc(f.findings, func(x finding.Finding) bool { return x.Level == finding.Stop || x.Level == finding.Unknown })
		k := strings.Join(r[1:], " ")
		i, ok := at[k]
		if ok && !alone {
			more[i]++
			continue
		}
		if !alone {
			at[k] = len(rows)
		}
		rows = append(rows, r)
	}
	for i, n := range more {
		rows[i][0] = fmt.Sprintf("%s and %d more", rows[i][0], n)
	}
	return rows
}
