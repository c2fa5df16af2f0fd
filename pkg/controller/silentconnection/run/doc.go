// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package run has the test of silentconnection that links the whole controller manager. It is a
// package of its own because Holdfast's root module tests the overlay under other import paths: a
// test beside the code would link that twice there, and register its metric twice.
package run
