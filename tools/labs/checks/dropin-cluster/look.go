// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropincluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"holdfast/tools/build/dropin"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/metrics"
	"holdfast/tools/labkit/node"
)

// kinds are the ways of looking of this lab.
var kinds = []string{"configz", "metric", "event", "log", "container", "file", "packet-filter", "port", "request", "docker", "cgroup", "tls", "body", "agent"}

// hashed are names that controllers make from a hash of the template, for ReplicaSets,
// ControllerRevisions and pods.
var hashed = regexp.MustCompile(`\b(web|daemon|db)-[b-df-hj-np-tv-z0-9]{6,10}\b(-[b-df-hj-np-tv-z0-9]{5}\b)?`)

// normal is dropin.Normal without what is this turn's or this run's.
func (l *lab) normal(text string) string {
	text = strings.NewReplacer(l.ns, "NS", l.e.Path(""), "RUN").Replace(text)
	return dropin.Normal(hashed.ReplaceAllString(text, "$1-HASH"))
}

// look sees what there is while the turn's objects live.
func (l *lab) look(ctx context.Context) (dropin.Run, error) {
	var out dropin.Run
	for _, f := range []func(context.Context) (dropin.Run, error){l.configz, l.metrics, l.events, l.containers, l.files, l.packetFilter, l.ports, l.requests, l.cgroups, l.wire.look, l.logs, l.accepts} {
		r, err := f(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, r...)
	}
	return out, nil
}

func (l *lab) configz(ctx context.Context) (dropin.Run, error) {
	var out dropin.Run
	add := func(component string, raw []byte) error {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			return fmt.Errorf("/configz of %s: %w", component, err)
		}
		for name, value := range flat("", v) {
			if strings.Contains(name, "eatureGates") {
				continue // they are set otherwise where gates are off
			}
			out = append(out, dropin.Fact{Kind: "configz", Component: component, Name: name, Value: l.normal(value)})
		}
		return nil
	}
	raw, err := get(ctx, l.cm.URL+"/configz")
	if err == nil {
		err = add(dropin.Manager, raw)
	}
	if err != nil {
		return nil, err
	}
	status, raw, err := l.c.Client.Raw(ctx, http.MethodGet, "/api/v1/nodes/"+on+"/proxy/configz", "", nil)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("/configz of the kubelet: %d: %.200s", status, raw)
	}
	return out, add(dropin.Kubelet, raw)
}

// get reads a page of a component.
func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var b strings.Builder
	_, err = bufio.NewReader(resp.Body).WriteTo(&b)
	return []byte(b.String()), err
}

// flat are the leaves of a JSON value, by their paths; elements of lists have no number.
func flat(path string, v any) map[string]string {
	out := map[string]string{}
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			maps.Copy(out, flat(path+"."+k, e))
		}
	case []any:
		var all []string
		for _, e := range v {
			b, _ := json.Marshal(e) // it came from JSON
			all = append(all, string(b))
		}
		slices.Sort(all)
		out[path] = strings.Join(all, " ")
	default:
		b, _ := json.Marshal(v)
		out[path] = string(b)
	}
	return out
}

func (l *lab) metrics(ctx context.Context) (dropin.Run, error) {
	var out dropin.Run
	for component, url := range map[string]string{dropin.Manager: l.cm.URL, dropin.Kubelet: l.n.KubeletURL} {
		page, err := metrics.Get(ctx, url+"/metrics")
		if err != nil {
			return nil, err
		}
		for name, f := range page {
			out = append(out, dropin.Fact{Kind: "metric", Component: component, Name: name,
				Value: fmt.Sprintf("%s; %s; %s", strings.ToLower(f.GetType().String()), strings.Join(labelsOf(f), ", "), f.GetHelp())})
		}
	}
	return out, nil
}

// labelsOf are the names of a family's labels.
func labelsOf(f *dto.MetricFamily) []string {
	names := map[string]bool{}
	for _, m := range f.GetMetric() {
		for _, p := range m.GetLabel() {
			names[p.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (l *lab) events(ctx context.Context) (dropin.Run, error) {
	var out dropin.Run
	for _, ns := range []string{l.ns, "default"} {
		list, err := l.c.Client.List(ctx, kube.Events, ns, "")
		if err != nil {
			return nil, err
		}
		for i := range list {
			o := &list[i]
			if at, err := time.Parse(time.RFC3339, kube.String(o, "lastTimestamp")); err != nil || at.Before(l.begin.Truncate(time.Second)) {
				continue // an earlier turn's
			}
			if kube.String(o, "reason") == "Unhealthy" {
				continue // how soon a container serves is the machine's
			}
			source, component := kube.String(o, "source", "component"), dropin.Manager
			switch source {
			case "kubelet":
				component = dropin.Kubelet
			case "default-scheduler":
				continue
			}
			out = append(out, dropin.Fact{Kind: "event", Component: component,
				Name: fmt.Sprintf("%s %s of a %s: %s", source, kube.String(o, "reason"), kube.String(o, "involvedObject", "kind"), l.normal(kube.String(o, "message"))), Value: kube.String(o, "type")})
		}
	}
	return out, nil
}

// containers are those of the turn, as docker inspect has them, but for what is the
// kernel's or docker's own state.
func (l *lab) containers(ctx context.Context) (dropin.Run, error) {
	all, err := l.n.Docker.Containers(ctx, true)
	if err != nil {
		return nil, err
	}
	var out dropin.Run
	for _, c := range all {
		if c.Labels[node.LabelNamespace] != l.ns {
			continue
		}
		full, err := l.n.Docker.Inspect(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		app, _, _ := strings.Cut(c.Labels[node.LabelPod], "-")
		for _, part := range []string{"Config", "HostConfig"} {
			for name, value := range flat(part, full[part]) {
				out = append(out, dropin.Fact{Kind: "container", Component: dropin.Kubelet,
					Name: fmt.Sprintf("%s/%s %s", app, c.Labels[node.LabelContainer], name), Value: l.normal(value)})
			}
		}
	}
	return out, nil
}

// files are those below the kubelet's root folder and dockershim's, with the fields of those
// that are JSON.
func (l *lab) files(context.Context) (dropin.Run, error) {
	var out dropin.Run
	for _, top := range []string{"kubelet", "dockershim"} {
		root := filepath.Join(l.n.Dir, top)
		if err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				if os.IsNotExist(err) {
					return nil // it went while the folder was read
				}
				return err
			}
			info, err := d.Info()
			if err != nil {
				return nil
			}
			rel, err := filepath.Rel(l.n.Dir, p)
			if err != nil {
				return err
			}
			value := info.Mode().String()
			if info.Mode().IsRegular() && info.Size() < 1<<16 {
				raw, err := os.ReadFile(p)
				var v any
				if err == nil && json.Unmarshal(raw, &v) == nil {
					value += " " + strings.Join(slices.Sorted(maps.Keys(flat("", v))), " ")
				}
			}
			out = append(out, dropin.Fact{Kind: "file", Component: dropin.Kubelet, Name: "/var/lib/" + l.normal(dataDir.ReplaceAllString(rel, "/..DATA")), Value: value})
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// dataDir is the folder that a volume's files are written to at a time.
var dataDir = regexp.MustCompile(`/\.\.[0-9]{4}_[0-9_.]+`)

var packets = regexp.MustCompile(`\[[0-9]+:[0-9]+\]`)

func (l *lab) packetFilter(ctx context.Context) (dropin.Run, error) {
	text, err := l.n.Output(ctx, "iptables-save")
	if err != nil {
		return nil, err
	}
	var out dropin.Run
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		out = append(out, dropin.Fact{Kind: "packet-filter", Component: dropin.Kubelet, Name: l.normal(packets.ReplaceAllString(line, ""))})
	}
	return out, nil
}

// ephemeral is the first of the ports that the kernel chooses.
const ephemeral = 32768

// ports are those on which the processes listen.
func (l *lab) ports(context.Context) (dropin.Run, error) {
	var out dropin.Run
	for component, pid := range map[string]int{dropin.Manager: l.cm.PID(), dropin.Kubelet: l.n.Kubelet.PID()} {
		own, err := sockets(pid)
		if err != nil {
			return nil, err
		}
		for _, file := range []string{"tcp", "tcp6"} {
			raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, file))
			if err != nil {
				return nil, err
			}
			for line := range strings.Lines(string(raw)) {
				address, ok := listening(line, own)
				if ok {
					out = append(out, dropin.Fact{Kind: "port", Component: component, Name: file + " " + address})
				}
			}
		}
	}
	return out, nil
}

// sockets are the inodes of a process's sockets.
func sockets(pid int) (map[string]bool, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if inode, ok := strings.CutPrefix(to, "socket:["); err == nil && ok {
			out[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return out, nil
}

// listening is the address of a line of /proc/net/tcp that is about one of these sockets and
// listens: as the kernel writes it, with the port in decimal, or "chosen by the kernel".
func listening(line string, own map[string]bool) (string, bool) {
	f := strings.Fields(line)
	if len(f) < 10 || f[3] != "0A" || !own[f[9]] {
		return "", false
	}
	ip, hex, _ := strings.Cut(f[1], ":")
	port, err := strconv.ParseUint(hex, 16, 16)
	switch {
	case err != nil:
		return "", false
	case port >= ephemeral:
		return ip + " chosen by the kernel", true
	}
	return fmt.Sprintf("%s %d", ip, port), true
}

// requests are those that passed the proxies since the turn began, but conflicts, and what is
// read again after one: another writer came first.
func (l *lab) requests(context.Context) (dropin.Run, error) {
	var out dropin.Run
	for component := range l.proxies {
		raw, err := os.ReadFile(l.e.Path("proxy-" + component + ".jsonl"))
		if err != nil {
			return nil, err
		}
		type request struct {
			At time.Time
			kube.ProxyRequest
		}
		var all []request
		contested := map[string]bool{}
		for line := range strings.Lines(string(raw)) {
			var r request
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				return nil, fmt.Errorf("proxy-%s.jsonl: %w", component, err)
			}
			switch {
			case r.At.Before(l.begin):
			case r.Status == http.StatusConflict:
				contested[strings.TrimSuffix(r.Path, "/status")] = true
			default:
				all = append(all, r)
			}
		}
		counts := map[dropin.Fact]int{}
		for _, r := range all {
			verb := r.Method
			switch {
			case verb == http.MethodGet && contested[r.Path]:
				continue
			case r.Watch:
				verb = "WATCH"
			}
			counts[dropin.Fact{Kind: "request", Component: component, Name: verb + " " + l.normal(r.Path), Value: fmt.Sprint(r.Status)}]++
		}
		for f, n := range counts {
			f.Count = n
			out = append(out, f)
		}
	}
	return out, nil
}

// logs are the forms of the lines since the processes started, but those about conflicts.
func (l *lab) logs(context.Context) (dropin.Run, error) {
	var out dropin.Run
	for component, p := range map[string]interface{ LastRunLog() (string, error) }{dropin.Manager: l.cm, dropin.Kubelet: l.n.Kubelet} {
		text, err := p.LastRunLog()
		if err != nil {
			return nil, err
		}
		forms := map[string]bool{}
		for line := range strings.Lines(text) {
			if strings.Contains(line, "the object has been modified") {
				continue // a conflict
			}
			// Feature gates are set where they are off: that is the lab's own difference.
			if form := dropin.LogForm(l.normal(line)); form != "" && !strings.HasPrefix(form, "I feature_gate.go: ") {
				forms[form] = true
			}
		}
		for form := range forms {
			out = append(out, dropin.Fact{Kind: "log", Component: component, Name: form})
		}
	}
	return out, nil
}
