// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/webset"
)

func replicasLab() labkit.Lab {
	return labkit.Lab{
		Name:    "endpoints-rules-replicas",
		Folder:  "endpoints-rules",
		Summary: "one of two replicas of endpoints-rules receives events 5 s late: a client that copies Endpoints to a load balancer enables pods whose old container still runs",
		Steps:   replicasSteps,
		Oracle:  replicasOracle,
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 8*time.Minute, 40*time.Minute)
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
		},
	}
}

// lag is how much later than the API server sends them the second program gets events.
const lag = 5 * time.Second

const (
	behindAddress = "127.0.0.1:9945" // of the second program
	lagAddress    = "127.0.0.1:9946" // of its way to the API server
)

// route is which of the programs reviews.
type route string

const (
	noRoute route = "no webhook"
	// alternate: one review goes to the first program, the next one to the second.
	alternate route = "in turn"
	// toBehind: all go to the program that is behind, as from the API server of its master.
	toBehind route = "all to the one behind"
)

func routesOf(v labkit.Variant) []route {
	if v == labkit.Stock {
		return []route{noRoute}
	}
	return []route{alternate, toBehind}
}

// replicas is the lab with a second program.
type replicas struct {
	lab
	behind *program
	front  *router
}

func replicasSteps(e *labkit.Env) []labkit.Step {
	l := &replicas{lab: lab{e: e}}
	all := []labkit.Step{
		{Text: "start etcd, kube-apiserver and kube-controller-manager, all stock", Do: l.startCluster},
		{Text: fmt.Sprintf("create a Service and %d ready pods, which are API objects: no kubelet runs them", pods), Do: l.start},
	}
	if e.Variant != labkit.Stock {
		all = append(all, labkit.Step{Text: fmt.Sprintf("install endpoints-rules, rule set image-pending, and a second replica that gets all events %v late", lag), Do: l.install})
	}
	for _, r := range routesOf(e.Variant) {
		for i := range rounds(e.Profile) {
			all = append(all, labkit.Step{Text: fmt.Sprintf("reviews: %s, round %d: change all images within 1 s", r, i+1),
				Do: func(ctx context.Context) error { return l.replaceAll(ctx, r, i) }})
		}
	}
	return append(all, labkit.Step{Text: "check that etcd, kube-apiserver and kube-controller-manager run, and that no watch was lost", Always: true, Do: l.intact})
}

func (l *replicas) install(ctx context.Context) (err error) {
	if l.program, err = prepare(ctx, l.e, l.c, "image-pending", ns); err != nil {
		return err
	}
	pki, err := l.e.GetPKI()
	if err != nil {
		return err
	}
	if err := l.startLag(pki); err != nil {
		return err
	}
	conf, err := pki.Kubeconfig("endpoints-rules-behind", "http://"+lagAddress, account)
	if err != nil {
		return err
	}
	second := *l.program
	second.listen = behindAddress
	second.spec = second.process("endpoints-rules-behind", l.program.spec.Path, conf)
	l.behind = &second
	if err := errors.Join(l.program.serve(ctx), l.behind.serve(ctx)); err != nil {
		return err
	}
	if err := l.startRouter(); err != nil {
		return err
	}
	l.program.webhook = bytes.Replace(l.program.webhook, []byte(address), []byte(frontAddress), 1)
	return l.program.configure(ctx, webset.Service)
}

// serveFor runs a server of the lab until its end. It listens when serveFor returns.
func (l *replicas) serveFor(what, listen string, h http.Handler, pair *tls.Certificate) error {
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: whole(h), ErrorLog: stdlog.New(io.Discard, "", 0)}
	if pair != nil {
		ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{*pair}})
	}
	go func() { _ = srv.Serve(ln) }() // its end is the lab's
	l.e.OnStop(what, func(context.Context) error { return srv.Close() })
	return nil
}

// whole reads a body before h passes it on. A ReverseProxy that passes on a body while it comes in
// broke off one answer of some 10,000 over HTTP/1.1 (Go 1.26), which the API server takes for a
// webhook that fails: then it stores what was sent.
func whole(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.ServeHTTP(w, r)
	})
}

// startLag starts the second program's way to the API server. It has that program's
// identity. What watches send comes through late, everything else at once.
func (l *replicas) startLag(pki *kube.PKI) error {
	cert, err := pki.Issue("endpoints-rules-lag", account, nil)
	if err != nil {
		return err
	}
	conf, err := pki.TLS(cert)
	if err != nil {
		return err
	}
	to, err := url.Parse(l.c.APIServer.URL)
	if err != nil {
		return err
	}
	return l.serveFor("the way of the program that is behind", lagAddress, &httputil.ReverseProxy{
		FlushInterval: -1,
		ErrorLog:      stdlog.New(io.Discard, "", 0),
		Transport:     &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 20},
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(r *http.Response) error {
			if w := r.Request.URL.Query().Get("watch"); w == "true" || w == "1" {
				r.Body = newLate(r.Body, lag)
			}
			return nil
		},
	}, nil)
}

// lateBody is a stream of which every piece comes by after it was sent.
type lateBody struct {
	from   io.ReadCloser
	by     time.Duration
	pieces chan piece
	closed chan struct{}
	once   sync.Once
	rest   []byte
	err    error // set before pieces is closed
}

type piece struct {
	at   time.Time
	text []byte
}

func newLate(from io.ReadCloser, by time.Duration) *lateBody {
	b := &lateBody{from: from, by: by, pieces: make(chan piece, 10_000), closed: make(chan struct{})}
	go func() {
		defer close(b.pieces)
		for {
			buf := make([]byte, 32<<10)
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case b.pieces <- piece{time.Now(), buf[:n]}:
				case <-b.closed:
					return
				}
			}
			if err != nil {
				b.err = err
				return
			}
		}
	}()
	return b
}

func (b *lateBody) Read(to []byte) (int, error) {
	if len(b.rest) == 0 {
		p, ok := <-b.pieces
		if !ok {
			if b.err == nil {
				return 0, io.ErrClosedPipe
			}
			return 0, b.err
		}
		select {
		case <-time.After(time.Until(p.at.Add(b.by))):
		case <-b.closed:
			return 0, io.ErrClosedPipe
		}
		b.rest = p.text
	}
	n := copy(to, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *lateBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.from.Close()
}

// router stands between kube-apiserver and the programs, and chooses one for each review.
type router struct {
	mu    sync.Mutex
	route route
	asked map[string]int // reviews, by the program's name
	n     int
}

const (
	current = "the current one"
	behind  = "the one behind"
)

// choose is the program for the next review, by its address.
func (r *router) choose() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	if r.route == toBehind || r.n%2 == 0 {
		r.asked[behind]++
		return behindAddress
	}
	r.asked[current]++
	return address
}

// take is how many reviews each program got since it was last called, and sets the route.
func (r *router) take(next route) map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := r.asked
	r.asked, r.route = map[string]int{}, next
	return asked
}

func (l *replicas) startRouter() error {
	pair, err := tls.LoadX509KeyPair(l.program.file("tls.crt"), l.program.file("tls.key"))
	if err != nil {
		return err
	}
	l.front = &router{route: alternate, asked: map[string]int{}}
	return l.serveFor("the server that chooses a program", frontAddress, &httputil.ReverseProxy{
		ErrorLog:  stdlog.New(io.Discard, "", 0),
		Transport: &http.Transport{TLSClientConfig: l.program.tls, MaxIdleConnsPerHost: 20},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: l.front.choose()})
		},
	}, &pair)
}

// replaceAll changes all images and records what became of it, and what both programs say.
func (l *replicas) replaceAll(ctx context.Context, way route, number int) error {
	r := routed{Route: way}
	before := 0.0
	if way != noRoute {
		l.front.take(way)
		page, err := l.behind.metrics(ctx)
		if err != nil {
			return err
		}
		before, _ = page.Sum("endpoints_rules_behind_total")
	}
	var err error
	if r.replacement, err = l.change(ctx, replicaStuck, nil); err != nil {
		return err
	}
	r.Round = number
	if way != noRoute {
		for _, p := range []struct {
			name string
			*program
		}{{current, l.program}, {behind, l.behind}} {
			said, err := p.settled(ctx, p.name)
			if err != nil {
				return err
			}
			r.Said = append(r.Said, said)
		}
		r.Asked = l.front.take(way)
		page, err := l.behind.metrics(ctx)
		if err != nil {
			return err
		}
		after, _ := page.Sum("endpoints_rules_behind_total")
		r.Behind = after - before
	}
	l.e.Record(r)
	l.e.Logf("%s", r)
	if r.wrong() != "" {
		return labkit.Enough
	}
	return nil
}

// settled asks a program until it says that no address is misplaced.
func (p *program) settled(ctx context.Context, name string) (said, error) {
	o := said{Program: name}
	err := wait.Until(ctx, "no address is misplaced", replicaStuck, func(ctx context.Context) (bool, error) {
		page, err := p.metrics(ctx)
		if err == nil {
			var n int
			if o.Misplaced, n = page.Sum("endpoints_rules_misplaced_addresses"); n == 0 {
				err = errors.New("the page has no such metric")
			}
			o.Disputed, _ = page.Sum("endpoints_rules_disputed_services")
		}
		if ctx.Err() == nil {
			o.Unread = ""
			if err != nil {
				o.Unread = err.Error()
			}
		}
		return err == nil && o.Misplaced == 0, err
	})
	if err != nil && ctx.Err() != nil {
		return o, err
	}
	if err != nil && o.Misplaced == 0 && o.Unread == "" {
		o.Unread = err.Error()
	}
	return o, nil
}
