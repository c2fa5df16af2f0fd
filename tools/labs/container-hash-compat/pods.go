// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package containerhashcompat

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/node"
)

const ns = "default"

// objects that the pods refer to.
const objects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {greeting: hello, file.txt: text}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {password: s3cret}
`

// kind is a pod with what is particular about its spec.
type kind struct {
	name string
	// pod is YAML below spec, container YAML below spec.containers[0].
	pod, container string
	// hostPort is checked by a request, 0 if there is none.
	hostPort int
	// since is the minor release with which a field of the spec came. An older kubelet
	// does not know the field, ignores it, and its container is not what the spec says.
	since int
}

// ignored: the old kubelet ignores a field of the kind.
func (s setup) ignored(k kind) bool { return k.since > base.Minor(s.old) }

// secured: the container has a securityContext.
func (k kind) secured() bool { return strings.Contains(k.container, "securityContext:") }

const sleep = "command: [/labpod, sleep]"

// kinds of every base: at least 30, of every kind that runs on the machine.
var kinds = []kind{
	{name: "plain"},
	{name: "no-token", pod: "automountServiceAccountToken: false"},
	{name: "privileged", container: "securityContext: {privileged: true}"},
	{name: "unprivileged", container: "securityContext: {privileged: false}"},
	{name: "capabilities-add", container: "securityContext: {capabilities: {add: [NET_ADMIN]}}"},
	{name: "capabilities-drop", container: "securityContext: {capabilities: {drop: [CHOWN, MKNOD]}}"},
	{name: "run-as-user", container: "securityContext: {runAsUser: 1000, runAsNonRoot: true}"},
	{name: "read-only-root", container: "securityContext: {readOnlyRootFilesystem: true}"},
	{name: "pod-security", pod: "securityContext: {runAsUser: 1001, fsGroup: 2000}"},
	{name: "no-escalation", container: "securityContext: {allowPrivilegeEscalation: false}", since: 8},
	{name: "host-port", container: "ports: [{containerPort: 8080, hostPort: 18080}]", hostPort: 18080},
	{name: "host-ports", container: "ports: [{containerPort: 8080, hostPort: 18081, name: a}, {containerPort: 8080, hostPort: 18082, name: b}]", hostPort: 18082},
	{name: "host-network", pod: "hostNetwork: true", container: "env: [{name: LABPOD_LISTEN, value: ':18090'}]", hostPort: 18090},
	{name: "resources", container: "resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 500m, memory: 64Mi}}"},
	{name: "quantities", container: "resources: {requests: {cpu: '0.010', memory: '16777216'}, limits: {cpu: '1', memory: 0.0625Gi}}"},
	{name: "env-field", container: "env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]"},
	{name: "env-resource", container: "resources: {limits: {cpu: 500m}}\n    env: [{name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}]"},
	{name: "env-secret", container: "env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: password, key: password}}}]"},
	{name: "env-configmap", container: "env: [{name: GREETING, valueFrom: {configMapKeyRef: {name: settings, key: greeting}}}]"},
	{name: "env-from", container: "envFrom: [{configMapRef: {name: settings}}, {prefix: S_, secretRef: {name: password}}]"},
	{name: "probe-http", container: "readinessProbe: {httpGet: {path: /ready, port: 8080, httpHeaders: [{name: X-Probe, value: lab}]}, periodSeconds: 5}"},
	{name: "probe-exec", container: "env: [{name: LABPOD_READY_FILE, value: /tmp/ready}]\n    readinessProbe: {exec: {command: [/labpod, probe, /tmp/ready]}, periodSeconds: 5}"},
	{name: "probe-tcp", container: "readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 5}"},
	// A host in a tcpSocket is new in 1.7, so 1.7 knows it. 127.0.0.1 is the node.
	{name: "probe-tcp-host", container: "livenessProbe: {tcpSocket: {host: 127.0.0.1, port: 10248}, periodSeconds: 5, failureThreshold: 100}"},
	{name: "liveness", container: "livenessProbe: {httpGet: {path: /live, port: 8080}, initialDelaySeconds: 5, periodSeconds: 5}"},
	{name: "pre-stop", container: "lifecycle: {preStop: {exec: {command: [/labpod, sleep, 200ms]}}}"},
	{name: "post-start", container: "lifecycle: {postStart: {exec: {command: [/labpod, write, /tmp/started, done]}}}"},
	{name: "init", pod: "initContainers: [{name: init, image: IMAGE, imagePullPolicy: IfNotPresent, command: [/labpod, exit, '0']}]"},
	{name: "empty-dir", pod: "volumes: [{name: data, emptyDir: {}}]", container: "volumeMounts: [{name: data, mountPath: /data}]"},
	{name: "sub-path", pod: "volumes: [{name: c, configMap: {name: settings}}]", container: "volumeMounts: [{name: c, mountPath: /etc/file.txt, subPath: file.txt, readOnly: true}]"},
	{name: "secret-volume", pod: "volumes: [{name: s, secret: {secretName: password}}]", container: "volumeMounts: [{name: s, mountPath: /secret, readOnly: true}]"},
	{name: "host-path", pod: "volumes: [{name: h, hostPath: {path: /tmp}}]", container: "volumeMounts: [{name: h, mountPath: /host-tmp}]"},
	{name: "several", pod: "", container: "ports: [{containerPort: 8080}]\n  - name: second\n    image: IMAGE\n    imagePullPolicy: IfNotPresent\n    " + sleep +
		"\n  - name: third\n    image: IMAGE\n    imagePullPolicy: IfNotPresent\n    env: [{name: LABPOD_LISTEN, value: ':8083'}]"},
	{name: "never", pod: "restartPolicy: Never", container: sleep},
	{name: "on-failure", pod: "restartPolicy: OnFailure", container: sleep},
	{name: "termination-message", container: "terminationMessagePolicy: FallbackToLogsOnError\n    terminationMessagePath: /tmp/log"},
	{name: "working-dir", container: "workingDir: /tmp\n    stdin: true\n    tty: true"},
	{name: "words-of-the-dump", container: "env: [{name: TRICK, value: ' VolumeDevices:([]v1.VolumeDevice)<nil> MountPropagation:(*v1.MountPropagationMode)<nil>'}]"},
	{name: "changed"}, // its image is changed while the kubelet is down, in each step
}

const changed = "changed"

// since110 are kinds with fields of 1.10 and 1.12. API servers of 1.12 before 1.12.10 give each
// container with a securityContext the procMount Default (kubernetes/kubernetes#78881).
var since110 = []kind{
	{name: "run-as-group", container: "securityContext: {runAsUser: 1000, runAsGroup: 1001}", since: 10},
	{name: "proc-mount-default", container: "securityContext: {procMount: Default}"},
	{name: "proc-mount", container: "securityContext: {procMount: Unmasked}", since: 12},
}

// some of kinds show the incident as well as all do: a plain one, and those of which a swap is
// judged by more than the container; and, where stock recreates only containers with a
// securityContext, some with one and one whose pod has one.
var (
	some        = []string{"plain", "no-escalation", "host-port", "init", "several", "never", changed}
	someSecured = []string{"privileged", "capabilities-drop", "run-as-user", "pod-security", "proc-mount-default", "proc-mount"}
)

// kinds are those that a run creates. All of them are for what must keep every kind. Where the
// incident happens the short profile has some, as each recreated container costs seconds of the
// processors.
func (s setup) kinds(v labkit.Variant, p labkit.Profile) []kind {
	all := slices.Concat(kinds, s.more)
	if p == labkit.Long || v != labkit.Stock && v != labkit.GateOff {
		return all
	}
	return slices.DeleteFunc(all, func(k kind) bool {
		return !slices.Contains(some, k.name) && !(s.onlySecurity && slices.Contains(someSecured, k.name))
	})
}

func (k kind) yaml(on string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: hash}}\nspec:\n  nodeName: %s\n  terminationGracePeriodSeconds: 2\n", k.name, on)
	if k.pod != "" {
		fmt.Fprintf(&b, "  %s\n", k.pod)
	}
	b.WriteString("  containers:\n  - name: main\n    image: IMAGE\n    imagePullPolicy: IfNotPresent\n")
	if k.container != "" {
		fmt.Fprintf(&b, "    %s\n", k.container)
	}
	return strings.ReplaceAll(b.String(), "IMAGE", node.WebImage("v1"))
}

// daemonSet and staticPod are the two kinds that no one creates through the API.
func daemonSet() string {
	return fmt.Sprintf(`
apiVersion: extensions/v1beta1
kind: DaemonSet
metadata: {name: daemon}
spec:
  template:
    metadata: {labels: {app: daemon}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - {name: main, image: %q, imagePullPolicy: IfNotPresent}
`, node.WebImage("v1"))
}

func staticPod() string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: static, namespace: %s}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - {name: main, image: %q, imagePullPolicy: IfNotPresent}
`, ns, node.WebImage("v1"))
}
