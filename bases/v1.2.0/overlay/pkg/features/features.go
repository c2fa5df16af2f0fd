// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package features holds the feature gates of Holdfast for a base that has no
// --feature-gates flag yet (Kubernetes got it in 1.4).
//
// A gate is switched by the environment variable HOLDFAST_FEATURE_GATES, with
// the syntax that the flag has in later releases: "Name=true,Other=false". An
// upstream binary does not read the variable, where it would refuse a flag, so
// that one unit file or pod manifest serves both.
package features

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/golang/glog"
)

// EnvVar is the environment variable that switches gates.
const EnvVar = "HOLDFAST_FEATURE_GATES"

// HashCollision lets the Deployment controller give a ReplicaSet another name
// when the name that it computed is taken by a ReplicaSet of another pod
// template, or of another owner.
const HashCollision = "HashCollision"

// defaults are the known gates.
var defaults = map[string]bool{
	HashCollision: true,
}

// Gates are the settings of all known gates.
type Gates map[string]bool

// Parse returns the defaults, changed by what s says: a comma-separated list
// of Name=bool, empty for none. Its errors name the variable, the gate and what
// is known.
func Parse(s string) (Gates, error) {
	gates := Gates{}
	for name, on := range defaults {
		gates[name] = on
	}
	for _, item := range strings.Split(s, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		parts := strings.SplitN(item, "=", 2)
		name := strings.TrimSpace(parts[0])
		if _, ok := defaults[name]; !ok {
			return nil, fmt.Errorf("%s: there is no gate %q: the gates are %s", EnvVar, name, known())
		}
		if len(parts) == 1 {
			return nil, fmt.Errorf("%s: %q has no value: write %s=true or %s=false", EnvVar, item, name, name)
		}
		on, err := strconv.ParseBool(strings.TrimSpace(parts[1]))
		if err != nil {
			return nil, fmt.Errorf("%s: %s=%s: write %s=true or %s=false", EnvVar, name, parts[1], name, name)
		}
		gates[name] = on
	}
	return gates, nil
}

func known() string {
	var names []string
	for name := range defaults {
		names = append(names, name)
	}
	sort.Strings(names)
	return strings.Join(names, ", ")
}

var (
	mu      sync.RWMutex
	set     Gates
	logOnce sync.Once
)

// An operator who tried to switch a gate must not run with it as it was.
func init() {
	gates, err := Parse(os.Getenv(EnvVar))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	set = gates
}

// Enabled reports whether a gate is on. The first call says in the log which
// gates differ from their default.
func Enabled(name string) bool {
	mu.RLock()
	defer mu.RUnlock()
	logOnce.Do(func() {
		for n, on := range set {
			if on != defaults[n] {
				glog.Warningf("Feature gate %s=%v (from %s).", n, on, EnvVar)
			}
		}
	})
	return set[name]
}

// SetForTest sets a gate and returns a function that sets it back.
func SetForTest(name string, on bool) func() {
	old := Enabled(name)
	assign := func(v bool) {
		mu.Lock()
		defer mu.Unlock()
		set[name] = v
	}
	assign(on)
	return func() { assign(old) }
}
