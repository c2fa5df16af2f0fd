// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package unreadybeforereplace

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/webset"
)

// followSteps are the steps of the cases that are followed.
func (l *lab) followSteps() []labkit.Step {
	all := []labkit.Step{{Text: "change a pod's image to the same one under another tag", Do: l.sameImage}}
	for _, m := range []struct {
		name, text string
		moment     func(*lab, context.Context, string) error
	}{
		{killedSoon, "up to 0.4 s after the image was changed", (*lab).soon},
		{killedInEnd, "while the old container ends, which takes 8 s", (*lab).inEnd},
		{killedAfter, "up to 0.4 s after the old container has ended", (*lab).after},
	} {
		for i := range followedCases[m.name] {
			all = append(all, labkit.Step{Text: fmt.Sprintf("kill -9 of the kubelet %s, %d", m.text, i+1), Do: func(ctx context.Context) error {
				return l.killedAt(ctx, m.name, i, m.moment)
			}})
		}
	}
	return append(all, labkit.Step{Text: "the kubelet of node2 reaches the API server through a DaemonSet pod on the host network; change that pod's image, twice", Do: l.way})
}

// follow waits until a pod whose image was changed at that time has its new container, and
// records what became of it.
func (l *lab) follow(ctx context.Context, name string, o followed, begin time.Time) error {
	_, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, name, bound, string(anew), func(p *kube.Object) (bool, error) {
		return kubeletlab.PodReady(p) && webset.ContainerID(p) != o.Was, nil
	})
	if ctx.Err() != nil {
		return err
	}
	// The watch's last event is the one that was waited for.
	if err == nil {
		if _, err := l.web.Pods.Wait(ctx, bound, "of "+name+" with its new container", func(ev kube.RecordedEvent) bool {
			return ev.Object.GetName() == name && kubeletlab.PodReady(ev.Object) && webset.ContainerID(ev.Object) != o.Was
		}); err != nil {
			return err
		}
	}
	o.Replaced, o.Killed, o.Events = err == nil, l.web.At(o.Was), l.since(name, begin)
	l.e.Record(o)
	if why, sure := o.wrong(); why != "" {
		l.e.Step("%s", why)
		if sure {
			return labkit.Enough
		}
	}
	return nil
}

// ready waits for a pod and returns its container.
func (l *lab) ready(ctx context.Context, name string) (string, error) {
	o, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, name, time.Minute, "is ready", func(o *kube.Object) (bool, error) { return kubeletlab.PodReady(o), nil })
	if err != nil {
		return "", err
	}
	return webset.ContainerID(o), nil
}

// sameImage: nothing but the spec's text tells the two images apart.
func (l *lab) sameImage(ctx context.Context) error {
	q := url.Values{"repo": {"holdfast.test/web"}, "tag": {"again"}}
	if err := l.c.Nodes[0].Docker.Call(ctx, http.MethodPost, "/images/"+node.WebImage("v1")+"/tag?"+q.Encode(), "", nil, nil); err != nil {
		return err
	}
	if err := l.c.Client.Make(ctx, ns, webset.Slow(sameImage, "node1", 0)); err != nil {
		return err
	}
	id, err := l.ready(ctx, sameImage)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := l.web.SetImage(ctx, sameImage, node.WebImage("again")); err != nil {
		return err
	}
	if err := l.follow(ctx, sameImage, followed{Case: sameImage, Was: id}, begin); err != nil {
		return err
	}
	return l.remove(ctx, sameImage)
}

// killedAt changes a pod's image and kills the kubelet at a moment.
func (l *lab) killedAt(ctx context.Context, name string, round int, moment func(*lab, context.Context, string) error) error {
	if err := l.c.Client.Make(ctx, ns, webset.Slow(name, "node1", 8)); err != nil {
		return err
	}
	id, err := l.ready(ctx, name)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := l.web.SetImage(ctx, name, node.WebImage("v2")); err != nil {
		return err
	}
	if err := moment(l, ctx, id); err != nil {
		return err
	}
	n := l.c.Nodes[0]
	if err := n.KillKubelet(); err != nil {
		return err
	}
	if err := n.StartKubelet(ctx, l.e.UnderTest(l.base, "kubelet")); err != nil {
		return err
	}
	if err := l.follow(ctx, name, followed{Case: name, Round: round, Was: id}, begin); err != nil {
		return err
	}
	return l.remove(ctx, name)
}

// soon waits up to 0.4 s, by the seed: the kubelet may not have heard of the change, or may
// have decided, published, or killed.
func (l *lab) soon(ctx context.Context, _ string) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(l.e.Rand.IntN(400)) * time.Millisecond):
		return nil
	}
}

// inEnd waits until the container was told to end.
func (l *lab) inEnd(ctx context.Context, id string) error {
	return wait.Every(ctx, "the old container is killed", 10*time.Millisecond, bound, func(context.Context) (bool, error) { return !l.web.At(id).IsZero(), nil })
}

// after waits until the container has ended, and as soon does.
func (l *lab) after(ctx context.Context, id string) error {
	if err := wait.Every(ctx, "the old container has ended", 20*time.Millisecond, bound, func(ctx context.Context) (bool, error) {
		all, err := l.c.Nodes[0].Docker.Containers(ctx, false)
		for _, c := range all {
			if c.ID == id {
				return false, err
			}
		}
		return err == nil, err
	}); err != nil {
		return err
	}
	return l.soon(ctx, id)
}

// wayAddress is where the way to the API server begins, on node2.
const wayAddress = "127.0.0.1:16443"

// way changes the pod by which its own kubelet reaches the API server. What the kubelet needs
// from there it needs before the kill.
func (l *lab) way(ctx context.Context) error {
	n := l.c.Nodes[1]
	server, err := url.Parse(l.c.APIServer.URL)
	if err != nil {
		return err
	}
	if _, err := l.c.Client.CreateYAML(ctx, ns, fmt.Sprintf(`
apiVersion: extensions/v1beta1
kind: DaemonSet
metadata: {name: %[1]s}
spec:
  updateStrategy: {type: OnDelete}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      hostNetwork: true
      nodeSelector: {kubernetes.io/hostname: %[2]s}
      terminationGracePeriodSeconds: 2
      containers: [{name: web, image: %[3]s, imagePullPolicy: IfNotPresent, command: [/labpod, forward, %[4]q, %[5]q]}]
`, way, n.Name, node.WebImage("v1"), wayAddress, server.Host)); err != nil {
		return err
	}
	pods, err := l.c.Client.WaitList(ctx, kube.Pods, ns, "app="+way, time.Minute, "of the DaemonSet exist", func(all []kube.Object) (bool, error) { return len(all) == 1, nil })
	if err != nil {
		return err
	}
	name := pods[0].GetName()
	if _, err := l.ready(ctx, name); err != nil {
		return err
	}
	pki, err := l.e.GetPKI()
	if err != nil {
		return err
	}
	conf, err := pki.Kubeconfig(n.Name+"-way", "https://"+wayAddress, "system:node:"+n.Name, "system:nodes")
	if err != nil {
		return err
	}
	if err := n.SwapKubelet(ctx, l.e.UnderTest(l.base, "kubelet"), "--kubeconfig="+conf); err != nil {
		return err
	}
	for i := range followedCases[way] {
		id, err := l.ready(ctx, name)
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := l.web.SetImage(ctx, name, node.WebImage([]string{"v2", "v1"}[i%2])); err != nil {
			return err
		}
		if err := l.follow(ctx, name, followed{Case: way, Round: i, Was: id}, begin); err != nil {
			return err
		}
	}
	if err := n.SwapKubelet(ctx, l.e.UnderTest(l.base, "kubelet")); err != nil {
		return err
	}
	if err := l.c.Client.Delete(ctx, kube.DaemonSets, ns, way); err != nil {
		return err
	}
	return l.c.Client.DeleteNow(ctx, kube.Pods, ns, name)
}
