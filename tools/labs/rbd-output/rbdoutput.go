// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbdoutput has the lab rbd-output: whether the controller manager understands what
// rbd prints, and shows nobody a key. See tools/labs/rbd-output/README.md.
package rbdoutput

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/rbdlab"
)

const (
	// bound is for what ours does in seconds, and stock never.
	bound = time.Minute
	// badKey is no key of Ceph's. rbd prints it.
	badKey = "bm90LWEta2V5LW9mLUNlcGgsIGJ1dC1hLXNlY3JldA=="
	// smaller and larger are the claim's sizes in MiB.
	smaller, larger = 64, 128
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{rbdOutputLab(), swapLab()}
}

func rbdOutputLab() labkit.Lab {
	return labkit.Lab{
		Name:    "rbd-output",
		Summary: "an RBD volume does not expand, and Ceph's keys are in the log and in an event",
		Steps:   steps,
		Oracle:  oracle,
		Needs: labkit.ManagerNeeds(rbdlab.Base,
			labkit.BinaryUnderTest(rbdlab.Base, "kubelet"), labkit.BinaryUnderTest(rbdlab.Base, "rbdcalls")),
		Packages: rbdlab.Packages,
		Timeout:  func(labkit.Profile) time.Duration { return 20 * time.Minute },
		Test:     []labkit.Variant{labkit.Ours},
	}
}

var (
	persistentVolumes = kube.GVR{Version: "v1", Resource: "persistentvolumes"}
	claims            = kube.GVR{Version: "v1", Resource: "persistentvolumeclaims"}
)

type lab struct {
	e *labkit.Env
	r *rbdlab.Rig
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	return []labkit.Step{
		{Text: "count the commands of one attach, with a fake rbd (hack/tests/rbdcalls)", Do: l.calls},
		{Text: "start Ceph, etcd, apiserver v1.9.11, the controller manager and a kubelet under test at -v=5, with ExpandPersistentVolumes", Do: l.start},
		{Text: "provision a claim of 64 MiB", Do: l.provision},
		{Text: "raise the claim to 128 MiB", Do: l.expand},
		{Text: "provision with a malformed key, until an event says that it failed", Do: l.malformed},
		{Text: "delete the claim", Do: l.remove},
		{Text: "run a controller manager that attaches nothing, and a pod with an image; then one that does", Do: l.attach},
		{Text: "search for both keys in the logs of controller manager and kubelet, in events and objects", Do: l.look},
		labkit.AllRun(func(ctx context.Context) error { return l.r.Alive(ctx) }),
	}
}

// calls are the commands of rbd for one attach.
type calls struct {
	ReadOnly   bool
	RBD, Other []string
}

func (l *lab) calls(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, l.e.UnderTest(rbdlab.Base, "rbdcalls").Path).Output()
	if err != nil {
		return fmt.Errorf("rbdcalls: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		var c calls
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return fmt.Errorf("rbdcalls: %w: %s", err, line)
		}
		l.e.Record(c)
	}
	return nil
}

// manager is the controller manager under test.
func (l *lab) manager(args ...string) kube.ControllerManagerConfig {
	return kube.ControllerManagerConfig{
		Program:   l.e.UnderTest(rbdlab.Base, "kube-controller-manager").WithGates(map[string]bool{"ExpandPersistentVolumes": true}),
		ExtraArgs: append([]string{"--v=5"}, args...),
	}
}

func (l *lab) start(ctx context.Context) (err error) {
	m := l.manager()
	if l.r, err = rbdlab.Start(ctx, l.e, rbdlab.Config{
		APIServerGates:    map[string]bool{"ExpandPersistentVolumes": true},
		ControllerManager: &m,
		Nodes:             []rbdlab.NodeConfig{{Name: "node1", Kubelet: rbdlab.UnderTest(l.e), Args: []string{"--v=5"}}},
	}); err != nil {
		return err
	}
	if err := l.r.Secret(ctx, "bad", badKey); err != nil {
		return err
	}
	for _, c := range []string{rbdlab.AdminSecret, "bad"} {
		if _, err := l.r.Client.CreateYAML(ctx, "", fmt.Sprintf(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %[1]s}
provisioner: kubernetes.io/rbd
allowVolumeExpansion: true
parameters: {monitors: %[2]q, pool: rbd, adminId: admin, adminSecretName: %[1]s, adminSecretNamespace: %[3]s, userId: admin, userSecretName: %[1]s, imageFormat: "2"}
`, c, rbdlab.Monitor, rbdlab.NS)); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) claim(ctx context.Context, name, class string) error {
	_, err := l.r.Client.CreateYAML(ctx, rbdlab.NS, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s}
spec: {accessModes: [ReadWriteOnce], storageClassName: %s, resources: {requests: {storage: %dMi}}}
`, name, class, smaller))
	return err
}

// image is what there is of the claim: its image's size in MiB, 0 for none.
type image struct {
	When string
	MiB  int64
	// Capacity is the PersistentVolume's.
	Capacity string
	Seconds  float64
}

const (
	provisioned = "provisioned"
	expanded    = "expanded"
	removed     = "removed"
)

// sizes looks at the image of the claim's PersistentVolume until ok says so or the bound is
// over, and records the last look.
func (l *lab) sizes(ctx context.Context, when string, ok func(image) bool) error {
	start := time.Now()
	var last image
	err := wait.Until(ctx, "claim "+when, bound, func(ctx context.Context) (bool, error) {
		now := image{When: when, Seconds: time.Since(start).Seconds()}
		out, err := l.r.Ceph.Run(ctx, "rbd", "ls", "--long", "--format", "json")
		if err != nil {
			return false, err
		}
		var all []struct{ Size int64 }
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			return false, fmt.Errorf("rbd ls: %w: %s", err, out)
		}
		if len(all) > 1 {
			return false, fmt.Errorf("rbd ls: there are %d images: %s", len(all), out)
		}
		for _, i := range all {
			now.MiB = i.Size >> 20
		}
		pvs, err := l.r.Client.List(ctx, persistentVolumes, "", "")
		if err != nil {
			return false, err
		}
		for i := range pvs {
			now.Capacity = kube.String(&pvs[i], "spec", "capacity", "storage")
		}
		last = now
		return ok(now), nil
	})
	if ctx.Err() != nil || last.When == "" {
		return err
	}
	l.e.Record(last)
	l.e.Logf("%s: image of %d MiB, volume of %q after %.1f s", when, last.MiB, last.Capacity, last.Seconds)
	return nil
}

func (l *lab) provision(ctx context.Context) error {
	if err := l.claim(ctx, "claim", rbdlab.AdminSecret); err != nil {
		return err
	}
	if err := l.sizes(ctx, provisioned, func(i image) bool { return i.MiB == smaller && i.Capacity != "" }); err != nil {
		return err
	}
	_, err := l.r.Client.WaitFor(ctx, claims, rbdlab.NS, "claim", bound, "Bound", func(o *kube.Object) (bool, error) {
		return kube.String(o, "status", "phase") == "Bound", nil
	})
	return err
}

func (l *lab) expand(ctx context.Context) error {
	if _, err := l.r.Client.PatchMerge(ctx, claims, rbdlab.NS, "claim", fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":"%dMi"}}}}`, larger)); err != nil {
		return err
	}
	return l.sizes(ctx, expanded, func(i image) bool { return i.MiB == larger && i.Capacity == fmt.Sprintf("%dMi", larger) })
}

// failed is the event of the claim whose key is none.
type failed struct{ Seen bool }

func (l *lab) malformed(ctx context.Context) error {
	if err := l.claim(ctx, "bad", "bad"); err != nil {
		return err
	}
	if err := l.r.Event(ctx, "bad", "failed to create rbd image", bound); err != nil {
		return err
	}
	l.e.Record(failed{true})
	return l.r.Client.Delete(ctx, claims, rbdlab.NS, "bad")
}

func (l *lab) remove(ctx context.Context) error {
	if err := l.r.Client.Delete(ctx, claims, rbdlab.NS, "claim"); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return l.sizes(ctx, removed, func(i image) bool { return i.MiB == 0 && i.Capacity == "" })
}

// waitEvent is the event of a pod that waits for an attach.
type waitEvent struct{ Seen bool }

const (
	waits = "nothing attaches"
	runs  = "attached"
	// late waits that long: the kubelet's pauses double, and are two minutes at last.
	lateWaits = 20 * time.Second
)

// attach has two pods wait for an attach, the first until the kubelet says so, the second
// until a controller manager attaches.
func (l *lab) attach(ctx context.Context) error {
	for _, image := range []string{"told", "late"} {
		if err := l.r.Image(ctx, image); err != nil {
			return err
		}
	}
	if err := l.swap(ctx, "--controllers=*,bootstrapsigner,tokencleaner,-attachdetach"); err != nil {
		return err
	}
	if err := l.r.Create(ctx, rbdlab.Pod{Name: "told", Node: "node1", Image: "told"}); err != nil {
		return err
	}
	// The kubelet says so after 2 min 3 s.
	if err := l.r.Event(ctx, "told", "waiting for volumes to attach", 4*time.Minute); err != nil {
		return err
	}
	l.e.Record(waitEvent{true})
	if err := l.r.Client.DeleteNow(ctx, kube.Pods, rbdlab.NS, "told"); err != nil {
		return err
	}
	if err := l.r.Create(ctx, rbdlab.Pod{Name: "late", Node: "node1", Image: "late"}); err != nil {
		return err
	}
	if _, err := l.r.Until(ctx, "late", waits, lateWaits, func(s rbdlab.State) bool { return s.Runs("late") || s.Held() }); err != nil {
		return err
	}
	if err := l.swap(ctx); err != nil {
		return err
	}
	if _, err := l.r.Until(ctx, "late", runs, bound, func(s rbdlab.State) bool { return s.Runs("late") }); err != nil {
		return err
	}
	if err := l.r.Delete(ctx, "late"); err != nil {
		return err
	}
	if _, err := l.r.Until(ctx, "late", removed, bound, rbdlab.Free); err != nil {
		return err
	}
	_, err := l.r.Contents(ctx, "late", removed)
	return err
}

// swap starts the controller manager anew.
func (l *lab) swap(ctx context.Context, args ...string) (err error) {
	if err := l.r.Cluster.ControllerManager.Stop(); err != nil {
		return err
	}
	l.r.Cluster.ControllerManager, err = l.e.StartControllerManager(ctx, l.r.APIServer, l.manager(args...))
	return err
}

// sighted says how often a key is in something.
type sighted struct {
	In         string
	Admin, Bad int
	// Creates are the lines of the plugin about rbd create: at -v below 4 there are none.
	Creates int
}

func (l *lab) look(ctx context.Context) error {
	logs, err := filepath.Glob(l.e.Path("kube*.log"))
	if err != nil {
		return err
	}
	more, err := filepath.Glob(l.e.Path("*kubelet*.log"))
	if err != nil {
		return err
	}
	for _, f := range append(logs, more...) {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		l.see(strings.TrimSuffix(filepath.Base(f), ".log"), b)
	}
	for _, path := range []string{"/api/v1/events", "/api/v1/persistentvolumes", "/api/v1/persistentvolumeclaims", "/api/v1/pods", "/api/v1/nodes"} {
		code, b, err := l.r.Client.Raw(ctx, "GET", path, "", nil)
		if err != nil {
			return err
		}
		if code != 200 {
			return errors.New(path + ": " + string(b))
		}
		l.see(path, b)
	}
	return nil
}

func (l *lab) see(in string, b []byte) {
	l.e.Record(sighted{In: in, Admin: bytes.Count(b, []byte(l.r.Ceph.Key)), Bad: bytes.Count(b, []byte(badKey)), Creates: bytes.Count(b, []byte("rbd: create "))})
}
