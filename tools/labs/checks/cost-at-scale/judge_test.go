// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package costatscale

import (
	"fmt"
	"strings"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labs/internal/costlab"
)

func made(p labkit.Profile, factor float64, c judgetest.Change) *history.History {
	var list []any
	for i := range sizeOf(p).pairs {
		for who, f := range map[string]float64{costlab.Stock: 1, costlab.Ours: factor} {
			r := costlab.Reading{Component: manager, Who: who, Pair: i, Took: map[costlab.Quantity]float64{}, Asked: costlab.Counts{"PUT pods": 7}}
			for j, q := range compared[0].Quantities {
				r.Took[q] = f * float64(100*(1+j)+i)
			}
			list = append(list, r)
		}
	}
	return history.Make(history.Begin{Lab: "cost-at-scale", Variant: string(labkit.Ours), Profile: string(p)}, c.Of(list)...)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "cost-at-scale")
	for _, p := range []labkit.Profile{labkit.Short, labkit.Long} {
		judgetest.Cut(t, l, made(p, 1.015, nil))
		judgetest.Judge(t, l, made(p, 1.31, nil), labkit.Failed)
	}
	judgetest.Judge(t, l, made(labkit.Long, 1.03, nil), labkit.Failed)
	requests := func(factor float64) judgetest.Change {
		return judgetest.Where(func(r costlab.Reading) bool { return r.Who == costlab.Ours && r.Pair > 0 },
			func(r *costlab.Reading) { r.Took[costlab.Requests] *= factor })
	}
	long := func(c judgetest.Change) *history.History { return made(labkit.Long, 1, c) }
	judgetest.Judged(t, l, labkit.Inconclusive, long, map[string]judgetest.Change{
		"may be above 1.10: kube-controller-manager, requests: 1.200 (1.000 to 1.200)": requests(1.2),
		"the requests of kube-controller-manager ours is 0":                            requests(0),
	})
	res := judgetest.Judge(t, l, long(requests(1.05)), labkit.Passed)
	if all := strings.Join(res.Facts, "\n"); !strings.Contains(all, "PUT pods 42 and 42") {
		t.Errorf("facts: %s", all)
	}
}

func TestRolledOut(t *testing.T) {
	for want, change := range map[string]func(o *kube.Object){
		"<nil>": func(*kube.Object) {},
		"Deployment web-00 has generation 3, its controller has observed 2": func(o *kube.Object) { o.SetGeneration(3) },
		"Deployment web-00 has 59 updatedReplicas of 60":                    func(o *kube.Object) { o.Object["status"].(map[string]any)["updatedReplicas"] = int64(59) },
		"Deployment web-00 has 61 replicas of 60":                           func(o *kube.Object) { o.Object["status"].(map[string]any)["replicas"] = int64(61) },
		"Deployment web-00 has 0 availableReplicas of 60":                   func(o *kube.Object) { delete(o.Object["status"].(map[string]any), "availableReplicas") },
	} {
		o := &kube.Object{Object: map[string]any{"metadata": map[string]any{"name": deploymentName(0), "generation": int64(2)}, "spec": map[string]any{"replicas": int64(60)},
			"status": map[string]any{"observedGeneration": int64(2), "replicas": int64(60), "updatedReplicas": int64(60), "availableReplicas": int64(60)}}}
		change(o)
		if got := fmt.Sprint(rolledOut(o)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestUnsettled(t *testing.T) {
	l := &lab{size: size{deployments: 2, replicas: 1}, image: 1}
	object := func(m map[string]any) kube.Object { return kube.Object{Object: m} }
	objects := func() (pods, eps []kube.Object) {
		for i := range 2 {
			name := deploymentName(i)
			pods = append(pods, object(map[string]any{"metadata": map[string]any{"name": name + "-x", "labels": map[string]any{"app": name}},
				"spec":   map[string]any{"containers": []any{map[string]any{"image": image(1)}}},
				"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}}))
			eps = append(eps, object(map[string]any{"metadata": map[string]any{"name": name}, "subsets": []any{map[string]any{
				"ports":     []any{map[string]any{"port": int64(8080)}},
				"addresses": []any{map[string]any{"ip": "2.3.4.5", "targetRef": map[string]any{"name": name + "-x"}}}}}}))
		}
		return pods, append(eps, object(map[string]any{"metadata": map[string]any{"name": "kubernetes"}}))
	}
	for want, change := range map[string]func(pods, eps []kube.Object) ([]kube.Object, []kube.Object){
		"<nil>": func(pods, eps []kube.Object) ([]kube.Object, []kube.Object) { return pods, eps },
		"there are 1 pods, want 2": func(pods, eps []kube.Object) ([]kube.Object, []kube.Object) {
			return pods[1:], eps
		},
		"pod web-01-x is an old one, or not ready": func(pods, eps []kube.Object) ([]kube.Object, []kube.Object) {
			pods[1].Object["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["image"] = image(0)
			return pods, eps
		},
		"pod web-00-x is an old one, or not ready": func(pods, eps []kube.Object) ([]kube.Object, []kube.Object) {
			delete(pods[0].Object, "status")
			return pods, eps
		},
		"Endpoints web-00 have 0 of 1 pods": func(pods, eps []kube.Object) ([]kube.Object, []kube.Object) {
			delete(eps[0].Object, "subsets")
			return pods, eps
		},
		"there are Endpoints of 1 Services, want 2": func(pods, eps []kube.Object) ([]kube.Object, []kube.Object) {
			return pods, eps[1:]
		},
	} {
		if got := fmt.Sprint(l.unsettled(change(objects()))); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
