// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vmagent is what a lab and the first process of its virtual machine
// (tools/cmd/vmagent) say to each other: a connection for each script, with one Request and one
// Answer in JSON.
package vmagent

// Port is where the agent listens.
const Port = 7777

// Request is a script for bash.
type Request struct{ Shell string }

// Answer is what it wrote to both outputs, and its exit status.
type Answer struct {
	Output string
	Code   int
}
