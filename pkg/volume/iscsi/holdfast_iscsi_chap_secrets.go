// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package iscsi

import (
	"sort"
	"strings"
)

// withoutCHAP is what iscsiadm printed, without the values of secret in it: the caller's
// error goes into the pod's event and into the log at every level (#81130, #81215). The
// longest values go first, since one may be part of another.
func withoutCHAP(output []byte, secret map[string]string) string {
	var values []string
	for _, v := range secret {
		if v != "" {
			values = append(values, v)
		}
	}
	sort.Slice(values, func(i, j int) bool { return len(values[i]) > len(values[j]) })
	text := string(output)
	for _, v := range values {
		text = strings.Replace(text, v, "<masked>", -1)
	}
	return text
}
