// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/wait"
)

var provision = row{
	slug:    "provision-error-redaction",
	gate:    "ProvisionErrorsWithoutResponse",
	summary: "an event quotes what a server of the control plane's network answers",
	plan: []string{
		"serve a page on the loopback of the control plane and a redirect to it; create a StorageClass glusterfs whose resturl is the redirect, a claim of it, a volume of it whose claim is gone, and a claim of a StorageClass with a misspelt parameter",
		"oracle: the page in the claim's and the volume's events or in the volume's status; absent: the page was asked for by both, the events say what failed and the log has the page; the misspelt parameter is named in any case",
	},
	start: startProvision,
	judge: judgeProvision,
}

// page is what only the loopback of the control plane has.
const page = "internal-page-5f2e"

var volumes = kube.GVR{Version: "v1", Resource: "persistentvolumes"}

// asked are the paths that led to the page, by their methods.
type asked struct {
	lock sync.Mutex
	by   map[string]int
}

func (a *asked) count(method string) int {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.by[method]
}

func startProvision(ctx context.Context, l *lab) error {
	serve := func(name, address string, handler http.HandlerFunc) (string, error) {
		listener, err := net.Listen("tcp", address+":0")
		if err != nil {
			return "", err
		}
		server := &http.Server{Handler: handler}
		go func() { _ = server.Serve(listener) }()
		l.e.OnStop(name, func(context.Context) error { return server.Close() })
		return "http://" + listener.Addr().String(), nil
	}
	internal, err := serve("internal page", "127.0.0.1", func(w http.ResponseWriter, r *http.Request) {
		l.asked.lock.Lock()
		l.asked.by[r.URL.Query().Get("was")]++
		l.asked.lock.Unlock()
		_, _ = io.WriteString(w, page)
	})
	if err != nil {
		return err
	}
	// The redirect of a POST or DELETE is followed by a GET: the query tells them apart.
	redirect, err := serve("redirect", machine.IP, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, internal+"/?was="+r.Method, http.StatusFound)
	})
	if err != nil {
		return err
	}
	text := ""
	for name, parameter := range map[string]string{"ssrf": "resturl", "misspelt": "resturi"} {
		text += fmt.Sprintf(`---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %[1]s}
provisioner: kubernetes.io/glusterfs
parameters: {%[2]s: %[3]q}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s}
spec: {storageClassName: %[1]s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`, name, parameter, redirect)
	}
	return l.pods(ctx, text+`---
apiVersion: v1
kind: PersistentVolume
metadata: {name: ssrf-volume, annotations: {pv.kubernetes.io/provisioned-by: kubernetes.io/glusterfs}}
spec:
  storageClassName: ssrf
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Delete
  glusterfs: {endpoints: none, path: vol_none}
  claimRef: {namespace: default, name: gone, uid: 00000000-0000-0000-0000-000000000000}
`)
}

func judgeProvision(ctx context.Context, l *lab) (outcome, error) {
	shown := map[string]string{}
	for _, w := range []struct{ name, reason, says string }{
		{"ssrf", "ProvisioningFailed", `Failed to provision volume with StorageClass "ssrf": `},
		{"misspelt", "ProvisioningFailed", `Failed to provision volume with StorageClass "misspelt": invalid option "resturi" for volume plugin kubernetes.io/glusterfs`},
		{"ssrf-volume", "VolumeFailedDelete", ""},
	} {
		if err := wait.Until(ctx, w.name+" has an event "+w.reason, 60*time.Second, func(context.Context) (bool, error) {
			shown[w.name] = strings.Join(l.messages(w.name, w.reason), "\n")
			if shown[w.name] == "" || !strings.Contains(shown[w.name], w.says) {
				return false, fmt.Errorf("events: %q", shown[w.name])
			}
			return true, nil
		}); err != nil {
			return outcome{}, err
		}
	}
	if _, err := l.c.Client.WaitFor(ctx, volumes, "", "ssrf-volume", 30*time.Second, "has a message", func(o *kube.Object) (bool, error) {
		shown["ssrf-volume's status"] = kube.String(o, "status", "message")
		return shown["ssrf-volume's status"] != "", nil
	}); err != nil {
		return outcome{}, err
	}
	posts, deletes := l.asked.count(http.MethodPost), l.asked.count(http.MethodDelete)
	if posts == 0 || deletes == 0 {
		return outcome{}, fmt.Errorf("the page was asked for by %d creations and %d deletions", posts, deletes)
	}
	var quoted []string
	places := []string{"ssrf", "ssrf-volume", "ssrf-volume's status"}
	for _, place := range places {
		if strings.Contains(shown[place], page) {
			quoted = append(quoted, place)
		}
	}
	saw := fmt.Sprintf("the page was asked for by %d creations and %d deletions and stands in %d of %d places %q", posts, deletes, len(quoted), len(places), quoted)
	if l.e.Variant != labkit.Ours {
		if n := len(quoted); n > 0 && n < len(places) {
			return outcome{}, fmt.Errorf("%s: %v", saw, shown)
		}
		return outcome{len(quoted) > 0, saw}, nil
	}
	for place, verb := range map[string]string{"ssrf": "create", "ssrf-volume": "delete", "ssrf-volume's status": "delete"} {
		if !strings.Contains(shown[place], "kubernetes.io/glusterfs failed to "+verb+" the volume") {
			return outcome{}, fmt.Errorf("%s does not say what failed: %s", place, shown[place])
		}
	}
	log, err := l.c.ControllerManager.LastRunLog()
	if err != nil {
		return outcome{}, err
	}
	if !strings.Contains(log, page) {
		return outcome{}, fmt.Errorf("the controller manager's log does not have the server's answer")
	}
	return outcome{len(quoted) > 0, saw}, l.managerMetric(ctx, "holdfast_provision_error_redaction_redacted_total", 2)
}

// managerMetric: the controller manager has at least so many series with the prefix.
func (l *lab) managerMetric(ctx context.Context, prefix string, least int) error {
	n, err := series(ctx, l.c.ControllerManager.URL+"/metrics", prefix)
	if err == nil && n < least {
		err = fmt.Errorf("%d series of %s, want at least %d", n, prefix, least)
	}
	return err
}
