// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package labkit is what an author of labs sees: programs that start real cluster
// components, drive one incident, and judge by an oracle whether it was reproduced.
//
// # Packages
//
// The kit is split by what it touches. Each package knows those before it only:
//
//	wait      to poll, bounded
//	metrics   a page of metrics
//	history   observations as JSON lines
//	journal   what a run says and keeps: steps, the history, facts, numbers, dumps
//	process   a program as data, its health, its end
//	machine   namespaces, network, cgroups, ports, what is left behind
//	registry  images, and a registry that serves them
//	kube      certificates, etcd and the control plane; a client and a proxy that record
//	node      dockerd and kubelet in namespaces of their own; a whole cluster
//	load      HTTP requests
//	labkit    Lab, and Env, which embeds what is above
//	judgetest what an oracle must do with less than a whole history
//	run       the runner, outcomes, lab rejudge, the cluster of the command up
//
// # Words
//
// A Lab is a Go value. The runner runs it once per variant: "stock" (upstream
// with the toolchain patches only), "ours", and, if its fix names feature
// gates for the lab, "ours-gate-off". Each run answers Reproduced, Absent or
// Inconclusive. Unless the lab says otherwise stock must be reproduced, ours
// absent and ours-gate-off reproduced; any other answer makes the command
// exit 1. A crash, an error, a time-out, a panic or a left-over process is
// Inconclusive, never a pass.
//
// Every run gets a machine of its own: new PID, mount, network, IPC and UTS
// namespaces (root is needed). Inside it 127.0.0.1 and 10.90.0.1 are free of
// other users, so the components listen on the ports of a real cluster, and
// when the run's first process ends the kernel ends everything else. A Node is
// a further network, mount and cgroup namespace with an address of its own
// (10.90.0.11, .12, …), its own /run, /etc (copy on write), /var/lib/docker,
// /var/lib/kubelet, /var/lib/dockershim and a dockerd with its own bridge
// (10.91.N.0/24); pod addresses are reachable from the lab's code. There is no
// way out of the machine: images are imported from a program of ours, never
// pulled.
//
// # A whole lab
//
//	package replicagone
//
//	import (
//		"context"
//		"time"
//
//		"holdfast/tools/labkit"
//		"holdfast/tools/labkit/history"
//		"holdfast/tools/labkit/kube"
//		"holdfast/tools/labkit/node"
//	)
//
//	// Labs are those of this folder.
//	func Labs() []labkit.Lab {
//		return []labkit.Lab{{
//			Name:    "replica-gone",
//			Summary: "a deleted pod comes back under another name",
//			Needs:   labkit.ManagerNeeds("v1.9.11"),
//			Steps:   steps,
//			Oracle:  labkit.Oracle{Text: []string{"the API shows a new pod within 30 s"}, Judge: judge},
//		}}
//	}
//
//	type lab struct {
//		e *labkit.Env
//		c *node.Cluster
//	}
//
//	// What steps record is a type with a name; it is the kind of its line.
//	type replaced struct{ Was, Is string }
//
//	func steps(e *labkit.Env) []labkit.Step {
//		l := &lab{e: e}
//		return []labkit.Step{
//			{Text: "start etcd, apiserver and the controller manager under test", Do: l.start},
//			{Text: "create a ReplicationController and delete its pod", Do: l.replace},
//			labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }),
//		}
//	}
//
//	// Env.StartStockCluster is shorter where the control plane is stock's.
//	func (l *lab) start(ctx context.Context) (err error) {
//		l.c, err = l.e.StartCluster(ctx, node.ClusterConfig{
//			APIServer:         &kube.APIServerConfig{Program: l.e.Stock("v1.9.11", "kube-apiserver")},
//			ControllerManager: &kube.ControllerManagerConfig{Program: l.e.UnderTest("v1.9.11", "kube-controller-manager")},
//			// Scheduler: …, Nodes: []node.Config{{Name: "node1", Kubelet: l.e.UnderTest("v1.9.11", "kubelet")}},
//		})
//		return err // an error is always Inconclusive
//	}
//
//	func (l *lab) replace(ctx context.Context) error {
//		pods, err := l.c.Client.Record(ctx, kube.Pods, "default") // every event from now on, with its time
//		if err != nil {
//			return err
//		}
//		if _, err := l.c.Client.CreateYAML(ctx, "default", rcYAML); err != nil {
//			return err
//		}
//		first, err := pods.Wait(ctx, 30*time.Second, "the first pod", func(ev kube.RecordedEvent) bool {
//			return ev.Type == "ADDED"
//		})
//		if err != nil {
//			return err
//		}
//		o := replaced{Was: first.Object.GetName()}
//		if err := l.c.Client.Delete(ctx, kube.Pods, "default", o.Was); err != nil {
//			return err
//		}
//		next, err := pods.Wait(ctx, 30*time.Second, "another pod", func(ev kube.RecordedEvent) bool {
//			return ev.Type == "ADDED" && ev.Object.GetName() != o.Was
//		})
//		if ctx.Err() != nil {
//			return err
//		}
//		if err == nil { // here the lack of a pod IS the incident, and is recorded too
//			o.Is = next.Object.GetName()
//		}
//		l.e.Record(o)
//		return nil
//	}
//
//	func judge(h *history.History) labkit.Outcome {
//		o := history.One[replaced](h)
//		if o.Is == "" {
//			return labkit.ReproducedBecause("no new pod within 30 s")
//		}
//		return labkit.AbsentBecause("pod %s came after %s", o.Is, o.Was)
//	}
//
// # Rules for authors
//
//   - Page (README.md), data and code of a lab lie in one folder,
//     tools/labs/<name>/, or tools/labs/checks/<name>/ if it shows no incident;
//     <name> is the lab's, or that of the fix whose labs share the folder.
//     Lab.Folder says so where it is not the lab's name. tools/labs/labs.go
//     lists the package.
//   - Name the lab in fix.json: among the labs of the fix that it shows, with
//     the gates that ours-gate-off switches off, or in "checks" if it shows no
//     incident.
//   - Make pods, Services and the like with kube.Pod, kube.Service, node.Pod, node.Web
//     and kube.Client.Make, which know the types of k8s.io/api. YAML is for what the
//     lab reads from a file, and where the text itself matters.
//   - Never sleep as an oracle: use kube.Recorder.Wait, kube.Client.WaitFor or
//     wait.Until, all of which are bounded.
//   - Distinguish "the incident did not happen" from "I could not tell": before
//     you answer Absent, prove that the trigger happened (the pod ran, the
//     kubelet did restart, the watch did close). Else return an error.
//   - Judge looks at the history only. Give it a test with good, bad and cut
//     histories (package judgetest), so that less than it needs is never Absent.
//   - Take chance from Env.Rand only; it is seeded by --seed.
//   - Start processes with Env.Start or the component helpers, undo everything
//     else in Env.OnStop; both are undone in reverse order on every way out.
//   - Under "ours-gate-off" Env.UnderTest sets the gates to false by itself.
//
// # Running
//
//	lab                          list the labs
//	lab replica-gone --profile short --seed 7
//	lab replica-gone --variant stock --keep    one variant; artefacts stay
//	lab replica-gone --bin v1.9.11/ours=/some/dir/with/binaries
//
// An author's --bin may map stock binaries to both roles while ours do not
// exist yet; stock must then still answer reproduced.
//
// Binaries come from _output/bin/<base>/<variant>/<name>; HOLDFAST_BIN_DIR
// names another _output/bin, and --bin or HOLDFAST_BIN_MAP (comma separated)
// map base/variant=directory or base/variant/name=file. A lab's directory
// holds one log per process, events.log of the steps, and on a wrong or
// inconclusive answer a dump of the API (dump/*.json) and of the containers.
package labkit
