// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package gcp_credentials

import (
	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/oauth2"
)

var tokensWithheld = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "holdfast_log_credentials_tokens_withheld_total",
	Help: "Tokens for Google's registry that could not be used and were kept out of the log.",
})

func init() {
	prometheus.MustRegister(tokensWithheld)
}

// logMalformedToken logs an answer with a token that cannot be parsed by its size: one that
// was cut off has the token.
func logMalformedToken(answer []byte, err error) {
	tokensWithheld.Inc()
	glog.Errorf("while parsing a token answer of %d bytes: %v", len(answer), err)
}

// logInvalidToken logs what is wrong with a token, not the token: it can be one that the
// node's clock says is over.
func logInvalidToken(token *oauth2.Token) {
	tokensWithheld.Inc()
	if token == nil {
		glog.Error("Got back no token")
		return
	}
	glog.Errorf("Got back invalid token: %d bytes, valid until %v", len(token.AccessToken), token.Expiry)
}
