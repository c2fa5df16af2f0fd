// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package webset

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

// Running is a Set whose pods run on nodes, in turn. Watch the nodes, then Create.
type Running struct {
	*Set
	// Nodes are those that Watch was given, in that order.
	Nodes []*node.Node
	// Pods has every version of the pods.
	Pods *kube.Recorder
	// Action is docker's event of a container whose time At tells.
	Action  string
	changes int // of all images, begun so far

	mu   sync.Mutex
	at   map[string]time.Time // by container ID
	lost error                // of docker's streams
}

// Watch takes the node for pods of Create, and notes from now on when containers of the node
// have their first event of the Action.
func (r *Running) Watch(ctx context.Context, n *node.Node) error {
	ended, err := n.Docker.WatchEvents(ctx, func(ev node.DockerEvent) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, seen := r.at[ev.ID]; ev.Action == r.Action && !seen {
			if r.at == nil {
				r.at = map[string]time.Time{}
			}
			r.at[ev.ID] = ev.Time
		}
	})
	if err != nil {
		return err
	}
	r.Nodes = append(r.Nodes, n)
	go func() {
		err := <-ended
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lost = errors.Join(r.lost, err)
	}()
	return nil
}

// At is when docker's stream has the first Action of that container, zero if it has none.
func (r *Running) At(id string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[id]
}

// Lost is an error if a stream of docker or of the API may have missed something.
func (r *Running) Lost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.Pods.Gaps() + r.Endpoints.Gaps(); n > 0 {
		return fmt.Errorf("a watch was lost %d times: events may be missing", n)
	}
	return r.lost
}

// Slow is a pod whose container takes delay seconds to end.
func Slow(name, on string, delay int) *corev1.Pod {
	c := node.Web(Service)
	c.Env = []corev1.EnvVar{{Name: "LABPOD_TERM_DELAY", Value: fmt.Sprintf("%ds", delay)}}
	p := node.Pod(name, on, c)
	p.Spec.TerminationGracePeriodSeconds = new(int64(12))
	return p
}

// Create makes the Service and pods that take 0 to 8 s to end, half of them without a
// readiness probe, and waits until they are ready.
func (r *Running) Create(ctx context.Context, c *kube.Client, random *rand.Rand) error {
	var err error
	if r.Pods, err = c.Record(ctx, kube.Pods, NS); err != nil {
		return err
	}
	r.Set, err = Create(ctx, c, func(i int) *corev1.Pod {
		p := Slow("", r.Nodes[i%len(r.Nodes)].Name, random.IntN(9))
		if i%4 < 2 {
			p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: kube.HTTPGet("/ready", 8080), PeriodSeconds: 1, FailureThreshold: 10}
		}
		return p
	})
	if err != nil {
		return err
	}
	return r.WaitReady(ctx, Pods, 3*time.Minute)
}

// Quiet brings the nodes the image of the next Change. Then it waits until the limiters of the
// kubelets' requests have filled up, and what still happens from before is over. It returns the
// containers by the names of their pods.
func (r *Running) Quiet(ctx context.Context) (map[string]string, error) {
	if tag := r.next(); tag != "v2" { // the kit's
		for _, n := range r.Nodes {
			if err := n.ImportWeb(ctx, tag); err != nil {
				return nil, err
			}
		}
	}
	begin, sent := time.Now(), make([]requests, len(r.Nodes))
	if err := wait.Until(ctx, "no pod changes for 5 s and the kubelets have not used up their request limit", 2*time.Minute, func(ctx context.Context) (bool, error) {
		var busy []error
		for i, n := range r.Nodes {
			total, err := kubeletlab.Metric(ctx, n, "rest_client_requests_total")
			if err == nil && total == 0 {
				err = errors.New("its metrics count no requests")
			}
			if err == nil {
				err = sent[i].spare(time.Now(), total)
			}
			if err != nil {
				busy = append(busy, fmt.Errorf("kubelet of %s: %w", n.Name, err))
			}
		}
		evs := r.Pods.Events()
		if last := time.Since(evs[len(evs)-1].Time); last < 5*time.Second {
			busy = append(busy, fmt.Errorf("a pod changed %v ago", last))
		}
		return time.Since(begin) > 5*time.Second, errors.Join(busy...)
	}); err != nil {
		return nil, err
	}
	containers := map[string]string{}
	for i := range Pods {
		id := ContainerID(r.Pods.Latest(NS, Name(i)))
		if id == "" {
			return nil, fmt.Errorf("pod %s has no container", Name(i))
		}
		containers[Name(i)] = id
	}
	return containers, nil
}

// next is the tag of the next Change: v2, v3 and so on. The kubelet's pause before it starts a
// container again doubles with each one of the same image (getStableKey in pkg/kubelet/kuberuntime
// of 1.9), so no image comes back.
func (r *Running) next() string { return fmt.Sprintf("v%d", r.changes+2) }

// Change changes all images to one that none of the pods has had, each when after lets it. Quiet
// must come before it.
func (r *Running) Change(ctx context.Context, after func(i int) time.Duration) error {
	image := node.WebImage(r.next())
	r.changes++
	errs := make(chan error, Pods)
	for i := range Pods {
		pause := after(i)
		go func() {
			err := wait.Pause(ctx, pause)
			if err == nil {
				err = r.SetImage(ctx, Name(i), image)
			}
			errs <- err
		}()
	}
	for range Pods {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// WaitReplaced waits until all pods are ready with other containers than those.
func (r *Running) WaitReplaced(ctx context.Context, old map[string]string) error {
	return wait.Until(ctx, "all pods are ready with new containers", 3*time.Minute, func(context.Context) (bool, error) {
		for name, id := range old {
			if o := r.Pods.Latest(NS, name); !kubeletlab.PodReady(o) || ContainerID(o) == id {
				return false, fmt.Errorf("%s is not", name)
			}
		}
		return true, nil
	})
}

// ContainerID is that of the pod's container, "" if it has none.
func ContainerID(o *kube.Object) string {
	if o == nil {
		return ""
	}
	return kube.ContainerIDs(o)[Service]
}
