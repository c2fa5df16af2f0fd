// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

var credentials = row{
	slug:    "log-credentials",
	summary: "tokens and registry passwords stand in the log",
	kcmArgs: []string{"--v=7"}, // from here on client-go logs headers
	plan: []string{
		"run the controller manager with --v=7 and a token for each controller; write a docker config file for the kubelet whose auth is no base64, and create a pod whose image must be pulled",
		"oracle: tokens in the controller manager's log, the password in the kubelet's; absent: the masked header and the error are there",
	},
	start: startCredentials,
	judge: judgeCredentials,
}

// registryPassword is no base64, so that the file cannot be read.
const registryPassword = "lab-user:lab-registry-password"

func startCredentials(ctx context.Context, l *lab) error {
	// The kubelet reads the file when it pulls an image for the first time.
	file := filepath.Join(l.node.Dir, "kubelet", "config.json")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(`{"auths": {"registry.holdfast.test": {"auth": %q}}}`, registryPassword)), 0o600); err != nil {
		return err
	}
	return l.pods(ctx, strings.Replace(pod("pull", "", ""), node.WebImage("v1"), "registry.holdfast.test/none:1", 1))
}

func judgeCredentials(ctx context.Context, l *lab) (outcome, error) {
	var kcm, kubelet string
	if err := wait.Until(ctx, "the logs have a request with a token and a docker config that cannot be read", 60*time.Second, func(context.Context) (bool, error) {
		var err error
		if kcm, err = l.c.ControllerManager.LastRunLog(); err != nil {
			return false, err
		}
		if kubelet, err = l.node.Kubelet.LastRunLog(); err != nil {
			return false, err
		}
		return strings.Contains(kcm, "Authorization: Bearer ") && strings.Contains(kubelet, "while trying to parse "), nil
	}); err != nil {
		return outcome{}, err
	}
	// A token of a service account is a JWT.
	tokens, passwords := strings.Count(kcm, "Authorization: Bearer eyJ"), strings.Count(kubelet, registryPassword)
	maskedTokens := strings.Count(kcm, "Authorization: Bearer <masked>")
	if tokens+maskedTokens == 0 {
		return outcome{}, fmt.Errorf("no header Authorization in the controller manager's log is a token of a service account")
	}
	if (tokens > 0) != (passwords > 0) {
		return outcome{}, fmt.Errorf("%d tokens and %d passwords", tokens, passwords)
	}
	return outcome{tokens > 0, fmt.Sprintf("%d tokens in the controller manager's log (%d masked), the registry's password %d times in the kubelet's", tokens, maskedTokens, passwords)}, nil
}
