// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"holdfast/webhook/internal/rules"
)

// Row is one address without a cluster.
type Row struct {
	Service, Pod, IP string // Service is "namespace/name"
	// Controller is where the endpoints controller would have it, To where it is.
	Controller, To rules.Place
	Verdict        rules.Verdict
	// Asked are the rules in turn with what each answered.
	Asked []string
	// Exempt is why the Service's Endpoints are not touched; then no rule is asked.
	Exempt string
}

// Offline judges objects. Each state is what is there after the last: an object
// of the same kind, namespace and name takes the place of an earlier one.
func Offline(set *rules.Set, states [][]runtime.Object, now time.Time) ([]Row, error) {
	pods, services := map[string]*v1.Pod{}, map[string]*v1.Service{}
	nodes, spaces, endpoints := map[string]*v1.Node{}, map[string]*v1.Namespace{}, map[string]*v1.Endpoints{}
	t := newTracker()
	rv := 0
	for _, objects := range states {
		for _, o := range objects {
			switch o := o.(type) {
			case *v1.Pod:
				k := key(o.Namespace, o.Name)
				if o.UID == "" {
					o.UID = types.UID(k)
				}
				rv++
				o.ResourceVersion = fmt.Sprintf("%09d", rv)
				t.observe(o, now, nil)
				pods[k] = o
			case *v1.Service:
				services[key(o.Namespace, o.Name)] = o
			case *v1.Endpoints:
				endpoints[key(o.Namespace, o.Name)] = o
			case *v1.Node:
				nodes[o.Name] = o
			case *v1.Namespace:
				spaces[o.Name] = o
			default:
				return nil, fmt.Errorf("%T: objects are Pods, Services, Endpoints, Nodes and Namespaces", o)
			}
		}
	}
	var out []Row
	for k, svc := range services {
		for _, p := range pods {
			if !selects(svc, p) || !expected(svc, p) {
				continue
			}
			r := Row{Service: k, Pod: p.Name, IP: p.Status.PodIP, Controller: rules.NotReady, Exempt: exempt(svc)}
			if podReady(p) {
				r.Controller = rules.Ready
			}
			if r.To = r.Controller; r.Exempt == "" {
				o := &objects{pod: p, service: svc, endpoints: endpoints[k], node: nodes[p.Spec.NodeName], namespace: spaces[p.Namespace]}
				o.pending, _ = t.pending(p, now)
				r.Verdict, r.Asked = set.Explain(o.env(), now)
				if r.Verdict.Place != rules.Leave {
					r.To = r.Verdict.Place
				}
			}
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Row) int {
		if c := strings.Compare(a.Service, b.Service); c != 0 {
			return c
		}
		return strings.Compare(a.Pod, b.Pod)
	})
	return out, nil
}
