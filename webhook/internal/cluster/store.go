// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster watches a cluster through informers, keeps the verdict of every
// address, and puts stored Endpoints right where they differ from it.
package cluster

import (
	"log/slog"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"holdfast/webhook/internal/names"
	"holdfast/webhook/internal/review"
	"holdfast/webhook/internal/rules"
)

// Config is what a Store is made of.
type Config struct {
	Client kubernetes.Interface
	Log    *slog.Logger
	// Namespace is the program's own, which it leaves alone; "" for none.
	Namespace string
	// Debounce is how long changes of one Service are gathered before its stored
	// Endpoints are put right; 0 takes DefaultDebounce.
	Debounce time.Duration
	// Rules are the first rules. There may be none yet: then nothing is touched.
	Rules *rules.Set
}

// DefaultDebounce leaves the endpoints controller the time to write first what it
// writes anyway.
const DefaultDebounce = 300 * time.Millisecond

// Store has the verdicts. It is a review.Judge.
type Store struct {
	client    kubernetes.Interface
	log       *slog.Logger
	own       string
	debounce  time.Duration
	now       func() time.Time
	factory   informers.SharedInformerFactory
	pods      corelisters.PodLister
	podIndex  cache.Indexer
	services  corelisters.ServiceLister
	endpoints corelisters.EndpointsLister
	nodes     corelisters.NodeLister
	spaces    corelisters.NamespaceLister
	podRV     func() string // that of the last event of a pod
	deaf      deafness

	tracker *tracker
	work    workqueue.TypedDelayingInterface[item]
	stored  workqueue.TypedRateLimitingInterface[string]
	// Counters is never nil.
	Counters *Counters

	mu     sync.RWMutex
	set    *rules.Set
	states map[string]*state // by "namespace/name" of a Service
	synced bool
}

// state is what is known of one Service.
type state struct {
	verdicts map[types.UID]verdict
	// missing are pods that the controller would have an address for and that the
	// stored Endpoints lack, with since when; dropped are those whose address a
	// rule took out, which is why it is known that a touch brings them back.
	missing   map[types.UID]time.Time
	dropped   map[types.UID]bool
	touched   time.Time
	touches   int
	misplaced int
	// writes are those that the server took since a verdict last changed, wrote is
	// the last one's time. More than a few mean that somebody writes otherwise.
	writes int
	wrote  time.Time
}

// verdict is that of one pod in one Service.
type verdict struct {
	rules.Verdict
	pod string // its name
	rv  string // of the pod that was judged
	// ready is where the controller would have it.
	ready bool
	// expected: the controller would have it at all.
	expected bool
}

// item is one thing to be judged: a pod, or a Service with all its pods.
type item struct {
	kind      kind
	namespace string
	name      string
}

type kind int

const (
	onePod kind = iota
	oneService
	oneNamespace
	everything
)

// New makes a Store. Start has it watch.
func New(c Config) *Store {
	f := informers.NewSharedInformerFactory(c.Client, 0)
	core := f.Core().V1()
	s := &Store{client: c.Client, log: c.Log, own: c.Namespace, debounce: c.Debounce, now: time.Now, factory: f,
		pods: core.Pods().Lister(), podIndex: core.Pods().Informer().GetIndexer(), services: core.Services().Lister(), endpoints: core.Endpoints().Lister(),
		nodes: core.Nodes().Lister(), spaces: core.Namespaces().Lister(), podRV: core.Pods().Informer().LastSyncResourceVersion,
		tracker: newTracker(), Counters: newCounters(), set: c.Rules, states: map[string]*state{},
		work:   workqueue.NewTypedDelayingQueue[item](),
		stored: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 5*time.Second)),
	}
	if s.debounce == 0 {
		s.debounce = DefaultDebounce
	}
	s.watchRules(c.Rules)
	return s
}

func key(namespace, name string) string { return namespace + "/" + name }

// SetRules puts other rules in force and judges everything again.
func (s *Store) SetRules(set *rules.Set) {
	s.watchRules(set)
	s.mu.Lock()
	s.set = set
	for _, st := range s.states {
		st.writes = 0
	}
	s.mu.Unlock()
	s.work.Add(item{kind: everything})
}

// watchRules has a rule that fails counted and everything judged without it.
func (s *Store) watchRules(set *rules.Set) {
	if set == nil {
		return
	}
	set.OnOff = func(r *rules.Rule, why string) {
		s.log.Error("rule is off until the rules are read again", "rule", r.Name, "why", why)
		s.Counters.RulesFailed.Add(1)
		s.work.Add(item{kind: everything})
	}
}

// Rules are those in force; nil for none.
func (s *Store) Rules() *rules.Set {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.set
}

// Synced reports whether every object has been seen and judged once.
func (s *Store) Synced() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.synced
}

// Skip is part of review.Judge.
func (s *Store) Skip(namespace, name string) string {
	if !s.Synced() {
		return "the caches are not filled yet"
	}
	if s.Rules() == nil {
		return "there are no rules"
	}
	svc, why := s.service(namespace, name)
	if svc == nil {
		return why
	}
	return ""
}

// service is a Service whose Endpoints are the program's business, or nil and why not.
func (s *Store) service(namespace, name string) (*v1.Service, string) {
	if why := s.foreign(namespace); why != "" {
		return nil, why
	}
	svc, err := s.services.Services(namespace).Get(name)
	if err != nil {
		return nil, "there is no such Service"
	}
	if why := exempt(svc); why != "" {
		return nil, why
	}
	return svc, ""
}

// foreign is why a namespace is none of the program's business; "" if it is.
func (s *Store) foreign(namespace string) string {
	switch namespace {
	case names.System:
		return "namespace " + names.System
	case s.own:
		return "the program's own namespace"
	}
	ns, err := s.spaces.Get(namespace)
	if err != nil || ns.Labels[names.OptIn] != names.OptInValue {
		return "its namespace has not the label " + names.OptIn + "=" + names.OptInValue
	}
	return ""
}

// Decide is part of review.Judge.
func (s *Store) Decide(namespace, name string, a review.Address) review.Decision {
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, ok := verdict{}, false
	if st := s.states[key(namespace, name)]; st != nil {
		v, ok = st.verdicts[types.UID(a.UID)]
	}
	last := s.podRV()
	unseen := older(last, a.ResourceVersion)
	switch {
	case unseen && s.deaf.note(last, namespace, s.now()):
		return review.Decision{} // it will not come: see Lost
	case !ok && unseen:
		return review.Decision{Known: true, Behind: true} // a pod that has not come here yet
	case !ok:
		return review.Decision{} // a pod that is gone, or that the Service does not select
	}
	return review.Decision{Known: true, Place: v.Place, Rule: v.Rule, Behind: older(v.rv, a.ResourceVersion)}
}

func newState() *state {
	return &state{verdicts: map[types.UID]verdict{}, missing: map[types.UID]time.Time{}, dropped: map[types.UID]bool{}}
}

// put stores a verdict and reports whether it says something new.
func (st *state) put(uid types.UID, v verdict) bool {
	old, ok := st.verdicts[uid]
	if ok && older(v.rv, old.rv) {
		return false
	}
	if v.Place == rules.Drop || ok && old.Place == rules.Drop {
		st.dropped[uid] = true
	}
	st.verdicts[uid] = v
	changed := !ok || old.Place != v.Place || old.Rule != v.Rule || old.ready != v.ready || old.expected != v.expected
	if changed {
		st.writes = 0
	}
	return changed
}

func (st *state) forget(uid types.UID) {
	st.writes = 0
	delete(st.verdicts, uid)
	delete(st.missing, uid)
	delete(st.dropped, uid)
}

// Placed counts the addresses that each rule places now, and those that a rule in
// dry-run would, by rules.
func (s *Store) Placed() (placed, dry map[string]int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	placed, dry = map[string]int{}, map[string]int{}
	for _, st := range s.states {
		for _, v := range st.verdicts {
			if v.Rule != "" {
				placed[v.Rule]++
			}
			for _, d := range v.DryRun {
				dry[d]++
			}
		}
	}
	return placed, dry
}

// Disputed counts the Services whose Endpoints somebody keeps on writing otherwise.
func (s *Store) Disputed() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n, now := 0, s.now()
	for st := range maps.Values(s.states) {
		if st.disputed(now) {
			n++
		}
	}
	return n
}

// Misplaced counts the addresses whose stored place differs from the verdict.
func (s *Store) Misplaced() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := 0
	for st := range maps.Values(s.states) {
		n += st.misplaced
	}
	return n
}
