// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// Start begins to watch and returns; everything ends with ctx.
func (s *Store) Start(ctx context.Context) error {
	core := s.factory.Core().V1()
	handlers := []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandlerFuncs
	}{
		{core.Pods().Informer(), on(s.podChanged, s.podGone)},
		{core.Services().Informer(), on(s.serviceChanged, func(o *v1.Service) { s.serviceChanged(nil, o) })},
		{core.Endpoints().Informer(), on(s.endpointsChanged, func(*v1.Endpoints) {})},
		{core.Namespaces().Informer(), on(s.namespaceChanged, func(o *v1.Namespace) { s.namespaceChanged(nil, o) })},
		{core.Nodes().Informer(), on(s.nodeChanged, func(o *v1.Node) { s.nodeChanged(nil, o) })},
	}
	var synced []cache.InformerSynced
	for _, h := range handlers {
		if _, err := h.informer.AddEventHandler(h.handler); err != nil {
			return err
		}
		synced = append(synced, h.informer.HasSynced)
	}
	s.factory.Start(ctx.Done())
	go func() {
		if !cache.WaitForCacheSync(ctx.Done(), synced...) {
			return
		}
		s.judge(item{kind: everything})
		s.mu.Lock()
		s.synced = true
		s.mu.Unlock()
		// What changed since that judgement read it was not queued.
		s.work.Add(item{kind: everything})
		s.log.Info("the caches are filled", "rules", s.ruleCount())
		go s.loop()
		for range 2 {
			go s.storedLoop(ctx)
		}
	}()
	go func() {
		<-ctx.Done()
		s.work.ShutDown()
		s.stored.ShutDown()
	}()
	return nil
}

func (s *Store) ruleCount() int {
	if set := s.Rules(); set != nil {
		return len(set.Rules)
	}
	return 0
}

// on makes handlers of one type. before is nil for an object that is new.
func on[T any](changed func(before, after *T), gone func(*T)) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed(nil, any(o).(*T)) },
		UpdateFunc: func(before, after any) { changed(before.(*T), after.(*T)) },
		DeleteFunc: func(o any) {
			if t, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = t.Obj
			}
			if t, ok := o.(*T); ok {
				gone(t)
			}
		},
	}
}

// loop judges, one item after the other, so that no two judgements of a pod race.
func (s *Store) loop() {
	for {
		it, down := s.work.Get()
		if down {
			return
		}
		s.judge(it)
		s.Counters.Judged.Add(1)
		s.work.Done(it)
	}
}

func (s *Store) podChanged(_, p *v1.Pod) {
	if !s.Synced() {
		return // all are judged when the caches are filled
	}
	// Each state is shown to the tracker: the worker may see the last of several.
	if s.foreign(p.Namespace) == "" {
		s.tracker.observe(p, s.now(), func() bool { return s.held(p) })
	}
	s.work.Add(item{onePod, p.Namespace, p.Name})
}

func (s *Store) podGone(p *v1.Pod) {
	s.tracker.forget(p.UID)
	s.work.Add(item{onePod, p.Namespace, p.Name})
}

func (s *Store) serviceChanged(before, after *v1.Service) {
	s.work.Add(item{oneService, after.Namespace, after.Name})
}

// endpointsChanged looks whether what is stored is right; rules may also read
// labels and annotations.
func (s *Store) endpointsChanged(before, after *v1.Endpoints) {
	if !s.Synced() || s.foreign(after.Namespace) != "" {
		return
	}
	if before == nil || !maps.Equal(before.Labels, after.Labels) || !sameNotes(before.Annotations, after.Annotations) {
		s.work.Add(item{oneService, after.Namespace, after.Name})
	}
	s.stored.AddAfter(key(after.Namespace, after.Name), s.debounce)
}

func (s *Store) namespaceChanged(before, after *v1.Namespace) {
	if before == nil || !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) {
		s.work.Add(item{kind: oneNamespace, namespace: after.Name})
	}
}

// nodeChanged leaves out the heartbeats.
func (s *Store) nodeChanged(before, after *v1.Node) {
	if before != nil && maps.Equal(before.Labels, after.Labels) && maps.Equal(before.Annotations, after.Annotations) &&
		before.Spec.Unschedulable == after.Spec.Unschedulable && nodeReady(before) == nodeReady(after) || !s.Synced() {
		return
	}
	pods, err := s.pods.List(labels.Everything())
	if err != nil {
		return
	}
	for _, p := range pods {
		if p.Spec.NodeName == after.Name && s.foreign(p.Namespace) == "" {
			s.work.Add(item{onePod, p.Namespace, p.Name})
		}
	}
}

func nodeReady(n *v1.Node) v1.ConditionStatus {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == v1.NodeReady {
			return c.Status
		}
	}
	return v1.ConditionUnknown
}

// storedLoop puts stored Endpoints right.
func (s *Store) storedLoop(ctx context.Context) {
	for {
		k, down := s.stored.Get()
		if down {
			return
		}
		again := s.putRight(ctx, k)
		s.stored.Done(k)
		switch {
		case again == 0:
			s.stored.Forget(k)
		case again < 0:
			s.stored.AddRateLimited(k)
		default:
			s.stored.Forget(k)
			s.stored.AddAfter(k, again)
		}
	}
}

// retry is what putRight answers when it could not do what it wanted.
const retry = time.Duration(-1)
