// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/webhook/internal/exit"
	"holdfast/webhook/internal/review"
)

// Clients are who may post reviews: those with a certificate of an authority. nil: anyone
// who reaches the port.
type Clients struct {
	authorities *x509.CertPool
	names       []string
	log         *slog.Logger
	said        sync.Once
}

// NewClients reads the authorities of file. names are the subjects' common names that may
// post, separated by commas; "" is every one that the authorities have signed. Without a
// file it returns nil.
func NewClients(file, names string, log *slog.Logger) (*Clients, error) {
	if file == "" {
		if names != "" {
			return nil, exit.Usagef("--client-allowed-names is of no use without --client-ca-file")
		}
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w", err)
	}
	c := &Clients{authorities: x509.NewCertPool(), log: log}
	if !c.authorities.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--client-ca-file %s: it has no certificate in PEM form", file)
	}
	if names != "" {
		c.names = strings.Split(names, ",")
	}
	return c, nil
}

// configure has TLS ask for a certificate. One is not required: the kubelet's probes, the
// breaker and whoever reads metrics have none.
func (c *Clients) configure(t *tls.Config) {
	if c != nil {
		t.ClientAuth, t.ClientCAs = tls.VerifyClientCertIfGiven, c.authorities
	}
}

// only lets through what comes with such a certificate. The rest is refused before its
// body is read; the API server then stores the Endpoints unchanged.
func (c *Clients) only(next http.Handler, observe func(string, time.Duration, review.Result)) http.Handler {
	if c == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.may(r.TLS) {
			next.ServeHTTP(w, r)
			return
		}
		c.said.Do(func() { // once: whoever reaches the port could fill the log
			c.log.Error("a review without the API server's client certificate is refused; further ones are only counted", "from", r.RemoteAddr)
		})
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "a client certificate that --client-ca-file and --client-allowed-names allow is needed\n")
		observe(review.NoClientCertificate, 0, review.Result{})
	})
}

func (c *Clients) may(t *tls.ConnectionState) bool {
	if t == nil || len(t.VerifiedChains) == 0 {
		return false
	}
	return len(c.names) == 0 || slices.Contains(c.names, t.VerifiedChains[0][0].Subject.CommonName)
}
