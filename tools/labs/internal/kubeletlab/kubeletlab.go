// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeletlab has what the labs about restarts and swaps of a kubelet
// share: proof that the new kubelet has looked at every pod, snapshots of the
// containers, and what was published in between.
package kubeletlab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/metrics"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

// Metric sums the samples of a metric of the node's kubelet that have these labels
// (see metrics.Page.Sum); 0 if there is none.
func Metric(ctx context.Context, n *node.Node, name string, labels ...string) (float64, error) {
	page, err := metrics.Get(ctx, n.KubeletURL+"/metrics")
	if err != nil {
		return 0, err
	}
	sum, _ := page.Sum(name, labels...)
	return sum, nil
}

// WaitSynced waits until the kubelet, since its start, has begun to sync at
// least pods pods. It counts the metric that every release from 1.7 to 1.9
// observes at a pod's first sync, right before containers are compared.
func WaitSynced(ctx context.Context, n *node.Node, pods int, bound time.Duration) error {
	return wait.Until(ctx, fmt.Sprintf("first sync of %d pods by the new kubelet of %s", pods, n.Name), bound, func(ctx context.Context) (bool, error) {
		v, err := Metric(ctx, n, "kubelet_pod_start_latency_microseconds_count")
		if err == nil && int(v) < pods {
			err = fmt.Errorf("%d so far", int(v))
		}
		return err == nil, err
	})
}

// WaitReady waits until just n pods of a namespace are ready.
func WaitReady(ctx context.Context, c *kube.Client, ns string, n int, bound time.Duration) error {
	_, err := c.WaitList(ctx, kube.Pods, ns, "", bound, "all ready", func(pods []kube.Object) (bool, error) {
		ready := 0
		for i := range pods {
			if PodReady(&pods[i]) {
				ready++
			}
		}
		if ready != n {
			return false, fmt.Errorf("%d of %d pods are ready", ready, n)
		}
		return true, nil
	})
	return err
}

// LogComparisons makes a kubelet of any release log what WaitCompared reads.
const LogComparisons = "--v=3"

// WaitCompared waits until the kubelet, since its start, has compared the
// containers of every pod with its spec. pods are "namespace/name". It reads the
// line that SyncPod of every release from 1.7 to 1.9 writes with LogComparisons
// when it has decided what to stop and to start, right before it does so.
func WaitCompared(ctx context.Context, n *node.Node, pods []string, bound time.Duration) error {
	return wait.Until(ctx, fmt.Sprintf("the new kubelet of %s has compared the containers of %d pods", n.Name, len(pods)), bound, func(context.Context) (bool, error) {
		log, err := n.Kubelet.LastRunLog()
		if err != nil {
			return false, err
		}
		if missing := notCompared(log, pods); len(missing) > 0 {
			return false, fmt.Errorf("%d of %d are missing, first %s", len(missing), len(pods), missing[0])
		}
		return true, nil
	})
}

// comparison is that line: 1.7 says computePodContainerChanges, 1.8 and 1.9 say
// computePodActions.
var comparison = regexp.MustCompile(`compute(?:PodActions|PodContainerChanges) got .* for pod "([^_"]+)_([^("]+)\(`)

// notCompared returns the pods without a comparison in the log.
func notCompared(log string, pods []string) []string {
	seen := map[string]bool{}
	for _, m := range comparison.FindAllStringSubmatch(log, -1) {
		seen[m[2]+"/"+m[1]] = true
	}
	var missing []string
	for _, p := range pods {
		if !seen[p] {
			missing = append(missing, p)
		}
	}
	return missing
}

// Pods are the pods of a snapshot, as "namespace/name".
func (s Snapshot) Pods() []string {
	seen := map[string]bool{}
	for key := range s {
		seen[key[:strings.LastIndex(key, "/")]] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// Container is what must stay the same of a container.
type Container struct {
	ID, StartedAt string
	Pod           string
	Sandbox       bool
	// Hash is the recorded hash of the spec, "" for a sandbox.
	Hash string
}

// Snapshot is the running containers of a node by "namespace/pod/container".
type Snapshot map[string]Container

// Take reads the node's docker, not the API, so that it does not depend on a
// kubelet.
func Take(ctx context.Context, n *node.Node) (Snapshot, error) {
	cs, err := n.Docker.Containers(ctx, false)
	if err != nil {
		return nil, err
	}
	s := Snapshot{}
	for _, c := range cs {
		m, err := n.Docker.Inspect(ctx, c.ID)
		if err != nil {
			var de *node.DockerError
			if errors.As(err, &de) && de.Status == 404 {
				continue
			}
			return nil, err
		}
		state, _ := m["State"].(map[string]any)
		started, _ := state["StartedAt"].(string)
		l := c.Labels
		key := l[node.LabelNamespace] + "/" + l[node.LabelPod] + "/" + l[node.LabelContainer]
		s[key] = Container{ID: c.ID, StartedAt: started, Pod: l[node.LabelPod],
			Sandbox: l[node.LabelType] == "podsandbox", Hash: l[node.LabelHash]}
	}
	return s, nil
}

// Diff is what became of a snapshot's containers.
type Diff struct {
	Kept, Recreated, Gone []string
}

// Compare tells which containers of before still run (same ID, same start),
// which run anew, and which do not run. Only keys that want accepts count.
func Compare(before, after Snapshot, want func(key string, c Container) bool) Diff {
	var d Diff
	for key, b := range before {
		if !want(key, b) {
			continue
		}
		a, ok := after[key]
		switch {
		case !ok:
			d.Gone = append(d.Gone, key)
		case a.ID == b.ID && a.StartedAt == b.StartedAt:
			d.Kept = append(d.Kept, key)
		default:
			d.Recreated = append(d.Recreated, key)
		}
	}
	for _, l := range [][]string{d.Kept, d.Recreated, d.Gone} {
		sort.Strings(l)
	}
	return d
}

// WaitStable waits until the node's set of containers has not changed for quiet.
// It is for the side of an oracle that proves that nothing more happens, after
// WaitSynced has proven that something could.
func WaitStable(ctx context.Context, n *node.Node, quiet, bound time.Duration) (Snapshot, error) {
	var last Snapshot
	var since time.Time
	err := wait.Until(ctx, "no container started or stopped on "+n.Name+" for "+quiet.String(), bound, func(ctx context.Context) (bool, error) {
		s, err := Take(ctx, n)
		if err != nil {
			return false, err
		}
		if last == nil || !same(last, s) {
			last, since = s, time.Now()
		}
		return time.Since(since) >= quiet, nil
	})
	return last, err
}

func same(a, b Snapshot) bool {
	if len(a) != len(b) {
		return false
	}
	for k, c := range a {
		if b[k] != c {
			return false
		}
	}
	return true
}

// PodReady is a pod's Ready condition.
func PodReady(o *kube.Object) bool { return kube.Condition(o, "Ready") == "True" }

// Published is what watchers saw of some pods and of one Endpoints object.
type Published struct {
	// NotReady are MODIFIED events of a pod with Ready not True, by pod name.
	NotReady map[string]int
	// Removed counts addresses that were ready in one version of the Endpoints
	// and not in the next; Lowest is the smallest number of ready addresses.
	Removed, Lowest int
	// First is the first thing that was seen, with its time; "" if nothing was.
	First string
}

func (p Published) String() string {
	s := fmt.Sprintf("%d pods published as not ready, %d addresses removed, lowest %d", len(p.NotReady), p.Removed, p.Lowest)
	if p.First != "" {
		s += "; first: " + p.First
	}
	return s
}

// Seen reads two recorders from the time since on. Only pods that tracked
// accepts count; addresses are counted if they belong to one of these pods.
func Seen(pods, endpoints *kube.Recorder, ns, service string, since time.Time, tracked func(pod string) bool) (Published, error) {
	p := Published{NotReady: map[string]int{}, Lowest: -1}
	if pods.Gaps()+endpoints.Gaps() > 0 {
		return p, fmt.Errorf("a watch was lost (pods %d times, endpoints %d times): events may be missing", pods.Gaps(), endpoints.Gaps())
	}
	first := func(t time.Time, format string, a ...any) {
		if p.First == "" {
			p.First = t.UTC().Format("15:04:05.000") + " " + fmt.Sprintf(format, a...)
		}
	}
	for _, ev := range pods.Events() {
		if ev.Object == nil || ev.Time.Before(since) || ev.Type != "MODIFIED" || !tracked(ev.Object.GetName()) || PodReady(ev.Object) {
			continue
		}
		p.NotReady[ev.Object.GetName()]++
		first(ev.Time, "pod %s Ready=%s", ev.Object.GetName(), kube.Condition(ev.Object, "Ready"))
	}
	ready := map[string]bool{}
	for _, ev := range endpoints.Of(ns, service) {
		now := map[string]bool{}
		for _, name := range ReadyPods(ev.Object) {
			if tracked(name) {
				now[name] = true
			}
		}
		if !ev.Time.Before(since) {
			for name := range ready {
				if !now[name] {
					p.Removed++
					first(ev.Time, "address of pod %s removed from Endpoints", name)
				}
			}
			if p.Lowest < 0 || len(now) < p.Lowest {
				p.Lowest = len(now)
			}
		}
		ready = now
	}
	if p.Lowest < 0 {
		p.Lowest = len(ready)
	}
	return p, nil
}

// ReadyPods are the names of the pods behind the ready addresses of ep.
func ReadyPods(ep *kube.Object) []string {
	var out []string
	kube.EachReadyAddress(ep, func(pod, _ string) { out = append(out, pod) })
	return out
}

// NotReadyPods are those behind the addresses that are not ready.
func NotReadyPods(ep *kube.Object) []string {
	var out []string
	kube.EachNotReadyAddress(ep, func(pod, _ string) { out = append(out, pod) })
	return out
}

// RecentAddresses are the "ip:port" that were ready in any version of an Endpoints
// object within the last age, if want accepts their pod. Clients do not learn of a
// change at once: a proxy or a load balancer still sends to these.
func RecentAddresses(endpoints *kube.Recorder, ns, service string, age time.Duration, want func(pod string) bool) []string {
	return recentAddresses(endpoints.Of(ns, service), time.Now().Add(-age), want)
}

// recentAddresses has the events of one Endpoints object, oldest first.
func recentAddresses(evs []kube.RecordedEvent, since time.Time, want func(pod string) bool) []string {
	seen := map[string]bool{}
	for _, ev := range slices.Backward(evs) {
		if ev.Type != "DELETED" {
			for _, a := range ReadyAddressesOf(ev.Object, want) {
				seen[a] = true
			}
		}
		if ev.Time.Before(since) {
			break // this version stood when the time began
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// ReadyAddressesOf are the "ip:port" of the ready addresses whose pod want accepts.
func ReadyAddressesOf(ep *kube.Object, want func(pod string) bool) []string {
	var out []string
	kube.EachReadyAddress(ep, func(pod, address string) {
		if want(pod) {
			out = append(out, address)
		}
	})
	return out
}
