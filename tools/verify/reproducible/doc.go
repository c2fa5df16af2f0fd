// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reproducible holds tests of what make built: the kinds of the binaries,
// what they say of themselves, that they can be built again to the same sum,
// and without a network.
//
// The tests run when HOLDFAST_REPRODUCIBLE is set: to "short" as a part of make test,
// to "long" by make reproducible, which builds everything several times from empty
// build caches.
package reproducible
