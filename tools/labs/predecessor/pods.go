// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package predecessor

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

// start creates n pods, every other one with a host port, and waits until they
// are ready. All have a mount, of the service account's token, so that each
// release from 1.7 to 1.9 computes another hash.
func (r *rig) start(ctx context.Context, n int, gatesOff bool) error {
	// kubenet cannot make a sandbox before the kubelet knows the node's PodCIDR.
	if err := wait.Until(ctx, "kubenet is ready", time.Minute, func(context.Context) (bool, error) {
		s, err := r.node.Kubelet.LastRunLog()
		return strings.Contains(s, "CIDR: "), err
	}); err != nil {
		return err
	}
	for range n {
		r.next++
		name := fmt.Sprintf("%s-%s-%d", r.node.Name, strings.Map(letters, r.cell.event), r.next)
		p := &pod{gatesOff: gatesOff}
		web := node.Web("web")
		web.ReadinessProbe = &corev1.Probe{ProbeHandler: kube.HTTPGet("/ready", 8080), PeriodSeconds: 1}
		if r.next%2 == 1 {
			p.hostPort = 18080 + r.next
			web.Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: int32(p.hostPort)}}
		} else {
			web.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(1000))}
		}
		o := node.Pod(name, r.node.Name, web)
		o.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		if err := r.c.Client.Make(ctx, ns, o); err != nil {
			return err
		}
		r.pods[name] = p
	}
	return r.ready(ctx)
}

func letters(c rune) rune {
	if c >= 'a' && c <= 'z' {
		return c
	}
	return -1
}

// ready waits until the pods are ready with the containers that run, and asks
// each host port.
func (r *rig) ready(ctx context.Context) error {
	for _, name := range r.names() {
		if _, err := r.c.Client.WaitFor(ctx, kube.Pods, ns, name, 3*time.Minute, "is ready as it runs", func(o *kube.Object) (bool, error) {
			if !kubeletlab.PodReady(o) {
				return false, fmt.Errorf("Ready is %q", kube.Condition(o, "Ready"))
			}
			s, err := kubeletlab.Take(ctx, r.node)
			if err != nil {
				return false, err
			}
			for container, id := range kube.ContainerIDs(o) {
				if s[ns+"/"+name+"/"+container].ID != id {
					return false, fmt.Errorf("the API has another container than docker")
				}
			}
			return true, nil
		}); err != nil {
			return err
		}
	}
	for _, name := range r.names() {
		if port := r.pods[name].hostPort; port != 0 {
			body, err := load.Get(ctx, fmt.Sprintf("http://%s:%d/", r.node.IP, port))
			if err != nil {
				body = err.Error()
			}
			r.e.Record(asked{Cell: r.place(), Pod: name, Port: port, Answer: strings.TrimSpace(body)})
		}
	}
	return nil
}

// restarts are the restart counts of the pods.
func (r *rig) restarts(ctx context.Context) (map[string]int64, error) {
	counts := map[string]int64{}
	for _, name := range r.names() {
		o, err := r.c.Client.Get(ctx, kube.Pods, ns, name)
		if err != nil {
			return nil, err
		}
		for _, c := range kube.Slice(o, "status", "containerStatuses") {
			counts[name], _ = c.(map[string]any)["restartCount"].(int64)
		}
	}
	return counts, nil
}

// restarted waits until each pod runs anew: proof that the event ended it.
func (r *rig) restarted(ctx context.Context, before map[string]int64) error {
	if err := wait.Until(ctx, "all pods run again", 3*time.Minute, func(ctx context.Context) (bool, error) {
		now, err := r.restarts(ctx)
		for name, n := range before {
			if now[name] <= n {
				return false, fmt.Errorf("%s has not restarted", name)
			}
		}
		return err == nil, err
	}); err != nil {
		return err
	}
	if err := r.ready(ctx); err != nil {
		return err
	}
	return r.start(ctx, 1, false)
}

// remove deletes pods and waits until their containers are gone.
func (r *rig) remove(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := r.c.Client.Delete(ctx, kube.Pods, ns, name); err != nil {
			return err
		}
	}
	gone := map[string]bool{}
	for _, name := range names {
		gone[name] = true
		if err := r.c.Client.WaitGone(ctx, kube.Pods, ns, name, 2*time.Minute); err != nil {
			return err
		}
		delete(r.pods, name)
	}
	return wait.Until(ctx, "no container of the deleted pods runs", 2*time.Minute, func(ctx context.Context) (bool, error) {
		s, err := kubeletlab.Take(ctx, r.node)
		for _, c := range s {
			if gone[c.Pod] {
				return false, fmt.Errorf("one of %s does", c.Pod)
			}
		}
		return err == nil, err
	})
}

// delete has the kubelet that runs now delete all pods. It must refuse no
// checkpoint; that it needed them is in its log.
func (r *rig) delete(ctx context.Context) error {
	names := r.names()
	r.step("delete %d pods", len(names))
	if err := r.remove(ctx, names); err != nil {
		return err
	}
	if err := wait.Until(ctx, "kubenet has taken each sandbox down", time.Minute, func(context.Context) (bool, error) {
		log, err := r.node.Kubelet.LastRunLog()
		for _, name := range names {
			if !strings.Contains(log, " for "+ns+"/"+name+"\n") && err == nil {
				err = fmt.Errorf("not that of %s", name)
			}
		}
		if n := strings.Count(log, "Checksum of checkpoint"); n > 0 {
			return true, nil
		}
		return err == nil, err
	}); err != nil {
		return err
	}
	log, err := r.node.Kubelet.LastRunLog()
	if err == nil {
		r.e.Record(tookDown{Cell: r.place(), Kubelet: r.node.KubeletProgram().Base, Pods: len(names), Refused: strings.Count(log, "Checksum of checkpoint")})
	}
	return err
}
