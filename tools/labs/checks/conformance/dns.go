// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"holdfast/tools/labkit/kube"
)

// The cluster's DNS: the records of the specification of Kubernetes' DNS-based
// service discovery, for IPv4, read from the API at each question. It is the lab's
// own and the same in every variant, as nothing of it is under test.

const dnsZone = "cluster.local."

// dnsTTL is in seconds; short, as the specs' objects come and go.
const dnsTTL = 5

type dnsPort struct {
	Name, Protocol string // protocol in lower case
	Port           uint16
}

// dnsService is a Service with the ready addresses of its Endpoints.
type dnsService struct {
	Namespace, Name string
	ClusterIP       string // "" for one without
	External        string // name that it stands for
	Ports           []dnsPort
	Hosts           map[string]string // headless: host name, or the address with dashes -> address
}

func (s dnsService) fqdn() string { return s.Name + "." + s.Namespace + ".svc." + dnsZone }

// finder finds Services: by name, nil if there is none, and by cluster IP.
type finder interface {
	Service(ctx context.Context, ns, name string) (*dnsService, error)
	ByIP(ctx context.Context, ip string) (*dnsService, error)
}

// lookup answers one question. exists says whether the name does, with whatever
// records.
func lookup(ctx context.Context, n finder, q dnsmessage.Question) (answers []dnsmessage.Resource, exists bool, err error) {
	name := strings.ToLower(q.Name.String())
	if ip, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		parts := strings.Split(ip, ".")
		slices.Reverse(parts)
		s, err := n.ByIP(ctx, strings.Join(parts, "."))
		if err != nil || s == nil {
			return nil, false, err
		}
		return records(q, dnsmessage.TypePTR, s.fqdn()), true, nil
	}
	rest, ok := strings.CutSuffix(name, "."+dnsZone)
	if !ok {
		return nil, false, nil
	}
	labels := strings.Split(rest, ".")
	last := len(labels) - 1
	if last == 2 && labels[2] == "pod" {
		ip := strings.ReplaceAll(labels[0], "-", ".")
		if _, err := netip.ParseAddr(ip); err != nil {
			return nil, false, nil
		}
		return records(q, dnsmessage.TypeA, ip), true, nil
	}
	if last < 2 || labels[last] != "svc" {
		return nil, false, nil
	}
	s, err := n.Service(ctx, labels[last-1], labels[last-2])
	if err != nil || s == nil {
		return nil, false, err
	}
	return s.records(q, labels[:last-2])
}

// records are those of a name below the Service's own, sub.
func (s *dnsService) records(q dnsmessage.Question, sub []string) ([]dnsmessage.Resource, bool, error) {
	switch len(sub) {
	case 0:
		if s.External != "" {
			return record(q.Name, dnsmessage.TypeCNAME, s.External, 0), true, nil
		}
		return records(q, dnsmessage.TypeA, s.addresses()...), s.ClusterIP != "" || len(s.Hosts) > 0, nil
	case 1:
		a, ok := s.Hosts[sub[0]]
		return records(q, dnsmessage.TypeA, a), ok, nil
	case 2:
		for _, p := range s.Ports {
			if sub[0] != "_"+strings.ToLower(p.Name) || sub[1] != "_"+p.Protocol {
				continue
			}
			if q.Type != dnsmessage.TypeSRV {
				return nil, true, nil
			}
			if s.ClusterIP != "" {
				return record(q.Name, dnsmessage.TypeSRV, s.fqdn(), p.Port), true, nil
			}
			var out []dnsmessage.Resource
			for _, h := range sorted(s.Hosts) {
				out = append(out, record(q.Name, dnsmessage.TypeSRV, h+"."+s.fqdn(), p.Port)...)
			}
			return out, len(out) > 0, nil
		}
	}
	return nil, false, nil
}

func (s *dnsService) addresses() []string {
	if s.ClusterIP != "" {
		return []string{s.ClusterIP}
	}
	var out []string
	for _, h := range sorted(s.Hosts) {
		out = append(out, s.Hosts[h])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func sorted(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// records are those of type t with these values, if t is what is asked for.
func records(q dnsmessage.Question, t dnsmessage.Type, values ...string) []dnsmessage.Resource {
	if q.Type != t {
		return nil
	}
	var out []dnsmessage.Resource
	for _, v := range values {
		out = append(out, record(q.Name, t, v, 0)...)
	}
	return out
}

// record is one record, or none if the value cannot be in one.
func record(name dnsmessage.Name, t dnsmessage.Type, value string, port uint16) []dnsmessage.Resource {
	r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: name, Type: t, Class: dnsmessage.ClassINET, TTL: dnsTTL}}
	if t == dnsmessage.TypeA {
		ip, err := netip.ParseAddr(value)
		if err != nil || !ip.Is4() {
			return nil
		}
		r.Body = &dnsmessage.AResource{A: ip.As4()}
		return []dnsmessage.Resource{r}
	}
	target, err := dnsmessage.NewName(strings.TrimSuffix(value, ".") + ".")
	if err != nil {
		return nil
	}
	switch t {
	case dnsmessage.TypePTR:
		r.Body = &dnsmessage.PTRResource{PTR: target}
	case dnsmessage.TypeCNAME:
		r.Body = &dnsmessage.CNAMEResource{CNAME: target}
	case dnsmessage.TypeSRV:
		r.Body = &dnsmessage.SRVResource{Priority: 10, Weight: 100, Port: port, Target: target}
	}
	return []dnsmessage.Resource{r}
}

// reply answers a message. Over UDP it must fit into 512 bytes, else it says that it
// is truncated.
func reply(ctx context.Context, n finder, query []byte, udp bool) ([]byte, error) {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, Authoritative: true, RecursionDesired: h.RecursionDesired, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q}}
	answers, exists, err := lookup(ctx, n, q)
	switch {
	case err != nil:
		m.RCode = dnsmessage.RCodeServerFailure
	case !exists:
		m.RCode = dnsmessage.RCodeNameError
	}
	m.Answers = answers
	b, err := m.Pack()
	if err == nil && udp && len(b) > 512 {
		m.Answers, m.Truncated = nil, true
		b, err = m.Pack()
	}
	return b, err
}

// serveDNS answers on ip, port 53, UDP and TCP, until stop is called.
func serveDNS(ctx context.Context, n finder, ip string, logf func(string, ...any)) (stop func() error, err error) {
	addr := net.JoinHostPort(ip, "53")
	u, err := net.ListenPacket("udp", addr)
	if err != nil {
		return nil, fmt.Errorf("DNS: %w", err)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("DNS: %w", err), u.Close())
	}
	answer := func(q []byte, udp bool) []byte {
		ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
		defer cancel()
		b, err := reply(ctx, n, q, udp)
		if err != nil {
			logf("DNS: %v", err)
			return nil
		}
		return b
	}
	go func() {
		for {
			q := make([]byte, 4096)
			k, from, err := u.ReadFrom(q)
			if err != nil {
				return
			}
			go func() {
				if b := answer(q[:k], true); b != nil {
					_, _ = u.WriteTo(b, from)
				}
			}()
		}
	}()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = serveTCP(c, answer)
			}()
		}
	}()
	return func() error { return errors.Join(u.Close(), l.Close()) }, nil
}

// serveTCP answers messages that have their length before them.
func serveTCP(c net.Conn, answer func([]byte, bool) []byte) error {
	for {
		if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			return err
		}
		var n uint16
		if err := binary.Read(c, binary.BigEndian, &n); err != nil {
			return err
		}
		q := make([]byte, n)
		if _, err := io.ReadFull(c, q); err != nil {
			return err
		}
		b := answer(q, false)
		if b == nil {
			return nil
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)); err != nil {
			return err
		}
	}
}

// apiNames asks the API server.
type apiNames struct{ c *kube.Client }

func (a apiNames) Service(ctx context.Context, ns, name string) (*dnsService, error) {
	o, err := a.c.Get(ctx, kube.Services, ns, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := serviceOf(o)
	if s.ClusterIP != "" || s.External != "" {
		return s, nil
	}
	ep, err := a.c.Get(ctx, kube.Endpoints, ns, name)
	if apierrors.IsNotFound(err) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	s.endpoints(ep)
	return s, nil
}

func (a apiNames) ByIP(ctx context.Context, ip string) (*dnsService, error) {
	all, err := a.c.List(ctx, kube.Services, "", "")
	for i := range all {
		if s := serviceOf(&all[i]); s.ClusterIP == ip {
			return s, nil
		}
	}
	return nil, err
}

func serviceOf(o *kube.Object) *dnsService {
	s := &dnsService{Namespace: o.GetNamespace(), Name: o.GetName(), ClusterIP: kube.String(o, "spec", "clusterIP"), External: kube.String(o, "spec", "externalName"), Hosts: map[string]string{}}
	if s.ClusterIP == "None" {
		s.ClusterIP = ""
	}
	s.Ports = portsOf(kube.Slice(o, "spec", "ports"))
	return s
}

func portsOf(list []any) []dnsPort {
	var out []dnsPort
	for _, p := range list {
		m, _ := p.(map[string]any)
		name, _ := m["name"].(string)
		protocol, _ := m["protocol"].(string)
		port, _ := m["port"].(int64)
		out = append(out, dnsPort{name, strings.ToLower(protocol), uint16(port)})
	}
	return out
}

// endpoints fills in the hosts of a headless Service.
func (s *dnsService) endpoints(ep *kube.Object) {
	for _, sub := range kube.Slice(ep, "subsets") {
		m, _ := sub.(map[string]any)
		list, _ := m["addresses"].([]any)
		for _, a := range list {
			am, _ := a.(map[string]any)
			ip, _ := am["ip"].(string)
			host, _ := am["hostname"].(string)
			if host == "" {
				host = strings.ReplaceAll(ip, ".", "-")
			}
			s.Hosts[host] = ip
		}
	}
}
