// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/kubeletflags"
	"holdfast/cmd/internal/predecessor"
)

// The bounds of one answer. A node is asked five questions at most, one after the other and one of
// them twice, and the API server one for its pods.
const (
	nodeTimeout  = 20 * time.Second
	listTimeout  = 2 * time.Minute
	maxNodes     = 128 << 20
	maxPods      = 64 << 20
	maxStats     = 64 << 20
	maxMetrics   = 16 << 20
	maxSummary   = 16 << 20
	maxCmdline   = 1 << 20
	maxEndpoints = 256 << 20
)

// node is what the API server says of a Node.
type node struct {
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Status struct {
		Conditions []struct{ Type, Status string }
		NodeInfo   struct{ KubeletVersion string }
	}
}

// answers are all that a node said. What it did not say is nil, and why is in missing.
type answers struct {
	node    *node
	kubelet version
	known   bool // kubelet is
	pods    []*pod
	seen    map[key]seen
	line    *kubeletflags.Line
	summary *summary
	before  *predecessor.Answer
	// missing says what could not be asked, and why.
	missing []string
}

// lookup is one question to a node.
type lookup struct {
	what, method, path, body string
	limit                    int64
	take                     func([]byte) error
}

// ask asks one node. Each failure is noted and the other questions are asked all the same, unless
// the node is down.
func ask(ctx context.Context, a kubeapi.Asker, table *kubeletflags.Table, n *node) *answers {
	out := &answers{node: n}
	out.kubelet, out.known = parseVersion(n.Status.NodeInfo.KubeletVersion)
	proxy := "/api/v1/nodes/" + url.PathEscape(n.Metadata.Name) + "/proxy/"
	lookups := []lookup{
		{"pods", http.MethodGet, proxy + "pods", "", maxPods, func(b []byte) (err error) {
			out.pods, err = decodePods(b)
			return err
		}},
		{"recorded hashes (stats/container)", http.MethodPost, proxy + "stats/container", `{"containerName":"/","subcontainers":true,"num_stats":1}`, maxStats, func(b []byte) (err error) {
			out.seen, err = decodeStats(b)
			return err
		}},
		{"command line (debug/pprof/cmdline)", http.MethodGet, proxy + "debug/pprof/cmdline", "", maxCmdline, func(b []byte) error {
			argv := kubeletflags.Split(string(b))
			if l := table.Parse(argv); len(l.Names) > 0 || len(argv) == 1 && strings.Contains(argv[0], "kube") {
				out.line = l
				return nil
			}
			return errors.New("the answer is not a kubelet's command line")
		}},
		{"disk and memory (stats/summary)", http.MethodGet, proxy + "stats/summary", "", maxSummary, func(b []byte) (err error) {
			out.summary, err = decodeSummary(b)
			return err
		}},
	}
	if out.kubelet.holdfast {
		lookups = append(lookups, lookup{"kubelet before Holdfast (metrics)", http.MethodGet, proxy + "metrics", "", maxMetrics, func(b []byte) error {
			p, err := predecessor.FromMetrics(n.Metadata.Name, b)
			if err != nil {
				return errors.New("the answer has no holdfast_predecessor_info")
			}
			out.before = &p
			return nil
		}})
	}
	// once asks a question. unread tells that there was an answer that could not be read.
	once := func(l lookup) (unread bool, err error) {
		b, err := a.Ask(ctx, l.method, l.path, l.body, l.limit, nodeTimeout)
		if err != nil {
			return false, err
		}
		err = l.take(b)
		return err != nil, err
	}
	again := false
	for i, l := range lookups {
		unread, err := once(l)
		if unread && !again {
			// A 1.7 kubelet has answered with JSON that could not be read, and half a second later
			// with what could. One question of a node is asked twice.
			again = true
			_, err = once(l)
		}
		if err == nil {
			continue
		}
		why, down := reason(err, l.method)
		if down {
			var rest []string
			for _, l := range lookups[i:] {
				rest = append(rest, l.what)
			}
			out.missing = append(out.missing, strings.Join(rest, ", ")+": "+why)
			break
		}
		out.missing = append(out.missing, l.what+": "+why)
	}
	if ctx.Err() != nil {
		return out
	}
	// From the API server's cache: all of its pods would be read from etcd for each node.
	which := url.Values{"fieldSelector": {"spec.nodeName=" + n.Metadata.Name}, "resourceVersion": {"0"}}
	b, err := a.Ask(ctx, http.MethodGet, "/api/v1/pods?"+which.Encode(), "", maxPods, listTimeout)
	var ofAPI []*pod
	if err == nil {
		ofAPI, err = decodePods(b)
	}
	if err != nil {
		why, _ := reason(err, http.MethodGet)
		if strings.HasPrefix(why, "403") {
			why = "403: the user needs the verb list on pods"
		}
		out.missing = append(out.missing, "pods of the API server: "+why)
	}
	if out.pods == nil && ofAPI != nil {
		out.pods = ofAPI
	}
	whole(out.pods, ofAPI)
	return out
}

// reason says why there is no answer, without a word of what was answered: nobody knows what is in
// it. down tells that there is no use in asking the node for more.
func reason(err error, method string) (text string, down bool) {
	var status *kubeapi.StatusError
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted", true
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %s", nodeTimeout), true
	case !errors.As(err, &status):
		return err.Error(), false
	}
	verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create"}[method]
	switch status.Code {
	case http.StatusUnauthorized:
		return "401: the API server or the kubelet does not accept the user's credentials", false
	case http.StatusForbidden:
		return fmt.Sprintf("403: the user needs the verb %s on nodes/proxy", verb), false
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return fmt.Sprintf("%d: the kubelet does not serve it (--enable-debugging-handlers=false?)", status.Code), false
	case http.StatusInternalServerError:
		// Until its cadvisor has looked once, a kubelet answers stats/container so.
		return "500: the kubelet, or the API server, answers with an error, as in the first seconds after a start", false
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Sprintf("%d: the API server cannot reach the kubelet", status.Code), true
	}
	return strconv.Itoa(status.Code), false
}
