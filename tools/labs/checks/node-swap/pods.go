// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeswap

import (
	"fmt"
	"strings"

	"holdfast/tools/labkit/node"
)

// kind is a pod with what is particular about its spec.
type kind struct {
	name string
	// pod is YAML below spec, container YAML below spec.containers[0].
	pod, container string
	// recreated: kubelet 1.7 does not know the field, so its hash is of another spec.
	recreated bool
}

// kinds are the pods of the node.
var kinds = []kind{
	{name: "plain"},
	{name: "no-escalation", container: "securityContext: {allowPrivilegeEscalation: false}", recreated: true},
	{name: "run-as-user", container: "securityContext: {runAsUser: 1000, runAsNonRoot: true}"},
	{name: "probed", container: "readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 3}\n    livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 5}"},
	{name: "resources", container: "resources: {requests: {cpu: '0.010', memory: '16777216'}, limits: {cpu: 500m, memory: 64Mi}}"},
	{name: "never", pod: "restartPolicy: Never", container: "command: [/labpod, sleep]"},
	{name: "on-failure", pod: "restartPolicy: OnFailure", container: "command: [/labpod, sleep]\n    securityContext: {allowPrivilegeEscalation: false}", recreated: true},
	{name: "several", pod: "volumes: [{name: d, emptyDir: {}}]", container: "volumeMounts: [{name: d, mountPath: /d}]\n  - {name: second, image: IMAGE, imagePullPolicy: IfNotPresent, command: [/labpod, sleep]}"},
	{name: "init", pod: "initContainers: [{name: init, image: IMAGE, imagePullPolicy: IfNotPresent, command: [/labpod, exit, '0']}]"},
}

func (k kind) yaml(on string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  nodeName: %s\n  terminationGracePeriodSeconds: 2\n", k.name, on)
	if k.pod != "" {
		fmt.Fprintf(&b, "  %s\n", k.pod)
	}
	b.WriteString("  containers:\n  - name: main\n    image: IMAGE\n    imagePullPolicy: IfNotPresent\n")
	if k.container != "" {
		fmt.Fprintf(&b, "    %s\n", k.container)
	}
	return strings.ReplaceAll(b.String(), "IMAGE", node.WebImage("v1"))
}
