// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rollingupdates

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/rbdlab"
)

const (
	set = "db"
	// rolloutBound is for three pods, one after the other: each is deleted, its image let go
	// of, attached and mounted anew.
	rolloutBound = 6 * time.Minute
	// freeBound is for an image whose pod is gone.
	freeBound = time.Minute
	// startsFile is where each pod adds a line to its volume.
	startsFile = "starts"
)

func withRBD() labkit.Lab {
	return labkit.Lab{
		Name:     "rolling-updates-rbd",
		Folder:   "checks/rolling-updates",
		Summary:  "rolling updates of a StatefulSet with RBD volumes, whose pods move between two nodes: each volume is on one node at a time and keeps its data",
		Steps:    rbdSteps,
		Oracle:   rbdOracle,
		Timeout:  func(labkit.Profile) time.Duration { return 50 * time.Minute },
		Packages: rbdlab.Packages,
		Needs: []labkit.Binary{
			labkit.BinaryUnderTest(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-scheduler"),
			labkit.StockBinary(base, "kubectl"),
			labkit.BinaryUnderTest(base, "kube-controller-manager"),
			labkit.BinaryUnderTest(base, "kubelet"),
		},
	}
}

// rollout is one way to change the StatefulSet's image.
type rollout struct {
	by, version string
	// node is where the pods have to go to: the other one is cordoned. "" is anywhere.
	node string
	do   func(*rbdLab, context.Context, rollout) error
}

// rollouts are driven in this order.
var rollouts = []rollout{
	{create, "v1", "", (*rbdLab).create},
	{applied, "v2", "node2", (*rbdLab).apply},
	{strategic, "v1", "node1", (*rbdLab).patch},
	{mergePatch, "v2", "node2", (*rbdLab).patch},
	{jsonPatch, "v1", "node1", (*rbdLab).patch},
	{undone, "v2", "node2", (*rbdLab).undo},
	{undoneTo, "v1", "node1", (*rbdLab).undo},
}

type rbdLab struct {
	lab
	r *rbdlab.Rig
	// images are those of the claims, by pod.
	images map[string]string
	watch  *watch
	// revision is the one to undo to.
	revision string
}

func rbdSteps(e *labkit.Env) []labkit.Step {
	l := &rbdLab{lab: lab{e: e}}
	s := []labkit.Step{{Text: "start Ceph, etcd, kube-apiserver, kube-scheduler, kube-controller-manager and two nodes with the kubelet; create a StorageClass that provisions RBD images", Do: l.start}}
	for _, x := range rollouts {
		text := fmt.Sprintf("%s: %s, and rollout status; check pods, volumes and lines", x.by, x.version)
		if x.node != "" {
			text = fmt.Sprintf("cordon every node except %s; %s", x.node, text)
		}
		s = append(s, labkit.Step{Text: text, Do: func(ctx context.Context) error { return l.roll(ctx, x) }})
	}
	return append(s,
		labkit.Step{Text: "scale to 0, and read the contents of the images", Do: l.end},
		labkit.AllRun(func(ctx context.Context) error { return l.r.Alive(ctx) }))
}

const storageClass = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: rbd}
provisioner: kubernetes.io/rbd
parameters: {monitors: %q, pool: rbd, adminId: admin, adminSecretName: %[2]s, adminSecretNamespace: %[3]s, userId: admin, userSecretName: %[2]s,
  fsType: ext4, imageFormat: "2", imageFeatures: layering}
`

func (l *rbdLab) start(ctx context.Context) (err error) {
	if l.r, err = rbdlab.Start(ctx, l.e, rbdlab.Config{
		APIServer:         l.e.UnderTest(base, "kube-apiserver"),
		ControllerManager: &kube.ControllerManagerConfig{Program: l.e.UnderTest(base, "kube-controller-manager")},
		Scheduler:         &kube.SchedulerConfig{Program: l.e.Stock(base, "kube-scheduler")},
		Nodes:             []rbdlab.NodeConfig{{Name: "node1", Kubelet: rbdlab.UnderTest(l.e)}, {Name: "node2", Kubelet: rbdlab.UnderTest(l.e)}},
	}); err != nil {
		return err
	}
	l.c = l.r.Cluster
	if err := l.c.Client.Make(ctx, ns, kube.Service(set, set, 8080)); err != nil {
		return err
	}
	_, err = l.c.Client.CreateYAML(ctx, ns, fmt.Sprintf(storageClass, rbdlab.Monitor, rbdlab.AdminSecret, ns))
	return err
}

// manifest is the StatefulSet's. The line of a pod has its version, UID and node.
func (l *rbdLab) manifest(version string) (string, error) {
	name := l.e.Path("statefulset-" + version + ".yaml")
	return name, os.WriteFile(name, fmt.Appendf(nil, `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  serviceName: %[1]s
  selector: {matchLabels: {app: %[1]s}}
  updateStrategy: {type: RollingUpdate}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: web
        image: %[3]s
        imagePullPolicy: IfNotPresent
        env:
        - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
        - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: LABPOD_ID, value: $(POD_UID) $(NODE)}
        - {name: LABPOD_STARTS, value: /data/%[4]s}
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      accessModes: [ReadWriteOnce]
      storageClassName: rbd
      resources: {requests: {storage: 64Mi}}
`, set, replicas, node.WebImage(version), startsFile), 0o644)
}

// roll drives a rollout and records how it ends, and who has the images then.
func (l *rbdLab) roll(ctx context.Context, x rollout) error {
	if x.node != "" {
		other := map[string]string{"node1": "node2", "node2": "node1"}[x.node]
		if _, err := l.kubectl(ctx, x.by+": "+uncordoned, "uncordon", x.node); err != nil {
			return err
		}
		if _, err := l.kubectl(ctx, x.by+": "+cordoned, "cordon", other); err != nil {
			return err
		}
	}
	begun := time.Now()
	if err := x.do(l, ctx, x); err != nil {
		return err
	}
	if err := l.status(ctx, x); err != nil {
		return err
	}
	o, err := l.rolled(ctx, x, begun)
	if err != nil {
		return err
	}
	l.e.Step("%s after %.0f s: %s", x.by, o.Seconds, o)
	l.e.Record(o)
	if o.fault() != "" {
		l.e.Step("%s", o.fault())
		if err := l.looked(ctx); err != nil {
			return err
		}
		return labkit.Enough
	}
	for _, p := range o.Pods {
		if _, err := l.r.See(ctx, l.images[p.Name], x.by); err != nil {
			return err
		}
	}
	return nil
}

// status is kubectl rollout status, which waits until the rollout has ended.
func (l *rbdLab) status(ctx context.Context, x rollout) error {
	bound, cancel := context.WithTimeout(ctx, rolloutBound)
	defer cancel()
	cmd, out := l.command(bound, "rollout", "status", "statefulset/"+set)
	if err := cmd.Run(); cmd.ProcessState == nil || ctx.Err() != nil {
		return fmt.Errorf("kubectl rollout status: %w", err)
	}
	// A command that was killed at the bound has the exit status -1.
	l.e.Record(ran{Name: x.by + ": " + status, Exit: cmd.ProcessState.ExitCode(), Output: out.String()})
	return nil
}

// rolled is what the pods are and have, once that is as it must be or the bound is over.
func (l *rbdLab) rolled(ctx context.Context, x rollout, begun time.Time) (rolled, error) {
	var o rolled
	err := wait.Until(ctx, x.by+" has rolled out", rolloutBound, func(ctx context.Context) (bool, error) {
		pods, err := l.c.Client.List(ctx, kube.Pods, ns, "app="+set)
		if err != nil {
			return false, err
		}
		now := rolled{By: x.by, Version: x.version, Node: x.node, Seconds: time.Since(begun).Seconds()}
		for i := range pods {
			now.Pods = append(now.Pods, seePod(ctx, &pods[i]))
		}
		o = now
		if f := o.fault(); f != "" {
			return false, errors.New(f)
		}
		return true, nil
	})
	if ctx.Err() != nil || o.By == "" {
		return o, err
	}
	return o, nil
}

func seePod(ctx context.Context, o *kube.Object) pod {
	p := pod{Name: o.GetName(), UID: string(o.GetUID()), Node: kube.String(o, "spec", "nodeName"), Ready: kube.Condition(o, "Ready") == "True" && o.GetDeletionTimestamp() == nil}
	for _, c := range kube.Slice(o, "spec", "containers") {
		p.Image, _ = c.(map[string]any)["image"].(string)
	}
	ip := kube.String(o, "status", "podIP")
	if !p.Ready || ip == "" {
		return p
	}
	body, err := load.Get(ctx, "http://"+ip+":8080/"+startsFile)
	if err != nil {
		p.Lines = []string{"no answer: " + err.Error()}
		return p
	}
	p.Lines = strings.Split(strings.TrimSuffix(body, "\n"), "\n")
	return p
}

func (l *rbdLab) create(ctx context.Context, x rollout) error {
	f, err := l.manifest(x.version)
	if err != nil {
		return err
	}
	if _, err := l.kubectl(ctx, create, "create", "--filename="+f, "--record", "--save-config"); err != nil {
		return err
	}
	l.images = map[string]string{}
	for i := range replicas {
		name := fmt.Sprintf("%s-%d", set, i)
		if err := l.image(ctx, name); err != nil {
			return err
		}
	}
	l.watch = startWatch(ctx, l.r, l.images)
	return nil
}

// image finds the image that was provisioned for a pod's claim.
func (l *rbdLab) image(ctx context.Context, name string) error {
	claim := "data-" + name
	o, err := l.c.Client.WaitFor(ctx, kube.PersistentVolumeClaims, ns, claim, rolloutBound, "is bound", func(o *kube.Object) (bool, error) {
		return kube.String(o, "status", "phase") == "Bound", nil
	})
	if err != nil {
		return err
	}
	volume, err := l.c.Client.Get(ctx, kube.GVR{Version: "v1", Resource: "persistentvolumes"}, "", kube.String(o, "spec", "volumeName"))
	if err != nil {
		return err
	}
	image := kube.String(volume, "spec", "rbd", "image")
	if image == "" {
		return fmt.Errorf("the volume of claim %s has no RBD image", claim)
	}
	l.images[name] = image
	l.e.Record(claimed{Pod: name, Image: image})
	return nil
}

func (l *rbdLab) apply(ctx context.Context, x rollout) error {
	f, err := l.manifest(x.version)
	if err != nil {
		return err
	}
	_, err = l.kubectl(ctx, applied, "apply", "--filename="+f, "--record")
	return err
}

func (l *rbdLab) patch(ctx context.Context, x rollout) error {
	o, err := l.c.Client.Get(ctx, kube.StatefulSets, ns, set)
	if err != nil {
		return err
	}
	kind, body, err := imagePatch(x.by, o, node.WebImage(x.version))
	if err != nil {
		return err
	}
	return l.ask(ctx, x.by, http.MethodPatch, "/apis/apps/v1/namespaces/"+ns+"/statefulsets/"+set, kind, body)
}

func (l *rbdLab) undo(ctx context.Context, x rollout) error {
	if x.by == undoneTo {
		_, err := l.kubectl(ctx, undoneTo, "rollout", "undo", "statefulset/"+set, "--to-revision="+l.revision)
		return err
	}
	out, err := l.kubectl(ctx, histories, "rollout", "history", "statefulset/"+set)
	if err != nil {
		return err
	}
	l.revision = newest(out) // it has v1, to which the last undo goes back
	_, err = l.kubectl(ctx, undone, "rollout", "undo", "statefulset/"+set)
	return err
}

// end has the last pods let go of their images, and looks what these hold.
func (l *rbdLab) end(ctx context.Context) error {
	if _, err := l.kubectl(ctx, scaled, "scale", "statefulset/"+set, "--replicas=0"); err != nil {
		return err
	}
	if _, err := l.c.Client.WaitList(ctx, kube.Pods, ns, "app="+set, rolloutBound, "are gone", func(pods []kube.Object) (bool, error) { return len(pods) == 0, nil }); err != nil {
		return err
	}
	for _, name := range podNames() {
		s, err := l.r.Until(ctx, l.images[name], atEnd, freeBound, rbdlab.FreeUnlocked)
		if err != nil {
			return err
		}
		if !rbdlab.FreeUnlocked(s) {
			continue // what is open is not read
		}
		if _, err := l.r.Contents(ctx, l.images[name], atEnd, startsFile); err != nil {
			return err
		}
	}
	return l.looked(ctx)
}

// looked records what was seen of the images and the events all the time.
func (l *rbdLab) looked(ctx context.Context) error {
	l.watch.stop()
	for _, o := range l.watch.held {
		l.e.Record(o)
	}
	l.e.Record(l.watch.how)
	return l.events(ctx)
}

// events records those about the pods' volumes that tell of a wait.
func (l *rbdLab) events(ctx context.Context) error {
	events, err := l.c.Client.List(ctx, kube.Events, ns, "")
	if err != nil {
		return err
	}
	var o waits
	for i := range events {
		ev := &events[i]
		text := kube.String(ev, "message")
		if !has(text, waitTexts) {
			continue
		}
		first, err1 := time.Parse(time.RFC3339, kube.String(ev, "firstTimestamp"))
		last, err2 := time.Parse(time.RFC3339, kube.String(ev, "lastTimestamp"))
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("event of %s: %w", kube.String(ev, "involvedObject", "name"), err)
		}
		o.All = append(o.All, waited{Pod: kube.String(ev, "involvedObject", "name"), UID: kube.String(ev, "involvedObject", "uid"), Text: text,
			Count: kube.Int(ev, "count"), First: first, Last: last})
	}
	l.e.Record(o)
	return nil
}
