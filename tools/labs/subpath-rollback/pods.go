// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package subpathrollback

import (
	"fmt"
	"path"
)

// objects that the pods refer to.
const objects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {greeting: hello}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {password: s3cret}
`

// kind is a pod whose container has subPaths.
type kind struct {
	name string
	// volumes and mounts are YAML lists in brackets; HOST stands for the pod's
	// directory on the host.
	volumes, mounts string
	// fs has the pod's directory: "same" is the kubelet's own filesystem, "other"
	// another one, "" none.
	fs string
	// container is more YAML of the container, without it the container sleeps;
	// spec is more YAML of the pod.
	container, spec string
	// state is what the pod must get to under the kubelet under test.
	state string
	// inside are files that the running container must be able to read, by
	// their content. "" stands for what the lab put there.
	inside map[string]string
}

const (
	runs   = "running"
	exits  = "exited"      // and is started again, with back-off
	never  = "created"     // docker cannot start it
	noneOf = "not created" // the kubelet fails after it has bound the subPath
)

const (
	hostVolume = `[{name: data, hostPath: {path: HOST}}]`
	hostMount  = `[{name: data, subPath: dir, mountPath: /dir}]`
)

func hostKind(name, fs string) kind {
	return kind{name: name, fs: fs, state: runs, volumes: hostVolume,
		mounts: `[{name: data, subPath: dir, mountPath: /dir}, {name: data, subPath: dir/deep, mountPath: /ro, readOnly: true},
    {name: data, subPath: file, mountPath: /file}, {name: data, subPath: rofile, mountPath: /rofile, readOnly: true}]`,
		inside: map[string]string{"/dir/a": "", "/dir/deep/b": "", "/ro/b": "", "/file": "", "/rofile": ""}}
}

// kinds are made by the kubelet under test before each way back.
var kinds = []kind{
	hostKind("host-same", "same"),
	hostKind("host-other", "other"),
	{name: "empty-dir", state: runs, volumes: `[{name: disk, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory}}]`,
		mounts: `[{name: disk, subPath: x, mountPath: /x}, {name: memory, subPath: y/z, mountPath: /y}, {name: disk, subPath: x, mountPath: /ro, readOnly: true}]`},
	// Files only: 1.9.11 cannot bind a directory of a configMap, which is a symlink (#61545).
	{name: "config", state: runs,
		volumes: `[{name: settings, configMap: {name: settings}}, {name: password, secret: {secretName: password}}]`,
		mounts: `[{name: settings, subPath: greeting, mountPath: /greeting}, 
    {name: password, subPath: password, mountPath: /password, readOnly: true}]`,
		inside: map[string]string{"/greeting": "hello", "/password": "s3cret"}},
	// A hook that does not end while the lab runs.
	{name: "hook", fs: "same", state: runs, volumes: hostVolume, mounts: hostMount, inside: map[string]string{"/dir/a": ""},
		container: "command: [/labpod, sleep]\n    lifecycle: {postStart: {exec: {command: [/labpod, sleep, 30m]}}}"},
	{name: "crash", fs: "same", state: exits, volumes: hostVolume, mounts: hostMount, container: `command: [/labpod, exit, "3"]`},
	{name: "no-start", fs: "same", state: never, volumes: hostVolume, mounts: hostMount, container: "command: [/nonexistent]"},
	{name: "no-config", fs: "same", state: noneOf, volumes: hostVolume, mounts: hostMount,
		container: "command: [/labpod, sleep]\n    env: [{name: MISSING, valueFrom: {configMapKeyRef: {name: settings, key: missing}}}]"},
}

// yaml is the pod k under name, with its host directory below root.
func (k kind) yaml(name, root string) string {
	c := k.container
	if c == "" {
		c = "command: [/labpod, sleep]"
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: node1
  terminationGracePeriodSeconds: 1
  %s
  volumes: %s
  containers:
  - name: main
    image: %s
    imagePullPolicy: IfNotPresent
    %s
    volumeMounts: %s
`, name, k.spec, replaceHost(k.volumes, path.Join(root, k.fs, name)), image, c, k.mounts)
}
