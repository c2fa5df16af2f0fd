// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"encoding/json"
	"strings"
	"testing"

	"holdfast/cmd/internal/eviction"
	"holdfast/cmd/internal/mutate"
)

// What a kubelet answers may be anything: nothing panics, and errors have nothing of it.
func TestBadAnswers(t *testing.T) {
	n := newNode("node1", "v1.7.0")
	p := n.add(t, "web-0", "1.7", subPath(probe(ported(newContainer("app")))))
	spec(p)["affinity"] = required("disk", "In", "ssd")
	pods, _ := json.Marshal(object{"kind": "PodList", "items": []any{p}})
	stats, _ := json.Marshal(n.cgroups)
	sum, _ := json.Marshal(object{"node": object{"memory": object{"availableBytes": 1e9}, "fs": n.fs, "runtime": object{"imageFs": n.imagefs}}})
	j, err := newJudge()
	if err != nil {
		t.Fatal(err)
	}
	table := tableOf(t)
	to := holdfast()
	c := &checker{judge: j, table: table, to: &to}
	read := 0
	check := func(a *answers, err error) {
		if err != nil {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("an error shows a secret: %v", err)
			}
			return
		}
		read++
		a.node = &node{}
		a.node.Status.NodeInfo.KubeletVersion = "v1.7.0"
		a.kubelet, a.known = parseVersion("v1.7.0")
		for _, f := range c.check(a).findings {
			if strings.Contains(f.Text+f.Object+f.Remedy, secret) {
				t.Errorf("a finding shows a secret: %+v", f)
			}
		}
	}
	right, err := decodeStats(stats)
	if err != nil {
		t.Fatal(err)
	}
	const count = 10_000
	mutate.Texts(count, string(pods), func(s string) {
		got, err := decodePods([]byte(s))
		check(&answers{pods: got, seen: right}, err)
	})
	mutate.Texts(count, string(stats), func(s string) {
		got, err := decodeStats([]byte(s))
		all, _ := decodePods(pods)
		check(&answers{pods: all, seen: got}, err)
	})
	mutate.Texts(count, string(sum), func(s string) {
		got, err := decodeSummary([]byte(s))
		check(&answers{summary: got}, err)
	})
	mutate.Texts(count, "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%", func(s string) {
		for _, th := range eviction.Parse(s) {
			_, _, _ = th.Below(1e9, 2e9)
		}
	})
	if read < count/5 {
		t.Errorf("only %d answers could be read: the test tests little", read)
	}
}

func FuzzStats(f *testing.F) {
	f.Add([]byte(`{"/a":{"spec":{"labels":{"io.kubernetes.pod.uid":"u","io.kubernetes.container.name":"c","annotation.io.kubernetes.container.hash":"5cee1837"}}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := decodeStats(b)
		if err != nil && all != nil {
			t.Error("both an answer and an error")
		}
		for k := range all {
			if k.uid == "" || k.container == "" || k.container == "POD" {
				t.Errorf("key %+v", k)
			}
		}
	})
}

func FuzzPods(f *testing.F) {
	f.Add([]byte(`{"kind":"PodList","items":[{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c"}]}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		pods, err := decodePods(b)
		for _, p := range pods {
			if err != nil || p.Metadata.Name == "" {
				t.Errorf("%v, %v", p, err)
			}
			_, _, _, _ = p.static(), p.ownUID(), p.subPaths(), p.ended()
		}
	})
}
