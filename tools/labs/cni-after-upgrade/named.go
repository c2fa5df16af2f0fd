// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cniafterupgrade

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

// named is what became of a pod whose sandbox's name a container has, after it was deleted.
type named struct {
	// Running: the container does, and the pod cannot start.
	Running bool
	Gone    bool
	// There: the container is still there.
	There bool
}

func (l *lab) named(ctx context.Context) error {
	if err := l.node.StopKubelet(); err != nil {
		return err
	}
	made := map[string]string{}
	for _, pod := range []string{"named-dead", "named-running"} {
		if err := l.c.Client.Make(ctx, ns, node.Pod(pod, l.node.Name, node.Web("web"))); err != nil {
			return err
		}
		p, err := l.c.Client.Get(ctx, kube.Pods, ns, pod)
		if err != nil {
			return err
		}
		var c struct{ Id string }
		if err := l.node.Docker.Call(ctx, http.MethodPost, fmt.Sprintf("/containers/create?name=k8s_POD_%s_%s_%s_0", pod, ns, p.GetUID()), "application/json",
			strings.NewReader(fmt.Sprintf(`{"Image":%q}`, node.WebImage("v1"))), &c); err != nil {
			return err
		}
		made[pod] = c.Id
	}
	if err := l.node.Docker.Call(ctx, http.MethodPost, "/containers/"+made["named-running"]+"/start", "", nil, nil); err != nil {
		return err
	}
	if err := l.startKubelet(ctx, l.e.UnderTest(base, "kubelet")); err != nil {
		return err
	}
	if err := wait.Until(ctx, "docker refuses both names", patience, func(context.Context) (bool, error) {
		log, err := l.node.Kubelet.LastRunLog()
		for _, id := range made {
			if !strings.Contains(log, `is already in use by container \"`+id) && !strings.Contains(log, `is already in use by container "`+id) {
				return false, err
			}
		}
		return true, err
	}); err != nil {
		return err
	}
	for _, pod := range slices.Sorted(maps.Keys(made)) {
		if err := l.c.Client.Delete(ctx, kube.Pods, ns, pod); err != nil {
			return err
		}
		o := named{Running: pod == "named-running"}
		if err := l.c.Client.WaitGone(ctx, kube.Pods, ns, pod, time.Minute); err == nil {
			o.Gone = true
		} else if ctx.Err() != nil {
			return err
		}
		_, err := l.node.Docker.Inspect(ctx, made[pod])
		o.There = err == nil
		l.e.Logf("%+v", o)
		l.e.Record(o)
	}
	return nil
}
