// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kcmswap is the lab kcm-swap: kubectl-holdfast swaps a controller manager that runs as a
// static pod, and puts it back. See tools/labs/checks/kcm-swap/README.md.
package kcmswap

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/metrics"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

const (
	base = "v1.9.11"
	ns   = "default"
	// made is how many pods each leader is asked for.
	made = 5
	// patience is for a kubelet that looks at its manifests each 20 s, a lease of 15 s that runs
	// out, and a busy machine.
	patience = 3 * time.Minute
	image    = "holdfast.test/kube-controller-manager:v1.9.11"
)

// shapes are the command lines of the manifests: kubeadm's, and that of an image of hyperkube.
var shapes = []struct {
	name    string
	command []string
}{
	{"kubeadm", []string{"kube-controller-manager"}},
	{"hyperkube", []string{"/hyperkube", "controller-manager"}},
}

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:     "kcm-swap",
		Folder:   "checks/kcm-swap",
		Summary:  "kubectl-holdfast checks and swaps a controller manager 1.9.11 that is a static pod, waits until it leads, and goes back",
		Variants: []labkit.Variant{labkit.Ours},
		Needs:    labkit.ManagerNeeds(base, labkit.StockBinary(base, "kube-controller-manager"), labkit.StockBinary(base, "kubelet")),
		Steps:    steps,
		Oracle: labkit.Oracle{Text: []string{
			"after each command the expected controller manager leads and creates pods; after a STOP the same process still runs",
			"a Deployment and a StatefulSet from before the swap get no new pod and no new ReplicaSet",
		}, Judge: judge},
		Timeout: func(labkit.Profile) time.Duration { return 15 * time.Minute },
	}}
}

type lab struct {
	e          *labkit.Env
	holdfast   string // the program
	c          *node.Cluster
	kubeconfig string
	owned      bool // owners are made
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	s := []labkit.Step{{Text: "start etcd and kube-apiserver v1.9.11, and a stock kubelet with an empty manifests folder", Do: l.start}}
	for _, shape := range shapes {
		does := func(stage, text string, do func(context.Context, string) error) labkit.Step {
			return labkit.Step{Text: shape.name + ": " + text, Do: func(ctx context.Context) error {
				if err := do(ctx, shape.name); err != nil {
					return err
				}
				return l.look(ctx, shape.name, stage)
			}}
		}
		s = append(s,
			does(started, "write the manifest of a stock controller manager; a Deployment and a StatefulSet", func(ctx context.Context, _ string) error { return l.begin(ctx, shape.command) }),
			does(refused, "put a flag that no release has into the manifest: kcm check and kcm manifest must stop", l.refuse),
			does(swapped, "kcm check, kcm manifest, kcm wait --another", func(ctx context.Context, shape string) error { return l.swap(ctx, shape, swapped) }),
			does(back, "the same with --back", func(ctx context.Context, shape string) error { return l.swap(ctx, shape, back, "--back") }),
			labkit.Step{Text: shape.name + ": remove the manifest", Do: l.end})
	}
	return append(s, labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }))
}

// new is the controller manager under test.
func (l *lab) new() string { return l.e.UnderTest(base, "kube-controller-manager").Path }

func (l *lab) node() *node.Node { return l.c.Nodes[0] }

// manifest is the static pod's file; the node and the lab see it at one place.
func (l *lab) manifest() string {
	return filepath.Join(l.node().Dir, "manifests", "kube-controller-manager.yaml")
}

func (l *lab) start(ctx context.Context) error {
	var err error
	if l.holdfast, err = l.e.Holdfast(); err != nil {
		return err
	}
	// A controller manager does not mind a word before its flags, so it stands in for hyperkube.
	stock := l.e.Stock(base, "kube-controller-manager").Path
	if l.c, err = l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: l.e.Stock(base, "kube-apiserver")},
		Nodes: []node.Config{{Name: "master1", Kubelet: l.e.Stock(base, "kubelet"), Images: []node.Image{{
			Ref: image, Program: stock, Path: "/usr/local/bin/kube-controller-manager", Files: map[string]string{"/hyperkube": stock}, Env: []string{"PATH=/usr/local/bin"},
		}}}},
	}); err != nil {
		return err
	}
	pki, err := l.e.GetPKI()
	if err != nil {
		return err
	}
	l.kubeconfig, err = pki.Kubeconfig("admin", l.c.APIServer.URL, "admin", "system:masters")
	return err
}

// begin writes the manifest as kubeadm does, and makes what must not be rolled.
func (l *lab) begin(ctx context.Context, command []string) error {
	pki, err := l.e.GetPKI()
	if err != nil {
		return err
	}
	conf, err := pki.Kubeconfig("kube-controller-manager", l.c.APIServer.URL, "system:kube-controller-manager")
	if err != nil {
		return err
	}
	type object = map[string]any
	pod := object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": "kube-controller-manager", "namespace": "kube-system", "creationTimestamp": nil, "labels": object{"component": "kube-controller-manager", "tier": "control-plane"}},
		"spec": object{
			"hostNetwork": true,
			"containers": []any{object{
				"name": "kube-controller-manager", "image": image, "imagePullPolicy": "IfNotPresent",
				"command": append(append([]string{}, command...), "--kubeconfig="+conf, "--address=0.0.0.0", "--leader-elect=true", "--use-service-account-credentials=true",
					"--service-account-private-key-file="+pki.SAKeyFile, "--root-ca-file="+pki.CAFile, "--controllers=*,bootstrapsigner,tokencleaner"),
				"volumeMounts": []any{object{"name": "pki", "mountPath": pki.Dir, "readOnly": true}},
			}},
			"volumes": []any{object{"name": "pki", "hostPath": object{"path": pki.Dir}}},
		},
		"status": object{},
	}
	text, err := yaml.Marshal(pod)
	if err != nil {
		return err
	}
	if err := l.node().WriteManifest("kube-controller-manager", text); err != nil {
		return err
	}
	if err := wait.Until(ctx, "the controller manager answers", patience, func(ctx context.Context) (bool, error) {
		_, err := l.page(ctx)
		return err == nil, err
	}); err != nil || l.owned {
		return err
	}
	if err := l.c.Client.WaitPodsAdmitted(ctx, ns, patience); err != nil {
		return err
	}
	for _, text := range owners {
		if _, err := l.c.Client.CreateYAML(ctx, ns, text); err != nil {
			return err
		}
	}
	l.owned = true
	return nil
}

// owners are what a swap must not roll; no node takes their pods.
var owners = []string{`
apiVersion: apps/v1
kind: Deployment
metadata: {name: kept-deployment}
spec:
  replicas: 3
  selector: {matchLabels: {app: kept}}
  template:
    metadata: {labels: {app: kept}}
    spec: {nodeSelector: {none: none}, containers: [{name: app, image: none}]}
`, `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: kept-statefulset}
spec:
  replicas: 1
  serviceName: kept
  selector: {matchLabels: {app: kept-too}}
  template:
    metadata: {labels: {app: kept-too}}
    spec: {nodeSelector: {none: none}, containers: [{name: app, image: none}]}
`}

// page is /metrics of the controller manager that runs.
func (l *lab) page(ctx context.Context) (metrics.Page, error) {
	return metrics.Get(ctx, "http://"+l.node().IP+":10252/metrics")
}

// run runs the program on the node with -o json, and returns its status and the codes of its findings.
func (l *lab) run(ctx context.Context, args ...string) (status int, codes []string, err error) {
	args = append([]string{"kcm"}, append(args, "-o", "json")...)
	if args[1] != "manifest" {
		args = append(args, "--kubeconfig", l.kubeconfig)
	}
	out, err := l.node().Output(ctx, l.holdfast, args...)
	l.e.Logf("kubectl-holdfast %s: %v\n%s", strings.Join(args, " "), err, out)
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		status, err = failed.ExitCode(), nil
	}
	for line := range strings.Lines(out) {
		var o struct{ Kind, Code string }
		if json.Unmarshal([]byte(line), &o) == nil && o.Kind == "finding" {
			codes = append(codes, o.Code)
		}
	}
	return status, codes, err
}

// refuse tries a swap that must not be done, and puts the manifest back.
func (l *lab) refuse(ctx context.Context, shape string) error {
	before, err := os.ReadFile(l.manifest())
	if err != nil {
		return err
	}
	// Outside of the manifests folder: a kubelet must not see it.
	file := filepath.Join(l.node().Dir, "refused", "kube-controller-manager.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	bad := strings.Replace(string(before), "--leader-elect=true", "--no-such-flag=true", 1)
	if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
		return err
	}
	for _, what := range []string{"check", "manifest"} {
		a := answered{Shape: shape, Stage: refused, What: what}
		if a.Status, a.Codes, err = l.run(ctx, what, file, "--binary", l.new()); err != nil {
			return err
		}
		after, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		a.Changed = string(after) != bad
		l.e.Record(a)
	}
	return nil
}

func (l *lab) swap(ctx context.Context, shape, stage string, more ...string) error {
	before, err := os.ReadFile(l.manifest())
	if err != nil {
		return err
	}
	for _, what := range []string{"check", "manifest", "wait"} {
		args := append([]string{what, l.manifest(), "--binary", l.new()}, more...)
		if what == "wait" {
			args = []string{what, "--another", "--timeout", patience.String()}
		}
		a := answered{Shape: shape, Stage: stage, What: what}
		if a.Status, a.Codes, err = l.run(ctx, args...); err != nil {
			return err
		}
		after, err := os.ReadFile(l.manifest())
		if err != nil {
			return err
		}
		a.Changed = string(after) != string(before)
		l.e.Record(a)
	}
	return nil
}

// look asks the controller manager that runs what it is, and has it make pods.
func (l *lab) look(ctx context.Context, shape, stage string) error {
	o := ran{Shape: shape, Stage: stage}
	p, err := l.page(ctx)
	if err != nil {
		return err
	}
	for _, m := range p["kubernetes_build_info"].GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() == "gitVersion" {
				o.Version = label.GetValue()
			}
		}
	}
	o.Started, _ = p.Sum("process_start_time_seconds")
	name := shape + "-" + stage
	if err := l.c.Client.Make(ctx, ns, kube.PendingReplicaSet(name, made)); err != nil {
		return err
	}
	if _, err := l.c.Client.WaitList(ctx, kube.Pods, ns, "app="+name, patience, "made", func(pods []kube.Object) (bool, error) {
		o.Made = len(pods)
		return wait.AtLeast(o.Made, made)
	}); err != nil && ctx.Err() != nil {
		return err
	}
	if o.Kept, err = l.kept(ctx); err != nil {
		return err
	}
	l.e.Record(o)
	return nil
}

// kept are the UIDs of the pods, and ReplicaSets, of owners, when all are there.
func (l *lab) kept(ctx context.Context) (uids []string, err error) {
	sets, err := l.c.Client.WaitList(ctx, kube.ReplicaSets, ns, "app=kept", patience, "there", func(sets []kube.Object) (bool, error) { return len(sets) > 0, nil })
	if err != nil {
		return nil, err
	}
	pods, err := l.c.Client.WaitList(ctx, kube.Pods, ns, "app in (kept, kept-too)", patience, "there", func(pods []kube.Object) (bool, error) {
		return wait.AtLeast(len(pods), 4)
	})
	for _, o := range append(sets, pods...) {
		uids = append(uids, o.GetName()+" "+string(o.GetUID()))
	}
	return uids, err
}

// end takes the manifest out, and what was made.
func (l *lab) end(ctx context.Context) error {
	if err := os.Remove(l.manifest()); err != nil {
		return err
	}
	return wait.Until(ctx, "the controller manager is gone", patience, func(ctx context.Context) (bool, error) {
		if _, err := l.page(ctx); err == nil {
			return false, errors.New("it answers")
		}
		left, err := l.node().Docker.PodContainers(ctx, "kube-system", "kube-controller-manager-master1", false)
		return err == nil && len(left) == 0, err
	})
}
