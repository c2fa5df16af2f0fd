// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"

	"holdfast/tools/build/exit"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/metrics"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/sweep"
	"holdfast/tools/labkit/wait"
)

const (
	address   = "127.0.0.1:9943"
	optedIn   = `{"metadata":{"labels":{"holdfast/endpoints-rules":"enabled"}}}`
	breakerID = "lab"
	account   = "system:serviceaccount:endpoints-rules:endpoints-rules"
)

// program is endpoints-rules, as its own manifests install it: the lab starts the
// processes of the DaemonSet, as the user of its service account.
type program struct {
	e *labkit.Env
	c *node.Cluster
	// dir has the manifests, and the files of the Secret.
	dir string
	// pod is the text of the DaemonSet, webhook that of the webhook configuration.
	pod, webhook []byte
	spec         process.Process
	listen       string
	breaker      process.Process
	tls          *tls.Config
	// run is the program, guard its breaker.
	run, guard *process.Proc
}

// write has the program write its manifests, and reads what the lab needs of them.
func write(ctx context.Context, e *labkit.Env, c *node.Cluster, image, ruleSet string, more ...string) (*program, error) {
	p := &program{e: e, c: c, dir: e.Path("manifests"), listen: address}
	if _, err := os.Stat(binary(e)); err != nil {
		return nil, exit.Preconditionf("%v: run make endpoints-rules", err)
	}
	args := append([]string{"manifests", "--image=" + image, "--rule-set=" + ruleSet, "--output=" + p.dir}, more...)
	if out, err := exec.CommandContext(ctx, binary(e), args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("endpoints-rules manifests: %w\n%s", err, out)
	}
	for n, into := range map[string]*[]byte{programFile: &p.pod, webhookFile: &p.webhook} {
		var err error
		if *into, err = os.ReadFile(p.file(n)); err != nil {
			return nil, err
		}
	}
	text, err := os.ReadFile(p.file("40-certificate.yaml"))
	if err != nil {
		return nil, err
	}
	if err := p.certificate(text); err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(p.file("ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("the manifests' ca.crt has no certificate")
	}
	p.tls = &tls.Config{RootCAs: pool}
	return p, nil
}

// binary is the program.
func binary(e *labkit.Env) string {
	return filepath.Join(e.Root, "_output", "bin", "endpoints-rules")
}

// Files of the manifests.
const (
	programFile   = "50-program.yaml"
	webhookFile   = "60-webhook.yaml"
	kustomizeFile = "kustomization.yaml"
)

// prepare applies what the program writes for itself, but for the DaemonSet and the webhook
// configuration, and has the namespaces opt in.
func prepare(ctx context.Context, e *labkit.Env, c *node.Cluster, ruleSet string, namespaces ...string) (*program, error) {
	p, err := write(ctx, e, c, "none", ruleSet)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(p.file("*.yaml")) // in the order to apply them in
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		switch filepath.Base(f) {
		case kustomizeFile, programFile, webhookFile:
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		if _, err := c.Client.CreateYAML(ctx, ns, string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
	}
	for _, name := range namespaces {
		if _, err := c.Client.PatchMerge(ctx, kube.Namespaces, "", name, optedIn); err != nil {
			return nil, err
		}
	}
	pki, err := e.GetPKI()
	if err != nil {
		return nil, err
	}
	conf, err := pki.Kubeconfig("endpoints-rules", c.APIServer.URL, account)
	if err != nil {
		return nil, err
	}
	p.spec = p.process("endpoints-rules", binary(e), conf)
	p.breaker = process.Process{Name: "breaker", Component: sweep.Breaker, Path: binary(e), Args: []string{"breaker", "--kubeconfig=" + conf, "--id=" + breakerID,
		"--url=https://" + address + "/healthz", "--ca-file=" + p.file("ca.crt")}}
	return p, nil
}

// process is the program with a kubeconfig.
func (p *program) process(name, file, conf string) process.Process {
	return process.Process{Name: name, Component: sweep.Webhook, Path: file, HealthURL: "https://" + p.listen + "/readyz", HealthTLS: p.tls,
		Args: []string{"serve", "--kubeconfig=" + conf, "--namespace=endpoints-rules", "--rules-configmap=endpoints-rules/endpoints-rules", "--listen=" + p.listen,
			"--tls-cert-file=" + p.file("tls.crt"), "--tls-private-key-file=" + p.file("tls.key"), "--log-level=debug"}}
}

func (p *program) file(name string) string { return filepath.Join(p.dir, name) }

// install starts the program and its breaker and has the API server call it about the
// Endpoints of that name in the namespace ns.
func (p *program) install(ctx context.Context, endpoints string) error {
	if err := p.serve(ctx); err != nil {
		return err
	}
	var err error
	if p.guard, err = p.e.Start(ctx, p.breaker); err != nil {
		return err
	}
	return p.configure(ctx, endpoints)
}

// configure makes the webhook configuration and waits until the API server calls.
func (p *program) configure(ctx context.Context, endpoints string) error {
	if _, err := p.c.Client.CreateYAML(ctx, ns, string(p.webhook)); err != nil {
		return err
	}
	return p.called(ctx, endpoints)
}

func (p *program) serve(ctx context.Context) (err error) {
	p.run, err = p.e.Start(ctx, p.spec)
	return err
}

func (p *program) metrics(ctx context.Context) (metrics.Page, error) {
	return metrics.GetTLS(ctx, "https://"+p.listen+"/metrics", p.tls)
}

// certificate writes the files of the Secret.
func (p *program) certificate(text []byte) error {
	var secret struct {
		Data map[string]string `json:"data"`
	}
	if err := yaml.Unmarshal(text, &secret); err != nil {
		return err
	}
	for n, v := range secret.Data {
		raw, err := base64.StdEncoding.DecodeString(v)
		if err != nil {
			return err
		}
		if err := os.WriteFile(p.file(n), raw, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// called proves that the API server asks the program: it learns of a new webhook
// within seconds.
func (p *program) called(ctx context.Context, endpoints string) error {
	before, known := 0.0, false
	return wait.Until(ctx, "the API server calls the webhook", time.Minute, func(ctx context.Context) (bool, error) {
		if !known {
			page, err := p.metrics(ctx)
			if err != nil {
				return false, err
			}
			before, _ = page.Sum("endpoints_rules_requests_total")
			known = true
		}
		if _, err := p.c.Client.PatchMerge(ctx, kube.Endpoints, ns, endpoints, fmt.Sprintf(`{"metadata":{"labels":{"lab":"n%d"}}}`, time.Now().UnixNano())); err != nil {
			return false, err
		}
		page, err := p.metrics(ctx)
		if err != nil {
			return false, err
		}
		asked, _ := page.Sum("endpoints_rules_requests_total")
		return asked > before, nil
	})
}

var configurations = kube.GVR{Group: "admissionregistration.k8s.io", Version: "v1beta1", Resource: "mutatingwebhookconfigurations"}

// webhooks waits until the configuration has so many, and says how long that took.
func (p *program) webhooks(ctx context.Context, n int, bound time.Duration) (time.Duration, error) {
	begin := time.Now()
	_, err := p.c.Client.WaitFor(ctx, configurations, "", "endpoints-rules", bound, fmt.Sprintf("has %d webhooks", n), func(o *kube.Object) (bool, error) {
		return len(kube.Slice(o, "webhooks")) == n, nil
	})
	if err != nil {
		return 0, err
	}
	return time.Since(begin), nil
}
