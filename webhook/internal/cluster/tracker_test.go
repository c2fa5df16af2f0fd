// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// seen is one state of a pod: its spec's image, the container's ID and the image
// that the runtime names.
type seen struct{ spec, id, reported string }

func podAt(rv int, s seen) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", ResourceVersion: fmt.Sprint(1000 + rv)}}
	p.Spec.Containers = []v1.Container{{Name: "web", Image: s.spec}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "web", ContainerID: s.id, Image: s.reported}}
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	return p
}

func TestImagePending(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name   string
		states []seen
		held   bool
		want   string // one letter for each state: p(ending) or -
		later  string // the last state after the time of guesses
	}{
		{"replaced", []seen{{"a:1", "1", "a:1"}, {"a:2", "1", "a:1"}, {"a:2", "1", "a:1"}, {"a:2", "2", "a:2"}}, false, "-pp-", "-"},
		{"both at once", []seen{{"a:1", "1", "a:1"}, {"a:2", "2", "a:2"}}, false, "--", "-"},
		{"put back", []seen{{"a:1", "1", "a:1"}, {"a:2", "1", "a:1"}, {"a:1", "1", "a:1"}}, false, "-p-", "-"},
		{"for ever, if nothing replaces it", []seen{{"a:1", "1", "a:1"}, {"a:2", "1", "a:1"}}, false, "-p", "p"},
		{"two tags of one image", []seen{{"a:1", "1", "a:1"}, {"b:1", "1", "a:1"}, {"b:1", "2", "a:1"}}, false, "-p-", "-"},
		{"two tags, seen for the first time", []seen{{"b:1", "1", "a:1"}}, false, "-", "-"},
		{"status names the image otherwise", []seen{{"docker.io/library/a", "1", "a:latest"}}, true, "-", "-"},
		{"held by another replica", []seen{{"a:2", "1", "a:1"}, {"a:2", "2", "a:2"}}, true, "p-", "-"},
		{"held, and nothing comes", []seen{{"a:2", "1", "a:1"}}, true, "p", "-"},
		{"third image meanwhile", []seen{{"a:1", "1", "a:1"}, {"a:2", "1", "a:1"}, {"a:3", "1", "a:1"}, {"a:3", "2", "a:2"}, {"a:3", "3", "a:3"}}, false, "-ppp-", "-"},
		{"third image, the second never ran", []seen{{"a:1", "1", "a:1"}, {"a:2", "1", "a:1"}, {"a:3", "1", "a:1"}, {"a:3", "2", "a:3"}}, false, "-pp-", "-"},
		{"first container", []seen{{"a:1", "", ""}, {"a:1", "1", "a:1"}}, false, "--", "-"},
		{"changed before the first container", []seen{{"a:1", "", ""}, {"a:2", "", ""}, {"a:2", "1", "a:2"}}, false, "---", "-"},
		{"crashed and started again", []seen{{"a:1", "1", "a:1"}, {"a:1", "2", "a:1"}}, false, "--", "-"},
		{"no ID for a moment", []seen{{"a:1", "1", "a:1"}, {"a:2", "1", "a:1"}, {"a:2", "", ""}, {"a:2", "2", "a:2"}}, false, "-p--", "-"},
	} {
		tr, got := newTracker(), ""
		letter := func(p *v1.Pod, at time.Time) string {
			if m, _ := tr.pending(p, at); len(m) > 0 {
				return "p"
			}
			return "-"
		}
		var last *v1.Pod
		for i, s := range c.states {
			last = podAt(i, s)
			tr.observe(last, now, func() bool { return c.held })
			tr.observe(podAt(-5, seen{"old:1", "0", "old:1"}), now, nil) // an old state changes nothing
			got += letter(last, now)
		}
		if later := letter(last, now.Add(guessed+time.Second)); got != c.want || later != c.later {
			t.Errorf("%s: %s and later %s, want %s and %s", c.name, got, later, c.want, c.later)
		}
	}
}

func TestOlder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"9", "10", true}, {"10", "9", false}, {"10", "10", false}, {"", "1", true}, {"99999999999999999999999999", "100000000000000000000000000", true}} {
		if older(c.a, c.b) != c.want {
			t.Errorf("older(%q, %q) is not %v", c.a, c.b, c.want)
		}
	}
}

func TestCheckVersion(t *testing.T) {
	for v, ok := range map[string]bool{"v1.9.3": true, "v1.9.11+holdfast.2": true, "v1.9.11+holdfast.2.post.g0123456789ab": true, "v1.12.4": true, "v1.36.0-rc.1": true, "v2.0.0": true,
		"v1.9.2": false, "v1.9.0": false, "v1.8.15": false, "v1.7.0": false, "": false, "v1.9": false, "1.9.11": false} {
		if err := CheckVersion(v); (err == nil) != ok {
			t.Errorf("%q: %v", v, err)
		}
	}
}
