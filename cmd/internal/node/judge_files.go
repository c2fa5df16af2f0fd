// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/podtemplatehash"
	"holdfast/cmd/internal/servercert"
)

// What is read of files and servers is bounded.
const (
	maxConfig     = 1 << 20
	maxConfigs    = 100
	serverTimeout = time.Second
)

// judgeServer looks at the API server that the node's own kubeconfig names: its certificates, and
// whether Holdfast would ask it through a proxy. It returns its URL, "" if that is not known.
func (m *machine) judgeServer(ctx context.Context, v version) (server string) {
	file := m.kubeconfig()
	if !v.holdfast || file == "" || !exists(file) {
		return ""
	}
	c, err := kubeapi.Load(file, "")
	if err != nil {
		m.found("API server", "HF509", "", "the kubeconfig could not be parsed: "+err.Error(), "check the API server's certificates yourself: see HF104")
		return ""
	}
	server = c.Server()
	m.judgeProxy(server)
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	chain, err := c.Certificates(ctx)
	if err != nil {
		m.found("API server", "HF509", "", "its certificate could not be read: "+err.Error(), "check it yourself: see HF104")
		return server
	}
	found := servercert.Findings("API server", servercert.Kubelet, chain)
	for _, f := range found {
		m.rows = append(m.rows, row{check: "API server", finding: &f})
	}
	if len(found) == 0 {
		m.ok("API server", "%s, Holdfast accepts its certificates", server)
	}
	return server
}

// environ is a variable of what a start starts with.
func (m *machine) environ(name string) string {
	if m.unit != nil {
		return m.unit.env[name]
	}
	b, _ := os.ReadFile(filepath.Join(m.h.Proc, strconv.Itoa(m.pid), "environ"))
	for v := range strings.SplitSeq(string(b), "\x00") {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

func (m *machine) either(names ...string) string {
	for _, n := range names {
		if v := m.environ(n); v != "" {
			return v
		}
	}
	return ""
}

func (m *machine) judgeProxy(server string) {
	u, err := url.Parse(server)
	if err != nil || m.either("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy") == "" {
		return
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	before, now := excepted(m.either("NO_PROXY", "no_proxy"), u.Hostname(), port)
	if before && !now {
		m.found("proxy", "HF519", "", "NO_PROXY excludes "+u.Hostname()+" by a rule that today's Go does not apply: Holdfast would reach the API server through the proxy", "add "+u.Hostname()+" to NO_PROXY")
		return
	}
	m.ok("proxy", "NO_PROXY means the same for the API server")
}

// excepted tells whether NO_PROXY excepts a host: in Go up to 1.10, and now.
func excepted(list, host, port string) (before, now bool) {
	host = strings.ToLower(host)
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return true, true
	}
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.ToLower(strings.TrimSpace(entry))
		if entry == "" {
			continue
		}
		if entry == "*" {
			return true, true
		}
		name, of, hasPort := strings.Cut(entry, ":")
		if strings.Count(entry, ":") > 1 { // IPv6
			name, hasPort = entry, false
		}
		below := strings.HasSuffix(host, "."+strings.TrimPrefix(name, "."))
		self := host == name
		if dotted := strings.TrimPrefix(name, "."); dotted != name && host == dotted {
			before = true
		}
		before = before || self || below
		if !hasPort || of == port {
			now = now || self || below
			if _, network, err := net.ParseCIDR(entry); err == nil && network.Contains(net.ParseIP(host)) {
				now = true
			}
		}
	}
	return before, now
}

// addresses are the flags whose values are addresses or networks.
var (
	addresses = []string{"address", "cluster-dns", "healthz-bind-address", "node-ip", "pod-cidr", "non-masquerade-cidr"}
	zero      = regexp.MustCompile(`^[0-9]+\.[0-9.]+(?:/[0-9]+)?$`)
	leading   = regexp.MustCompile(`(?:^|[./])0[0-9]`)
)

// judgeAddresses looks for leading zeros, which today's Go refuses, in flags and in the URL of the API
// server, which may be "".
func (m *machine) judgeAddresses(v version, server string) {
	if !v.holdfast {
		return
	}
	bad := func(s string) bool { return zero.MatchString(s) && leading.MatchString(s) }
	var where []string
	for _, name := range addresses {
		value, _ := m.line.value(name)
		if slices.ContainsFunc(strings.Split(value, ","), bad) {
			where = append(where, "--"+name)
		}
	}
	if u, err := url.Parse(server); err == nil && bad(u.Hostname()) {
		where = append(where, "the kubeconfig's server")
	}
	if len(where) > 0 {
		m.found("addresses", "HF520", "", strings.Join(where, ", ")+": a number of the address has a leading zero", "write it without the zero")
		return
	}
	m.ok("addresses", "no leading zeros")
}

// configs are the files of a folder with one of these ends, in the order of their names.
func configs(dir string, most int, ends ...string) (files []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") && (len(ends) == 0 || slices.Contains(ends, filepath.Ext(e.Name()))) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files[:min(len(files), most)], nil
}

func readConfig(file string) ([]byte, error) {
	s, err := os.Stat(file)
	if err == nil && s.Size() > maxConfig {
		err = fmt.Errorf("%s has more than %d bytes", file, maxConfig)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

// cniPlugin is what is read of a CNI configuration: see patches/cni-plugin-name.
type cniPlugin struct {
	Type    string
	IPAM    struct{ Type string }
	Plugins []cniPlugin
}

func (p cniPlugin) byPath() bool {
	return strings.ContainsAny(p.Type+p.IPAM.Type, `/\`) || slices.ContainsFunc(p.Plugins, cniPlugin.byPath)
}

func (m *machine) judgeCNI(v version) {
	if !v.holdfast || m.line.or("network-plugin", "") != "cni" {
		return
	}
	files, err := configs(m.line.or("cni-conf-dir", "/etc/cni/net.d"), maxConfigs, ".conf", ".conflist", ".json")
	if err != nil {
		m.found("CNI", "HF509", "", err.Error(), "")
		return
	}
	for _, file := range files {
		b, err := readConfig(file)
		var p cniPlugin
		if err != nil || json.Unmarshal(b, &p) != nil {
			continue // as the kubelet
		}
		if p.byPath() {
			m.found("CNI", "HF517", "", file+" names a plugin by a path: Holdfast skips the file", "copy the program into --cni-bin-dir, and write its plain name as the type")
			return
		}
	}
	m.ok("CNI", "%d configurations, no plugin is named by a path", len(files))
}

// anyCase: these kubelets take a field's name in any case.
func (v version) anyCase() bool {
	return !v.holdfast && (v.minor == 8 && v.patch < 15 || v.minor == 9 && v.patch < 9)
}

func (m *machine) judgeManifests(v version) {
	dir := m.line.or("pod-manifest-path", m.line.or("config", ""))
	if dir == "" || !v.holdfast && v.minor < 9 {
		return
	}
	files := []string{dir}
	if s, err := os.Stat(dir); err != nil {
		if !os.IsNotExist(err) {
			m.found("manifests", "HF509", "", err.Error(), "")
		}
		return
	} else if s.IsDir() {
		if files, err = configs(dir, maxConfigs); err != nil {
			m.found("manifests", "HF509", "", err.Error(), "")
			return
		}
	}
	release, err := podtemplatehash.Find("1.9")
	if err != nil {
		m.found("manifests", "HF509", "", err.Error(), "")
		return
	}
	n := len(m.findings())
	for _, file := range files {
		b, err := readConfig(file)
		if err != nil {
			m.found("manifests", "HF509", "", err.Error(), "")
			continue
		}
		var pod map[string]any
		if yaml.Unmarshal(b, &pod) != nil || pod == nil {
			continue // as the kubelet
		}
		meta, _ := pod["metadata"].(map[string]any)
		if t := meta["creationTimestamp"]; v.holdfast && t != nil {
			m.found("manifests", "HF518", "", file+" has a creationTimestamp: the static pod gets another UID", "remove the line before the swap")
		}
		if !m.old.version.anyCase() || v.anyCase() {
			continue
		}
		delete(pod, "apiVersion")
		delete(pod, "kind")
		delete(pod, "status")
		wrong, err := release.WrongCase(pod)
		if err != nil {
			m.found("manifests", "HF509", "", err.Error(), "")
			return
		}
		if len(wrong) > 0 {
			m.found("manifests", "HF518", "", fmt.Sprintf("%s has %s in the wrong case: %s accepted it, %s ignores it", file, strings.Join(wrong[:min(len(wrong), 10)], ", "), m.old.version.text, v.text), "correct the name")
		}
	}
	if len(m.findings()) == n {
		m.ok("manifests", "%d, read as before", len(files))
	}
}
