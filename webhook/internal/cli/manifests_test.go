// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

// TestImage: manifests name the image of the program's own release, unless another is given.
func TestImage(t *testing.T) {
	for _, c := range []struct {
		version, flag, want string
		status              int
	}{
		{"v1.9.11+holdfast.3", "", `image: "holdfast.invalid/endpoints-rules:v1.9.11_holdfast.3"`, 0},
		{"v1.9.11+holdfast.3", "--image=mine:1", `image: "mine:1"`, 0},
		{"unknown", "", "the image with the program is needed", 2},
	} {
		args := []string{"manifests", "--rule-set=image-pending"}
		if c.flag != "" {
			args = append(args, c.flag)
		}
		var out strings.Builder
		status := Main(c.version, args, strings.NewReader(""), &out, &out)
		if status != c.status || !strings.Contains(out.String(), c.want) {
			t.Errorf("%+v: status %d\n%s", c, status, out.String())
		}
	}
}
