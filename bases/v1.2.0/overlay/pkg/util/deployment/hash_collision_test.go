// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/api"
	"k8s.io/kubernetes/pkg/api/unversioned"
	"k8s.io/kubernetes/pkg/apis/extensions"
	"k8s.io/kubernetes/pkg/features"
	podutil "k8s.io/kubernetes/pkg/util/pod"
)

// counted returns a replica set of the deployment's template under another
// hash, created the given number of seconds after 1970.
func counted(d extensions.Deployment, name, hash string, created int64) extensions.ReplicaSet {
	rs := generateRS(d)
	rs.Name = name
	rs.CreationTimestamp = unversioned.NewTime(time.Unix(created, 0))
	labels := map[string]string{}
	for k, v := range rs.Spec.Template.Labels {
		labels[k] = v
	}
	labels[extensions.DefaultDeploymentUniqueLabelKey] = hash
	rs.Labels = labels
	rs.Spec.Template.Labels = labels
	rs.Spec.Selector = &unversioned.LabelSelector{MatchLabels: labels}
	return rs
}

func TestFindNewReplicaSetIgnoringHash(t *testing.T) {
	d := generateDeployment("nginx")
	other := generateDeployment("nginx")
	other.Spec.Template.Spec.Containers[0].Image = "nginx:2"
	exact := generateRS(d)
	exact.Name = "exact"
	exact.CreationTimestamp = unversioned.NewTime(time.Unix(9, 0))
	otherRS := generateRS(other)
	otherRS.Name = "other"

	for _, c := range []struct {
		rss     []extensions.ReplicaSet
		on, off string
		oldOn   int // old replica sets
	}{
		{nil, "", "", 0},
		{[]extensions.ReplicaSet{otherRS}, "", "", 1},
		{[]extensions.ReplicaSet{otherRS, exact}, "exact", "exact", 1},
		{[]extensions.ReplicaSet{otherRS, counted(d, "b", "7", 2)}, "b", "", 1},
		{[]extensions.ReplicaSet{counted(d, "b", "7", 2), exact}, "exact", "exact", 1},
		{[]extensions.ReplicaSet{counted(d, "c", "7", 2), counted(d, "b", "8", 1)}, "b", "", 1},
		{[]extensions.ReplicaSet{counted(d, "c", "7", 2), counted(d, "b", "8", 2)}, "b", "", 1},
	} {
		for gate, want := range map[bool]string{true: c.on, false: c.off} {
			restore := features.SetForTest(features.HashCollision, gate)
			rs, err := FindNewReplicaSet(&d, c.rss)
			got := ""
			if rs != nil {
				got = rs.Name
			}
			if err != nil || got != want {
				t.Errorf("%d replica sets, gate %v: found %q (%v), want %q", len(c.rss), gate, got, err, want)
			}

			pods := &api.PodList{}
			for _, rs := range c.rss {
				pods.Items = append(pods.Items, generatePodFromRS(rs))
			}
			requireOld, allOld, err := FindOldReplicaSets(&d, c.rss, pods)
			wantOld := c.oldOn
			if !gate && want == "" {
				wantOld = len(c.rss)
			}
			if err != nil || len(requireOld) != wantOld || len(allOld) != wantOld {
				t.Errorf("%d replica sets, gate %v: %d and %d old ones (%v), want %d", len(c.rss), gate, len(requireOld), len(allOld), err, wantOld)
			}
			for _, rs := range allOld {
				if rs.Name == want {
					t.Errorf("gate %v: %s is new and old", gate, rs.Name)
				}
			}
			restore()
		}
	}
}

func TestEqualIgnoringHash(t *testing.T) {
	template := func(labels map[string]string, image string) api.PodTemplateSpec {
		out := generateDeployment(image).Spec.Template
		out.Labels = labels
		return out
	}
	hash := extensions.DefaultDeploymentUniqueLabelKey
	a := template(map[string]string{"a": "b"}, "nginx")
	for _, c := range []struct {
		b    api.PodTemplateSpec
		want bool
	}{
		{template(map[string]string{"a": "b"}, "nginx"), true},
		{template(map[string]string{"a": "b", hash: "1"}, "nginx"), true},
		{template(map[string]string{"a": "c", hash: "1"}, "nginx"), false},
		{template(map[string]string{"a": "b", hash: "1"}, "nginx:2"), false},
		{template(map[string]string{hash: "1"}, "nginx"), false},
		{template(nil, "nginx"), false},
	} {
		if EqualIgnoringHash(a, c.b) != c.want || EqualIgnoringHash(c.b, a) != c.want {
			t.Errorf("%v and %v: want %v", a.Labels, c.b.Labels, c.want)
		}
	}
	if a.Labels[hash] != "" || len(a.Labels) != 1 {
		t.Errorf("the labels were changed: %v", a.Labels)
	}
}

func TestCollisionCount(t *testing.T) {
	d := generateDeployment("nginx")
	for value, want := range map[string]int{"0": 0, "7": 7, "": 0, "-1": 0, "x": 0, "4294967296": 0, "1.5": 0} {
		d.Annotations = map[string]string{CollisionCountAnnotation: value}
		if got := CollisionCount(&d); got != want {
			t.Errorf("%q: got %d, want %d", value, got, want)
		}
	}
	d.Annotations = nil
	if got := CollisionCount(&d); got != 0 {
		t.Errorf("none: got %d", got)
	}
	if !IsCollisionCount(CollisionCountAnnotation) || IsCollisionCount(RevisionAnnotation) {
		t.Errorf("IsCollisionCount is wrong")
	}
	defer features.SetForTest(features.HashCollision, false)()
	if IsCollisionCount(CollisionCountAnnotation) {
		t.Errorf("with the gate off the annotation is like any other")
	}
}

func TestIsCounted(t *testing.T) {
	d := generateDeployment("nginx")
	d.Name = "web"
	hash := func(count int) string {
		return strconv.FormatUint(uint64(podutil.GetPodTemplateSpecHashWithCount(d.Spec.Template, count)), 10)
	}
	other := generateDeployment("nginx:2")
	for _, x := range []struct {
		of         extensions.Deployment
		name, hash string
		count      string // of the annotation
		want       bool
	}{
		{d, "web-" + hash(1), hash(1), "", true},
		{d, "web-" + hash(10), hash(10), "", true},
		{d, "web-" + hash(14), hash(14), "", false},
		{d, "web-" + hash(14), hash(14), "5", true},
		{d, "web-" + hash(1), hash(1), "2147483647", true},
		{d, "web-" + hash(0), hash(0), "", false},     // the computed one
		{d, "web-7", "7", "", false},                  // another release's
		{d, "bar-" + hash(1), hash(1), "", false},     // the name is not made from the label
		{other, "web-" + hash(1), hash(1), "", false}, // another template
	} {
		d.Annotations = map[string]string{CollisionCountAnnotation: x.count}
		rs := counted(x.of, x.name, x.hash, 1)
		if got := IsCounted(&d, &rs); got != x.want {
			t.Errorf("%s with label %s, count %q: got %v", x.name, x.hash, x.count, got)
		}
	}
	d.Annotations = nil
	rs := counted(d, "web-"+hash(1), hash(1), 1)
	defer features.SetForTest(features.HashCollision, false)()
	if IsCounted(&d, &rs) {
		t.Errorf("with the gate off none is")
	}
}
