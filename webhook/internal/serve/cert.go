// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serve is the program as a server: TLS, rules that are read again,
// health, metrics.
package serve

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Certificate is a key pair in two files, read again when they change.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu        sync.Mutex
	looked    time.Time
	cert, key []byte
	pair      *tls.Certificate
	Reloads   int
}

// lookEvery is how often the files are looked at, at most.
const lookEvery = time.Second

// NewCertificate reads the files for the first time.
func NewCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log}
	if err := c.read(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Certificate) read() error {
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return fmt.Errorf("the certificate: %w", err)
	}
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return fmt.Errorf("the certificate's key: %w", err)
	}
	if c.pair != nil && bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", c.certFile, c.keyFile, err)
	}
	if c.pair != nil {
		c.Reloads++
		c.log.Info("certificate read again", "file", c.certFile)
	}
	c.cert, c.key, c.pair = cert, key, &pair
	return nil
}

// Get is for tls.Config. While the files do not fit together, as between the
// writes of the two, the last pair that did goes on.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) > lookEvery {
		c.looked = time.Now()
		if err := c.read(); err != nil {
			c.log.Error("the certificate that was read before stays in use", "error", err.Error())
		}
	}
	return c.pair, nil
}
