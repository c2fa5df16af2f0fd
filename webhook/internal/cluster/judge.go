// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"holdfast/webhook/internal/rules"
)

// judge takes one item of work.
func (s *Store) judge(it item) {
	if s.Rules() == nil {
		// A verdict without rules would be acted on when the rules come, before theirs.
		// What happens to images meanwhile they must know nevertheless.
		if it.kind != onePod { // that one was when it changed
			s.observe(it.namespace)
		}
		return
	}
	switch it.kind {
	case onePod:
		s.judgePod(it.namespace, it.name)
	case oneService:
		s.judgeService(it.namespace, it.name)
	default:
		list, err := s.services.List(labels.Everything())
		if err != nil {
			return // the lister reads its cache: it has no errors
		}
		for _, svc := range list {
			if it.kind == everything || svc.Namespace == it.namespace {
				s.judgeService(svc.Namespace, svc.Name)
			}
		}
	}
}

// observe shows the pods of a namespace, "" for all, to the tracker.
func (s *Store) observe(namespace string) {
	list, err := s.pods.Pods(namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, p := range list {
		if s.foreign(p.Namespace) == "" {
			s.tracker.observe(p, s.now(), func() bool { return s.held(p) })
		}
	}
}

// of judges one pod in one Service.
func (s *Store) of(svc *v1.Service, p *v1.Pod, set *rules.Set) verdict {
	now := s.now()
	s.tracker.observe(p, now, func() bool { return s.held(p) })
	o := &objects{pod: p, service: svc}
	var until time.Time
	o.pending, until = s.tracker.pending(p, now)
	if ep, err := s.endpoints.Endpoints(svc.Namespace).Get(svc.Name); err == nil {
		o.endpoints = ep
	}
	if n, err := s.nodes.Get(p.Spec.NodeName); err == nil {
		o.node = n
	}
	if n, err := s.spaces.Get(p.Namespace); err == nil {
		o.namespace = n
	}
	v := verdict{Verdict: rules.Verdict{Place: rules.Leave}, pod: p.Name, rv: p.ResourceVersion, ready: podReady(p), expected: expected(svc, p)}
	if set != nil {
		v.Verdict = set.Judge(o.env(), now)
	}
	if !until.IsZero() && (v.Wake.IsZero() || until.Before(v.Wake)) {
		v.Wake = until
	}
	if !v.Wake.IsZero() {
		s.work.AddAfter(item{onePod, p.Namespace, p.Name}, v.Wake.Sub(now)+time.Millisecond)
	}
	s.log.Debug("verdict", "service", svc.Name, "namespace", svc.Namespace, "pod", p.Name, "place", v.Place, "rule", v.Rule, "dryRun", v.DryRun)
	return v
}

// held reports whether some Endpoints have the pod among those that are not
// ready. It is asked for pods that the API says are ready.
func (s *Store) held(p *v1.Pod) bool {
	list, err := s.endpoints.Endpoints(p.Namespace).List(labels.Everything())
	if err != nil {
		return false
	}
	for _, ep := range list {
		for i := range ep.Subsets {
			for j := range ep.Subsets[i].NotReadyAddresses {
				if r := ep.Subsets[i].NotReadyAddresses[j].TargetRef; r != nil && r.UID == p.UID {
					return true
				}
			}
		}
	}
	return false
}

// forgetGone has the tracker forget a pod that is gone: a judgement that had it in hand when it
// went has shown it again.
func (s *Store) forgetGone(namespace, name string, uid types.UID) {
	if p, err := s.pods.Pods(namespace).Get(name); err != nil || p.UID != uid {
		s.tracker.forget(uid)
	}
}

func (s *Store) judgePod(namespace, name string) {
	if s.foreign(namespace) != "" {
		return
	}
	p, err := s.pods.Pods(namespace).Get(name)
	if err != nil {
		p = nil // deleted
	}
	services, err := s.services.Services(namespace).List(labels.Everything())
	if err != nil {
		return
	}
	set := s.Rules()
	for _, svc := range services {
		if exempt(svc) != "" {
			continue
		}
		in := p != nil && selects(svc, p)
		var v verdict
		if in {
			v = s.of(svc, p, set)
		}
		k := key(svc.Namespace, svc.Name)
		s.mu.Lock()
		st := s.states[k]
		if st == nil {
			st = newState()
			s.states[k] = st
		}
		changed := false
		for uid, old := range st.verdicts {
			if old.pod == name && !(in && uid == p.UID) {
				st.forget(uid)
				changed = true
				s.forgetGone(namespace, name, uid)
			}
		}
		if in {
			changed = st.put(p.UID, v) || changed
		}
		s.mu.Unlock()
		if changed {
			s.stored.AddAfter(k, s.debounce)
		}
	}
}

func (s *Store) judgeService(namespace, name string) {
	k := key(namespace, name)
	svc, _ := s.service(namespace, name)
	if svc == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if st := s.states[k]; st != nil {
			for uid, old := range st.verdicts {
				s.forgetGone(namespace, old.pod, uid)
			}
		}
		delete(s.states, k)
		return
	}
	pods, err := s.pods.Pods(namespace).List(labels.Set(svc.Spec.Selector).AsSelectorPreValidated())
	if err != nil {
		return
	}
	set := s.Rules()
	verdicts := make(map[types.UID]verdict, len(pods))
	for _, p := range pods {
		verdicts[p.UID] = s.of(svc, p, set)
	}
	s.mu.Lock()
	st := s.states[k]
	if st == nil {
		st = newState()
		s.states[k] = st
	}
	for uid, old := range st.verdicts {
		if _, ok := verdicts[uid]; ok {
			continue
		}
		st.forget(uid)
		s.forgetGone(namespace, old.pod, uid)
	}
	for uid, v := range verdicts {
		st.put(uid, v)
	}
	s.mu.Unlock()
	s.stored.AddAfter(k, s.debounce)
}
