//go:build linux
// +build linux

// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nsenter

import (
	"regexp"
	"strings"
)

var (
	// iscsiadm -n node.session.auth.password -v VALUE
	secretName = regexp.MustCompile(`(?i)auth\.(?:password|username)`)
	// mount -o username=…,password=VALUE, rbd --key=VALUE
	secretOption = regexp.MustCompile(`(?i)((?:^|[,\s-])(?:password|passwd|pass|secret|key)2?=)[^,\s]*`)
)

// forLog is args without what may be a password in them.
func forLog(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if i >= 2 && args[i-1] == "-v" && secretName.MatchString(args[i-2]) {
			a = "<masked>"
		} else if strings.Contains(a, "=") {
			a = secretOption.ReplaceAllString(a, "$1<masked>")
		}
		out[i] = a
	}
	return out
}
