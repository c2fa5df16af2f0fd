// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hashcollision holds the labs of the fix hash-collision: names that
// a controller makes from a hash, and what it does when the name is taken.
//
// The labs of base v1.9.11 run etcd, kube-apiserver and the controller manager
// under test, with no node: what they judge is decided by the controllers.
package hashcollision

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

const (
	v1911 = "v1.9.11"
	ns    = "default"

	// The hash label of a StatefulSet's ControllerRevision.
	hashLabel = "controller.kubernetes.io/hash"
)

// cluster is a control plane under test. Its parts are there once start has run.
type cluster struct {
	*labkit.Env
	*kube.Client
	k *node.Cluster
}

// start brings up the control plane.
func (c *cluster) start(ctx context.Context) error {
	k, err := c.StartCluster(ctx, node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: c.Stock(v1911, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: c.UnderTest(v1911, "kube-controller-manager"),
			ExtraArgs: []string{"--kube-api-qps=500", "--kube-api-burst=500"}},
	})
	if err == nil {
		c.k, c.Client = k, k.Client
	}
	return err
}

// startStep and aliveStep are the first and the last step of a lab: one on a dead
// control plane proves nothing.
func (c *cluster) startStep() labkit.Step {
	return labkit.Step{Text: "start etcd, kube-apiserver and the controller manager under test", Do: c.start}
}

func (c *cluster) aliveStep() labkit.Step {
	return labkit.AllRun(func(ctx context.Context) error { return c.k.Alive(ctx) })
}

// needs are the binaries of every lab of this base.
func needs() []labkit.Binary {
	return labkit.ManagerNeeds(v1911)
}

// workload is a Deployment, DaemonSet or StatefulSet of the template in
// tools/labs/hash-collision/data/web.json.
func (c *cluster) workload(kind, name, tag string) (*kube.Object, error) {
	file := filepath.Join(c.Root, "tools", "labs", "hash-collision", "data", "web.json")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	o := &kube.Object{}
	if err := json.Unmarshal(data, &o.Object); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	o.SetName(name)
	setTag(o, tag)
	spec := o.Object["spec"].(map[string]any)
	switch kind {
	case "DaemonSet":
		o.SetKind(kind)
		delete(spec, "replicas")
		delete(spec, "strategy")
		spec["updateStrategy"] = map[string]any{"type": "RollingUpdate"}
	case "StatefulSet":
		o.SetKind(kind)
		o.SetAPIVersion("apps/v1beta1")
		delete(spec, "strategy")
		spec["serviceName"] = name
		spec["updateStrategy"] = map[string]any{"type": "RollingUpdate"}
	}
	return o, nil
}

// setTag changes the tag of the first container's image.
func setTag(o *kube.Object, tag string) {
	kube.Slice(o, "spec", "template", "spec", "containers")[0].(map[string]any)["image"] = "registry.example/web:" + tag
}

// tagPatch is a strategic merge patch to that tag.
func tagPatch(tag string) string {
	return fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"registry.example/web:%s"}]}}}}`, tag)
}

// The pair of tags whose templates make one fnv32a hash (tools/labs/hash-collision/
// data/fnv32a-pair.txt).
const pairOld, pairNew = "v1.34.509", "v1.342.42"

// set changes a field of a nested object, making what is missing on the way.
func set(o *kube.Object, value any, path ...string) {
	m := o.Object
	for _, p := range path[:len(path)-1] {
		next, ok := m[p].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[p] = next
		}
		m = next
	}
	m[path[len(path)-1]] = value
}

// controller returns the UID of o's controller, or "".
func controller(o *kube.Object) types.UID {
	if ref := metav1.GetControllerOf(o); ref != nil {
		return ref.UID
	}
	return ""
}

// owned lists the objects of r that owner controls.
func (c *cluster) owned(ctx context.Context, r kube.GVR, owner types.UID) ([]kube.Object, error) {
	all, err := c.List(ctx, r, ns, "")
	if err != nil {
		return nil, err
	}
	var own []kube.Object
	for _, o := range all {
		if controller(&o) == owner {
			own = append(own, o)
		}
	}
	return own, nil
}

// waitOwned waits until owner controls n objects of r.
func (c *cluster) waitOwned(ctx context.Context, r kube.GVR, owner types.UID, n int, bound time.Duration) ([]kube.Object, error) {
	var own []kube.Object
	err := wait.Until(ctx, fmt.Sprintf("%d %s of its own", n, r.Resource), bound, func(ctx context.Context) (bool, error) {
		var err error
		own, err = c.owned(ctx, r, owner)
		return err == nil && len(own) == n, err
	})
	return own, err
}

// copyOf is o as it could be created again, without what ties it to its
// present life.
func copyOf(o *kube.Object) *kube.Object {
	n := o.DeepCopy()
	for _, f := range []string{"uid", "resourceVersion", "creationTimestamp", "selfLink", "generation", "ownerReferences"} {
		delete(n.Object["metadata"].(map[string]any), f)
	}
	delete(n.Object, "status")
	return n
}

// ownedBy makes owner the controller of o.
func ownedBy(o, owner *kube.Object) *kube.Object {
	yes := true
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), Controller: &yes}})
	return o
}

// remove deletes an object, waits until it is gone and then until nothing of
// kinds names it as its owner.
func (c *cluster) remove(ctx context.Context, r kube.GVR, o *kube.Object, kinds ...kube.GVR) error {
	if err := c.DeleteNow(ctx, r, ns, o.GetName()); err != nil {
		return err
	}
	if err := c.WaitGone(ctx, r, ns, o.GetName(), 30*time.Second); err != nil {
		return err
	}
	// Deleted here, not only by the garbage collector, and until none is left:
	// a sync that was under way may have created one more.
	return wait.Until(ctx, "everything that "+o.GetName()+" owned gone", 60*time.Second, func(ctx context.Context) (bool, error) {
		left := 0
		for _, k := range kinds {
			own, err := c.owned(ctx, k, o.GetUID())
			if err != nil {
				return false, err
			}
			for _, x := range own {
				left++
				if err := c.DeleteNow(ctx, k, ns, x.GetName()); err != nil && !apierrors.IsNotFound(err) {
					return false, err
				}
			}
		}
		if left > 0 {
			return false, fmt.Errorf("%d left", left)
		}
		return true, nil
	})
}

// touch changes nothing but an annotation, so that the object's controller
// syncs it.
func (c *cluster) touch(ctx context.Context, r kube.GVR, name string, i int) error {
	_, err := c.PatchMerge(ctx, r, ns, name, fmt.Sprintf(`{"metadata":{"annotations":{"lab.holdfast/touch":"%d"}}}`, i))
	return err
}

// revisionHash is the hash that a StatefulSet's revision of this data gets
// with a collision count (FNV-1 of data and count).
func revisionHash(data any, count int) (uint32, error) {
	raw, err := json.Marshal(data)
	if err != nil {
		return 0, err
	}
	h := fnv.New32()
	h.Write(raw)
	h.Write([]byte(strconv.Itoa(count)))
	return h.Sum32(), nil
}
