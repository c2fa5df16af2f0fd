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

	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/wait"
)

var healthz = row{
	slug:    "healthz-no-pprof",
	gate:    "KubeletHealthzOwnMux",
	summary: "the kubelet's healthz port gives profiles to everybody",
	plan:    []string{"oracle: the answers of the healthz port to /debug/pprof/ and two profiles; /healthz must answer 200"},
	judge:   judgeHealthz,
}

func judgeHealthz(ctx context.Context, l *lab) (outcome, error) {
	url := "http://" + l.node.IP + ":10248"
	if ok, err := load.Get(ctx, url+"/healthz"); err != nil || ok != "ok" {
		return outcome{}, fmt.Errorf("/healthz: %q, %w", ok, err)
	}
	served := []string{}
	paths := []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=1"}
	for _, p := range paths {
		code, err := status(ctx, url+p)
		if err != nil {
			return outcome{}, err
		}
		if code == http.StatusOK {
			served = append(served, p)
		} else if code != http.StatusNotFound {
			return outcome{}, fmt.Errorf("%s answers %d", p, code)
		}
	}
	return outcome{len(served) > 0, fmt.Sprintf("served without authentication: %v of %v; /healthz answers ok", served, paths)},
		l.metric(ctx, "holdfast_healthz_no_pprof_refused_total", len(paths))
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
	slug:    "mount-error-secrets",
	gate:    "MountErrorsWithoutSecrets",
	summary: "a failed mount shows the storage password in an event and in the log",
	plan: []string{
		"create two pods with azureFile and cephfs volumes whose servers are not there",
		"oracle: the passwords in the pods' FailedMount events and in the kubelet's log; absent: the events are there and name server and options",
	},
	start: startMountErrors,
	judge: judgeMountErrors,
}

// The passwords; azureFile wants base64.
var azureKey, cephKey = base64.StdEncoding.EncodeToString([]byte("azure-lab-password")), "AQDcephLabPassword=="

func startMountErrors(ctx context.Context, l *lab) error {
	secret := func(name string, data map[string]string) string {
		s := fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s}\nstringData:\n", name)
		for k, v := range data {
			s += fmt.Sprintf("  %s: %q\n", k, v)
		}
		return s
	}
	mounts := "    volumeMounts: [{name: data, mountPath: /data}]\n"
	return l.pods(ctx, secret("azure", map[string]string{"azurestorageaccountname": "labaccount", "azurestorageaccountkey": azureKey})+
		secret("ceph", map[string]string{"key": cephKey})+
		pod("mount-azure", mounts, "  volumes: [{name: data, azureFile: {secretName: azure, shareName: labshare}}]\n")+
		pod("mount-ceph", mounts, "  volumes: [{name: data, cephfs: {monitors: ['"+machine.IP+":1'], user: labuser, secretRef: {name: ceph}}}]\n"))
}

func judgeMountErrors(ctx context.Context, l *lab) (outcome, error) {
	text := ""
	for name, says := range map[string][]string{
		"mount-azure": {"labaccount.file.core.windows.net/labshare", "username=labaccount", "vers=3.0"},
		"mount-ceph":  {machine.IP + ":1:/", "name=labuser"},
	} {
		var got string
		if err := wait.Until(ctx, "pod "+name+" has an event of a failed mount command", 90*time.Second, func(context.Context) (bool, error) {
			got = strings.Join(l.messages(name, "FailedMount"), "\n")
			if !strings.Contains(got, "Mounting arguments:") {
				return false, fmt.Errorf("events: %q", got)
			}
			return true, nil
		}); err != nil {
			return outcome{}, err
		}
		// What an operator looks for.
		for _, s := range says {
			if !strings.Contains(got, s) {
				return outcome{}, fmt.Errorf("the events of pod %s do not have %q: %s", name, s, got)
			}
		}
		text += got
	}
	log, err := l.node.Kubelet.LastRunLog()
	if err != nil {
		return outcome{}, err
	}
	if !strings.Contains(log, "Mounting arguments:") {
		return outcome{}, fmt.Errorf("no failed mount command in the kubelet's log")
	}
	count := func(in string) int { return strings.Count(in, azureKey) + strings.Count(in, cephKey) }
	return outcome{count(text)+count(log) > 0, fmt.Sprintf("the passwords stand %d times in events and %d times in the kubelet's log (azure %v, ceph %v)",
			count(text), count(log), strings.Contains(text, azureKey), strings.Contains(text, cephKey))},
		l.metric(ctx, "holdfast_mount_error_secrets_masked_total", 2)
}
