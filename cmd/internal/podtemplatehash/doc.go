// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podtemplatehash computes the hashes that Kubernetes' Deployment
// controllers give to pod templates, release by release, from an API object in
// JSON, and finds the changes of a template that leave its hash as it is.
//
// A hash is a checksum of a text: a dump of the template by go-spew's %#v,
// which names every field of every struct, set or not, and the fields of types
// of the standard library too. So it depends on the release's types, and on
// the Go release that built the controller. Neither is linked here: a table
// (schema/*.json) per release, written by the release's own code, says what
// the types are, and package dump prints what go-spew would print. The tests
// hold the output to what the releases print (testdata/golden).
//
// # What goes in
//
// The object must be as the API server returns it: the controllers hash what
// they read, with every default filled in and every quantity in its canonical
// form. Missing tells what is missing. Fields that a release does not know are
// left out, as its API server does.
//
// # What this package does not know
//
//   - Templates of 1.3 to 1.5 with init containers, which are an annotation
//     there and a field of what is hashed.
//   - Templates whose creationTimestamp is set, which is the case only when it
//     was copied from a live object: the dump then holds the local time zone of
//     the controller. 1.2 is known, for a controller that runs in UTC.
package podtemplatehash
