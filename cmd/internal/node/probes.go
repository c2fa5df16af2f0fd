// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"holdfast/cmd/internal/kubeapi"
)

// What a node's pods can make of --probe is bounded: the list of them, the requests, and the findings.
const (
	maxPods       = 64 << 20
	podsTimeout   = 10 * time.Second
	maxProbes     = 1000
	probesAtOnce  = 10
	probeTimeout  = 5 * time.Second
	maxProbeLines = 20
)

// probed is what is read of a pod.
type probed struct {
	Metadata struct{ Namespace, Name string }
	Spec     struct {
		HostNetwork bool
		Containers  []struct {
			Name  string
			Ports []struct {
				Name          string
				ContainerPort int
			}
			LivenessProbe, ReadinessProbe *struct{ HTTPGet *httpGet }
			Lifecycle                     *struct {
				PostStart, PreStop *struct{ HTTPGet *httpGet }
			}
		}
	}
	Status struct{ Phase, PodIP string }
}

type httpGet struct {
	Host, Path, Scheme string
	Port               any
	HTTPHeaders        []struct{ Name, Value string }
}

// question is one probe, and what is wrong with it.
type question struct {
	what  string // `default/a, readiness probe of "app"`
	get   *httpGet
	host  string
	wrong string
}

// judgeProbes asks the HTTP probes of the node's pods as its kubelet does, and looks whether today's
// Go, with which Holdfast and this program are built, takes the answers. Hooks are not asked.
func (m *machine) judgeProbes(ctx context.Context, v version) {
	if !m.o.Probe || !v.holdfast {
		return
	}
	const check = "probes"
	c, err := kubeapi.Load(m.kubeconfig(), "")
	if err != nil {
		m.found(check, "HF509", "", "the kubeconfig could not be parsed: "+err.Error(), "")
		return
	}
	questions, paths, others := []*question(nil), []string(nil), 0
	name := m.nodeName()
	pods, err := kubeapi.List[probed](ctx, c, "/api/v1/pods?fieldSelector=spec.nodeName%3D"+url.QueryEscape(name), maxPods, podsTimeout)
	if err != nil {
		m.found(check, "HF509", "", fmt.Sprintf("the pods of node %s could not be read: %v", name, err), "send the probes by hand: docs/user/install.md has a command")
		return
	}
	for _, p := range pods {
		q, bad, other := p.questions()
		questions, paths, others = append(questions, q...), append(paths, bad...), others+other
	}
	others += max(len(questions)-maxProbes, 0)
	questions = questions[:min(len(questions), maxProbes)]
	asked := askAll(ctx, questions)
	if asked < len(questions) {
		m.found(check, "HF509", "", fmt.Sprintf("%d of %d probes were not sent in time", len(questions)-asked, len(questions)), "send the probes by hand: docs/user/install.md has a command")
	}
	lines := paths
	for _, q := range questions {
		if q.wrong != "" {
			lines = append(lines, q.what+": "+q.wrong)
		}
	}
	for _, line := range lines[:min(len(lines), maxProbeLines)] {
		m.found(check, "HF533", "", line, "correct it before the swap: a probe that fails takes the pod out of its Services, or kills its container")
	}
	if more := len(lines) - maxProbeLines; more > 0 {
		m.found(check, "HF533", "", fmt.Sprintf("%d more", more), "correct those above, and run node check again")
	}
	if len(lines) == 0 {
		m.ok(check, "%d sent, Holdfast accepts the answers; %d to other hosts, or beyond the limit, were not sent", asked, others)
	}
}

// nodeName is the name that the kubelet has in the API.
func (m *machine) nodeName() string {
	if user, _, err := kubeapi.Identity(m.kubeconfig()); err == nil {
		if name, ok := strings.CutPrefix(user, "system:node:"); ok {
			return name
		}
	}
	host, _ := os.Hostname()
	return strings.ToLower(strings.TrimSpace(m.line.or("hostname-override", host)))
}

// questions are the probes of a pod that runs; bad are paths with a control byte, also of hooks, and
// others counts probes of a host that is not the pod.
func (p *probed) questions() (ask []*question, bad []string, others int) {
	if p.Status.Phase != "Running" || p.Status.PodIP == "" {
		return nil, nil, 0
	}
	for _, c := range p.Spec.Containers {
		named := func(kind string) string {
			return fmt.Sprintf("%.63s/%.253s, %s of %.63q", p.Metadata.Namespace, p.Metadata.Name, kind, c.Name)
		}
		add := func(kind string, get *httpGet, isProbe bool) {
			switch {
			case get == nil:
			case strings.ContainsFunc(get.Path, unicode.IsControl):
				bad = append(bad, fmt.Sprintf("%s: its path %.60q has a control byte, which today's Go encodes differently or does not send", named(kind), get.Path))
			case !isProbe:
			case get.Host != "" && get.Host != p.Status.PodIP:
				others++
			default:
				port := 0
				switch n := get.Port.(type) {
				case json.Number:
					port, _ = strconv.Atoi(n.String())
				case string:
					for _, o := range c.Ports {
						if o.Name == n {
							port = o.ContainerPort
						}
					}
					if n, err := strconv.Atoi(n); port == 0 && err == nil {
						port = n
					}
				}
				if port > 0 && port < 1<<16 {
					ask = append(ask, &question{what: named(kind), get: get, host: net.JoinHostPort(p.Status.PodIP, strconv.Itoa(port))})
				}
			}
		}
		if c.LivenessProbe != nil {
			add("liveness probe", c.LivenessProbe.HTTPGet, true)
		}
		if c.ReadinessProbe != nil {
			add("readiness probe", c.ReadinessProbe.HTTPGet, true)
		}
		if l := c.Lifecycle; l != nil && l.PostStart != nil {
			add("postStart hook", l.PostStart.HTTPGet, false)
		}
		if l := c.Lifecycle; l != nil && l.PreStop != nil {
			add("preStop hook", l.PreStop.HTTPGet, false)
		}
	}
	return ask, bad, others
}

// askAll asks some at a time, and returns how many it came to.
func askAll(ctx context.Context, questions []*question) (asked int) {
	// As the kubelet's prober: no certificate is checked, and TLS 1.0 is enough.
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	slots := make(chan bool, probesAtOnce)
	var wait sync.WaitGroup
	for _, q := range questions {
		slots <- true
		if ctx.Err() != nil {
			break
		}
		asked++
		wait.Go(func() {
			q.wrong = q.ask(ctx, client)
			<-slots
		})
	}
	wait.Wait()
	return asked
}

// ask says what today's Go does not take of the answer; "" if it takes it, or if there is none, which
// is the same for every kubelet.
func (q *question) ask(ctx context.Context, client *http.Client) string {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	u, err := url.Parse(q.get.Path)
	if err != nil {
		u = &url.URL{Path: q.get.Path}
	}
	u.Scheme, u.Host = "http", q.host
	if strings.EqualFold(q.get.Scheme, "https") {
		u.Scheme = "https"
	}
	answered := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { answered = true }})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Sprintf("Holdfast does not send it: %.100q", err.Error())
	}
	for _, h := range q.get.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
		if strings.EqualFold(h.Name, "host") {
			req.Host = h.Value
		}
	}
	res, err := client.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxConfig))
		_ = res.Body.Close()
		answered = true
	}
	var network *net.OpError
	switch {
	case err == nil, ctx.Err() != nil, errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ""
	case answered || strings.Contains(err.Error(), "failed to parse certificate") || strings.Contains(err.Error(), "net/http: invalid header"):
		var inner *url.Error
		if errors.As(err, &inner) {
			err = inner.Err
		}
		return fmt.Sprintf("Holdfast does not accept the answer: %.100q", err.Error())
	}
	return ""
}
