// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dockernameconflict is the lab docker-name-conflict: containers have the names that a
// kubelet will ask for. See tools/labs/docker-name-conflict/README.md.
package dockernameconflict

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

const (
	base = "v1.9.11"
	ns   = "default"
	// patience is for a pod that starts, or is refused often enough: the kubelet tries again
	// every 10 to 20 s.
	patience = 2 * time.Minute
	// stuck is how often docker refuses the name of a pod that counts as stuck.
	stuck = 3
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "docker-name-conflict",
		Summary: "a dead container has the name of a pod's next container, and the pod never starts",
		Test:    []labkit.Variant{labkit.Ours},
		Steps:   steps,
		Oracle:  oracle,
		Timeout: func(labkit.Profile) time.Duration { return 8 * time.Minute },
		Needs:   labkit.KubeletNeeds(base),
	}}
}

// taken is a pod whose name for a container is taken.
type taken struct {
	pod string
	// container is whose name it is; "POD" is the sandbox.
	container string
	running   bool
}

// The first two can be started when the dead container is removed, the last one never.
var cases = []taken{
	{pod: "dead-sandbox", container: "POD"},
	{pod: "dead-container", container: "web"},
	{pod: "running-sandbox", container: "POD", running: true},
}

type lab struct {
	e    *labkit.Env
	c    *node.Cluster
	node *node.Node
	// names and ids of the containers in the way, by pod.
	names, ids map[string]string
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e, names: map[string]string{}, ids: map[string]string{}}
	return []labkit.Step{
		{Text: "start etcd, apiserver and controller manager v1.9.11, and a node with the kubelet under test; stop the kubelet", Do: l.start},
		{Text: "create three pods, and containers with the names that the kubelet will request: two containers that never ran, and one that runs", Do: l.take},
		{Text: fmt.Sprintf("start the kubelet; wait until each pod runs, or docker has refused its name %d times", stuck), Do: l.run},
		labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }),
	}
}

func (l *lab) start(ctx context.Context) error {
	c, err := l.e.StartStockCluster(ctx, base, node.Config{Name: "node1", Kubelet: l.e.UnderTest(base, "kubelet")})
	if err != nil {
		return err
	}
	l.c, l.node = c, c.Nodes[0]
	return l.node.StopKubelet()
}

// take makes the containers as a creation that failed half-way leaves them to the kubelet:
// without the labels by which it lists its own.
func (l *lab) take(ctx context.Context) error {
	for _, t := range cases {
		if err := l.c.Client.Make(ctx, ns, node.Pod(t.pod, l.node.Name, node.Web("web"))); err != nil {
			return err
		}
		p, err := l.c.Client.Get(ctx, kube.Pods, ns, t.pod)
		if err != nil {
			return err
		}
		name := strings.Join([]string{"k8s", t.container, t.pod, ns, string(p.GetUID()), "0"}, "_")
		body, err := json.Marshal(map[string]string{"Image": node.WebImage("v1")})
		if err != nil {
			return err
		}
		var made struct{ Id string }
		if err := l.node.Docker.Call(ctx, http.MethodPost, "/containers/create?name="+name, "application/json", strings.NewReader(string(body)), &made); err != nil {
			return err
		}
		if t.running {
			if err := l.node.Docker.Call(ctx, http.MethodPost, "/containers/"+made.Id+"/start", "", nil, nil); err != nil {
				return err
			}
		}
		l.names[t.pod], l.ids[t.pod] = name, made.Id
	}
	return nil
}

// ended is what became of a pod, and of the container that had its name.
type ended struct {
	Pod string
	// Ready is the pod's condition, Refused how often docker refused the name by then.
	Ready   bool
	Refused int
	// There: the other container is; Running: it runs.
	There, Running bool
}

// refused counts in a kubelet's log the creations of sandboxes and containers that docker
// refused as the name is in use.
func refused(log, name string) int {
	n := 0
	for _, line := range strings.Split(log, "\n") {
		if strings.Contains(line, "remote_runtime.go") && strings.Contains(line, "/"+name+`"`) && strings.Contains(line, "is already in use by container") {
			n++
		}
	}
	return n
}

func (l *lab) run(ctx context.Context) error {
	if err := l.node.StartKubelet(ctx, l.e.UnderTest(base, "kubelet")); err != nil {
		return err
	}
	for _, t := range cases {
		o := ended{Pod: t.pod}
		if err := wait.Until(ctx, fmt.Sprintf("pod %s runs, or docker has refused its name %d times", t.pod, stuck), patience, func(ctx context.Context) (bool, error) {
			log, err := l.node.Kubelet.LastRunLog()
			if err != nil {
				return false, err
			}
			o.Refused = refused(log, l.names[t.pod])
			p, err := l.c.Client.Get(ctx, kube.Pods, ns, t.pod)
			if err != nil {
				return false, err
			}
			o.Ready = kube.Condition(p, "Ready") == "True"
			return o.Ready || o.Refused >= stuck, nil
		}); err != nil {
			return err
		}
		all, err := l.node.Docker.Containers(ctx, true)
		if err != nil {
			return err
		}
		for _, c := range all {
			if c.ID == l.ids[t.pod] {
				o.There, o.Running = true, c.State == "running"
			}
		}
		l.e.Logf("%+v", o)
		l.e.Record(o)
	}
	return nil
}
