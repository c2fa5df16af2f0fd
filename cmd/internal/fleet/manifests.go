// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/finding"
)

// manifests are the flags of fleet manifests.
type manifests struct {
	Image, Namespace string
	Target           string
	Attempt          int
	MinReady         time.Duration
	NodeSelector     []string
	agentFlags
}

// agentFlags are those of the agent, which the manifests pass on.
type agentFlags struct {
	Lib, Unit, Settle string
	failOn            finding.FailOn
}

var (
	imageName = regexp.MustCompile(`^[a-z0-9]([A-Za-z0-9._/:@-]{0,510}[A-Za-z0-9])?$`)
	hostFile  = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`)
	unitFile  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9:_.@-]{0,200}$`)
	// labelKey has an optional prefix, a DNS name.
	labelKey   = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$`)
)

// settleTime is the flag --settle: less than 0 for auto.
func (f *agentFlags) settleTime() (time.Duration, error) {
	if f.Settle == "auto" {
		return -1, nil
	}
	d, err := time.ParseDuration(f.Settle)
	if err != nil || d < 0 || d > time.Hour {
		return 0, exit.Usagef("--settle is %q: use auto, or a time such as 90s, up to 1h", f.Settle)
	}
	return d, nil
}

func (f *agentFlags) check() error {
	switch {
	case !hostFile.MatchString(f.Lib) || strings.Contains(f.Lib, "/.."):
		return exit.Usagef("--keep-in is %q: use an absolute path of letters, digits and ._- such as /usr/lib/holdfast", f.Lib)
	case !unitFile.MatchString(f.Unit):
		return exit.Usagef("--unit is %q: use the name of the kubelet's unit such as kubelet.service", f.Unit)
	}
	_, err := f.settleTime()
	return err
}

func (m *manifests) check() error {
	if _, err := parseTarget(m.Target, m.Attempt); err != nil {
		return err
	}
	switch {
	case m.Image == "":
		return exit.Usagef("--image is needed: an image with /kubectl-holdfast and /kubelet, see docs/user/fleet.md")
	case !imageName.MatchString(m.Image):
		return exit.Usagef("--image is %q: use REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:...", m.Image)
	case !dnsLabel.MatchString(m.Namespace):
		return exit.Usagef("--namespace is %q: use lower-case letters, digits and dashes, at most 63", m.Namespace)
	case m.MinReady < 0 || m.MinReady > time.Hour || m.MinReady%time.Second != 0:
		return exit.Usagef("--min-ready is %s: use whole seconds, up to 1h", m.MinReady)
	}
	for _, s := range m.NodeSelector {
		if k, v, ok := strings.Cut(s, "="); !ok || !labelKey.MatchString(k) || !labelValue.MatchString(v) {
			return exit.Usagef("--node-selector has %q: use LABEL=VALUE", s)
		}
	}
	return m.agentFlags.check()
}

// write writes what kubectl apply takes. The API groups and versions are those that every release
// from 1.7 to 1.15 serves.
func (m *manifests) write(w io.Writer) error {
	if err := m.check(); err != nil {
		return err
	}
	var selector [][2]string
	for _, s := range slices.Sorted(slices.Values(m.NodeSelector)) {
		k, v, _ := strings.Cut(s, "=")
		selector = append(selector, [2]string{k, v})
	}
	return manifest.Execute(w, map[string]any{
		"Name": name, "Lock": lockName, "Container": container, "Namespace": m.Namespace, "Image": m.Image, "Target": m.Target, "Attempt": m.Attempt, "Selector": selector,
		"MinReady": int(m.MinReady.Seconds()), "Program": program,
		"Args": []string{"fleet", "agent", "--keep-in=" + m.Lib, "--unit=" + m.Unit, "--settle=" + m.Settle, "--fail-on=" + m.failOn.String()},
	})
}

// manifest has no field that a kubelet 1.7 does not know: a container with one is recreated by the
// swap. The ConfigMap has no data, so that kubectl apply leaves that of the agents alone.
var manifest = template.Must(template.New("").Funcs(template.FuncMap{"quote": func(s string) string { return fmt.Sprintf("%q", s) }}).Parse(
	`# kubectl-holdfast fleet manifests: target {{.Target}}, attempt {{.Attempt}}
apiVersion: v1
kind: Namespace
metadata:
  name: {{.Namespace}}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{.Name}}
  namespace: {{.Namespace}}
---
# The lock: the node that data.holder names may swap its kubelet.
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{.Lock}}
  namespace: {{.Namespace}}
---
apiVersion: rbac.authorization.k8s.io/v1beta1
kind: Role
metadata:
  name: {{.Name}}
  namespace: {{.Namespace}}
rules:
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{.Lock}}]
  verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1beta1
kind: RoleBinding
metadata:
  name: {{.Name}}
  namespace: {{.Namespace}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{.Name}}
subjects:
- kind: ServiceAccount
  name: {{.Name}}
  namespace: {{.Namespace}}
---
apiVersion: rbac.authorization.k8s.io/v1beta1
kind: ClusterRole
metadata:
  name: {{.Namespace}}:{{.Name}}
rules:
- apiGroups: [""]
  resources: [nodes]
  verbs: [get]
- nonResourceURLs: [/version]
  verbs: [get]
- apiGroups: [extensions, policy]
  resources: [podsecuritypolicies]
  resourceNames: [{{.Namespace}}-{{.Name}}]
  verbs: [use]
---
apiVersion: rbac.authorization.k8s.io/v1beta1
kind: ClusterRoleBinding
metadata:
  name: {{.Namespace}}:{{.Name}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{.Namespace}}:{{.Name}}
subjects:
- kind: ServiceAccount
  name: {{.Name}}
  namespace: {{.Namespace}}
---
apiVersion: extensions/v1beta1
kind: PodSecurityPolicy
metadata:
  name: {{.Namespace}}-{{.Name}}
spec:
  privileged: true
  hostPID: true
  hostNetwork: true
  volumes: [secret]
  seLinux: {rule: RunAsAny}
  runAsUser: {rule: RunAsAny}
  supplementalGroups: {rule: RunAsAny}
  fsGroup: {rule: RunAsAny}
---
apiVersion: extensions/v1beta1
kind: DaemonSet
metadata:
  name: {{.Name}}
  namespace: {{.Namespace}}
spec:
  minReadySeconds: {{.MinReady}}
  revisionHistoryLimit: 10
  updateStrategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 1}
  selector:
    matchLabels: {app: {{.Name}}}
  template:
    metadata:
      labels: {app: {{.Name}}}
    spec:
      serviceAccountName: {{.Name}}
      hostPID: true
      hostNetwork: true
      terminationGracePeriodSeconds: 5
      tolerations:
      - {operator: Exists}
{{- if .Selector}}
      nodeSelector:
{{- range .Selector}}
        {{quote (index . 0)}}: {{quote (index . 1)}}
{{- end}}
{{- end}}
      containers:
      - name: {{.Container}}
        image: {{quote .Image}}
        imagePullPolicy: IfNotPresent
        command: [/{{.Program}}]
        args:
{{- range .Args}}
        - {{quote .}}
{{- end}}
        env:
        - {name: TARGET, value: {{quote .Target}}}
        - {name: ATTEMPT, value: "{{.Attempt}}"}
        - name: NAMESPACE
          valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
        - name: NODE
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        securityContext: {privileged: true}
        readinessProbe:
          exec: {command: [/{{.Program}}, fleet, probe]}
          periodSeconds: 5
          timeoutSeconds: 10
          failureThreshold: 5
`))
