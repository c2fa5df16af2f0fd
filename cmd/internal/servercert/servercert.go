// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servercert tells what today's Go, and so Holdfast, refuses of an API server's certificates.
package servercert

import (
	"crypto/x509"
	"fmt"
	"slices"

	"holdfast/cmd/internal/finding"
)

// Findings are those of a chain as the server shows it, leaf first. where is their object; who is what
// of Holdfast would refuse it, and what then happens.
func Findings(where, who string, chain []*x509.Certificate) []finding.Finding {
	var out []finding.Finding
	for i, cert := range chain {
		what := "the API server's certificate"
		if i > 0 {
			what = "an intermediate certificate of the API server"
		}
		if i == 0 && len(cert.DNSNames)+len(cert.IPAddresses)+len(cert.EmailAddresses)+len(cert.URIs) == 0 {
			out = append(out, finding.Of("HF104", where, what+" has no subjectAltName: "+who, "issue it again with the names and addresses by which clients reach it"))
		}
		// Nobody verifies the signature of a root, nor of a certificate that is its own.
		if slices.Equal(cert.RawIssuer, cert.RawSubject) {
			continue
		}
		switch cert.SignatureAlgorithm {
		case x509.SHA1WithRSA, x509.ECDSAWithSHA1, x509.DSAWithSHA1, x509.MD5WithRSA, x509.MD2WithRSA:
			out = append(out, finding.Of("HF104", where, fmt.Sprintf("%s is signed with %s: %s", what, cert.SignatureAlgorithm, who), "issue it again, signed with SHA-256"))
		}
	}
	return out
}

// Kubelet is who of Findings for a kubelet.
const Kubelet = "Holdfast's kubelet refuses it, and the node becomes NotReady"
