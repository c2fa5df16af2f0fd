// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/wait"
)

var credentials = row{
	fix:     "log-credentials",
	summary: "tokens and registry passwords are in the log",
	kcmArgs: []string{"--v=7"}, // from here on client-go logs headers
	starts:  "write a docker config file for the kubelet whose auth is not base64, and create a pod whose image must be pulled; the controller manager runs with --v=7 and a token for each controller",
	does:    "read both logs",
	oracle:  "tokens are in the controller manager's log, the password is in the kubelet's log; absent: the masked header and the error are in these logs",
	start:   startCredentials,
	look:    lookCredentials,
	judge:   judgeCredentials,
}

// logs is how often the controller manager's log has a token and a masked one, and the
// kubelet's the password and the error about it.
type logs struct{ Tokens, Masked, Passwords, Errors int }

// registryPassword is no base64, so that the file cannot be read.
const registryPassword = "lab-user:lab-registry-password"

func startCredentials(ctx context.Context, l *lab) error {
	// The kubelet reads the file when it pulls an image for the first time.
	file := filepath.Join(l.node.Dir, "kubelet", "config.json")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(`{"auths": {"registry.holdfast.test": {"auth": %q}}}`, registryPassword)), 0o600); err != nil {
		return err
	}
	return l.pods(ctx, pod("pull", func(c *corev1.Container) { c.Image = "registry.holdfast.test/none:1" }))
}

func lookCredentials(ctx context.Context, l *lab) error {
	var kcm, kubelet string
	if err := wait.Until(ctx, "the logs have a request with a token and a docker config that cannot be read", patience, func(context.Context) (bool, error) {
		var err error
		if kcm, err = l.c.ControllerManager.LastRunLog(); err != nil {
			return false, err
		}
		if kubelet, err = l.node.Kubelet.LastRunLog(); err != nil {
			return false, err
		}
		return strings.Contains(kcm, "Authorization: Bearer ") && strings.Contains(kubelet, "while trying to parse "), nil
	}); err != nil {
		return err
	}
	// A token of a service account is a JWT.
	l.e.Record(logs{Tokens: strings.Count(kcm, "Authorization: Bearer eyJ"), Masked: strings.Count(kcm, "Authorization: Bearer <masked>"),
		Passwords: strings.Count(kubelet, registryPassword), Errors: strings.Count(kubelet, "while trying to parse ")})
	return nil
}

func judgeCredentials(h *history.History) finding {
	o := history.One[logs](h)
	logged := o.Tokens > 0 || o.Passwords > 0
	switch {
	case logged && h.Variant == string(labkit.Ours): // one of them is enough
	case o.Tokens+o.Masked == 0 || o.Errors == 0:
		return cannotTell("%d headers with a token in the controller manager's log, %d errors about the docker config file in the kubelet's", o.Tokens+o.Masked, o.Errors)
	case (o.Tokens > 0) != (o.Passwords > 0):
		return cannotTell("%d tokens and %d passwords", o.Tokens, o.Passwords)
	}
	return finding{happened: logged, saw: fmt.Sprintf("%d tokens in the controller manager's log (%d masked), the registry's password %d times in the kubelet's", o.Tokens, o.Masked, o.Passwords)}.
		measure("tokens in the log", float64(o.Tokens), "").measure("passwords in the log", float64(o.Passwords), "")
}
