// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"flag"
	"fmt"
	"io/ioutil"
	"math/rand"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/golang/glog"
)

func TestMaskCredential(t *testing.T) {
	for value, want := range map[string]string{
		"":                       "",
		" ":                      " ",
		"Bearer abc.def":         "Bearer <masked>",
		"bearer abc def":         "bearer <masked>",
		"Basic dXNlcjpwYXNz":     "Basic <masked>",
		"Negotiate YII=":         "Negotiate <masked>",
		"Bearer":                 "Bearer",
		"Bearer ":                "Bearer ",
		"abc.def":                "<masked>",
		"s3cr3t and more":        "<masked>",
		" Bearer abc":            "<masked>",
		"session=abc; other=def": "<masked>",
	} {
		if got := maskCredential(value); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
}

// TestHeadersForLogFuzz: no token is shown, no other header changes, nor does the request.
func TestHeadersForLogFuzz(t *testing.T) {
	n := 10000
	if os.Getenv("HOLDFAST_EXHAUSTIVE") != "" {
		n = 1000000
	}
	r := rand.New(rand.NewSource(1))
	names := []string{"Authorization", "authorization", "PROXY-AUTHORIZATION", "Cookie", "Accept", "User-Agent", "X-Token-Name"}
	for i := 0; i < n; i++ {
		h, want, kept := http.Header{}, http.Header{}, http.Header{}
		for j := r.Intn(5); j > 0; j-- {
			name := names[r.Intn(len(names))]
			token := fmt.Sprintf("tok%d.%d", r.Int63(), r.Int63())
			value := []string{"Bearer " + token, "Basic " + token, token, "other " + token}[r.Intn(4)]
			h[name] = append(h[name], value)
			kept[name] = append(kept[name], value)
			switch strings.ToLower(name) {
			case "accept", "user-agent", "x-token-name":
			default:
				if value = strings.Replace(value, token, masked, 1); strings.HasPrefix(value, "other") {
					value = masked
				}
			}
			want[name] = append(want[name], value)
		}
		if got := headersForLog(h); fmt.Sprint(got) != fmt.Sprint(want) || fmt.Sprint(h) != fmt.Sprint(kept) {
			t.Fatalf("%v: %v, want %v", h, got, want)
		}
	}
	t.Logf("%d inputs", n)
}

type answer struct{ got http.Header }

func (a *answer) RoundTrip(req *http.Request) (*http.Response, error) {
	a.got = req.Header
	return &http.Response{Status: "401 Unauthorized", Header: http.Header{"Www-Authenticate": {"Bearer realm=lab"}}}, nil
}

// TestDebuggingRoundTripperMasks: what is logged at each level, and what is sent.
func TestDebuggingRoundTripperMasks(t *testing.T) {
	if err := flag.Set("logtostderr", "true"); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest("GET", "https://server/api", nil)
	if err != nil {
		t.Fatal(err)
	}
	const token = "eyJhbGciOi.eyJpc3Mi.c2ln"
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/json")

	stderr := os.Stderr
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = write
	before := CredentialsMasked()
	next := &answer{}
	for _, level := range []debugLevel{debugJustURL, debugURLTiming, debugCurlCommand, debugRequestHeaders, debugResponseStatus, debugResponseHeaders} {
		newDebuggingRoundTripper(next, level).RoundTrip(req)
	}
	glog.Flush()
	os.Stderr = stderr
	write.Close()
	b, err := ioutil.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte(token)) {
		t.Errorf("the token is in the log:\n%s", b)
	}
	if n := bytes.Count(b, []byte("Authorization: Bearer <masked>")); n != 2 { // curl and headers
		t.Errorf("the masked header is %d times in the log:\n%s", n, b)
	}
	if n := CredentialsMasked() - before; n != 6 { // a request of each level
		t.Errorf("counted %d times, want 6", n)
	}
	for _, word := range []string{"GET https://server/api", "application/json", "401 Unauthorized", "Bearer realm=lab"} {
		if !bytes.Contains(b, []byte(word)) {
			t.Errorf("the log does not have %q:\n%s", word, b)
		}
	}
	if got := next.got.Get("Authorization"); got != "Bearer "+token {
		t.Errorf("sent: %q", got)
	}
}
