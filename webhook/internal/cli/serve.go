// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"holdfast/webhook/internal/breaker"
	"holdfast/webhook/internal/cluster"
	"holdfast/webhook/internal/exit"
	"holdfast/webhook/internal/serve"
)

const (
	// lookAtHooks is how often the webhook configuration is read.
	lookAtHooks = 2 * time.Second
	// serverEvery is how often an API server is looked for that is away.
	serverEvery = time.Second
)

func serveCommand() *cobra.Command {
	var kubeconfig, file, configMap, cert, key, clientCA, clientNames, listen, namespace, configuration, level string
	var debounce time.Duration
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer admission reviews and correct stored Endpoints",
		Args:  exitArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logger(cmd, level)
			if err != nil {
				return err
			}
			switch {
			case cert == "" || key == "":
				return exit.Usagef("--tls-cert-file and --tls-private-key-file are needed: kube-apiserver calls webhooks over TLS only")
			case (file == "") == (configMap == ""):
				return exit.Usagef("one of --rules and --rules-configmap is needed")
			case debounce < 10*time.Millisecond || debounce > 2*time.Second:
				return exit.Usagef("--debounce %v: it is 10ms to 2s", debounce)
			}
			source := &serve.Source{File: file, Log: log}
			if configMap != "" {
				if err := source.ParseConfigMap(configMap); err != nil {
					return err
				}
			}
			pair, err := serve.NewCertificate(cert, key, log)
			if err != nil {
				return err
			}
			clients, err := serve.NewClients(clientCA, clientNames, log)
			if err != nil {
				return err
			}
			cluster.OldServers()
			conf, err := restConfig(kubeconfig)
			if err != nil {
				return err
			}
			client, err := kubernetes.NewForConfig(conf)
			if err != nil {
				return err
			}
			if namespace == "" {
				namespace = os.Getenv("POD_NAMESPACE")
			}
			store := cluster.New(cluster.Config{Client: client, Log: log, Namespace: namespace, Debounce: debounce})
			source.Use = store.SetRules
			metrics := serve.NewMetrics(store, source)
			ctx, cancel := context.WithCancelCause(cmd.Context())
			defer cancel(nil)
			if file != "" {
				if err := source.Start(ctx, client); err != nil {
					return err
				}
			}
			hooks, err := dynamic.NewForConfig(conf)
			if err != nil {
				return err
			}
			go breaker.Watch(ctx, hooks, configuration, lookAtHooks, log, metrics.Configured)
			// It listens before there is an API server: a program that ends is started again
			// only after a pause that grows to five minutes. What it watches begins afterwards,
			// as a watch that fails is tried again after a pause that grows, too.
			go func() {
				err := cluster.WaitForServer(ctx, client.Discovery(), serverEvery, log)
				if err == nil && file == "" {
					err = source.Start(ctx, client)
				}
				if err == nil {
					err = store.Start(ctx)
				}
				if err != nil {
					cancel(err)
				}
			}()
			go func() {
				if err := store.Lost(ctx); err != nil {
					cancel(fmt.Errorf("it starts anew: %w", err))
				}
			}()
			if err := serve.Listen(ctx, listen, pair, clients, serve.Handler(store, metrics, clients, log), log); err != nil {
				return err
			}
			if cmd.Context().Err() != nil {
				return nil // it was asked to end
			}
			return context.Cause(ctx)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: the ServiceAccount of the pod)")
	f.StringVar(&file, "rules", "", "rules file, read again when it changes")
	f.StringVar(&configMap, "rules-configmap", "", "NAMESPACE/NAME or NAMESPACE/NAME/KEY of a ConfigMap with the rules (default key "+serve.DefaultKey+"); watched for changes")
	f.StringVar(&cert, "tls-cert-file", "", "certificate, read again when it changes")
	f.StringVar(&key, "tls-private-key-file", "", "private key of the certificate")
	f.StringVar(&clientCA, "client-ca-file", "", "file with the certificate authorities of the API server's client certificate; reviews without this certificate are refused; read only at the start (default: anyone who reaches the port may send reviews)")
	f.StringVar(&clientNames, "client-allowed-names", "", "common names that this client certificate may have, comma separated (default: any)")
	f.StringVar(&listen, "listen", "127.0.0.1:9943", "address to serve on: "+serve.Path+", /healthz, /readyz, /metrics, all over TLS")
	f.StringVar(&namespace, "namespace", "", "the program's own namespace, which it never changes (default $POD_NAMESPACE)")
	f.StringVar(&configuration, "configuration", "endpoints-rules", "name of the MutatingWebhookConfiguration, for the metric endpoints_rules_webhook_configured")
	f.DurationVar(&debounce, "debounce", cluster.DefaultDebounce, "how long changes are collected before stored Endpoints are corrected")
	f.StringVar(&level, "log-level", "info", "debug (each decision), info, warn or error")
	return cmd
}

func breakerCommand() *cobra.Command {
	var kubeconfig, url, ca, config, id, level string
	var every, within time.Duration
	var failures, successes int
	cmd := &cobra.Command{
		Use:   "breaker",
		Short: "Remove the webhooks from their configuration while the server does not answer",
		Args:  exitArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logger(cmd, level)
			if err != nil {
				return err
			}
			switch {
			case ca == "":
				return exit.Usagef("--ca-file is needed: the certificate of the authority that signed the server's")
			case failures < 1 || successes < 1 || every <= 0 || within <= 0:
				return exit.Usagef("--failures, --successes, --every and --within are above 0")
			}
			if id == "" {
				if id, err = os.Hostname(); err != nil {
					return err
				}
			}
			if strings.ContainsAny(id, ",=") {
				return exit.Usagef("--id %q: it has no comma and no =", id)
			}
			conf, err := restConfig(kubeconfig)
			if err != nil {
				return err
			}
			client, err := dynamic.NewForConfig(conf)
			if err != nil {
				return err
			}
			b := breaker.Defaults(breaker.Config{Client: client, Name: config, ID: id, Check: breaker.HTTPS(url, ca),
				Every: every, Within: within, Failures: failures, Successes: successes, Log: log})
			return b.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: the ServiceAccount of the pod)")
	f.StringVar(&url, "url", "https://127.0.0.1:9943/healthz", "URL that the breaker checks")
	f.StringVar(&ca, "ca-file", "", "file with the certificate authority of the server's certificate")
	f.StringVar(&config, "configuration", "endpoints-rules", "name of the MutatingWebhookConfiguration")
	f.StringVar(&id, "id", "", "name of this breaker, different on each master (default: the host name)")
	f.DurationVar(&every, "every", 2*time.Second, "time between checks")
	f.DurationVar(&within, "within", 2*time.Second, "time that a check may take")
	f.IntVar(&failures, "failures", 3, "failed checks in a row after which the webhooks are removed")
	f.IntVar(&successes, "successes", 5, "successful checks in a row after which the webhooks are restored")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// exitArgs refuses arguments.
func exitArgs(_ *cobra.Command, got []string) error {
	if len(got) > 0 {
		return exit.Usagef("the command takes no arguments, but got %q", got)
	}
	return nil
}
