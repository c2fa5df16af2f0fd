// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]bool{
		"":                     true,
		" , ":                  true,
		"HashCollision=false":  false,
		" HashCollision = 0 ,": false,
		"HashCollision=true":   true,
		"HashCollision=F,":     false,
	} {
		gates, err := Parse(in)
		if err != nil || gates[HashCollision] != want {
			t.Errorf("%q: got %v, %v, want %v", in, gates, err, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for in, want := range map[string]string{
		"HashCollisions=false":   `there is no gate "HashCollisions": the gates are HashCollision`,
		"HashCollision":          "write HashCollision=true or HashCollision=false",
		"HashCollision=off":      "HashCollision=off: write HashCollision=true or HashCollision=false",
		"HashCollision=true,x=y": `there is no gate "x"`,
	} {
		_, err := Parse(in)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), EnvVar) {
			t.Errorf("%q: got %v, want %s", in, err, want)
		}
	}
}

func TestSetForTest(t *testing.T) {
	if !Enabled(HashCollision) {
		t.Fatalf("%s is set in the environment: unset it for the tests", EnvVar)
	}
	restore := SetForTest(HashCollision, false)
	if Enabled(HashCollision) {
		t.Errorf("still on")
	}
	restore()
	if !Enabled(HashCollision) {
		t.Errorf("not on again")
	}
}
