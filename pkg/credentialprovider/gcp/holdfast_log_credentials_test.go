// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package gcp_credentials

import (
	"flag"
	"io/ioutil"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/golang/glog"
	dto "github.com/prometheus/client_model/go"
)

// TestUnusableTokenIsNotLogged: an answer of the metadata server that is cut off, and a
// token that is over, are named by their size.
func TestUnusableTokenIsNotLogged(t *testing.T) {
	if err := flag.Set("logtostderr", "true"); err != nil {
		t.Fatal(err)
	}
	const secret = "ya29.c2VjcmV0"
	var answer string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(answer))
	}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ioutil.TempFile("", "key")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(key.Name())
	defer key.Close()
	if _, err := key.WriteString(jsonKey); err != nil {
		t.Fatal(err)
	}
	name := key.Name()
	jwt := &jwtProvider{path: &name, tokenUrl: server.URL}
	if !jwt.Enabled() {
		t.Fatal("not enabled")
	}
	metadata := &containerRegistryProvider{metadataProvider{Client: &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at)}}}}

	for _, tc := range []struct {
		answer string
		ask    func() int
		says   []string
	}{
		{`{"access_token":"` + secret + `","expires_`, func() int { return len(metadata.Provide()) }, []string{"while parsing", "41 bytes", "unexpected end"}},
		{`{"access_token":"` + secret + `","expires_in":1}`, func() int { return len(jwt.Provide()) }, []string{"invalid token", "13 bytes", "valid until 2"}},
	} {
		answer = tc.answer
		before := withheld(t)
		stderr := os.Stderr
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		os.Stderr = write
		n := tc.ask()
		glog.Flush()
		os.Stderr = stderr
		write.Close()
		b, err := ioutil.ReadAll(read)
		if err != nil {
			t.Fatal(err)
		}
		if n != 0 || withheld(t)-before != 1 || strings.Contains(string(b), secret) {
			t.Errorf("%s: %d entries, counted %v, logged %s", tc.answer, n, withheld(t)-before, b)
		}
		for _, says := range tc.says {
			if !strings.Contains(string(b), says) {
				t.Errorf("%s: the log does not say %q: %s", tc.answer, says, b)
			}
		}
	}
}

func withheld(t *testing.T) float64 {
	var m dto.Metric
	if err := tokensWithheld.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}
