// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/wait"
)

// tokens are what made-up reviews get into.
var tokens = []string{`{`, `}`, `[`, `]`, `,`, `"`, `null`, `0`, `-1`, `1e999`, `true`, `"\ud800"`, `"addresses":[{}],`, `"subsets":null,`, `"object":[],`, `"uid":{},`,
	`"notReadyAddresses":[{"ip":null}],`, "\x00", "\xff", `"request":null,`}

// mutate changes a review in some places.
func mutate(rng *rand.Rand, review []byte) []byte {
	b := slices.Clone(review)
	for range 1 + rng.IntN(4) {
		if len(b) == 0 {
			break
		}
		i := rng.IntN(len(b))
		j := min(len(b), i+1+rng.IntN(40))
		switch rng.IntN(5) {
		case 0:
			b[i] = byte(rng.IntN(256))
		case 1:
			b = slices.Delete(b, i, j)
		case 2:
			b = slices.Insert(b, i, slices.Clone(b[i:j])...)
		case 3:
			b = slices.Insert(b, i, []byte(tokens[rng.IntN(len(tokens))])...)
		case 4:
			if rng.IntN(4) == 0 {
				b = b[:i]
			}
		}
	}
	return b
}

// fuzz: whatever it is asked, the program answers soon, and allows or says that this is no
// review.
func (l *faults) fuzz(ctx context.Context) error {
	l.front.mu.Lock()
	sample := l.front.sample
	l.front.mu.Unlock()
	if len(sample) == 0 {
		return errors.New("kube-apiserver has sent no review from which to derive others")
	}
	var o fuzzed
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: l.program.tls, DisableKeepAlives: true}}
	was := l.kubelet.current()
	for range labkit.Pick(l.e.Profile, 2000, 50000) {
		b := mutate(l.e.Rand, sample)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+"/mutate", bytes.NewReader(b))
		if err != nil {
			return err
		}
		begin := time.Now()
		status, answer, err := answerOf(client, req)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		o.Reviews++
		o.Slowest = max(o.Slowest, time.Since(begin))
		if why := wrongAnswer(status, answer, err); why != "" {
			o.Wrong = fmt.Sprintf("review %q: %s", b, why)
			break
		}
		if status == http.StatusOK {
			o.Allowed++
		}
	}
	if o.Wrong == "" && l.kubelet.current() != was {
		o.Wrong = "endpoints-rules ended"
	}
	l.e.Record(o)
	return nil
}

// wrongAnswer says what is wrong with an answer to a made-up review.
func wrongAnswer(status int, answer []byte, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case status == http.StatusBadRequest:
		return ""
	case status != http.StatusOK:
		return fmt.Sprintf("status %d: %.200s", status, answer)
	}
	var r struct {
		Response *struct{ Allowed bool }
	}
	if err := json.Unmarshal(answer, &r); err != nil || r.Response == nil || !r.Response.Allowed {
		return fmt.Sprintf("not allowed: %.200s", answer)
	}
	return ""
}

// How often rules and certificate are changed.
const goodRules, badRules, certificates = 100, 10, 100

func (l *faults) reload(ctx context.Context) error {
	good, err := l.rulesText(ctx)
	if err != nil {
		return err
	}
	a, err := l.trust(ctx)
	if err != nil {
		return err
	}
	return l.row(ctx, reloadRow, func(ctx context.Context, o *fault) error {
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		var r reloads
		var both sync.WaitGroup
		errs := make(chan error, 2)
		both.Go(func() { errs <- l.reloadRules(inner, good, &r) })
		both.Go(func() { errs <- l.reloadCertificate(inner, a, &r) })
		done := make(chan struct{})
		go func() { both.Wait(); close(done) }()
		for calling := true; calling; {
			o.Calls = append(o.Calls, l.call(ctx, probe))
			select {
			case <-done:
				calling = false
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(200 * time.Millisecond):
			}
		}
		if err := errors.Join(<-errs, <-errs); err != nil {
			return err
		}
		l.e.Record(r)
		return l.settled(ctx)
	})
}

// trust has kube-apiserver, breaker and lab trust an authority of the lab's too.
func (l *faults) trust(ctx context.Context) (*authority, error) {
	a, err := newAuthority()
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(l.program.file("ca.crt"))
	if err != nil {
		return nil, err
	}
	ca = append(ca, a.pem()...)
	if err := os.WriteFile(l.program.file("ca.crt"), ca, 0o600); err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	l.program.tls = &tls.Config{RootCAs: pool}
	return a, l.clientConfig(ctx, "caBundle", base64.StdEncoding.EncodeToString(ca))
}

func (l *faults) reloadRules(ctx context.Context, good string, r *reloads) error {
	const loaded, rejected = "endpoints_rules_rules_loaded_total", "endpoints_rules_rules_rejected_total"
	read := func(ctx context.Context) (float64, float64, error) {
		page, err := l.program.metrics(ctx)
		x, _ := page.Sum(loaded)
		y, _ := page.Sum(rejected)
		return x, y, err
	}
	x0, y0, err := read(ctx)
	if err != nil {
		return err
	}
	want, wantBad := x0, y0
	for i := range goodRules + badRules {
		text := fmt.Sprintf("# %d\n%s", i, good)
		if i%11 == 10 {
			text, wantBad = fmt.Sprintf("rules:\n- name: wrong-%d\n  when: pod.nothing\n  then: drop\n", i), wantBad+1
		} else {
			want++
		}
		if err := l.setRules(ctx, text); err != nil {
			return err
		}
		err := wait.Until(ctx, "the rules are loaded", 10*time.Second, func(ctx context.Context) (bool, error) {
			x, y, err := read(ctx)
			r.Rules, r.Rejected = int(x-x0), int(y-y0)
			return x == want && y == wantBad, err
		})
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			return nil // the counts are for the oracle
		}
	}
	return nil
}

// reloadCertificate writes certificates, and opens connections all the time: each must be
// served with a certificate that fits its key, and each certificate must be seen.
func (l *faults) reloadCertificate(ctx context.Context, a *authority, r *reloads) error {
	for i := range certificates {
		number := int64(1000 + i)
		if err := a.issue(l.program.file("tls.crt"), l.program.file("tls.key"), number); err != nil {
			return err
		}
		err := wait.Until(ctx, "the certificate is served", 10*time.Second, func(ctx context.Context) (bool, error) {
			d := tls.Dialer{Config: l.program.tls}
			c, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			conn, err := d.DialContext(c, "tcp", address)
			if ctx.Err() != nil {
				return false, err
			}
			r.Handshakes++
			if err != nil {
				r.Failed++
				r.FirstError = cmp.Or(r.FirstError, err.Error())
				return false, err
			}
			defer conn.Close()
			return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Cmp(big.NewInt(number)) == 0, nil
		})
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			return nil // the count is for the oracle
		}
		r.Certificates++
	}
	return nil
}
