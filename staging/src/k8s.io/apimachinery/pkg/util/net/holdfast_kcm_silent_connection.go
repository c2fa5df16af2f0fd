// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package net

import "net/http"

// WrappedRoundTripper is http2's own, for who looks after its connections.
func (rt redialRoundTripper) WrappedRoundTripper() http.RoundTripper { return rt.RoundTripper }
