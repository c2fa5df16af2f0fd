// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import "testing"

func TestNormal(t *testing.T) {
	for text, want := range map[string]string{
		"web-5d4f8c9b7d-abcde":                                        "web-5d4f8c9b7d-abcde", // no hash of 1.9
		"web-2153412345-x8zkq is here":                                "web-HASH-RANDOM is here",
		"replicasets/web-2153412345":                                  "replicasets/web-HASH",
		"pods/0c5c3c53-6ac4-11e8-9f2b-0242ac110002/volumes":           "pods/UID/volumes",
		"at 2026-11-22T09:18:00Z and 2026-11-22 09:18:00.1 +0000 UTC": "at TIME and TIME",
		"10.90.0.11:10250":                                            "IP:10250",
		"kubelet/v1.9.11 (linux/amd64) kubernetes/0123456":            "kubelet/VERSION (linux/amd64) kubernetes/0123456",
		"kubelet/v1.9.11+holdfast.2-34-gdeadbee":                      "kubelet/VERSION",
		"kubelet/v1.9.11+holdfast.2.post.g0123456789ab.dirty (x)":     "kubelet/VERSION (x)",
		"default-token-x8zkq":                                         "default-token-RANDOM",
		"web.15a4c1f2e0b9d3c7":                                        "web.RANDOM",
		"/tmp/holdfast-dropin-0a1b.sock":                              "SOCKET",
		"v1.9.110":                                                    "VERSION0",
	} {
		if got := Normal(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestLogForm(t *testing.T) {
	for line, want := range map[string]string{
		`I1122 09:18:01.123456     123 kubelet.go:1837] SyncLoop (ADD, "api"): "web_default(0c5c3c53-6ac4-11e8-9f2b-0242ac110002)"`: "I kubelet.go: SyncLoop …",
		`W1122 09:18:01.123456     123 x.go:7] waited 17.5s for "a b"`:                                                              "W x.go: waited N for Q",
		`goroutine 1 [running]:`: "",
	} {
		if got := LogForm(line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	a := LogForm(`I1122 09:18:01.123456 123 kubelet.go:1 ] x`)
	if a != "" {
		t.Errorf("no header: %q", a)
	}
}
