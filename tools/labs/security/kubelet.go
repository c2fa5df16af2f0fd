// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/wait"
)

var healthz = row{
	fix:     "healthz-no-pprof",
	gate:    "KubeletHealthzOwnMux",
	summary: "the kubelet's healthz port serves profiles without authentication",
	does:    "request /healthz, /debug/pprof/ and two profiles from the healthz port",
	oracle:  "a profile is served; absent: all are refused, and /healthz answers ok",
	look:    lookHealthz,
	judge:   judgeHealthz,
}

var profiles = []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=1"}

// answers are those of the healthz port: the text of /healthz, and status by profile.
type answers struct {
	Healthz string
	Status  map[string]int
	Counted float64
}

func lookHealthz(ctx context.Context, l *lab) error {
	o := answers{Status: map[string]int{}}
	url := "http://" + l.node.IP + ":10248"
	var err error
	if o.Healthz, err = load.Get(ctx, url+"/healthz"); err != nil {
		return err
	}
	for _, p := range profiles {
		if o.Status[p], err = status(ctx, url+p); err != nil {
			return err
		}
	}
	if o.Counted, err = l.counted(ctx, "holdfast_healthz_no_pprof_refused_total"); err != nil {
		return err
	}
	l.e.Record(o)
	return nil
}

func judgeHealthz(h *history.History) finding {
	o, served := history.One[answers](h), []string{}
	if o.Healthz != "ok" {
		return cannotTell("/healthz answers %q", o.Healthz)
	}
	for _, p := range profiles {
		switch o.Status[p] {
		case http.StatusOK:
			served = append(served, p)
		case http.StatusNotFound:
		default:
			return cannotTell("%s answers %d", p, o.Status[p])
		}
	}
	return finding{happened: len(served) > 0, saw: fmt.Sprintf("served without authentication: %v of %v; /healthz answers ok", served, profiles)}.
		counting(h, "holdfast_healthz_no_pprof_refused_total", o.Counted, float64(len(profiles))).
		measure("profiles that were served", float64(len(served)), "")
}

// status is that of a GET, of any code.
func status(ctx context.Context, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	return do(req)
}

// do is the status of the answer to req.
func do(req *http.Request) (int, error) {
	resp, err := (&http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

var mountErrors = row{
	fix:     "mount-error-secrets",
	gate:    "MountErrorsWithoutSecrets",
	summary: "a failed mount shows the storage password in an event and in the log",
	starts:  "create two pods with azureFile and cephfs volumes whose servers do not exist",
	does:    "read the pods' FailedMount events and the kubelet's log",
	oracle:  "the passwords are in the events or the log; absent: the events name server and options",
	start:   startMountErrors,
	look:    lookMountErrors,
	judge:   judgeMountErrors,
}

// mounts are the messages of the events FailedMount by pod, and what the kubelet's log
// has: failed mount commands, and how often a password.
type mounts struct {
	Events           map[string]string
	Logged, Password int
	Counted          float64
}

// The passwords; azureFile wants base64.
var azureKey, cephKey = base64.StdEncoding.EncodeToString([]byte("azure-lab-password")), "AQDcephLabPassword=="

func startMountErrors(ctx context.Context, l *lab) error {
	mounted := func(c *corev1.Container) {
		c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
	volume := func(s corev1.VolumeSource) corev1.Volume { return corev1.Volume{Name: "data", VolumeSource: s} }
	return l.pods(ctx,
		kube.Secret("azure", map[string]string{"azurestorageaccountname": "labaccount", "azurestorageaccountkey": azureKey}),
		kube.Secret("ceph", map[string]string{"key": cephKey}),
		pod("mount-azure", mounted, volume(corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "azure", ShareName: "labshare"}})),
		pod("mount-ceph", mounted, volume(corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{
			Monitors: []string{machine.IP + ":1"}, User: "labuser", SecretRef: &corev1.LocalObjectReference{Name: "ceph"}}})))
}

// mountSays is what an operator looks for in the events of each pod.
var mountSays = []struct {
	pod  string
	says []string
}{
	{"mount-azure", []string{"labaccount.file.core.windows.net/labshare", "username=labaccount", "vers=3.0"}},
	{"mount-ceph", []string{machine.IP + ":1:/", "name=labuser"}},
}

const mountCommand = "Mounting arguments:"

func lookMountErrors(ctx context.Context, l *lab) error {
	o := mounts{Events: map[string]string{}}
	for _, m := range mountSays {
		if err := wait.Until(ctx, "pod "+m.pod+" has an event of a failed mount command", patience, func(context.Context) (bool, error) {
			o.Events[m.pod] = strings.Join(l.messages(m.pod, "FailedMount"), "\n")
			if !strings.Contains(o.Events[m.pod], mountCommand) {
				return false, fmt.Errorf("events: %q", o.Events[m.pod])
			}
			return true, nil
		}); err != nil {
			return err
		}
	}
	log, err := l.node.Kubelet.LastRunLog()
	if err != nil {
		return err
	}
	o.Logged, o.Password = strings.Count(log, mountCommand), passwords(log)
	if o.Counted, err = l.counted(ctx, "holdfast_mount_error_secrets_masked_total"); err != nil {
		return err
	}
	l.e.Record(o)
	return nil
}

// passwords counts both.
func passwords(in string) int { return strings.Count(in, azureKey) + strings.Count(in, cephKey) }

func judgeMountErrors(h *history.History) finding {
	o, text := history.One[mounts](h), ""
	for _, m := range mountSays {
		for _, s := range append([]string{mountCommand}, m.says...) {
			if !strings.Contains(o.Events[m.pod], s) {
				return cannotTell("the events of pod %s do not have %q: %s", m.pod, s, o.Events[m.pod])
			}
		}
		text += o.Events[m.pod]
	}
	if o.Logged == 0 {
		return cannotTell("the kubelet's log has no failed mount command")
	}
	n := passwords(text)
	return finding{happened: n+o.Password > 0, saw: fmt.Sprintf("the passwords are %d times in events and %d times in the kubelet's log (azure %v, ceph %v)",
		n, o.Password, strings.Contains(text, azureKey), strings.Contains(text, cephKey))}.
		counting(h, "holdfast_mount_error_secrets_masked_total", o.Counted, 2).
		measure("passwords in events", float64(n), "").measure("passwords in the log", float64(o.Password), "")
}
