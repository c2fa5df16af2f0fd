// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcollisionv120

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
)

const deployments = 20

// naive is v1.2.0 built with today's Go and nothing done about hashes.
const naive labkit.Variant = "naive"

func init() {
	labkit.Register(labkit.Lab{
		Name:    "hash-identity-v1.2.0",
		Folder:  "hash-collision-v1.2.0",
		Summary: "1.2.0: a controller manager built with another Go release rolls out every Deployment anew",
		// The collision fix finds a ReplicaSet under any hash; with its gate off
		// it is the hashes alone that keep them.
		Variants: []labkit.Variant{naive, labkit.Ours, labkit.GateOff},
		Expect:   map[labkit.Variant]labkit.Verdict{naive: labkit.Reproduced, labkit.GateOff: labkit.Absent},
		Plan: func(labkit.Profile) []string {
			return []string{
				"start etcd with its v2 API, kube-apiserver v1.2.0 and the stock controller manager, which hashes as the released one did",
				fmt.Sprintf("create %d Deployments, those with a published ReplicaSet name among them; oracle: these have that name", deployments),
				"stop it and start in its place: as variant naive a build of v1.2.0 with today's Go and nothing done about hashes; as the other variants our controller manager",
				"oracle: for 40 s, which is more than one full resync, no ReplicaSet and no pod comes, goes or is scaled; a new Deployment is rolled out, so the controller works",
				"not naive: the stock controller manager again; oracle: nothing changes",
			}
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, kcm),
			labkit.BinaryUnderTest(base, kcm),
		},
		Run: runIdentity,
	})
}

// published are templates with the ReplicaSet name that a released controller
// gave them; see the test that they come from.
type published struct {
	ReplicaSet, Source string
	Deployment         map[string]any
}

func runIdentity(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	c, stop, err := start(ctx, e, e.Stock(base, kcm))
	if err != nil {
		return labkit.Result{}, err
	}
	defer stop()
	apps, err := c.createDeployments(ctx)
	if err != nil {
		return labkit.Result{}, err
	}

	before, err := c.settled(ctx)
	if err != nil {
		return labkit.Result{}, err
	}
	if err := c.swapCM(ctx, e.UnderTest(base, kcm)); err != nil {
		return labkit.Result{}, err
	}
	changed := c.stays(ctx, before, 40*time.Second)
	var verdict *stuckError
	if changed != nil && !errors.As(changed, &verdict) {
		return labkit.Result{}, changed
	}
	e.Step("a new Deployment shows that it works")
	if _, err := c.client.CreateYAML(ctx, "default", fmt.Sprintf(web, "alive", "alive", "alive", "web:1")); err != nil {
		return labkit.Result{}, err
	}
	if _, err := c.waitRollout(ctx, "default", "alive", "web:1", time.Minute); err != nil {
		return labkit.Result{}, fmt.Errorf("the controller manager does nothing: %w", err)
	}
	if changed != nil {
		// Let it finish, to say how many it was.
		anew := 0
		for _, a := range apps {
			rss, err := c.replicaSets(ctx, a.ns, a.name)
			if err != nil {
				return labkit.Result{}, err
			}
			if len(rss) > 1 {
				anew++
			}
		}
		if anew == 0 {
			return labkit.ReproducedBecause("no Deployment got a new ReplicaSet, and yet: %v", changed), nil
		}
		return labkit.ReproducedBecause("%d of %d Deployments got a new ReplicaSet", anew, len(apps)), nil
	}
	same := strings.Count(replicaSetLines(before), "\n") + 1
	if e.Variant != naive {
		if before, err = c.settled(ctx); err != nil {
			return labkit.Result{}, err
		}
		if err := c.swapCM(ctx, e.Stock(base, kcm)); err != nil {
			return labkit.Result{}, err
		}
		if err := c.stays(ctx, before, 35*time.Second); errors.As(err, &verdict) {
			return labkit.ReproducedBecause("back at stock: %v", err), nil
		} else if err != nil {
			return labkit.Result{}, err
		}
	}
	return labkit.AbsentBecause("0 new ReplicaSets for %d Deployments; %d ReplicaSets are the same ones", len(apps), same), nil
}

// app is a Deployment by namespace and name.
type app struct{ ns, name, image string }

// createDeployments creates the lab's Deployments and waits for them: those
// with a published name each in a namespace of its own, because they select
// the same labels, and others beside them until there are enough.
func (c *cluster) createDeployments(ctx context.Context) ([]app, error) {
	file := filepath.Join(c.e.Root, "bases", base, "overlay", "pkg", "util", "pod", "testdata", "published.json")
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var known []published
	if err := json.Unmarshal(raw, &known); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	c.e.Step("create %d Deployments, %d of them with a published name", deployments, len(known))
	var apps []app
	for i, p := range known {
		o := &kube.Object{Object: p.Deployment}
		a := app{fmt.Sprintf("published-%d", i), o.GetName(), image(o)}
		if err := c.namespace(ctx, a.ns); err != nil {
			return nil, err
		}
		o.SetNamespace(a.ns)
		if _, err := c.client.Create(ctx, kube.Deployments, a.ns, o); err != nil {
			return nil, err
		}
		rs, err := c.waitRollout(ctx, a.ns, a.name, a.image, time.Minute)
		if err != nil {
			return nil, err
		}
		if rs.GetName() != p.ReplicaSet {
			return nil, fmt.Errorf("the stock controller manager made %s, published: %s (%s)", rs.GetName(), p.ReplicaSet, p.Source)
		}
		apps = append(apps, a)
	}
	for i := len(apps); i < deployments; i++ {
		a := app{"default", fmt.Sprintf("app-%d", i), fmt.Sprintf("web:%d", i)}
		text := fmt.Sprintf(web, a.name, a.name, a.name, a.image)
		if i%4 == 0 { // set, as in a template that was copied from a live pod
			text = strings.Replace(text, "metadata: {labels:", `metadata: {creationTimestamp: "2016-03-16T22:01:03Z", labels:`, 1)
		}
		if i%2 == 0 {
			text = strings.Replace(text, ", resources: {limits: {cpu: 100m, memory: 64Mi}}", "", 1)
		}
		if _, err := c.client.CreateYAML(ctx, a.ns, text); err != nil {
			return nil, err
		}
		apps = append(apps, a)
	}
	for _, a := range apps {
		if _, err := c.waitRollout(ctx, a.ns, a.name, a.image, time.Minute); err != nil {
			return nil, err
		}
	}
	return apps, nil
}
