// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

func cniNameLab(base string) labkit.Lab {
	return labkit.Lab{
		Name:     "cni-plugin-name",
		Folder:   "security",
		Test:     []labkit.Variant{labkit.Ours},
		Summary:  "a file in /etc/cni/net.d makes the kubelet run any program of the node",
		Packages: []string{node.CNIPackage},
		Needs:    labkit.KubeletNeeds(base),
		Steps: func(e *labkit.Env) []labkit.Step {
			p := &pluginPath{e: e, base: base}
			return []labkit.Step{
				{Text: "start etcd, kube-apiserver and controller manager of stock " + base + ", and a node with the kubelet under test and --network-plugin=cni", Do: p.start},
				{Text: "put a configuration whose type is a path out of --cni-bin-dir before the good configuration, and restart the kubelet", Do: p.write},
				{Text: "create a pod; wait until the program behind the path has run, or until the pod is ready with the good configuration", Do: p.create},
				labkit.AllRun(func(ctx context.Context) error { return p.c.Alive(ctx) }),
			}
		},
		Oracle: labkit.Oracle{
			Text:  []string{"the program behind the path has run as root; absent: the kubelet's log names the skipped file, the kubelet has counted it, and the pod has an address of the good configuration"},
			Judge: judgePluginPath,
		},
	}
}

// pluginPath is a cluster whose node has a CNI configuration that names a path.
type pluginPath struct {
	e      *labkit.Env
	base   string
	c      *node.Cluster
	marker string
}

// plugged is what was there when the pod was ready or the program had run.
type plugged struct {
	Ran     bool // the program behind the path
	Ready   bool // the pod
	Named   bool // the kubelet's log says which file it left out
	Counted float64
}

func (p *pluginPath) start(ctx context.Context) error {
	var err error
	p.c, err = p.e.StartStockCluster(ctx, p.base, node.Config{Name: "node1", Kubelet: p.e.UnderTest(p.base, "kubelet"), CNI: true})
	return err
}

// file is the configuration that names a path; it sorts before the kit's.
const pluginFile = "05-path.conf"

func (p *pluginPath) write(ctx context.Context) error {
	n := p.c.Nodes[0]
	p.marker = filepath.Join(n.Dir, "marker-cni")
	program := filepath.Join(n.Dir, "not-a-plugin")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nid -u > "+p.marker+"\nexit 1\n"), 0o755); err != nil {
		return err
	}
	// More .. than the folder is deep lead to the root.
	conf := fmt.Sprintf(`{"cniVersion": "0.3.1", "name": "path", "type": %q}`, strings.Repeat("../", 12)+strings.TrimPrefix(program, "/"))
	if err := os.WriteFile(filepath.Join(n.Dir, "cni", pluginFile), []byte(conf), 0o644); err != nil {
		return err
	}
	if err := n.StopKubelet(); err != nil {
		return err
	}
	return n.StartKubelet(ctx, p.e.UnderTest(p.base, "kubelet"))
}

func (p *pluginPath) create(ctx context.Context) error {
	if err := p.c.Client.Make(ctx, ns, pod("plugged", nil)); err != nil {
		return err
	}
	var o plugged
	if err := wait.Until(ctx, "the program behind the path has run, or the pod is ready", 90*time.Second, func(ctx context.Context) (bool, error) {
		// The program's first act makes the file, its second the text.
		b, err := os.ReadFile(p.marker)
		o.Ran = err == nil && strings.TrimSpace(string(b)) == "0"
		live, err := p.c.Client.Get(ctx, kube.Pods, ns, "plugged")
		o.Ready = err == nil && kubeletlab.PodReady(live)
		return o.Ran || o.Ready, err
	}); err != nil {
		return err
	}
	log, err := p.c.Nodes[0].Kubelet.LastRunLog()
	if err != nil {
		return err
	}
	o.Named = strings.Contains(log, pluginFile+" is left out: ")
	if o.Counted, err = kubeletlab.Metric(ctx, p.c.Nodes[0], "holdfast_cni_plugin_name_refused_total"); err != nil {
		return err
	}
	p.e.Record(o)
	return nil
}

func judgePluginPath(h *history.History) labkit.Outcome {
	o := history.One[plugged](h)
	switch {
	case o.Ran:
		return labkit.ReproducedBecause("the kubelet ran, as root, the program that %s names by a path", pluginFile)
	case !o.Ready:
		return labkit.InconclusiveBecause("the program did not run, and the pod is not ready")
	case !o.Named || o.Counted != 1:
		return labkit.InconclusiveBecause("the pod is ready, but the log says that %s was skipped: %t, counted: %v", pluginFile, o.Named, o.Counted)
	}
	return labkit.AbsentBecause("%s was skipped, and the pod is ready with the next configuration", pluginFile)
}
