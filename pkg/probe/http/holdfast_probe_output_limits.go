// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package http

// OfContainer returns a prober that does what p does, and whose answers are a container's
// (outputlimit.Container). A prober that does not know of containers stays as it is.
func OfContainer(p HTTPProber, container string) HTTPProber {
	if pr, ok := p.(interface {
		OfContainer(string) HTTPProber
	}); ok {
		return pr.OfContainer(container)
	}
	return p
}

// OfContainer returns a copy for a container's probes.
func (pr httpProber) OfContainer(container string) HTTPProber {
	pr.sender = container
	return pr
}
