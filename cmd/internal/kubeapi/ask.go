// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/cmd/internal/exit"
)

// Asker is a Client, or a test's.
type Asker interface {
	Ask(ctx context.Context, method, path, body string, limit int64, timeout time.Duration) ([]byte, error)
}

// StatusError is an answer that is not 200, nor 201 to a POST.
type StatusError struct {
	Code int
	text string
}

func (e *StatusError) Error() string { return e.text }

// Ask sends a request to path and returns the answer, which may have at most limit bytes and take
// at most timeout. body may be empty.
func (c *Client) Ask(ctx context.Context, method, path, body string, limit int64, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	res, err := c.do(ctx, method, path, body, "application/json, text/plain, */*")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %s: the answer ends early: %w", method, path, err)
	case int64(len(b)) > limit:
		return nil, fmt.Errorf("%s %s: the answer has more than %d bytes", method, path, limit)
	}
	return b, nil
}

// do sends a request, and returns an answer that is 200, or 201 to a POST.
func (c *Client) do(ctx context.Context, method, path, body, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, c.hint)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", accept)
	c.login(req)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, c.hint)
	}
	// A review is answered as what was created.
	if res.StatusCode != http.StatusOK && (method != http.MethodPost || res.StatusCode != http.StatusCreated) {
		defer res.Body.Close()
		b, _ := io.ReadAll(io.LimitReader(res.Body, 300))
		return nil, &StatusError{res.StatusCode, fmt.Sprintf("%s %s: %s: %s%s", method, path, res.Status, strings.TrimSpace(string(b)), c.hint)}
	}
	return res, nil
}

func (c *Client) login(req *http.Request) {
	if c.header != "" {
		req.Header.Set("Authorization", c.header)
	} else if c.user != "" {
		req.SetBasicAuth(c.user, c.pass)
	}
}

// Certificates are what the server shows, the leaf first. They are looked at without being verified,
// over a connection of their own that carries no request, no client certificate and no password. It
// is nil for a server that is asked by http.
func (c *Client) Certificates(ctx context.Context) ([]*x509.Certificate, error) {
	u, err := url.Parse(c.server)
	if err != nil || u.Scheme != "https" {
		return nil, err
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "443")
	}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: &tls.Config{ServerName: u.Hostname(), InsecureSkipVerify: true}}
	conn, err := d.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates, nil
}

// File is the kubeconfig to read: what is given, else the first of $KUBECONFIG that is there, else
// ~/.kube/config.
func File(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	var tried []string
	for _, f := range filepath.SplitList(os.Getenv("KUBECONFIG")) {
		if f == "" {
			continue
		}
		if _, err := os.Stat(f); err == nil {
			return f, nil
		}
		tried = append(tried, f)
	}
	if len(tried) > 0 {
		return "", fmt.Errorf("$KUBECONFIG names no file that exists (%s): give --kubeconfig", strings.Join(tried, ", "))
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no --kubeconfig, no $KUBECONFIG, and no home directory: %w", err)
	}
	f := filepath.Join(home, ".kube", "config")
	if _, err := os.Stat(f); err != nil {
		return "", fmt.Errorf("no --kubeconfig, no $KUBECONFIG, and %w", err)
	}
	return f, nil
}

// Connect reads the kubeconfig that File finds, and says on errs which API server will be asked.
func Connect(given, context string, errs io.Writer) (*Client, error) {
	file, err := File(given)
	if err != nil {
		return nil, exit.Failedf("%w", err)
	}
	c, err := Load(file, context)
	if err != nil {
		return nil, exit.Failedf("the kubeconfig: %w", err)
	}
	fmt.Fprintf(errs, "the API server is %s\n", c.Where())
	return c, nil
}

// Decode reads JSON with its numbers as they are written. An error has nothing of what was read,
// which may be a secret.
func Decode(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("the answer is not the JSON that was expected (%d bytes)", len(data))
	}
	return nil
}

// List reads all pages of a list; 1.7 and 1.8 answer all at once. limit and timeout are of one page.
func List[T any](ctx context.Context, a Asker, path string, limit int64, timeout time.Duration) ([]T, error) {
	var out []T
	err := pages(path, func(path string) (next string, err error) {
		b, err := a.Ask(ctx, http.MethodGet, path, "", limit, timeout)
		if err != nil {
			return "", err
		}
		var l struct {
			Kind     string
			Metadata struct{ Continue string }
			Items    []T
		}
		if err := Decode(b, &l); err != nil {
			return "", err
		}
		if !strings.HasSuffix(l.Kind, "List") {
			return "", errors.New("the answer is not a list")
		}
		out = append(out, l.Items...)
		return l.Metadata.Continue, nil
	})
	return out, err
}
