// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/webset"
)

func init() {
	labkit.Register(labkit.Lab{
		Name:    "endpoints-rules-cost",
		Folder:  "endpoints-rules",
		Summary: "endpoints-rules outgrows its pod's memory, or makes each write of Endpoints much slower",
		Steps:   costSteps,
		Oracle:  costOracle,
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 20*time.Minute, 60*time.Minute)
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
		},
		Variants: []labkit.Variant{labkit.Ours}, // each write is made with and without the webhook
	})
}

// crowd is how many pods there are.
const crowd = 10_000

// costSizes are how many addresses the Endpoints have that are written.
var costSizes = []int{50, 500, 5000}

// pairs is how often Endpoints of each size are written with the webhook, and without.
func pairs(p labkit.Profile) int { return labkit.Pick(p, 20, 100) }

func costName(n int) string { return fmt.Sprintf("cost-%d", n) }

// crowded is the lab with many pods.
type crowded struct{ lab }

func costSteps(e *labkit.Env) []labkit.Step {
	l := &crowded{lab{e: e}}
	return []labkit.Step{
		{Text: "start etcd, kube-apiserver and kube-controller-manager, all stock", Do: l.startCluster},
		{Text: fmt.Sprintf("create %d ready pods of some 4 KB, which are API objects, and another namespace, which does not opt in", crowd), Do: l.makeCrowd},
		{Text: "install endpoints-rules with the manifests that it writes itself, rule set traffic-off, and its breaker", Do: l.installCost},
		{Text: "create the Services, with a pod that is not to be ready in each, and wait until their Endpoints are right", Do: l.services},
		{Text: fmt.Sprintf("write each Endpoints %d times in both namespaces in turn, all addresses ready: the webhook moves one", pairs(e.Profile)),
			Do: func(ctx context.Context) error { return l.writeAll(ctx, true) }},
		{Text: "have that pod be ready", Do: l.release},
		{Text: fmt.Sprintf("write each Endpoints %d times in both namespaces in turn: the webhook moves none", pairs(e.Profile)),
			Do: func(ctx context.Context) error { return l.writeAll(ctx, false) }},
		{Text: "read the memory of endpoints-rules", Do: l.memory},
		{Text: "look whether etcd, kube-apiserver and kube-controller-manager run", Always: true, Do: func(ctx context.Context) error { return l.c.Alive(ctx) }},
	}
}

func crowdName(i int) string { return fmt.Sprintf("crowd-%05d", i) }

// makeCrowd makes pods as large as those of an application. The i-th is in each Service of
// more than i addresses.
func (l *crowded) makeCrowd(ctx context.Context) error {
	if err := l.c.Client.Make(ctx, "", kube.Namespace(other)); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range crowd {
		g.Go(func() error {
			p := webset.Object("registry.example/team/application:1.2.3")
			p.Name, p.Labels = crowdName(i), map[string]string{"app": "crowd"}
			for _, n := range costSizes {
				if i < n {
					p.Labels[costName(n)] = "in"
				}
			}
			p.Annotations = map[string]string{"example/configuration": strings.Repeat("c", 1000)}
			c := &p.Spec.Containers[0]
			c.Name = "web"
			for j := range 25 {
				c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%02d", j), Value: strings.Repeat("v", 50)})
			}
			if i == 0 {
				p.Annotations["holdfast/traffic"] = "off"
			}
			if err := l.c.Client.Make(ctx, ns, p); err != nil {
				return err
			}
			return webset.PublishReady(ctx, l.c.Client, ns, p.Name, fmt.Sprintf("10.94.%d.%d", i/250, i%250+1), true)
		})
	}
	return g.Wait()
}

func (l *crowded) installCost(ctx context.Context) (err error) {
	if l.program, err = prepare(ctx, l.e, l.c, "traffic-off", ns); err != nil {
		return err
	}
	if err := l.c.Client.Make(ctx, ns, kube.Service(probe, "none", 8080)); err != nil {
		return err
	}
	if _, err := l.c.Client.WaitFor(ctx, kube.Endpoints, ns, probe, time.Minute, "is there", func(*kube.Object) (bool, error) { return true, nil }); err != nil {
		return err
	}
	return l.program.install(ctx, probe)
}

func (l *crowded) services(ctx context.Context) error {
	for _, n := range costSizes {
		s := kube.Service(costName(n), "crowd", 8080)
		s.Spec.Selector = map[string]string{costName(n): "in"}
		if err := l.c.Client.Make(ctx, ns, s); err != nil {
			return err
		}
	}
	return l.waitPlaced(ctx, true)
}

// release lets the pod into the ready addresses.
func (l *crowded) release(ctx context.Context) error {
	if _, err := l.c.Client.PatchMerge(ctx, kube.Pods, ns, crowdName(0), `{"metadata":{"annotations":{"holdfast/traffic":null}}}`); err != nil {
		return err
	}
	return l.waitPlaced(ctx, false)
}

func (l *crowded) waitPlaced(ctx context.Context, off bool) error {
	for _, n := range costSizes {
		what := fmt.Sprintf("has its %d addresses where the rules want them", n)
		if _, err := l.c.Client.WaitFor(ctx, kube.Endpoints, ns, costName(n), 2*time.Minute, what, func(o *kube.Object) (bool, error) {
			return wrongPlaces(o, n, off) == "", nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// wrongPlaces says what is wrong with Endpoints of n addresses, of which the first pod's is
// not ready if off.
func wrongPlaces(o *kube.Object, n int, off bool) string {
	ready, not := kubeletlab.ReadyPods(o), kubeletlab.NotReadyPods(o)
	want := 0
	if off {
		want = 1
	}
	if len(ready) != n-want || len(not) != want || off && not[0] != crowdName(0) {
		return fmt.Sprintf("%d addresses are ready and %d not, want %d and %d", len(ready), len(not), n-want, want)
	}
	return ""
}

// writeAll writes Endpoints with all addresses ready; off says that the rules move one.
func (l *crowded) writeAll(ctx context.Context, off bool) error {
	for _, n := range costSizes {
		o := writes{Addresses: n, Moved: off}
		body, err := l.endpoints(ctx, n)
		if err != nil {
			return err
		}
		for range pairs(l.e.Profile) {
			order := []string{ns, other}
			if l.e.Rand.IntN(2) == 0 {
				order = []string{other, ns}
			}
			for _, in := range order {
				took, got, err := l.put(ctx, in, costName(n), body)
				if err != nil {
					return err
				}
				if in == other {
					o.Without = append(o.Without, took)
				} else {
					o.With = append(o.With, took)
				}
				why := wrongPlaces(got, n, off && in == ns)
				switch {
				case why == "":
				case in == ns && took >= slower: // the program gives a late review up, as it says
					o.GivenUp++
				case o.Wrong == "":
					o.Wrong = fmt.Sprintf("namespace %s: %s", in, why)
				}
			}
		}
		l.e.Record(o)
		l.e.Logf("%s", o)
	}
	return nil
}

// endpoints are those of the pods of a Service, all ready, as the endpoints controller
// would write them.
func (l *crowded) endpoints(ctx context.Context, n int) (*corev1.Endpoints, error) {
	list, err := l.c.Client.List(ctx, kube.Pods, ns, costName(n)+"=in")
	if err != nil {
		return nil, err
	}
	s := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Port: 8080, Protocol: corev1.ProtocolTCP}}}
	for i := range list {
		p := &list[i]
		s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: kube.String(p, "status", "podIP"), NodeName: new("node1"),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: p.GetName(), UID: p.GetUID(), ResourceVersion: p.GetResourceVersion()}})
	}
	if len(s.Addresses) != n {
		return nil, fmt.Errorf("Service %s has %d pods, want %d", costName(n), len(s.Addresses), n)
	}
	ep := &corev1.Endpoints{Subsets: []corev1.EndpointSubset{s}}
	ep.Name = costName(n)
	return ep, nil
}

// put writes Endpoints, whatever is stored, and says how long that took.
func (l *crowded) put(ctx context.Context, in, name string, ep *corev1.Endpoints) (time.Duration, *kube.Object, error) {
	ep.Labels = map[string]string{"lab": fmt.Sprintf("n%d", time.Now().UnixNano())}
	body, err := json.Marshal(ep)
	if err != nil {
		return 0, nil, err
	}
	path := fmt.Sprintf("/api/v1/namespaces/%s/endpoints/%s", in, name)
	begin := time.Now()
	status, answer, err := l.c.Client.Raw(ctx, http.MethodPut, path, "application/json", body)
	took := time.Since(begin)
	if err != nil {
		return 0, nil, err
	}
	if status != http.StatusOK && status != http.StatusCreated {
		return 0, nil, fmt.Errorf("PUT %s: %d: %.300s", path, status, answer)
	}
	o := &kube.Object{}
	return took, o, json.Unmarshal(answer, &o.Object)
}

// memory reads what the program takes, and what its pod may.
func (l *crowded) memory(context.Context) error {
	limit, err := memoryLimit(l.program.pod)
	if err != nil {
		return err
	}
	p, err := procfs.NewProc(l.program.run.PID())
	if err != nil {
		return err
	}
	status, err := p.NewStatus()
	if err != nil {
		return err
	}
	o := memory{Pods: crowd, Resident: int64(status.VmRSS), Most: int64(status.VmHWM), Limit: limit}
	l.e.Record(o)
	l.e.Logf("%s", o)
	return nil
}

// memoryLimit is that of the container endpoints-rules in the program's manifest, in bytes.
func memoryLimit(manifest []byte) (int64, error) {
	var m struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Name      string
						Resources struct{ Limits map[string]string }
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal(manifest, &m); err != nil {
		return 0, err
	}
	for _, c := range m.Spec.Template.Spec.Containers {
		if c.Name != "endpoints-rules" {
			continue
		}
		q, err := resource.ParseQuantity(c.Resources.Limits["memory"])
		return q.Value(), err
	}
	return 0, fmt.Errorf("the program's manifest has no container endpoints-rules")
}
