// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package handlers

import "testing"

// FuzzPatchErrors: no patch ends the process, and none answers what is the server's fault.
// go test runs the cases of TestPatchErrors; for more run, in the folder of the package in
// the source tree,
//
//	go test -vet=off -fuzz FuzzPatchErrors .
func FuzzPatchErrors(f *testing.F) {
	for _, tc := range patchCases {
		f.Add(tc.kind, tc.patch)
	}
	f.Fuzz(func(t *testing.T, kind, patch string) {
		switch kind {
		case "json", "merge", "strategic":
		default:
			return
		}
		got := patchOf(t, kind, patch)
		switch {
		case got.Code == 200 || got.Code == 400 || got.Code == 409 || got.Code == 422:
		case kind == "strategic" && got.Code == 500:
			// As upstream answers what it finds itself, such as a missing merge key.
		default:
			t.Errorf("%s %q: %d %q", kind, patch, got.Code, got.Message)
		}
	})
}
