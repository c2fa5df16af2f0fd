// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package net

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestHTTPSProxy runs itself with each environment, as net/http looks at it once. It asks for
// the proxy as transports do that have their own function, and as the default one does.
func TestHTTPSProxy(t *testing.T) {
	const asked = "HOLDFAST_TEST_HTTPS_PROXY"
	if os.Getenv(asked) != "" {
		own := NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)
		for _, u := range []string{"https://a.example", "http://a.example", "https://no.example"} {
			req, err := http.NewRequest("GET", u, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range []func(*http.Request) (interface{}, error){
				func(r *http.Request) (interface{}, error) { return own(r) },
				func(r *http.Request) (interface{}, error) { return http.DefaultTransport.(*http.Transport).Proxy(r) },
			} {
				proxy, err := f(req)
				fmt.Printf("answer %s %v %v\n", u, proxy, err)
			}
		}
		v, found := os.LookupEnv("HTTPS_PROXY")
		fmt.Printf("answer environment %q %v\n", v, found)
		return
	}
	const direct, plain, secure = "<nil>", "http://plain:1", "http://secure:2"
	for name, c := range map[string]struct {
		env         []string
		https, http string
		left        string
	}{
		"nothing":         {nil, direct, direct, `"" false`},
		"HTTP_PROXY":      {[]string{"HTTP_PROXY=" + plain}, plain, plain, `"" false`},
		"http_proxy":      {[]string{"http_proxy=" + plain}, plain, plain, `"" false`},
		"both":            {[]string{"HTTP_PROXY=" + plain, "HTTPS_PROXY=" + secure}, secure, plain, fmt.Sprintf("%q true", secure)},
		"both, one small": {[]string{"HTTP_PROXY=" + plain, "https_proxy=" + secure}, secure, plain, `"" false`},
		"HTTPS_PROXY":     {[]string{"HTTPS_PROXY=" + secure}, secure, direct, fmt.Sprintf("%q true", secure)},
		"empty":           {[]string{"HTTP_PROXY=" + plain, "HTTPS_PROXY="}, plain, plain, `"" true`},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestHTTPSProxy$")
		cmd.Env = append([]string{asked + "=1", "NO_PROXY=no.example"}, c.env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		var got []string
		for _, line := range strings.Split(string(out), "\n") {
			if strings.HasPrefix(line, "answer ") {
				got = append(got, strings.TrimPrefix(line, "answer "))
			}
		}
		var want []string
		for _, l := range []string{"https://a.example " + c.https, "http://a.example " + c.http, "https://no.example " + direct} {
			want = append(want, l+" <nil>", l+" <nil>")
		}
		want = append(want, "environment "+c.left)
		if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
			t.Errorf("%s: got\n%s\nwant\n%s", name, g, w)
		}
	}
}
