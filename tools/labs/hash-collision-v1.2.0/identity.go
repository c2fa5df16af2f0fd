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
	"holdfast/tools/labkit/process"
)

const deployments = 20

// naive is v1.2.0 built with today's Go and nothing done about hashes.
const naive labkit.Variant = "naive"

func identityLab() labkit.Lab {
	return labkit.Lab{
		Name:    "hash-identity-v1.2.0",
		Folder:  "hash-collision-v1.2.0",
		Summary: "1.2.0: a controller manager built with another Go release rolls out every Deployment again",
		// The collision fix finds a ReplicaSet under any hash; with its gate off
		// it is the hashes alone that keep them.
		Variants: []labkit.Variant{naive, labkit.Ours, labkit.GateOff},
		Expect:   map[labkit.Variant]labkit.Verdict{naive: labkit.Reproduced, labkit.GateOff: labkit.Absent},
		Steps:    identitySteps,
		Test:     []labkit.Variant{labkit.Ours},
		Oracle: labkit.Oracle{Text: []string{"while the other controller manager runs, no ReplicaSet and no pod is created, deleted or scaled; a new Deployment is rolled out, which proves that the controller manager works", "except in naive: the same holds after the swap back to stock"},
			Judge: judgeIdentity},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, kcm),
			labkit.BinaryUnderTest(base, kcm),
		},
	}
}

// published are templates with the ReplicaSet name that a released controller
// gave them; see the test that they come from.
type published struct {
	ReplicaSet, Source string
	Deployment         map[string]any
}

// identity is the lab of controller managers that hash otherwise.
type identity struct {
	e    *labkit.Env
	c    *cluster
	apps []app
}

func identitySteps(e *labkit.Env) []labkit.Step {
	l := &identity{e: e}
	other := "Holdfast's controller manager"
	if e.Variant == naive {
		other = "a build of v1.2.0 with today's Go and without the fix for hashes"
	}
	steps := []labkit.Step{
		{Text: "start etcd with its v2 API, kube-apiserver v1.2.0 and the stock controller manager, which computes the same hashes as upstream's release", Do: func(ctx context.Context) (err error) {
			l.c, err = start(ctx, e, e.Stock(base, kcm))
			return err
		}},
		{Text: fmt.Sprintf("create %d Deployments; those whose ReplicaSet name was published must get that name", deployments), Do: func(ctx context.Context) (err error) {
			l.apps, err = l.c.createDeployments(ctx)
			return err
		}},
		{Text: "start " + other + " in its place, and watch for 40 s, which is more than one full resync", Do: l.swap},
	}
	if e.Variant != naive {
		steps = append(steps, labkit.Step{Text: "the stock controller manager again", Do: l.back})
	}
	return append(steps, labkit.AllRun(func(context.Context) error {
		return process.AllAlive(l.c.api.Proc, l.c.cm.Proc)
	}))
}

func (l *identity) swap(ctx context.Context) error {
	before, err := l.c.settled(ctx)
	if err != nil {
		return err
	}
	if err := l.c.swapCM(ctx, l.e.UnderTest(base, kcm)); err != nil {
		return err
	}
	changed := l.c.stays(ctx, whenOurs, before, 40*time.Second)
	if changed != nil && !errors.Is(changed, labkit.Enough) {
		return changed
	}
	l.e.Step("a new Deployment shows that it works")
	if _, err := l.c.client.CreateYAML(ctx, "default", fmt.Sprintf(web, "alive", "alive", "alive", "web:1")); err != nil {
		return err
	}
	if _, err := l.c.waitRollout(ctx, "default", "alive", "web:1", time.Minute); err != nil {
		return fmt.Errorf("the controller manager does nothing: %w", err)
	}
	o := counted{Deployments: len(l.apps)}
	for _, a := range l.apps {
		rss, err := l.c.replicaSets(ctx, a.ns, a.name)
		if err != nil {
			return err
		}
		if len(rss) > 1 {
			o.Anew++
		}
	}
	l.e.Record(o)
	return changed
}

func (l *identity) back(ctx context.Context) error {
	before, err := l.c.settled(ctx)
	if err != nil {
		return err
	}
	if err := l.c.swapCM(ctx, l.e.Stock(base, kcm)); err != nil {
		return err
	}
	return l.c.stays(ctx, whenStock, before, 35*time.Second)
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
			return nil, fmt.Errorf("the stock controller manager created %s, published: %s (%s)", rs.GetName(), p.ReplicaSet, p.Source)
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
