// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules holds the rules of this repository as tests: rules_test.go
// lays each on the checkout, faults_test.go shows that each finds what it is
// there for.
package rules
