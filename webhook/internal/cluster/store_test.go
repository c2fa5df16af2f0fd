// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"holdfast/webhook/internal/names"
	"holdfast/webhook/internal/review"
	"holdfast/webhook/internal/rules"
	"holdfast/webhook/rulesets"
)

// rig is a Store over a fake API server that counts resourceVersions and refuses
// updates under an old one.
type rig struct {
	t      *testing.T
	client *fake.Clientset
	store  *Store
	mu     sync.Mutex
	rv     int
}

func (r *rig) next() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rv++
	return fmt.Sprint(r.rv)
}

func ruleSet(t *testing.T, name string) *rules.Set {
	t.Helper()
	text, ok := rulesets.Text(name)
	if !ok {
		t.Fatal(name)
	}
	s, err := rules.Parse(name, text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parsed(t *testing.T, text string) *rules.Set {
	t.Helper()
	s, err := rules.Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start has a namespace that has opted in, a Service, and pods with ready
// addresses; objects go before those of the same name.
func start(t *testing.T, set *rules.Set, pods int, objects ...runtime.Object) *rig {
	t.Helper()
	r := &rig{t: t, rv: 1000}
	all := []runtime.Object{
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "d", Labels: map[string]string{names.OptIn: names.OptInValue}}},
		&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web"}, Spec: v1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []v1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}}},
	}
	ep := &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web", ResourceVersion: r.next()}}
	s := v1.EndpointSubset{Ports: []v1.EndpointPort{{Port: 80, Protocol: v1.ProtocolTCP}}}
	for i := 1; i <= pods; i++ {
		p := r.pod(i)
		all = append(all, p)
		s.Addresses = append(s.Addresses, address(p))
	}
	if pods > 0 {
		ep.Subsets = []v1.EndpointSubset{s}
	}
	all = append(all, ep)
	r.client = fake.NewClientset()
	for _, o := range slices.Concat(all, objects) {
		if err := r.client.Tracker().Add(o); err != nil {
			t.Fatal(err)
		}
	}
	r.client.PrependReactor("update", "endpoints", func(a ktesting.Action) (bool, runtime.Object, error) {
		o := a.(ktesting.UpdateAction).GetObject().(*v1.Endpoints)
		r.mu.Lock()
		defer r.mu.Unlock()
		cur, err := r.client.Tracker().Get(v1.SchemeGroupVersion.WithResource("endpoints"), o.Namespace, o.Name)
		if err != nil {
			return true, nil, err
		}
		if cur.(*v1.Endpoints).ResourceVersion != o.ResourceVersion {
			return true, nil, errors.NewConflict(schema.GroupResource{Resource: "endpoints"}, o.Name, nil)
		}
		r.rv++
		o.ResourceVersion = fmt.Sprint(r.rv)
		return true, o, r.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("endpoints"), o, o.Namespace)
	})
	r.store = r.replica(set)
	return r
}

// replica is one more Store over the same server.
func (r *rig) replica(set *rules.Set) *Store {
	ctx, cancel := context.WithCancel(context.Background())
	r.t.Cleanup(cancel)
	s := New(Config{Client: r.client, Log: slog.New(slog.DiscardHandler), Namespace: "own", Debounce: 20 * time.Millisecond, Rules: set})
	if err := s.Start(ctx); err != nil {
		r.t.Fatal(err)
	}
	r.wait("the caches are filled", s.Synced)
	return s
}

func (r *rig) pod(i int) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: fmt.Sprintf("web-%d", i), UID: types.UID(fmt.Sprintf("u%d", i)), Labels: map[string]string{"app": "web"}, ResourceVersion: r.next()}}
	p.Spec.NodeName = "n"
	p.Spec.Containers = []v1.Container{{Name: "web", Image: "a:1"}}
	p.Status = v1.PodStatus{PodIP: fmt.Sprintf("10.0.0.%d", i), Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}},
		ContainerStatuses: []v1.ContainerStatus{{Name: "web", ContainerID: "docker://1", Image: "a:1", Ready: true}}}
	return p
}

func address(p *v1.Pod) v1.EndpointAddress {
	return v1.EndpointAddress{IP: p.Status.PodIP, NodeName: &p.Spec.NodeName, TargetRef: &v1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}}
}

// change updates a pod as the API server would.
func (r *rig) change(i int, f func(*v1.Pod)) {
	r.t.Helper()
	ctx := context.Background()
	p, err := r.client.CoreV1().Pods("d").Get(ctx, fmt.Sprintf("web-%d", i), metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	p = p.DeepCopy()
	f(p)
	p.ResourceVersion = r.next()
	if _, err := r.client.CoreV1().Pods("d").Update(ctx, p, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) wait(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not within 20 s: %s; stored: %s", what, r.stored())
		}
	}
}

// stored is the Endpoints as "ready|notReady|rules" with the last parts of IPs.
func (r *rig) stored() string {
	ep, err := r.client.CoreV1().Endpoints("d").Get(context.Background(), "web", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	var l [2][]string
	for _, s := range ep.Subsets {
		for _, a := range s.Addresses {
			l[0] = append(l[0], a.IP[len("10.0.0."):])
		}
		for _, a := range s.NotReadyAddresses {
			l[1] = append(l[1], a.IP[len("10.0.0."):])
		}
	}
	return fmt.Sprintf("%v|%v|%s", l[0], l[1], ep.Annotations[names.Rules])
}

func (r *rig) waitStored(want string) {
	r.t.Helper()
	r.wait("stored as "+want, func() bool { return r.stored() == want })
}

func (r *rig) patched(i int) { r.change(i, func(p *v1.Pod) { p.Spec.Containers[0].Image = "a:2" }) }
func (r *rig) replaced(i int) {
	r.change(i, func(p *v1.Pod) {
		p.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "web", ContainerID: "docker://2", Image: "a:2", Ready: true}
	})
}

// TestPutRight: no endpoints controller writes anything here. Addresses leave when
// their images change, and come back with the containers.
func TestPutRight(t *testing.T) {
	r := start(t, ruleSet(t, "image-pending"), 3)
	if got := r.stored(); got != "[1 2 3]|[]|" {
		t.Fatal(got)
	}
	r.patched(1)
	r.patched(3)
	r.waitStored("[2]|[1 3]|image-pending=2")
	r.replaced(1)
	r.waitStored("[1 2]|[3]|image-pending=1")
	r.replaced(3)
	r.waitStored("[1 2 3]|[]|")
	r.wait("nothing is misplaced", func() bool { return r.store.Misplaced() == 0 })
}

// TestWebhookAndStore: the same verdicts on the request path.
func TestWebhookAndStore(t *testing.T) {
	r := start(t, ruleSet(t, "image-pending"), 2)
	r.patched(1)
	r.waitStored("[2]|[1]|image-pending=1")
	p, _ := r.client.CoreV1().Pods("d").Get(context.Background(), "web-1", metav1.GetOptions{})
	// The controller, which knows nothing of it, writes both as ready.
	do := func(rv string) review.Result {
		a := address(p)
		a.TargetRef.ResourceVersion = rv
		object, _ := json.Marshal(&v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web"}, Subsets: []v1.EndpointSubset{{Addresses: []v1.EndpointAddress{a}}}})
		req := review.Request{UID: "x", Kind: "Endpoints", Namespace: "d", Name: "web", Operation: "UPDATE", Object: string(object)}
		res, err := review.Do(&req, r.store)
		if err != nil || res.Unpatchable != nil || res.Skipped != "" {
			t.Fatal(res, err)
		}
		return res
	}
	if res := do(p.ResourceVersion); len(res.Moves) != 1 || res.Moves[0].To != rules.NotReady || res.Moves[0].Rule != "image-pending" || res.Behind != 0 {
		t.Errorf("%+v", res)
	}
	r.replaced(1)
	r.waitStored("[1 2]|[]|")
	if res := do(p.ResourceVersion); len(res.Moves) != 0 {
		t.Errorf("after the container came: %+v", res)
	}
	// The address is of a pod that has not come here: it is not made ready.
	if res := do("99999999"); res.Behind != 1 || len(res.Moves) != 1 || res.Moves[0].To != rules.NotReady {
		t.Errorf("behind: %+v", res)
	}
}

func TestSkipped(t *testing.T) {
	svc := func(ns, name string, f func(*v1.Service)) *v1.Service {
		s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Annotations: map[string]string{}}, Spec: v1.ServiceSpec{Selector: map[string]string{"a": "b"}}}
		f(s)
		return s
	}
	in := map[string]string{names.OptIn: names.OptInValue}
	r := start(t, ruleSet(t, "image-pending"), 1,
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.System, Labels: in}}, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "own", Labels: in}},
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: in}}, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "out"}},
		svc(names.System, "x", func(*v1.Service) {}), svc("own", "x", func(*v1.Service) {}), svc("default", "kubernetes", func(*v1.Service) {}), svc("out", "x", func(*v1.Service) {}),
		svc("d", "manual", func(s *v1.Service) { s.Spec.Selector = nil }),
		svc("d", "unready", func(s *v1.Service) { s.Annotations[names.TolerateUnready] = "true" }),
		svc("d", "publish", func(s *v1.Service) { s.Spec.PublishNotReadyAddresses = true }))
	for _, c := range [][2]string{{names.System, "x"}, {"own", "x"}, {"default", "kubernetes"}, {"out", "x"}, {"d", "manual"}, {"d", "unready"}, {"d", "publish"}, {"d", "none"}, {"nowhere", "x"}} {
		if r.store.Skip(c[0], c[1]) == "" {
			t.Errorf("%v is not skipped", c)
		}
	}
	if why := r.store.Skip("d", "web"); why != "" {
		t.Errorf("d/web is skipped: %s", why)
	}
}

// TestTime: a rule that names a time is asked again then, although nothing changes.
func TestTime(t *testing.T) {
	r := start(t, parsed(t, "rules:\n- {name: young, when: 'pod.ready and not elapsed(pod.readySince, \"2s\")', then: notReady}\n"), 1)
	r.waitStored("[]|[1]|young=1")
	since := time.Now()
	r.change(1, func(p *v1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(since) })
	r.waitStored("[1]|[]|")
	if took := time.Since(since); took < time.Second {
		t.Errorf("after %v", took) // a LastTransitionTime has whole seconds
	}
}

// TestDrop: what is dropped leaves; when the rule ends the Service is touched.
func TestDrop(t *testing.T) {
	r := start(t, parsed(t, "rules:\n- {name: out, when: 'pod.annotations[\"out\"] == \"yes\"', then: drop}\n"), 2)
	r.change(1, func(p *v1.Pod) { p.Annotations = map[string]string{"out": "yes"} })
	r.waitStored("[2]|[]|out=1")
	if n := r.store.Counters.Touched.Load(); n != 0 {
		t.Errorf("touched %d times while the rule applies", n)
	}
	r.change(1, func(p *v1.Pod) { p.Annotations = nil })
	r.wait("the Service is touched", func() bool {
		s, err := r.client.CoreV1().Services("d").Get(context.Background(), "web", metav1.GetOptions{})
		return err == nil && s.Annotations[names.Touched] != ""
	})
	if r.store.Misplaced() == 0 {
		t.Error("a missing address is not counted")
	}
}

// TestRulesChange: no verdict outlives its rule.
func TestRulesChange(t *testing.T) {
	r := start(t, ruleSet(t, "traffic-off"), 2)
	r.change(2, func(p *v1.Pod) { p.Annotations = map[string]string{"holdfast/traffic": "off"} })
	r.waitStored("[1]|[2]|traffic-off=1")
	r.store.SetRules(ruleSet(t, "image-pending"))
	r.waitStored("[1 2]|[]|")
	r.store.SetRules(parsed(t, "rules:\n- {name: all, when: 'true', then: notReady}\n"))
	r.waitStored("[]|[1 2]|all=2")
	// A rule that fails is off, and what it did is undone.
	r.store.SetRules(parsed(t, "rules:\n- {name: bad, when: 'pod.containers[9].ready', then: notReady}\n"))
	r.waitStored("[1 2]|[]|")
	r.wait("the rule counts as failed", func() bool { return r.store.Counters.RulesFailed.Load() == 1 })
}

// TestTwoReplicas: both write, neither undoes the other's.
func TestTwoReplicas(t *testing.T) {
	r := start(t, ruleSet(t, "image-pending"), 5)
	second := r.replica(ruleSet(t, "image-pending"))
	for i := 1; i <= 5; i++ {
		r.patched(i)
	}
	r.waitStored("[]|[1 2 3 4 5]|image-pending=5")
	for i := 1; i <= 5; i++ {
		r.replaced(i)
	}
	r.waitStored("[1 2 3 4 5]|[]|")
	r.wait("both agree", func() bool { return r.store.Misplaced() == 0 && second.Misplaced() == 0 })
}

// TestRestart: a replica that starts in the middle keeps what another one held,
// as far as that can be seen, and lets it go when the container comes.
func TestRestart(t *testing.T) {
	r := start(t, ruleSet(t, "image-pending"), 2)
	r.patched(1)
	r.waitStored("[2]|[1]|image-pending=1")
	s := r.replica(ruleSet(t, "image-pending"))
	if d := s.Decide("d", "web", review.Address{UID: "u1", ResourceVersion: "1"}); d.Place != rules.NotReady {
		t.Errorf("%+v", d)
	}
	r.replaced(1)
	r.waitStored("[1 2]|[]|")
	if d := s.Decide("d", "web", review.Address{UID: "u1", ResourceVersion: "1"}); d.Place != rules.Leave {
		r.wait("the second knows too", func() bool {
			return s.Decide("d", "web", review.Address{UID: "u1", ResourceVersion: "1"}).Place == rules.Leave
		})
	}
}
