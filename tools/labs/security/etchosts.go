// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/wait"
)

// hostsMiB is what the pod writes into its /etc/hosts.
const hostsMiB = 50

var etcHosts = row{
	fix:     "etc-hosts-eviction",
	gate:    "CountEtcHosts",
	summary: "what a pod writes into its /etc/hosts is not counted anywhere",
	starts:  fmt.Sprintf("create a pod that writes %d MiB into its /etc/hosts, and one that does not", hostsMiB),
	does:    "when the file has that size, read the ephemeral storage of both pods in /stats/summary",
	oracle:  "the pod's ephemeral storage is less than the file; absent: it is more, and that of the other pod is not",
	start: func(ctx context.Context, l *lab) error {
		return l.pods(ctx, pod("hosts-writer", func(c *corev1.Container) {
			c.Command = []string{"/labpod", "fill", "/etc/hosts", fmt.Sprint(hostsMiB * mib)}
		}), pod("hosts-other", nil))
	},
	look:  lookEtcHosts,
	judge: judgeEtcHosts,
}

// storage is the size of the pod's /etc/hosts and the used ephemeral storage of each pod,
// in bytes.
type storage struct {
	File    int64
	Used    map[string]uint64
	Counted float64
}

func lookEtcHosts(ctx context.Context, l *lab) error {
	var o storage
	for _, name := range []string{"hosts-writer", "hosts-other"} {
		if err := l.waitReady(ctx, name, patience); err != nil {
			return err
		}
	}
	writer, err := l.c.Client.Get(ctx, kube.Pods, ns, "hosts-writer")
	if err != nil {
		return err
	}
	file := filepath.Join(l.node.Dir, "kubelet", "pods", string(writer.GetUID()), "etc-hosts")
	if err := wait.Until(ctx, "the pod has written its /etc/hosts", patience, func(context.Context) (bool, error) {
		info, err := os.Stat(file)
		if err != nil {
			return false, err
		}
		o.File = info.Size()
		return o.File >= hostsMiB*mib, nil
	}); err != nil {
		return err
	}
	if err := wait.Until(ctx, "/stats/summary has both pods", patience, func(ctx context.Context) (bool, error) {
		var err error
		o.Used, err = l.ephemeral(ctx)
		_, writer := o.Used["hosts-writer"]
		_, other := o.Used["hosts-other"]
		return writer && other, err
	}); err != nil {
		return err
	}
	if o.Counted, err = l.counted(ctx, "holdfast_etc_hosts_eviction_large_total"); err != nil {
		return err
	}
	l.e.Record(o)
	return nil
}

func judgeEtcHosts(h *history.History) finding {
	o := history.One[storage](h)
	writer, there := o.Used["hosts-writer"]
	other, both := o.Used["hosts-other"]
	switch {
	case !there || !both || o.File < hostsMiB*mib:
		return cannotTell("the file has %d bytes, /stats/summary has %v", o.File, o.Used)
	case other > mib:
		return cannotTell("the other pod uses %d bytes", other)
	}
	return finding{happened: writer < hostsMiB*mib, saw: fmt.Sprintf("%d MiB in /etc/hosts, %d bytes of ephemeral storage in /stats/summary; another pod has %d", hostsMiB, writer, other)}.
		counting(h, "holdfast_etc_hosts_eviction_large_total", o.Counted, 1).
		measure("ephemeral storage in /stats/summary", float64(writer), "bytes")
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
