// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rollingupdates has the checks rolling-updates and rolling-updates-rbd: every way in
// which a client of 1.9 rolls out and rolls back works in every variant, under load, and with
// volumes.
package rollingupdates

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

const (
	base     = "v1.9.11"
	ns       = "default"
	replicas = 3
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{rollingUpdatesLab(), withRBD()}
}

func rollingUpdatesLab() labkit.Lab {
	return labkit.Lab{
		Name:    "rolling-updates",
		Folder:  "checks/rolling-updates",
		Summary: "rolling updates through the API and kubectl v1.9.11: ReplicationController, Deployment, three patches, undo, rollback; no request fails",
		Steps:   steps,
		Oracle:  oracle,
		Timeout: func(labkit.Profile) time.Duration { return 20 * time.Minute },
		Needs: []labkit.Binary{
			labkit.BinaryUnderTest(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-scheduler"),
			labkit.StockBinary(base, "kubectl"),
			labkit.BinaryUnderTest(base, "kube-controller-manager"),
			labkit.BinaryUnderTest(base, "kubelet"),
		},
	}
}

type lab struct {
	e *labkit.Env
	c *node.Cluster
	// load is on the Endpoints of one Service; app is its name and its label.
	load *load.Load
	eps  *kube.Recorder
	app  string
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	return []labkit.Step{
		{Text: "start etcd, kube-apiserver, kube-scheduler, kube-controller-manager and a node with the kubelet", Do: l.start},
		{Text: "create a ReplicationController of 3 replicas with a Service, and send requests to its Endpoints' addresses", Do: l.createRC},
		{Text: "kubectl rolling-update to v2", Do: l.rollRC},
		{Text: "kubectl rolling-update to v1, killed half-way; a rolling-update to another image is refused; the same command, run again, completes", Do: l.resumeRC},
		{Text: "stop the load; start a load on a Deployment, created by kubectl create --record", Do: l.createDeployment},
		{Text: "kubectl apply --record of v2, and rollout status", Do: l.apply},
		{Text: "PATCH of the image by a strategic merge patch, a merge patch and a JSON patch", Do: l.patch},
		{Text: "kubectl rollout history, undo, and undo to revision 2's template", Do: l.undo},
		{Text: "POST to the rollback subresource, and check its answer", Do: l.rollback},
		{Text: "stop the load", Do: l.endLoad},
		labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }),
	}
}

func (l *lab) start(ctx context.Context) (err error) {
	l.c, err = l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: l.e.UnderTest(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: l.e.UnderTest(base, "kube-controller-manager")},
		Scheduler:         &kube.SchedulerConfig{Program: l.e.Stock(base, "kube-scheduler")},
		Nodes:             []node.Config{{Name: "node1", Kubelet: l.e.UnderTest(base, "kubelet")}},
	})
	return err
}

// template is a pod template of an app. The termination delay lets requests in
// flight be served, as a careful application does.
const template = `
  template:
    metadata: {labels: {app: %s}}
    spec:
      terminationGracePeriodSeconds: 20
      containers:
      - name: web
        image: %s
        imagePullPolicy: IfNotPresent
        env: [{name: LABPOD_TERM_DELAY, value: 5s}]
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
`

func manifest(kind, app, tag string) string {
	if kind == "ReplicationController" {
		return fmt.Sprintf("apiVersion: v1\nkind: %s\nmetadata: {name: %s}\nspec:\n  replicas: %d\n  selector: {app: %[2]s}", kind, app, replicas) + fmt.Sprintf(template, app, node.WebImage(tag))
	}
	return fmt.Sprintf("apiVersion: extensions/v1beta1\nkind: %s\nmetadata: {name: %s}\nspec:\n  replicas: %d\n"+
		"  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}", kind, app, replicas) + fmt.Sprintf(template, app, node.WebImage(tag))
}

// begin makes the Service of app and starts the load on it, when v1 is served.
func (l *lab) begin(ctx context.Context, app string) (err error) {
	l.app = app
	if err := l.c.Client.Make(ctx, ns, kube.Service(app, app, 8080)); err != nil {
		return err
	}
	if err := l.serves(ctx, "v1"); err != nil {
		return err
	}
	if l.eps, err = l.c.Client.Record(ctx, kube.Endpoints, ns); err != nil {
		return err
	}
	l.load = load.Start(ctx, load.Config{Targets: func() []string {
		if ep := l.eps.Latest(ns, app); ep != nil {
			return kube.ReadyAddresses(ep)
		}
		return nil
	}})
	return nil
}

func (l *lab) endLoad(context.Context) error {
	r := l.load.Stop()
	l.eps.Stop()
	l.e.Step("load on %s: %v", l.app, r)
	l.e.Record(loaded{App: l.app, Load: r, Gaps: l.eps.Gaps()})
	return nil
}

// serves records what is served, once it is that version or the bound is over.
func (l *lab) serves(ctx context.Context, version string) error {
	o := served{App: l.app, Version: version}
	err := wait.Until(ctx, l.app+" serves "+version, 3*time.Minute, func(ctx context.Context) (bool, error) {
		pods, err := l.c.Client.List(ctx, kube.Pods, ns, "app="+l.app)
		if err != nil {
			return false, err
		}
		o.Images = nil
		for i := range pods {
			for _, c := range kube.Slice(&pods[i], "spec", "containers") {
				image, _ := c.(map[string]any)["image"].(string)
				o.Images = append(o.Images, image)
			}
		}
		ep, err := l.c.Client.Get(ctx, kube.Endpoints, ns, l.app)
		if err != nil {
			return false, err
		}
		o.Answers = nil
		for _, a := range kube.ReadyAddresses(ep) {
			body, err := load.Get(ctx, "http://"+a+"/")
			if err != nil {
				body = err.Error()
			}
			o.Answers = append(o.Answers, strings.TrimSpace(body))
		}
		if fault := o.fault(); fault != "" {
			return false, errors.New(fault)
		}
		return true, nil
	})
	if ctx.Err() != nil {
		return err
	}
	l.e.Record(o)
	if o.fault() != "" {
		l.e.Step("%s", o.fault())
		return labkit.Enough
	}
	l.e.Step("3 pods serve %s", version)
	return nil
}

func (l *lab) command(ctx context.Context, args ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(ctx, l.e.Stock(base, "kubectl").Path, append([]string{"--kubeconfig=" + l.c.APIServer.AdminKubeconfig, "--namespace=" + ns}, args...)...)
	cmd.Env = []string{"HOME=" + l.e.Path("home")} // kubectl keeps a cache there
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

// kubectl runs one, and records how it ends under that name.
func (l *lab) kubectl(ctx context.Context, name string, args ...string) (string, error) {
	cmd, out := l.command(ctx, args...)
	if err := cmd.Run(); cmd.ProcessState == nil || ctx.Err() != nil {
		return "", fmt.Errorf("kubectl %s: %w", args[0], err)
	}
	l.e.Step("kubectl %s: status %d", strings.Join(args, " "), cmd.ProcessState.ExitCode())
	l.e.Record(ran{Name: name, Exit: cmd.ProcessState.ExitCode(), Output: out.String()})
	return out.String(), nil
}

func (l *lab) createRC(ctx context.Context) error {
	if _, err := l.c.Client.CreateYAML(ctx, ns, manifest("ReplicationController", "rc", "v1")); err != nil {
		return err
	}
	return l.begin(ctx, "rc")
}

func rolling(tag string) []string {
	return []string{"rolling-update", "rc", "--image=" + node.WebImage(tag), "--update-period=2s", "--poll-interval=1s"}
}

func (l *lab) rollRC(ctx context.Context) error {
	if _, err := l.kubectl(ctx, rollingUpdate, rolling("v2")...); err != nil {
		return err
	}
	return l.serves(ctx, "v2")
}

// controllers are the ReplicationControllers and their replicas.
func (l *lab) controllers(ctx context.Context) (map[string]int64, error) {
	rcs, err := l.c.Client.List(ctx, kube.ReplicationControllers, ns, "")
	out := map[string]int64{}
	for i := range rcs {
		out[rcs[i].GetName()] = kube.Int(&rcs[i], "spec", "replicas")
	}
	return out, err
}

func (l *lab) resumeRC(ctx context.Context) error {
	cmd, out := l.command(ctx, rolling("v1")...)
	if err := cmd.Start(); err != nil {
		return err
	}
	// The wait ends with kubectl: it was to be killed half-way.
	running, end := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		err := cmd.Wait()
		end(fmt.Errorf("kubectl ended before it was killed: %v: %s", err, out))
		close(ended)
	}()
	var o killed
	err := wait.Until(running, "both ReplicationControllers have replicas", 2*time.Minute, func(ctx context.Context) (bool, error) {
		rcs, err := l.controllers(ctx)
		return err == nil && len(rcs) == 2 && rcs["rc"] > 0 && rcs["rc"] < replicas, err
	})
	if killErr := cmd.Process.Kill(); !errors.Is(killErr, os.ErrProcessDone) {
		err = errors.Join(err, killErr)
	}
	<-ended
	l.e.Step("kubectl said until then: %s", out)
	if err != nil {
		return err
	}
	if o.Replicas, err = l.controllers(ctx); err != nil {
		return err
	}
	l.e.Step("killed with %v", o.Replicas)
	l.e.Record(o)
	if _, err := l.kubectl(ctx, otherImage, rolling("v3")...); err != nil {
		return err
	}
	if _, err := l.kubectl(ctx, resumed, rolling("v1")...); err != nil {
		return err
	}
	if err := l.serves(ctx, "v1"); err != nil {
		return err
	}
	left, err := l.controllers(ctx)
	l.e.Record(finished{Replicas: left})
	return err
}

// file writes the Deployment's manifest.
func (l *lab) file(tag string) (string, error) {
	name := l.e.Path("deployment-" + tag + ".yaml")
	return name, os.WriteFile(name, []byte(manifest("Deployment", "web", tag)), 0o644)
}

func (l *lab) createDeployment(ctx context.Context) error {
	if err := l.endLoad(ctx); err != nil {
		return err
	}
	f, err := l.file("v1")
	if err != nil {
		return err
	}
	if _, err := l.kubectl(ctx, create, "create", "--filename="+f, "--record", "--save-config"); err != nil {
		return err
	}
	return l.begin(ctx, "web")
}

func (l *lab) apply(ctx context.Context) error {
	f, err := l.file("v2")
	if err != nil {
		return err
	}
	if _, err := l.kubectl(ctx, applied, "apply", "--filename="+f, "--record"); err != nil {
		return err
	}
	if _, err := l.kubectl(ctx, status, "rollout", "status", "deployment/web"); err != nil {
		return err
	}
	return l.serves(ctx, "v2")
}

const path = "/apis/extensions/v1beta1/namespaces/" + ns + "/deployments/web"

// ask sends a request and records its answer under that name.
func (l *lab) ask(ctx context.Context, name, method, path, kind, body string) error {
	code, answer, err := l.c.Client.Raw(ctx, method, path, kind, []byte(body))
	if err != nil {
		return err
	}
	l.e.Step("%s: %d", name, code)
	l.e.Record(asked{Name: name, Code: code, Body: string(answer)})
	return nil
}

func (l *lab) patch(ctx context.Context) error {
	d, err := l.c.Client.Get(ctx, kube.Deployments, ns, "web")
	if err != nil {
		return err
	}
	for _, p := range []struct{ name, version string }{{strategic, "v1"}, {mergePatch, "v2"}, {jsonPatch, "v1"}} {
		kind, body, err := imagePatch(p.name, d, node.WebImage(p.version))
		if err != nil {
			return err
		}
		if err := l.ask(ctx, p.name, http.MethodPatch, path, kind, body); err != nil {
			return err
		}
		if err := l.serves(ctx, p.version); err != nil {
			return err
		}
	}
	return nil
}

// imagePatch is the patch of that name, with its content type, that gives the container web
// of an object's template an image.
func imagePatch(name string, o *kube.Object, image string) (kind, body string, err error) {
	switch name {
	case strategic:
		return "application/strategic-merge-patch+json", fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":%q}]}}}}`, image), nil
	case jsonPatch:
		return "application/json-patch+json", fmt.Sprintf(`[{"op":"test","path":"/spec/template/spec/containers/0/name","value":"web"},{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`, image), nil
	case mergePatch:
		// It replaces the list of containers as a whole.
		containers := kube.Slice(o.DeepCopy(), "spec", "template", "spec", "containers")
		containers[0].(map[string]any)["image"] = image
		b, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}})
		return "application/merge-patch+json", string(b), err
	}
	return "", "", fmt.Errorf("no patch %q", name)
}

func (l *lab) undo(ctx context.Context) error {
	out, err := l.kubectl(ctx, histories, "rollout", "history", "deployment/web")
	if err != nil {
		return err
	}
	if _, err := l.kubectl(ctx, undone, "rollout", "undo", "deployment/web"); err != nil {
		return err
	}
	if err := l.serves(ctx, "v2"); err != nil {
		return err
	}
	// The newest revision of the history had v1.
	if _, err := l.kubectl(ctx, undoneTo, "rollout", "undo", "deployment/web", "--to-revision="+newest(out)); err != nil {
		return err
	}
	return l.serves(ctx, "v1")
}

func (l *lab) rollback(ctx context.Context) error {
	if err := l.ask(ctx, rolledBack, http.MethodPost, path+"/rollback", "application/json",
		`{"kind":"DeploymentRollback","apiVersion":"extensions/v1beta1","name":"web","rollbackTo":{"revision":0}}`); err != nil {
		return err
	}
	return l.serves(ctx, "v2")
}
