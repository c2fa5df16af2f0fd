// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

type fixed []*dnsService

func (f fixed) Service(_ context.Context, ns, name string) (*dnsService, error) {
	for _, s := range f {
		if s.Namespace == ns && s.Name == name {
			return s, nil
		}
	}
	return nil, nil
}

func (f fixed) ByIP(_ context.Context, ip string) (*dnsService, error) {
	for _, s := range f {
		if s.ClusterIP == ip {
			return s, nil
		}
	}
	return nil, nil
}

func TestDNS(t *testing.T) {
	all := fixed{
		{Namespace: "default", Name: "kubernetes", ClusterIP: "10.96.0.1", Ports: []dnsPort{{"https", "tcp", 443}}},
		{Namespace: "a", Name: "head", Ports: []dnsPort{{"http", "tcp", 80}}, Hosts: map[string]string{"web-0": "10.91.1.2", "10-91-1-3": "10.91.1.3"}},
		{Namespace: "a", Name: "gone", External: "example.org"},
	}
	for _, c := range []struct {
		name, want string
		kind       dnsmessage.Type
	}{
		{"kubernetes.default.svc.cluster.local.", "A 10.96.0.1", dnsmessage.TypeA},
		{"KUBERNETES.default.svc.cluster.local.", "A 10.96.0.1", dnsmessage.TypeA},
		{"kubernetes.default.svc.cluster.local.", "", dnsmessage.TypeAAAA},
		{"_https._tcp.kubernetes.default.svc.cluster.local.", "SRV 443 kubernetes.default.svc.cluster.local.", dnsmessage.TypeSRV},
		{"_http._tcp.kubernetes.default.svc.cluster.local.", "none", dnsmessage.TypeSRV},
		{"head.a.svc.cluster.local.", "A 10.91.1.2, A 10.91.1.3", dnsmessage.TypeA},
		{"web-0.head.a.svc.cluster.local.", "A 10.91.1.2", dnsmessage.TypeA},
		{"web-1.head.a.svc.cluster.local.", "none", dnsmessage.TypeA},
		{"_http._tcp.head.a.svc.cluster.local.", "SRV 80 10-91-1-3.head.a.svc.cluster.local., SRV 80 web-0.head.a.svc.cluster.local.", dnsmessage.TypeSRV},
		{"gone.a.svc.cluster.local.", "CNAME example.org.", dnsmessage.TypeA},
		{"10-91-2-9.a.pod.cluster.local.", "A 10.91.2.9", dnsmessage.TypeA},
		{"x.a.pod.cluster.local.", "none", dnsmessage.TypeA},
		{"1.0.96.10.in-addr.arpa.", "PTR kubernetes.default.svc.cluster.local.", dnsmessage.TypePTR},
		{"9.0.96.10.in-addr.arpa.", "none", dnsmessage.TypePTR},
		{"kubernetes.default.", "none", dnsmessage.TypeA},
		{"google.com.", "none", dnsmessage.TypeA},
	} {
		if got := ask(t, all, c.name, c.kind); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.name, c.kind, got, c.want)
		}
	}
}

// ask sends one question and writes the answer down; "none" if the name is not there.
func ask(t *testing.T, n finder, name string, kind dnsmessage.Type) string {
	t.Helper()
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}}}
	b, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	b, err = reply(t.Context(), n, b, true)
	if err != nil {
		t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil || m.ID != 7 || !m.Response {
		t.Fatalf("%v: %v", m, err)
	}
	if m.RCode == dnsmessage.RCodeNameError {
		return "none"
	}
	var out []string
	for _, a := range m.Answers {
		switch r := a.Body.(type) {
		case *dnsmessage.AResource:
			out = append(out, fmt.Sprintf("A %d.%d.%d.%d", r.A[0], r.A[1], r.A[2], r.A[3]))
		case *dnsmessage.SRVResource:
			out = append(out, fmt.Sprintf("SRV %d %s", r.Port, r.Target))
		case *dnsmessage.PTRResource:
			out = append(out, "PTR "+r.PTR.String())
		case *dnsmessage.CNAMEResource:
			out = append(out, "CNAME "+r.CNAME.String())
		}
	}
	return strings.Join(out, ", ")
}
