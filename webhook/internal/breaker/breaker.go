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
	"slices"
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
}

// Breaker is a running one.
type Breaker struct {
	Config
	failed, succeeded int
	open              bool // as far as this breaker knows
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
	case b.failed >= b.Failures && !b.open:
		b.act(ctx, "the webhooks are taken out of the configuration", b.trip, true)
	case b.succeeded >= b.Successes && b.open, b.succeeded == b.Successes:
		// The second: what this breaker did before it was restarted.
		b.act(ctx, "the webhooks are put back", b.reset, false)
	}
}

func (b *Breaker) act(ctx context.Context, what string, change func(*unstructured.Unstructured) (bool, error), open bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	changed, err := b.update(ctx, change)
	if err != nil {
		b.Log.Error("the webhook configuration could not be changed", "wanted", what, "error", err.Error())
		return // the next step tries again
	}
	b.open = open
	if changed {
		b.Log.Warn(what, "configuration", b.Name)
	}
}

// update changes the configuration under its resourceVersion.
func (b *Breaker) update(ctx context.Context, change func(*unstructured.Unstructured) (bool, error)) (bool, error) {
	r := b.Client.Resource(Resource)
	o, err := r.Get(ctx, b.Name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	changed, err := change(o)
	if err != nil || !changed {
		return false, err
	}
	_, err = r.Update(ctx, o, metav1.UpdateOptions{})
	return err == nil, err
}

// by are the breakers that have taken the webhooks out.
func by(o *unstructured.Unstructured) []string {
	return strings.FieldsFunc(o.GetAnnotations()[names.TrippedBy], func(r rune) bool { return r == ',' })
}

// setBy writes them. 1.9 decodes an update as a whole, so that a key that is
// removed is gone: the rule about "" is one of admission patches only.
func setBy(o *unstructured.Unstructured, ids []string, saved string) {
	a := o.GetAnnotations()
	if a == nil {
		a = map[string]string{}
	}
	delete(a, names.TrippedBy)
	delete(a, names.Saved)
	if len(ids) > 0 {
		a[names.TrippedBy], a[names.Saved] = strings.Join(ids, ","), saved
	}
	o.SetAnnotations(a)
}

// trip moves the webhooks into an annotation.
func (b *Breaker) trip(o *unstructured.Unstructured) (bool, error) {
	ids := by(o)
	hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
	if err != nil {
		return false, err
	}
	if slices.Contains(ids, b.ID) && len(hooks) == 0 {
		return false, nil
	}
	saved := o.GetAnnotations()[names.Saved]
	if len(hooks) > 0 { // also where somebody put them back by hand
		raw, err := json.Marshal(hooks)
		if err != nil {
			return false, err
		}
		saved = string(raw)
	}
	if !slices.Contains(ids, b.ID) {
		ids = append(ids, b.ID)
	}
	setBy(o, ids, saved)
	o.Object["webhooks"] = []any{}
	return true, nil
}

// reset puts them back, unless another breaker still wants them out.
func (b *Breaker) reset(o *unstructured.Unstructured) (bool, error) {
	ids := by(o)
	if !slices.Contains(ids, b.ID) {
		return false, nil
	}
	saved := o.GetAnnotations()[names.Saved]
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == b.ID })
	if hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks"); len(ids) == 0 && len(hooks) == 0 {
		var back []any
		if err := json.Unmarshal([]byte(saved), &back); err != nil {
			return false, fmt.Errorf("annotation %s of %s: %w: apply the manifest again", names.Saved, o.GetName(), err)
		}
		o.Object["webhooks"] = back
	}
	setBy(o, ids, saved)
	return true, nil
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
