// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FakeNodes report every pod as running and ready as soon as it is there, as kubelets
// would, for labs of controllers that need no node.
type FakeNodes struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu  sync.Mutex
	err error
}

// StartFakeNodes starts them. They look at the pods of all namespaces every 50 ms.
func StartFakeNodes(ctx context.Context, c *Client) *FakeNodes {
	ctx, cancel := context.WithCancel(ctx)
	f := &FakeNodes{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		for ctx.Err() == nil {
			if err := f.look(ctx, c); err != nil && ctx.Err() == nil {
				f.mu.Lock()
				f.err = err
				f.mu.Unlock()
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return f
}

func (f *FakeNodes) look(ctx context.Context, c *Client) error {
	pods, err := c.List(ctx, Pods, "", "")
	for i := range pods {
		p := &pods[i]
		if Condition(p, "Ready") == "True" || p.GetDeletionTimestamp() != nil {
			continue
		}
		now := time.Now().UTC().Format(time.RFC3339)
		p.Object["status"] = map[string]any{"phase": "Running", "startTime": now, "conditions": []any{
			map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": now}}}
		// A pod that is gone or changed comes again in the next round.
		_, _ = c.Resource(Pods).Namespace(p.GetNamespace()).UpdateStatus(ctx, p, metav1.UpdateOptions{})
	}
	return err
}

// Err is the last error of a list of pods.
func (f *FakeNodes) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Stop ends them.
func (f *FakeNodes) Stop() {
	f.cancel()
	<-f.done
}
