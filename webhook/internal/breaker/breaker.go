// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package breaker takes the webhooks out of their configuration while the server
// does not answer, and puts them back when it does. It runs in a process of its
// own: what hangs cannot help itself, and a webhook that hangs stops all endpoint
// workers of a 1.9 controller manager, that is every namespace.
package breaker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"holdfast/webhook/internal/names"
)

// Resource is the kind of webhook configuration that 1.9 to 1.21 serve.
var Resource = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1beta1", Resource: "mutatingwebhookconfigurations"}

// Config is what a Breaker watches and what it changes.
type Config struct {
	Client dynamic.Interface
	// Name is the webhook configuration's.
	Name string
	// ID names this breaker among those of other masters.
	ID string
	// Check asks the server; nil error: it answers.
	Check func(context.Context) error
	// Every is the time between checks, Within what one may take. After Failures
	// in a row the webhooks go, after Successes they come back.
	Every, Within       time.Duration
	Failures, Successes int
	Log                 *slog.Logger
	// Now is the clock; nil takes time.Now.
	Now func() time.Time
}

// A breaker that wants the webhooks out says so again every renewAfter. One that has
// not for goneAfter is gone, with its pod or its master, and has no say any more: the
// name of a pod does not come back. The two are far apart for clocks that differ.
// Those that are content look every lookAfter.
const (
	renewAfter = 30 * time.Second
	lookAfter  = 30 * time.Second
	goneAfter  = 5 * time.Minute
)

// Breaker is a running one.
type Breaker struct {
	Config
	failed, succeeded int
	open              bool // as far as this breaker knows
	looked            time.Time
}

// Defaults trip after 3 failures 2 s apart, 2 s each: 12 s at most.
func Defaults(c Config) *Breaker {
	if c.Every == 0 {
		c.Every = 2 * time.Second
	}
	if c.Within == 0 {
		c.Within = 2 * time.Second
	}
	if c.Failures == 0 {
		c.Failures = 3
	}
	if c.Successes == 0 {
		c.Successes = 5
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Breaker{Config: c}
}

// Run checks until ctx ends.
func (b *Breaker) Run(ctx context.Context) error {
	t := time.NewTicker(b.Every)
	defer t.Stop()
	for {
		b.Step(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// Step checks once and acts.
func (b *Breaker) Step(ctx context.Context) {
	c, cancel := context.WithTimeout(ctx, b.Within)
	err := b.Check(c)
	cancel()
	if err != nil {
		b.failed, b.succeeded = b.failed+1, 0
		b.Log.Warn("the webhook does not answer", "error", err.Error(), "times", b.failed, "limit", b.Failures)
	} else {
		b.failed, b.succeeded = 0, b.succeeded+1
	}
	switch {
	case b.failed >= b.Failures:
		// Also if it has done so: the manifest may have been applied again since.
		b.act(ctx, true, b.trip)
	case b.succeeded >= b.Successes && (b.open || b.Now().Sub(b.looked) >= lookAfter):
		// Also if it did not take them out: it did before it was restarted, or another
		// one did that is gone.
		b.act(ctx, false, b.reset)
	}
}

// change alters a configuration and says what it did; "" for nothing.
type change func(*unstructured.Unstructured) (string, error)

func (b *Breaker) act(ctx context.Context, open bool, c change) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	what, err := b.update(ctx, c)
	if err != nil && !errors.IsNotFound(err) { // without one there is nothing to be done
		b.Log.Error("the webhook configuration could not be changed", "wantedOut", open, "error", err.Error())
		return // the next step tries again
	}
	if b.open = open; !open {
		b.looked = b.Now()
	}
	if what != "" {
		b.Log.Warn(what, "configuration", b.Name)
	}
}

// update changes the configuration under its resourceVersion.
func (b *Breaker) update(ctx context.Context, c change) (string, error) {
	r := b.Client.Resource(Resource)
	o, err := r.Get(ctx, b.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	what, err := c(o)
	if err != nil || what == "" {
		return "", err
	}
	if _, err = r.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
		return "", err
	}
	return what, nil
}

// entry is one breaker that has taken the webhooks out, and when it last said so. In
// the annotation it is "id=unixtime"; older releases write the id alone.
type entry struct {
	id string
	at time.Time
}

func (e entry) String() string { return e.id + "=" + strconv.FormatInt(e.at.Unix(), 10) }

// by are the others that have taken the webhooks out, and when this one last said so,
// which is zero if it did not. Those that are gone are left out. An entry without a
// time, or with one from the future, has the present: it may be of a breaker that
// still fails, and that has the same time as any to say so again. changed: that is
// not what is stored.
func (b *Breaker) by(o *unstructured.Unstructured) (others []entry, own time.Time, changed bool) {
	now := b.Now()
	for _, text := range strings.FieldsFunc(o.GetAnnotations()[names.TrippedBy], func(r rune) bool { return r == ',' }) {
		id, at, _ := strings.Cut(text, "=")
		e := entry{id: id}
		if n, err := strconv.ParseInt(at, 10, 64); err == nil {
			e.at = time.Unix(n, 0)
		}
		known := !e.at.IsZero() && e.at.Before(now.Add(goneAfter))
		switch {
		case id == b.ID:
			own = time.Unix(1, 0) // long ago
			if known {
				own = e.at
			}
			continue
		case !known:
			e.at, changed = now, true
		case now.Sub(e.at) > goneAfter:
			b.Log.Warn("a breaker that took the webhooks out is gone", "breaker", id, "last", e.at.UTC())
			changed = true
			continue
		}
		others = append(others, e)
	}
	return others, own, changed
}

// setBy writes them. 1.9 decodes an update as a whole, so that a key that is
// removed is gone: the rule about "" is one of admission patches only.
func setBy(o *unstructured.Unstructured, l []entry, saved string) {
	a := o.GetAnnotations()
	if a == nil {
		a = map[string]string{}
	}
	delete(a, names.TrippedBy)
	delete(a, names.Saved)
	if len(l) > 0 {
		var texts []string
		for _, e := range l {
			texts = append(texts, e.String())
		}
		a[names.TrippedBy], a[names.Saved] = strings.Join(texts, ","), saved
	}
	o.SetAnnotations(a)
}

// trip moves the webhooks into an annotation.
func (b *Breaker) trip(o *unstructured.Unstructured) (string, error) {
	hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
	if err != nil {
		return "", err
	}
	now, saved := b.Now(), o.GetAnnotations()[names.Saved]
	others, own, _ := b.by(o)
	switch said := now.Sub(own); {
	case len(hooks) > 0: // also where somebody put them back by hand
		raw, err := json.Marshal(hooks)
		if err != nil {
			return "", err
		}
		saved = string(raw)
	case saved == "", said >= 0 && said < renewAfter:
		return "", nil
	}
	setBy(o, append(others, entry{b.ID, now}), saved)
	o.Object["webhooks"] = []any{}
	if len(hooks) == 0 {
		return "the webhooks stay out of the configuration", nil
	}
	return "the webhooks are taken out of the configuration", nil
}

// reset puts them back, unless another breaker still wants them out.
func (b *Breaker) reset(o *unstructured.Unstructured) (string, error) {
	saved := o.GetAnnotations()[names.Saved]
	others, own, changed := b.by(o)
	if own.IsZero() && !changed && (len(others) > 0 || saved == "") {
		return "", nil
	}
	what := "the list of breakers that want the webhooks out is changed"
	if hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks"); len(others) == 0 && len(hooks) == 0 {
		var back []any
		if err := json.Unmarshal([]byte(saved), &back); err != nil {
			return "", fmt.Errorf("annotation %s of %s: %w: delete it and apply the manifest again", names.Saved, o.GetName(), err)
		}
		o.Object["webhooks"] = back
		what = "the webhooks are put back"
	}
	setBy(o, others, saved)
	return what, nil
}

// Watch tells report, until ctx ends, whether the configuration has webhooks: at once and
// every now and then. What cannot be read is not reported.
func Watch(ctx context.Context, client dynamic.Interface, name string, every time.Duration, log *slog.Logger, report func(bool)) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		c, cancel := context.WithTimeout(ctx, every)
		o, err := client.Resource(Resource).Get(c, name, metav1.GetOptions{})
		cancel()
		switch {
		case errors.IsNotFound(err):
			report(false)
		case err != nil:
			log.Debug("the webhook configuration could not be read", "configuration", name, "error", err.Error())
		default:
			hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
			report(len(hooks) > 0)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// HTTPS is a Check that reads url with the CA of a file, read at each check, as
// it may be renewed.
func HTTPS(url, caFile string) func(context.Context) error {
	return func(ctx context.Context) error {
		ca, err := os.ReadFile(caFile)
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(ca) {
			return fmt.Errorf("%s has no certificate", caFile)
		}
		t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}
		defer t.CloseIdleConnections()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := (&http.Client{Transport: t}).Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1024))
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, resp.Status)
		}
		return nil
	}
}
