// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package patcherrors is the lab of the fix patch-errors: what the kube-apiserver
// answers to bad patches, and whom a rollback reaches.
package patcherrors

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
)

const (
	base = "v1.9.11"
	ns   = "default"
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "patch-errors",
		Summary: "a bad patch gets 500 or makes the kube-apiserver exit; a rollback reaches a Deployment that RBAC does not allow",
		Needs: []labkit.Binary{
			labkit.BinaryUnderTest(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
			labkit.StockBinary(base, "kubectl"),
		},
		Steps:  steps,
		Oracle: oracle,
		Test:   []labkit.Variant{labkit.Ours},
	}}
}

// A Deployment without replicas has revisions all the same.
const deployment = `
apiVersion: extensions/v1beta1
kind: Deployment
metadata: {name: %s}
spec:
  replicas: 0
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: c, image: "example.com/c:v1"}]}
`

const role = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: deployer, namespace: default}
rules:
- {apiGroups: [extensions, apps], resources: [deployments/rollback], resourceNames: [d1], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: deployer, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: deployer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: deployer}]
`

type lab struct {
	e     *labkit.Env
	c     *node.Cluster
	users map[string]*kube.Client
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	return []labkit.Step{
		{Text: "start etcd, the kube-apiserver under test and a stock kube-controller-manager", Do: l.start},
		{Text: fmt.Sprintf("create the Deployments d1 and d2 with two revisions, and a user %s who may create the rollback of d1", deployer), Do: l.create},
		{Text: fmt.Sprintf("send %d patches of d1, good and bad, of three content types", len(patches)), Do: l.patch},
		{Text: "send a JSON patch that does not apply with kubectl v1.9.11, and record what kubectl prints", Do: l.kubectl},
		{Text: fmt.Sprintf("send %d rollbacks in each of %d API versions, with equal and with different names in URL and body", len(rollbacks), len(versions)), Do: l.rollback},
		labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }),
		{Text: fmt.Sprintf("send %d patches that make stock exit, and check that the kube-apiserver runs; start it again if it does not", len(fatals)), Do: l.fatal},
		{Text: "check that etcd runs", Do: func(context.Context) error { return process.AllAlive(l.c.Etcd.Proc) }},
	}
}

func (l *lab) start(ctx context.Context) (err error) {
	l.c, err = l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: l.e.UnderTest(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: l.e.Stock(base, "kube-controller-manager")},
	})
	if err != nil {
		return err
	}
	pki, err := l.e.GetPKI()
	if err != nil {
		return err
	}
	cert, err := pki.Issue(deployer, deployer, nil)
	if err != nil {
		return err
	}
	limited, err := kube.NewClientForConfig(&rest.Config{Host: l.c.Client.URL, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(pki.Dir, "ca.crt"), CertFile: cert.CertFile, KeyFile: cert.KeyFile}})
	l.users = map[string]*kube.Client{admin: l.c.Client, deployer: limited}
	return err
}

func (l *lab) create(ctx context.Context) error {
	if _, err := l.c.Client.CreateYAML(ctx, ns, fmt.Sprintf(deployment, "d1")+"---"+fmt.Sprintf(deployment, "d2")+"---"+role); err != nil {
		return err
	}
	for _, d := range []string{"d1", "d2"} {
		if err := l.observed(ctx, d, "v1"); err != nil {
			return err
		}
		if err := l.second(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// image is that of a Deployment's template.
func image(d *kube.Object) string {
	cs := kube.Slice(d, "spec", "template", "spec", "containers")
	if len(cs) != 1 {
		return ""
	}
	s, _ := cs[0].(map[string]any)["image"].(string)
	return s
}

// observed waits until the controller manager has dealt with the template of that tag.
func (l *lab) observed(ctx context.Context, name, tag string) error {
	_, err := l.c.Client.WaitFor(ctx, kube.Deployments, ns, name, 30*time.Second, "is observed with "+tag, func(d *kube.Object) (bool, error) {
		return image(d) == "example.com/c:"+tag && kube.Field(d, "spec", "rollbackTo") == nil &&
			kube.Int(d, "metadata", "generation") == kube.Int(d, "status", "observedGeneration") &&
			d.GetAnnotations()["deployment.kubernetes.io/revision"] != "", nil
	})
	return err
}

// second gives a Deployment its template v2, so that a rollback leads to v1.
func (l *lab) second(ctx context.Context, name string) error {
	if _, err := l.c.Client.PatchStrategic(ctx, kube.Deployments, ns, name, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"example.com/c:v2"}]}}}}`); err != nil {
		return err
	}
	return l.observed(ctx, name, "v2")
}

const path = "/namespaces/" + ns + "/deployments/"

func (l *lab) patch(ctx context.Context) error {
	for _, p := range patches {
		code, body, err := l.c.Client.Raw(ctx, http.MethodPatch, "/apis/extensions/v1beta1"+path+"d1", p.Type, []byte(p.Body))
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		l.e.Step("%s: %d", p.Name, code)
		l.e.Record(answered{Patch: p.Name, Code: code, Body: string(body)})
	}
	return nil
}

func (l *lab) kubectl(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, l.e.Stock(base, "kubectl").Path, "--kubeconfig="+l.c.APIServer.AdminKubeconfig,
		"--namespace="+ns, "patch", "deployment", "d1", "--type=json", "--patch="+kubectlPatch)
	cmd.Env = []string{"HOME=" + l.e.Path("home")} // kubectl keeps a cache there
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || ctx.Err() != nil {
		return fmt.Errorf("kubectl patch: %w", err)
	}
	l.e.Step("kubectl: %s", bytes.TrimSpace(out))
	l.e.Record(printed{Exit: cmd.ProcessState.ExitCode(), Output: string(out)})
	return nil
}

func (l *lab) rollback(ctx context.Context) error {
	for _, v := range versions {
		for _, r := range rollbacks {
			body := fmt.Sprintf(`{"kind":"DeploymentRollback","apiVersion":%q,"name":%q,"rollbackTo":{"revision":0}}`, v, r.Body)
			o := rolledBack{Version: v, Rollback: r}
			code, answer, err := l.users[r.User].Raw(ctx, http.MethodPost, "/apis/"+v+path+r.URL+"/rollback", "application/json", []byte(body))
			if err != nil {
				return err
			}
			o.Code, o.Body = code, string(answer)
			if code/100 == 2 {
				if err := l.observed(ctx, r.Body, "v1"); err != nil {
					return fmt.Errorf("the rollback to URL %s with body %s answered %d: %w", r.URL, r.Body, code, err)
				}
			}
			for _, d := range []string{"d1", "d2"} {
				is, err := l.c.Client.Get(ctx, kube.Deployments, ns, d)
				if err != nil {
					return err
				}
				if image(is) != "example.com/c:v2" || kube.Field(is, "spec", "rollbackTo") != nil {
					o.Reached = append(o.Reached, d)
				}
			}
			l.e.Step("%s: rollback by %s, URL %s, body %s: %d, reached %v", v, r.User, r.URL, r.Body, code, o.Reached)
			l.e.Record(o)
			for _, d := range slices.Clone(o.Reached) {
				if err := l.second(ctx, d); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (l *lab) fatal(ctx context.Context) error {
	for _, p := range fatals {
		o := fatally{Patch: p.Name}
		code, body, err := l.c.Client.Raw(ctx, http.MethodPatch, "/apis/extensions/v1beta1"+path+"d1", p.Type, []byte(p.Body))
		if err == nil {
			o.Code, o.Body = code, string(body)
		} else {
			l.e.Step("%s was not answered: %v", p.Name, err)
		}
		select {
		case <-l.c.APIServer.Done():
			o.Ended = true
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		if o.Ended {
			err = l.e.RestartAPIServer(ctx, l.c.APIServer)
		} else {
			o.Later, _, err = l.c.Client.Raw(ctx, http.MethodGet, "/healthz", "", nil)
		}
		if err != nil {
			return err
		}
		l.e.Step("%s: %d, the kube-apiserver ended: %v", p.Name, o.Code, o.Ended)
		l.e.Record(o)
	}
	return nil
}
