// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net/http"
	"strings"
	"sync/atomic"
)

// masked stands for a credential in the log.
const masked = "<masked>"

var credentialsMasked uint64

// CredentialsMasked is how many values of headers were masked for the log since the program
// began. This package must not know of metrics: pkg/version/prometheus has the counter.
func CredentialsMasked() uint64 { return atomic.LoadUint64(&credentialsMasked) }

// schemes are the words before a credential that are shown, as they say what is wrong
// with a request. Another first word can be the credential itself.
var schemes = map[string]bool{"basic": true, "bearer": true, "digest": true, "negotiate": true, "ntlm": true}

// headersForLog returns a request's headers without credentials: tokens and passwords of
// Authorization and Proxy-Authorization, and cookies (CVE-2019-11250, CVE-2020-8565).
// The request keeps its own.
func headersForLog(header http.Header) http.Header {
	shown := make(http.Header, len(header))
	for key, values := range header {
		switch strings.ToLower(key) {
		case "authorization", "proxy-authorization", "cookie":
			hidden := make([]string, len(values))
			for i, value := range values {
				if hidden[i] = maskCredential(value); hidden[i] != value {
					atomic.AddUint64(&credentialsMasked, 1)
				}
			}
			shown[key] = hidden
		default:
			shown[key] = values
		}
	}
	return shown
}

// maskCredential leaves the scheme of "Bearer TOKEN". An empty value stays, as it is
// what is wrong with a request that has one.
func maskCredential(value string) string {
	if strings.TrimSpace(value) == "" {
		return value
	}
	if i := strings.Index(value, " "); i > 0 && schemes[strings.ToLower(value[:i])] {
		if strings.TrimSpace(value[i:]) == "" {
			return value
		}
		return value[:i] + " " + masked
	}
	if schemes[strings.ToLower(value)] {
		return value
	}
	return masked
}
