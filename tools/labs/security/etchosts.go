// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/wait"
)

// hostsMiB is what the pod writes into its /etc/hosts.
const hostsMiB = 50

var etcHosts = row{
	slug:    "etc-hosts-eviction",
	gate:    "CountEtcHosts",
	summary: "what a pod writes into its /etc/hosts is counted nowhere",
	plan: []string{
		fmt.Sprintf("create a pod that writes %d MiB into its /etc/hosts", hostsMiB),
		"oracle: the pod's ephemeral storage in /stats/summary is less, after the file has that size; absent: it is more, and that of another pod is not",
	},
	start: func(ctx context.Context, l *lab) error {
		return l.pods(ctx, pod("hosts-writer", fmt.Sprintf("    command: [/labpod, fill, /etc/hosts, '%d']\n", hostsMiB*mib), "")+pod("hosts-other", "", ""))
	},
	judge: judgeEtcHosts,
}

func judgeEtcHosts(ctx context.Context, l *lab) (outcome, error) {
	for _, name := range []string{"hosts-writer", "hosts-other"} {
		if err := l.waitReady(ctx, name, 60*time.Second); err != nil {
			return outcome{}, err
		}
	}
	o, err := l.c.Client.Get(ctx, kube.Pods, ns, "hosts-writer")
	if err != nil {
		return outcome{}, err
	}
	file := filepath.Join(l.node.Dir, "kubelet", "pods", string(o.GetUID()), "etc-hosts")
	if err := wait.Until(ctx, "the pod has written its /etc/hosts", 30*time.Second, func(context.Context) (bool, error) {
		info, err := os.Stat(file)
		return err == nil && info.Size() >= hostsMiB*mib, err
	}); err != nil {
		return outcome{}, err
	}
	var used map[string]uint64
	if err := wait.Until(ctx, "/stats/summary has both pods", 60*time.Second, func(ctx context.Context) (bool, error) {
		var err error
		used, err = l.ephemeral(ctx)
		_, writer := used["hosts-writer"]
		_, other := used["hosts-other"]
		return writer && other, err
	}); err != nil {
		return outcome{}, err
	}
	if used["hosts-other"] > mib {
		return outcome{}, fmt.Errorf("the other pod uses %d bytes", used["hosts-other"])
	}
	return outcome{used["hosts-writer"] < hostsMiB*mib, fmt.Sprintf("%d MiB in /etc/hosts, %d bytes of ephemeral storage in /stats/summary; another pod has %d", hostsMiB, used["hosts-writer"], used["hosts-other"])},
		l.metric(ctx, "holdfast_etc_hosts_eviction_large_total", 1)
}

// ephemeral is the used ephemeral storage of each pod of the namespace, in bytes.
func (l *lab) ephemeral(ctx context.Context) (map[string]uint64, error) {
	text, err := load.Get(ctx, l.node.KubeletURL+"/stats/summary")
	if err != nil {
		return nil, err
	}
	var summary struct {
		Pods []struct {
			PodRef  struct{ Name, Namespace string }
			Storage *struct{ UsedBytes uint64 } `json:"ephemeral-storage"`
		}
	}
	if err := json.Unmarshal([]byte(text), &summary); err != nil {
		return nil, err
	}
	used := map[string]uint64{}
	for _, p := range summary.Pods {
		if p.PodRef.Namespace == ns && p.Storage != nil {
			used[p.PodRef.Name] = p.Storage.UsedBytes
		}
	}
	return used, nil
}
