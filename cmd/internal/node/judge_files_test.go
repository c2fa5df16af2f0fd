// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/cmd/internal/mutate"
)

// extra puts flags into the unit's environment file.
func (f *fake) extra(flags string) { f.write("etc/default", "EXTRA="+flags+"\n") }

// unnamed is an API server whose certificate has no subjectAltName. It counts requests.
func unnamed(t *testing.T, requests *int) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "127.0.0.1"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { *requests++ }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

const badCase = "kind: Pod\napiVersion: v1\nmetadata: {name: a, labels: {HostNetwork: x}}\nspec: {hostnetwork: true, containers: [{name: a, image: b}]}\n"

// What the files of a node say, each with its code or, for "", none.
func TestFiles(t *testing.T) {
	requests := 0
	server := unnamed(t, &requests)
	cni := func(text string) func(f *fake) {
		return func(f *fake) {
			f.write("cni/10.conflist", text)
			f.extra("--network-plugin=cni --cni-conf-dir=" + f.p("cni"))
		}
	}
	manifest := func(old, text string) func(f *fake) {
		return func(f *fake) {
			f.write("manifests/a.yaml", text)
			f.write("manifests/.hidden.yaml", badCase)
			f.write("usr/bin/kubelet", "kubelet "+old+"\n"+oldGates)
			f.extra("--pod-manifest-path=" + f.p("manifests"))
		}
	}
	proxy := func(host, except string) func(f *fake) {
		return func(f *fake) {
			f.kubeconfig("http://" + host)
			f.write("etc/default", "EXTRA=\nHTTPS_PROXY=http://"+secret+"\nNO_PROXY="+except+"\n")
		}
	}
	driver := func(systemd string, restarted time.Duration) func(f *fake) {
		return func(f *fake) {
			f.extra("--cgroup-driver=systemd")
			f.systemd = systemd
			f.write("proc/1/exe", "systemd")
			if restarted != 0 {
				f.stop()
				f.start()
				f.write(fmt.Sprintf("proc/%d/stat", f.pid()), fmt.Sprintf("1 (kubelet) S 1 %s%d", strings.Repeat("0 ", 17), (time.Now().Add(restarted).Unix()-1000)*100))
			}
		}
	}
	// The kubelet is stopped, and its slice of pods has been there for a while.
	slice := func(state string, since time.Duration) func(f *fake) {
		return func(f *fake) {
			driver("252", 0)(f)
			f.stop()
			f.write("slice", fmt.Sprintf("ActiveEnterTimestampMonotonic=%d\nActiveState=%s\n", (time.Now().Add(since).Unix()-1000)*1e6, state))
		}
	}
	for name, c := range map[string]struct {
		make func(f *fake)
		want string // level, code, text
	}{
		"driver":            {driver("237", 0), "STOP HF531 systemd 237"},
		"slice":             {slice("active", time.Minute), ""},
		"slice, before":     {slice("active", -time.Minute), "STOP HF531 systemd 252"},
		"slice, inactive":   {slice("inactive", time.Minute), "STOP HF531 systemd 252"},
		"driver, older":     {driver("236", 0), ""},
		"driver, runs":      {driver("252", time.Minute), ""},
		"driver, ran":       {driver("252", -time.Minute), "STOP HF531 systemd 252"},
		"driver, no number": {driver("", 0), "? HF509"},
		"driver, cgroupfs":  {func(f *fake) { f.systemd = "252" }, ""},
		"a path":            {cni(`{"plugins":[{"type":"bridge"},{"type":"portmap","ipam":{"type":"../x"}}]}`), "STOP HF517"},
		"a path, alone":     {cni(`{"type":"/opt/x"}`), "STOP HF517"},
		"names":             {cni(`{"type":"bridge","ipam":{"type":"host-local"},"name":"a/b"}`), ""},
		"no JSON":           {cni("<html>/"), ""},
		"no folder":         {func(f *fake) { f.extra("--network-plugin=cni --cni-conf-dir=" + f.p("none")) }, "? HF509"},
		"creationTimestamp": {manifest("v1.7.0", "kind: Pod\nmetadata: {name: a, creationTimestamp: '2018-01-01T00:00:00Z'}\n"), "warn HF518 creationTimestamp"},
		"null timestamp":    {manifest("v1.7.0", "kind: Pod\nmetadata: {name: a, creationTimestamp: null}\n"), ""},
		"case":              {manifest("v1.8.4", badCase), "warn HF518 spec.hostnetwork"},
		"case, 1.8.15":      {manifest("v1.8.15", badCase), ""},
		"case, 1.7":         {manifest("v1.7.0", badCase), ""},
		"dot":               {proxy("corp.local:6443", ".corp.local"), "warn HF519"},
		"port":              {proxy("corp.local:6443", "x, corp.local:443"), "warn HF519"},
		"name":              {proxy("corp.local:6443", ".corp.local,corp.local"), ""},
		"network":           {proxy("10.0.0.1:6443", "10.0.0.0/8"), ""},
		"through the proxy": {proxy("corp.local:6443", "other"), ""},
		"zeros":             {func(f *fake) { f.extra("--cluster-dns=10.96.0.1,10.96.00.10") }, "STOP HF520 --cluster-dns"},
		"server zeros":      {func(f *fake) { f.kubeconfig("http://127.0.0.01:1") }, "STOP HF520 server"},
		"no zeros":          {func(f *fake) { f.extra("--cluster-dns=10.96.0.10") }, ""},
		"certificate":       {func(f *fake) { f.kubeconfig(server) }, "STOP HF104 subjectAltName"},
		"no server":         {func(f *fake) { f.kubeconfig("https://127.0.0.1:1") }, "? HF509"},
		"no kubeconfig":     {func(f *fake) { f.write("etc/kubeconfig", "server: "+secret) }, "? HF509"},
	} {
		f := newFake(t)
		c.make(f)
		before := f.snapshot()
		m, out := f.check(t)
		if f.snapshot() != before || strings.Contains(out, secret) {
			t.Errorf("%s: something was touched, or shown\n%s", name, out)
		}
		var got []string
		hit := c.want == ""
		for _, x := range m.findings() {
			if x.Code == "HF501" { // the process is from before
				continue
			}
			got = append(got, string(x.Level)+" "+x.Code+" "+x.Text)
			w := strings.SplitN(c.want+"  ", " ", 3)
			hit = hit || string(x.Level) == w[0] && x.Code == w[1] && strings.Contains(x.Text, strings.TrimSpace(w[2]))
		}
		if !hit || c.want == "" && len(got) > 0 {
			t.Errorf("%s: want %q, got %q", name, c.want, got)
		}
	}
	if requests != 0 {
		t.Errorf("%d requests were sent", requests)
	}
}

// Files may be anything: nothing panics.
func TestBadFiles(t *testing.T) {
	f := newFake(t)
	f.extra("--network-plugin=cni --cni-conf-dir=" + f.p("cni") + " --pod-manifest-path=" + f.p("manifests"))
	f.write("usr/bin/kubelet", "kubelet v1.8.4\n"+oldGates)
	f.write("cni/a.conf", "{}")
	m, _ := f.check(t)
	n := 0
	mutate.Texts(300, badCase, func(s string) {
		f.write("manifests/a.yaml", s)
		m.rows = nil
		m.judgeManifests(m.new.version)
		n += len(m.findings())
	})
	mutate.Texts(300, `{"plugins":[{"type":"bridge"},{"type":"portmap","ipam":{"type":"../x"}}]}`, func(s string) {
		f.write("cni/a.conf", s)
		m.rows = nil
		m.judgeCNI(m.new.version)
		n += len(m.findings())
	})
	if n < 10 {
		t.Errorf("only %d findings: the test tests little", n)
	}
	mutate.Texts(10_000, ".corp.local,host:6443,10.0.0.0/8,[::1]", func(s string) {
		for _, host := range []string{"corp.local", "10.0.0.1", s} {
			if _, now := excepted(s+",*", host, "6443"); !now {
				t.Errorf("* does not except %q in %q", host, s)
			}
		}
	})
}
