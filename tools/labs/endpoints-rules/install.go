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

	"holdfast/tools/internal/exit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/metrics"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/webset"
)

const address = "127.0.0.1:9943"

// install applies what the program writes for itself, but for the DaemonSet: the
// lab starts the processes, as the user of the DaemonSet's service account.
func (l *lab) install(ctx context.Context) error {
	file := filepath.Join(l.e.Root, "_output", "bin", "endpoints-rules")
	if _, err := os.Stat(file); err != nil {
		return exit.Preconditionf("%v: run make endpoints-rules", err)
	}
	dir := l.e.Path("manifests")
	if out, err := exec.CommandContext(ctx, file, "manifests", "--image=none", "--rule-set=image-pending", "--output="+dir).CombinedOutput(); err != nil {
		return fmt.Errorf("endpoints-rules manifests: %w\n%s", err, out)
	}
	files, err := os.ReadDir(dir) // in the order to apply them in
	if err != nil {
		return err
	}
	var webhook string
	for _, f := range files {
		n := f.Name()
		text, err := os.ReadFile(filepath.Join(dir, n))
		if err != nil {
			return err
		}
		switch n {
		case "kustomization.yaml", "50-program.yaml":
			continue
		case "60-webhook.yaml":
			webhook = string(text)
			continue
		case "40-certificate.yaml":
			if err := l.certificate(dir, text); err != nil {
				return err
			}
		}
		if _, err := l.c.Client.CreateYAML(ctx, ns, string(text)); err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
	}
	if _, err := l.c.Client.PatchMerge(ctx, kube.Namespaces, "", ns, `{"metadata":{"labels":{"holdfast/endpoints-rules":"enabled"}}}`); err != nil {
		return err
	}
	pki, err := l.e.GetPKI()
	if err != nil {
		return err
	}
	conf, err := pki.Kubeconfig("endpoints-rules", l.c.APIServer.URL, "system:serviceaccount:endpoints-rules:endpoints-rules")
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return errors.New("the manifests' ca.crt has no certificate")
	}
	tc := &tls.Config{RootCAs: pool}
	l.spec = process.Process{Name: "endpoints-rules", Path: file, HealthURL: "https://" + address + "/readyz", HealthTLS: tc,
		Args: []string{"serve", "--kubeconfig=" + conf, "--namespace=endpoints-rules", "--rules-configmap=endpoints-rules/endpoints-rules", "--listen=" + address,
			"--tls-cert-file=" + filepath.Join(dir, "tls.crt"), "--tls-private-key-file=" + filepath.Join(dir, "tls.key"), "--log-level=debug"}}
	l.metrics = func(ctx context.Context) (metrics.Page, error) {
		return metrics.GetTLS(ctx, "https://"+address+"/metrics", tc)
	}
	if err := l.serve(ctx); err != nil {
		return err
	}
	if _, err := l.e.Start(ctx, process.Process{Name: "breaker", Path: file, Args: []string{"breaker", "--kubeconfig=" + conf, "--id=lab",
		"--url=https://" + address + "/healthz", "--ca-file=" + filepath.Join(dir, "ca.crt")}}); err != nil {
		return err
	}
	if _, err := l.c.Client.CreateYAML(ctx, ns, webhook); err != nil {
		return err
	}
	return l.called(ctx)
}

func (l *lab) serve(ctx context.Context) (err error) {
	l.program, err = l.e.Start(ctx, l.spec)
	return err
}

// certificate writes the files of the Secret.
func (l *lab) certificate(dir string, text []byte) error {
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
		if err := os.WriteFile(filepath.Join(dir, n), raw, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// called proves that the API server asks the program: it learns of a new webhook
// within seconds.
func (l *lab) called(ctx context.Context) error {
	return wait.Until(ctx, "the API server calls the webhook", time.Minute, func(ctx context.Context) (bool, error) {
		if _, err := l.c.Client.PatchMerge(ctx, kube.Endpoints, ns, webset.Service, fmt.Sprintf(`{"metadata":{"labels":{"lab":"n%d"}}}`, time.Now().UnixNano())); err != nil {
			return false, err
		}
		page, err := l.metrics(ctx)
		if err != nil {
			return false, err
		}
		asked, _ := page.Sum("endpoints_rules_requests_total")
		return asked > 0, nil
	})
}
