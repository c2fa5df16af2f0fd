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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/wait"
)

var provision = row{
	fix:     "provision-error-redaction",
	gate:    "ProvisionErrorsWithoutResponse",
	summary: "an event quotes the answer of a server in the control plane's network",
	starts:  "serve a page on the loopback of the control plane and a redirect to this page; create a StorageClass glusterfs whose resturl is the redirect, a claim and a volume without claim of this class, a claim of a StorageClass with a misspelt parameter, and a pod with a StorageOS volume whose server answers with the page",
	does:    "read the events of claims, volume and pod, the volume's status, and both logs",
	oracle:  "the page is in the events of the claim, the volume or the pod, or in the volume's status; absent: all three led to a request for the page, the events say what failed, and both logs have the page; the event about the misspelt parameter names it in every variant",
	start:   startProvision,
	look:    lookProvision,
	judge:   judgeProvision,
}

// quotes are the texts that users see, by place; how often the page was asked for by
// creations, deletions and mounts; and whether the logs of the controller manager and the
// kubelet have it.
type quotes struct {
	Shown                  map[string]string
	Posts, Deletes, Mounts int
	Logged, NodeLogged     bool
	Counted                int
	NodeCounted            float64
}

// misspelt is what the event about the misspelt parameter says.
const misspelt = `Failed to provision volume with StorageClass "misspelt": invalid option "resturi" for volume plugin kubernetes.io/glusterfs`

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

func (a *asked) add(what string) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.by[what]++
}

// serve serves HTTP at address until the lab ends, and returns its URL.
func (l *lab) serve(name, address string, handler http.HandlerFunc) (string, error) {
	listener, err := net.Listen("tcp", address+":0")
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	l.e.OnStop(name, func(context.Context) error { return server.Close() })
	return "http://" + listener.Addr().String(), nil
}

func startProvision(ctx context.Context, l *lab) error {
	internal, err := l.serve("internal page", "127.0.0.1", func(w http.ResponseWriter, r *http.Request) {
		l.asked.add(r.URL.Query().Get("was"))
		_, _ = io.WriteString(w, page)
	})
	if err != nil {
		return err
	}
	// The redirect of a POST or DELETE is followed by a GET: the query tells them apart.
	redirect, err := l.serve("redirect", machine.IP, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, internal+"/?was="+r.Method, http.StatusFound)
	})
	if err != nil {
		return err
	}
	storageOS, err := l.serve("StorageOS that refuses", machine.IP, func(w http.ResponseWriter, r *http.Request) {
		l.asked.add("mount")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, page)
	})
	if err == nil {
		err = l.storageOS(ctx, "ssrf-pod", storageOS)
	}
	if err != nil {
		return err
	}
	var all []runtime.Object
	for name, parameter := range map[string]string{"ssrf": "resturl", "misspelt": "resturi"} {
		all = append(all, storageClass(name, map[string]string{parameter: redirect})...)
	}
	return l.pods(ctx, append(all, &corev1.PersistentVolume{TypeMeta: typed("PersistentVolume", "v1"),
		ObjectMeta: metav1.ObjectMeta{Name: "ssrf-volume", Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": glusterfs}},
		Spec: corev1.PersistentVolumeSpec{StorageClassName: "ssrf", Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Glusterfs: &corev1.GlusterfsPersistentVolumeSource{EndpointsName: "none", Path: "vol_none"}},
			ClaimRef:                      &corev1.ObjectReference{Namespace: ns, Name: "gone", UID: "00000000-0000-0000-0000-000000000000"}}})...)
}

const glusterfs = "kubernetes.io/glusterfs"

var size = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}

func lookProvision(ctx context.Context, l *lab) error {
	shown := map[string]string{}
	for _, w := range []struct{ name, reason, says string }{
		{"ssrf", "ProvisioningFailed", `Failed to provision volume with StorageClass "ssrf": `},
		{"misspelt", "ProvisioningFailed", misspelt},
		{"ssrf-volume", "VolumeFailedDelete", ""},
		{"ssrf-pod", "FailedMount", "MountVolume.SetUp failed"},
	} {
		if err := wait.Until(ctx, w.name+" has an event "+w.reason, patience, func(context.Context) (bool, error) {
			shown[w.name] = strings.Join(l.messages(w.name, w.reason), "\n")
			if shown[w.name] == "" || !strings.Contains(shown[w.name], w.says) {
				return false, fmt.Errorf("events: %q", shown[w.name])
			}
			return true, nil
		}); err != nil {
			return err
		}
	}
	if _, err := l.c.Client.WaitFor(ctx, volumes, "", "ssrf-volume", patience, "has a message", func(o *kube.Object) (bool, error) {
		shown["ssrf-volume's status"] = kube.String(o, "status", "message")
		return shown["ssrf-volume's status"] != "", nil
	}); err != nil {
		return err
	}
	log, err := l.c.ControllerManager.LastRunLog()
	if err != nil {
		return err
	}
	nodeLog, err := l.node.Kubelet.LastRunLog()
	if err != nil {
		return err
	}
	o := quotes{Shown: shown, Posts: l.asked.count(http.MethodPost), Deletes: l.asked.count(http.MethodDelete), Mounts: l.asked.count("mount"),
		Logged: strings.Contains(log, page), NodeLogged: strings.Contains(nodeLog, page)}
	if o.NodeCounted, err = l.counted(ctx, "holdfast_provision_error_redaction_redacted_total"); err != nil {
		return err
	}
	if o.Counted, err = l.managerCounted(ctx, "holdfast_provision_error_redaction_redacted_total"); err != nil {
		return err
	}
	l.e.Record(o)
	return nil
}

// places are those of quotes.Shown that may have the page, and what they say instead.
var places = []struct{ name, verb string }{{"ssrf", "create"}, {"ssrf-volume", "delete"}, {"ssrf-volume's status", "delete"}, {"ssrf-pod", "mount"}}

func judgeProvision(h *history.History) finding {
	o := history.One[quotes](h)
	if o.Posts == 0 || o.Deletes == 0 || o.Mounts == 0 {
		return cannotTell("the page was requested by %d creations, %d deletions and %d mounts", o.Posts, o.Deletes, o.Mounts)
	}
	if !strings.Contains(o.Shown["misspelt"], misspelt) {
		return cannotTell("the event about a misspelt parameter does not name it: %s", o.Shown["misspelt"])
	}
	ours := h.Variant == string(labkit.Ours)
	var quoted []string
	for _, p := range places {
		if strings.Contains(o.Shown[p.name], page) {
			quoted = append(quoted, p.name)
		}
		if o.Shown[p.name] == "" || ours && !strings.Contains(o.Shown[p.name], " failed to "+p.verb+" the volume") {
			return cannotTell("%s does not say what failed: %s", p.name, o.Shown[p.name])
		}
	}
	saw := fmt.Sprintf("the page was requested by %d creations, %d deletions and %d mounts and is in %d of %d places %q", o.Posts, o.Deletes, o.Mounts, len(quoted), len(places), quoted)
	switch n := len(quoted); {
	case !ours && n > 0 && n < len(places):
		return cannotTell("%s: %v", saw, o.Shown)
	case ours && !o.Logged:
		return cannotTell("the controller manager's log does not have the server's answer")
	case ours && !o.NodeLogged:
		return cannotTell("the kubelet's log does not have the server's answer")
	}
	return finding{happened: len(quoted) > 0, saw: saw}.
		counting(h, "holdfast_provision_error_redaction_redacted_total", float64(o.Counted), 2).
		counting(h, "the kubelet's holdfast_provision_error_redaction_redacted_total", o.NodeCounted, 1).
		measure("places that have the page", float64(len(quoted)), "")
}
