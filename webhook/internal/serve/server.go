// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"holdfast/webhook/internal/cluster"
	"holdfast/webhook/internal/review"
)

// Path is where AdmissionReviews are posted.
const Path = "/mutate"

// Handler has all paths; clients are those that may post reviews. /healthz is served as admission reviews are, so that
// what stops one stops the other.
func Handler(s *cluster.Store, m *Metrics, clients *Clients, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(Path, clients.only(review.NewHandler(s, log, m.Observe), m.Observe))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case !s.Synced():
			http.Error(w, "the caches are not filled yet", http.StatusServiceUnavailable)
		case s.Rules() == nil:
			http.Error(w, "there are no rules yet", http.StatusServiceUnavailable)
		default:
			_, _ = io.WriteString(w, "ok\n")
		}
	})
	mux.Handle("/metrics", promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{}))
	return mux
}

// Listen serves over TLS until ctx ends.
func Listen(ctx context.Context, address string, cert *Certificate, clients *Clients, h http.Handler, log *slog.Logger) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		// 1.9's apiserver speaks TLS 1.2. HTTP/2 is not offered: it would put all
		// calls on one connection, and a dead one is noticed late.
		TLSConfig:    &tls.Config{GetCertificate: cert.Get, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	clients.configure(srv.TLSConfig)
	log.Info("serving", "address", l.Addr().String())
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(l, "", "") }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		return err
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
