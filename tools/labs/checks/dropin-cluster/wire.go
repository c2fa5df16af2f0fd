// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropincluster

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"holdfast/tools/build/dropin"
	"holdfast/tools/labkit/kube"
)

// wire collects what both components send: to the API, as their proxies see it, and the kubelet
// to dockerd.
type wire struct {
	normal func(string) string
	decode *protobuf.Serializer

	mu sync.Mutex
	// seen is how often, since the turn began, under names that are not normal yet.
	seen map[dropin.Fact]int
	err  error // the first thing that could not be read
}

func newWire(normal func(string) string) *wire {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, appsv1beta1.AddToScheme, authenticationv1.AddToScheme,
		authenticationv1beta1.AddToScheme, authorizationv1.AddToScheme, authorizationv1beta1.AddToScheme, batchv1.AddToScheme, extensionsv1beta1.AddToScheme, policyv1beta1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // the same in each run
		}
	}
	return &wire{normal: normal, decode: protobuf.NewSerializer(scheme, scheme), seen: map[dropin.Fact]int{}}
}

// reset forgets what was seen.
func (w *wire) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = map[dropin.Fact]int{}
}

func (w *wire) add(facts ...dropin.Fact) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range facts {
		w.seen[f]++
	}
}

// tap has what passes p, of that component, collected.
func (w *wire) tap(p *kube.Proxy, component string) {
	p.SetTap(kube.Tap{
		Request: func(r *http.Request, body []byte) {
			w.add(dropin.Fact{Kind: "agent", Component: component, Name: commit.ReplaceAllString(r.UserAgent(), "kubernetes/COMMIT")})
			fields, err := w.fields(r, body)
			if err != nil {
				w.mu.Lock()
				if w.err == nil {
					w.err = fmt.Errorf("%s %s of the %s: %w", r.Method, r.URL.Path, component, err)
				}
				w.mu.Unlock()
			}
			for i := range fields {
				fields[i].Component = component
			}
			w.add(fields...)
		},
		Hello: func(h *tls.ClientHelloInfo) {
			for _, o := range offered(h) {
				w.add(dropin.Fact{Kind: "tls", Component: component, Name: "offers " + o})
			}
		},
	})
}

var commit = regexp.MustCompile(`kubernetes/[0-9a-f]{7,40}`)

// made is what a create's values are compared of; of other bodies, which depend on the moment,
// and of those whose values are made up, only the fields are.
func made(method, path string) bool {
	return method == http.MethodPost && !strings.HasSuffix(path, "/events") && !strings.HasSuffix(path, "/secrets") &&
		!strings.Contains(path, "/apis/auth")
}

// fields are those of a body, with the values if made says so.
func (w *wire) fields(r *http.Request, body []byte) ([]dropin.Fact, error) {
	if len(body) == 0 {
		return nil, nil
	}
	kind := r.Header.Get("Content-Type")
	if kind == "" && r.Method == http.MethodDelete {
		kind = "application/json" // the controllers of 1.12 do not say so
	}
	kind, _, err := mime.ParseMediaType(kind)
	if err != nil {
		return nil, err
	}
	if kind == "application/vnd.kubernetes.protobuf" {
		o, _, err := w.decode.Decode(body, nil, nil)
		if err == nil {
			body, err = json.Marshal(o)
		}
		if err != nil {
			return nil, err
		}
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return nil, fmt.Errorf("a body of the type %s: %w", kind, err)
	}
	var out []dropin.Fact
	for path, values := range leaves("", v) {
		f := dropin.Fact{Kind: "body", Name: r.Method + " " + r.URL.Path + " " + path}
		if made(r.Method, r.URL.Path) && !strings.HasSuffix(path, ".resourceVersion") {
			f.Value = strings.Join(slices.Compact(slices.Sorted(slices.Values(values))), " ")
		}
		out = append(out, f)
	}
	return out, nil
}

// leaves are the values below v by their paths, those of all elements of a list together.
func leaves(path string, v any) map[string][]string {
	out := map[string][]string{}
	join := func(more map[string][]string) {
		for k, l := range more {
			out[k] = append(out[k], l...)
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			join(leaves(path+"."+k, e))
		}
	case []any:
		for _, e := range v {
			join(leaves(path+"[]", e))
		}
	default:
		b, _ := json.Marshal(v) // it came from JSON
		out[path] = []string{string(b)}
	}
	return out
}

// offered is what a client offers: versions, ciphers, protocols.
func offered(h *tls.ClientHelloInfo) []string {
	var out []string
	for _, v := range h.SupportedVersions {
		out = append(out, tls.VersionName(v))
	}
	for _, c := range h.CipherSuites {
		out = append(out, tls.CipherSuiteName(c))
	}
	for _, p := range h.SupportedProtos {
		out = append(out, "protocol "+p)
	}
	return out
}

// dockerCall is told of each call of the kubelet's dockershim.
func (w *wire) dockerCall(r *http.Request, status int) {
	name := r.Method + " " + r.URL.Path
	if q, err := url.QueryUnescape(r.URL.RawQuery); err == nil && q != "" {
		name += "?" + q
	}
	w.add(dropin.Fact{Kind: "docker", Component: dropin.Kubelet, Name: name, Value: fmt.Sprint(status)})
}

// look is what was seen since the turn began.
func (w *wire) look(context.Context) (dropin.Run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return nil, w.err
	}
	counts := map[dropin.Fact]int{}
	for f, n := range w.seen {
		f.Name, f.Value = w.normal(f.Name), w.normal(f.Value)
		counts[f] += n
	}
	var out dropin.Run
	for f, n := range counts {
		if dropin.KindOf(f.Kind).Counted {
			f.Count = n
		}
		out = append(out, f)
	}
	return out, nil
}

// accepts are the versions and ciphers of TLS that the kubelet's own port accepts, of those that
// this program knows, and the protocol that it then chooses.
func (l *lab) accepts(ctx context.Context) (dropin.Run, error) {
	names := map[string]bool{}
	for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11, tls.VersionTLS12, tls.VersionTLS13} {
		for _, c := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
			if !slices.Contains(c.SupportedVersions, version) {
				continue
			}
			state, err := l.handshake(ctx, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version,
				CipherSuites: []uint16{c.ID}, NextProtos: []string{"h2", "http/1.1"}})
			if err != nil {
				return nil, err
			}
			if state == nil {
				continue // refused
			}
			names["accepts "+tls.VersionName(version)] = true
			names["accepts "+tls.CipherSuiteName(state.CipherSuite)+" in "+tls.VersionName(version)] = true
			names["chooses the protocol "+state.NegotiatedProtocol] = true
		}
	}
	var out dropin.Run
	for n := range names {
		out = append(out, dropin.Fact{Kind: "tls", Component: dropin.Kubelet, Name: n})
	}
	return out, nil
}

// handshake is what the kubelet agreed to, nil if it refused.
func (l *lab) handshake(ctx context.Context, c *tls.Config) (*tls.ConnectionState, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(l.n.IP, "10250"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := tls.Client(conn, c)
	if err := client.HandshakeContext(ctx); err != nil {
		return nil, context.Cause(ctx)
	}
	state := client.ConnectionState()
	return &state, nil
}
