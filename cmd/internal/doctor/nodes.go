// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/kubeletflags"
)

// maxManagers is how many controller managers are asked.
const maxManagers = 10

// component is a process that was asked, as -o json has it.
type component struct {
	Version   int    `json:"version"`
	Kind      string `json:"kind"` // "component"
	Component string `json:"component"`
	Object    string `json:"object"`
	Release   string `json:"release"`
	Holdfast  bool   `json:"holdfast"`
	// GatesOff are Holdfast's gates that are on by default and off here.
	GatesOff []string `json:"gatesOff,omitempty"`
}

func newComponent(name, object string, r release) component {
	return component{Version: finding.Version, Kind: "component", Component: name, Object: object, Release: r.text, Holdfast: r.holdfast}
}

// off are the findings for gates that are off, and their names.
func off(object string, set map[string]bool) (names []string, out []finding.Finding) {
	for _, g := range slices.Sorted(maps.Keys(set)) {
		about, ours := gates[g]
		if set[g] || !ours {
			continue
		}
		names = append(names, g)
		out = append(out, finding.Of("HF641", object, fmt.Sprintf("the feature gate %s is off, so a fault of the stock binary is back: %s", g, about), "remove the gate from the unit or the manifest, unless it is off on purpose"))
	}
	return names, out
}

// askNodes asks all kubelets through the API server's node proxy, some at a time.
func askNodes(ctx context.Context, a *kubeapi.Client, nodes []node, progress io.Writer) ([]component, []finding.Finding, error) {
	table, err := kubeletflags.Load()
	if err != nil {
		return nil, nil, err
	}
	components, found := make([]component, len(nodes)), make([][]finding.Finding, len(nodes))
	kubeapi.EachNode(len(nodes), progress, func(i int) { components[i], found[i] = askNode(ctx, a, table, &nodes[i]) })
	return components, slices.Concat(found...), nil
}

func askNode(ctx context.Context, a *kubeapi.Client, table *kubeletflags.Table, n *node) (component, []finding.Finding) {
	out := newComponent("kubelet", n.name, n.kubelet)
	var found []finding.Finding
	ask := func(path string, limit int64, take func([]byte) error) error {
		b, err := a.Ask(ctx, http.MethodGet, "/api/v1/nodes/"+url.PathEscape(n.name)+"/proxy/"+path, "", limit, shortTimeout)
		if err != nil {
			return err
		}
		return take(b)
	}
	missing := func(what string, err error) {
		found = append(found, finding.Of("HF002", n.name, fmt.Sprintf("its %s could not be read: %s", what, why(err, "get", "nodes/proxy")), "run the command again, or as another user"))
	}
	err := ask("debug/pprof/cmdline", maxCmdline, func(b []byte) error {
		line := table.Parse(kubeletflags.Split(string(b)))
		if len(line.Names) == 0 {
			return errNone
		}
		found = append(found, open(n.name, line)...)
		if n.kubelet.holdfast {
			var more []finding.Finding
			out.GatesOff, more = off(n.name, line.Gates())
			found = append(found, more...)
		}
		return nil
	})
	var status *kubeapi.StatusError
	if ofNode := errors.As(err, &status) && status.Code < http.StatusBadGateway; err != nil && !ofNode && !errors.Is(err, errNone) {
		missing("command line and metrics", err) // there is no use in asking for more
		return out, found
	}
	if err != nil {
		missing("command line", err)
	}
	if !n.kubelet.holdfast {
		return out, found // a stock kubelet has no metric of Holdfast
	}
	err = ask("metrics", maxMetrics, func(b []byte) error {
		page := parseMetrics(b)
		if len(page) == 0 {
			return errNone
		}
		found = append(found, evaluate(n.name, "kubelet", page)...)
		return nil
	})
	if err != nil {
		missing("metrics", err)
	}
	return out, found
}

// errNone is the error for an answer that has not what was asked for.
var errNone = errors.New("the answer has another format than expected")

// open tells what a kubelet lets anyone do.
func open(object string, line *kubeletflags.Line) []finding.Finding {
	_, file := line.Last("config")
	var out []finding.Finding
	mode, hasMode := line.Last("authorization-mode")
	_, hasAuth := line.Last("anonymous-auth")
	port, hasPort := line.Last("read-only-port")
	if file && (!hasMode || !hasAuth || !hasPort) {
		return []finding.Finding{finding.Of("HF661", object, "doctor cannot see its --config file, so it is not known who may use this kubelet", "look for authentication, authorization and readOnlyPort in the file").At(finding.Unknown)}
	}
	if line.Bool("anonymous-auth", true) && (mode == "" || mode == "AlwaysAllow") {
		out = append(out, finding.Of("HF661", object, "anyone who reaches the kubelet's port may run commands in its containers: --anonymous-auth is on and --authorization-mode is AlwaysAllow",
			"set --anonymous-auth=false, or --authorization-mode=Webhook"))
	}
	if port != "0" {
		out = append(out, finding.Of("HF661", object, "anyone who reaches its --read-only-port may read all specs of its pods", "set --read-only-port=0, once nothing uses it"))
	}
	return out
}

// askManagers asks the controller managers: the one at address if that is given, else pods.
func askManagers(ctx context.Context, a *kubeapi.Client, c *cluster, address string) ([]component, []finding.Finding) {
	const remedy = "run doctor where it listens, with --controller-manager http://127.0.0.1:10252"
	unknown := func(object, text string) finding.Finding {
		return finding.Of("HF641", object, text+": its release and its metrics (HF658, HF659) are not known", remedy).At(finding.Unknown)
	}
	if address != "" {
		page, err := getMetrics(ctx, address)
		if err != nil {
			return nil, []finding.Finding{unknown("controller manager", "not checked: "+why(err, "get", "its metrics"))}
		}
		x, found := judgeManager("controller manager", nil, page)
		return []component{x}, found
	}
	if c.missing["pods"] != "" {
		return nil, []finding.Finding{unknown("controller manager", "not checked: "+c.missing["pods"])}
	}
	if len(c.managers) == 0 {
		return nil, []finding.Finding{unknown("controller manager", "not checked: kube-system has no pod of the controller manager")}
	}
	var components []component
	var found []finding.Finding
	for _, m := range c.managers[:min(len(c.managers), maxManagers)] {
		path := "/api/v1/namespaces/kube-system/pods/" + url.PathEscape(m.pod+":"+m.port) + "/proxy/metrics"
		b, err := a.Ask(ctx, http.MethodGet, path, "", maxMetrics, shortTimeout)
		if err != nil {
			_, gatesOff := off(m.pod, m.gates)
			found = append(append(found, unknown(m.pod, "not checked: "+why(err, "get", "pods/proxy"))), gatesOff...)
			continue
		}
		x, more := judgeManager(m.pod, m.gates, parseMetrics(b))
		components, found = append(components, x), append(found, more...)
	}
	return components, found
}

func judgeManager(object string, set map[string]bool, page []series) (component, []finding.Finding) {
	r, known := build(page)
	out := newComponent("kube-controller-manager", object, r)
	names, found := off(object, set)
	out.GatesOff = names
	if !known {
		found = append(found, finding.Of("HF641", object, "its metrics do not contain its release", "").At(finding.Unknown))
	}
	return out, append(found, evaluate(object, "kube-controller-manager", page)...)
}

// getMetrics asks an address without the API server, and so without a user.
func getMetrics(ctx context.Context, address string) ([]series, error) {
	ctx, cancel := context.WithTimeout(ctx, shortTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %d", res.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxMetrics))
	if err != nil {
		return nil, err
	}
	if page := parseMetrics(b); len(page) > 0 {
		return page, nil
	}
	return nil, errors.New("the answer is not the metrics page of a controller manager")
}

// skew tells which releases are mixed or too far apart.
func (c *cluster) skew(managers []component) []finding.Finding {
	var out []finding.Finding
	counts := map[string]int{}
	for _, n := range c.nodes {
		counts[n.kubelet.text]++
		if !n.known {
			out = append(out, finding.Of("HF641", n.name, "its kubelet's release is not known", "").At(finding.Unknown))
			continue
		}
		if !c.serverKnown {
			continue
		}
		if d := c.server.minor - n.kubelet.minor; d < 0 {
			out = append(out, finding.Of("HF641", n.name, fmt.Sprintf("its kubelet, 1.%d, is newer than the API server, 1.%d", n.kubelet.minor, c.server.minor), "upgrade the control plane"))
		} else if d > 2 {
			out = append(out, finding.Of("HF641", n.name, fmt.Sprintf("its kubelet, 1.%d, is more than two minor releases older than the API server, 1.%d", n.kubelet.minor, c.server.minor), "upgrade the kubelet"))
		}
	}
	if len(counts) > 1 {
		out = append(out, finding.Of("HF641", "kubelets", fmt.Sprintf("%d releases run: %s", len(counts), census(counts)), "finish the upgrade, or finish going back"))
	}
	releases := map[string]int{}
	for _, m := range managers {
		releases[m.Release]++
		if r, ok := parseRelease(m.Release); ok && c.serverKnown && (r.minor > c.server.minor || r.minor < c.server.minor-1) {
			out = append(out, finding.Of("HF641", m.Object, fmt.Sprintf("the controller manager, 1.%d, and the API server, 1.%d, are too far apart", r.minor, c.server.minor), "upgrade all components of the control plane to one release"))
		}
	}
	if len(releases) > 1 {
		out = append(out, finding.Of("HF641", "controller managers", fmt.Sprintf("%d releases run: %s", len(releases), census(releases)), "finish the upgrade, or finish going back"))
	}
	return out
}

// census is how many there are of each, the most first.
func census(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if d := counts[b] - counts[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for i, n := range names {
		names[i] = fmt.Sprintf("%s (%d)", n, counts[n])
	}
	return some(names, 5)
}

// affected tells whether the API server sends deletions with old versions (kubernetes#58545).
func (c *cluster) affected() []finding.Finding {
	last, ok := map[int]int{7: 12, 8: 7, 9: 2}[c.server.minor]
	if !c.serverKnown || !ok || c.server.patch > last {
		return nil
	}
	return []finding.Finding{finding.Of("HF605", "API server", fmt.Sprintf("%s sends deletions with old versions: a stock controller manager deletes the Endpoints of healthy Services", c.server.text),
		"upgrade it within its minor release, or run Holdfast's controller manager")}
}
