// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hashcollisionv120 holds the labs of base v1.2.0: hash-collision-v1.2.0,
// a rollout that stops on "already exists" because two pod templates have one
// hash, and hash-identity-v1.2.0, a controller manager built with another Go
// release that rolls out every Deployment anew.
package hashcollisionv120

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/metrics"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{collisionLab(), identityLab()}
}

func collisionLab() labkit.Lab {
	return labkit.Lab{
		Name:    "hash-collision-v1.2.0",
		Summary: "1.2.0: the second rollout never happens when both pod templates have the same adler32",
		Steps:   collisionSteps,
		Test:    []labkit.Variant{labkit.Stock, labkit.Ours},
		Oracle: labkit.Oracle{Text: []string{
			"the report's second image, each later release and each undo roll out: all replicas are in one ReplicaSet of that image, and the status shows it",
			"if the second image does not roll out: the same controller manager rolls out another Deployment, and the first Deployment has not changed",
			"after the swap back to stock, and with the gate off: no ReplicaSet and no pod has changed; the Deployments of strategy Recreate can be scaled and keep their pods"},
			Judge: judgeCollision},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kubectl"),
			labkit.StockBinary(base, kcm),
			labkit.BinaryUnderTest(base, kcm),
		},
		Packages: []string{"jq"}, // the page's command
		Timeout:  func(labkit.Profile) time.Duration { return 15 * time.Minute },
	}
}

// reported is the hash in the name of the report's ReplicaSet
// (kubernetes/kubernetes#43449).
const reported = "2281102275"

// A rollout takes about a second. stuckAfter is how long the report's second
// one may take; bound is for those that are known to come, on a machine that
// may be busy with other things.
const (
	stuckAfter = 20 * time.Second
	bound      = 90 * time.Second
)

const web = `
apiVersion: extensions/v1beta1
kind: Deployment
metadata: {name: %s}
spec:
  replicas: 2
  selector: {matchLabels: {app: %s}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 1}}
  template:
    metadata: {labels: {app: %s}}
    spec:
      containers:
      - {name: web, image: "%s", resources: {limits: {cpu: 100m, memory: 64Mi}}}
`

// collision is the lab of the report.
type collision struct {
	e *labkit.Env
	c *cluster
}

// The Deployment of the report.
const reportNS, reportName = "yce", "yce-test"

func collisionSteps(e *labkit.Env) []labkit.Step {
	l := &collision{e: e}
	steps := []labkit.Step{
		{Text: "start etcd with its v2 API, kube-apiserver v1.2.0 and the controller manager under test; a loop reports pods as ready", Do: func(ctx context.Context) (err error) {
			if l.c, err = start(ctx, e, e.UnderTest(base, kcm)); err != nil {
				return err
			}
			return l.c.namespace(ctx, reportNS)
		}},
		{Text: "create the Deployment of the original report; its ReplicaSet must have the report's name, yce-test-" + reported, Do: l.first},
		{Text: "release the report's second image; if it has not rolled out within 20 s, check that the controller manager works at all", Do: l.second},
	}
	for _, s := range []struct {
		text string
		do   func(context.Context, *labkit.Env, *cluster, kube.Program) error
	}{
		{"check the event and the count of the collision", told},
		{"kubectl v1.2.0 rollout undo, twice there and back; kill the controller manager in between", undo},
		{"100 releases of another Deployment with tags yyyymmddHHMM, 11 of which collide; kill -9 of the controller manager during every tenth", tags},
		{"make Deployments of strategy Recreate collide with the running ReplicaSet and with an older one, and roll them back", recreate},
		{"swap back to the stock controller manager for more than one full resync, with a Deployment paused, as the page says, that collided and then got strategy Recreate; " +
			"let stock scale the Deployments of strategy Recreate and roll out the next releases, which do not collide; swap to Holdfast again", leave},
		{"make the Deployments of strategy Recreate collide again; switch the gate off", gateOff},
		{"make them collide again, kill the leader, and let stock take over", failover},
		{"read Holdfast's metrics", metricsThere},
	} {
		steps = append(steps, labkit.Step{Text: s.text, Do: func(ctx context.Context) error { return s.do(ctx, e, l.c, e.UnderTest(base, kcm)) }})
	}
	return append(steps, labkit.AllRun(func(context.Context) error {
		return process.AllAlive(l.c.api.Proc, l.c.cm.Proc)
	}))
}

func (l *collision) first(ctx context.Context) error {
	o, err := manifest(l.e, "old.json")
	if err != nil {
		return err
	}
	if _, err := l.c.client.Create(ctx, kube.Deployments, reportNS, o); err != nil {
		return err
	}
	rs, err := l.c.waitRollout(ctx, reportNS, reportName, image(o), 60*time.Second)
	if err == nil && rs.GetName() != reportName+"-"+reported {
		err = fmt.Errorf("the ReplicaSet is %s, the report's was %s-%s", rs.GetName(), reportName, reported)
	}
	return err
}

func (l *collision) second(ctx context.Context) error {
	o, err := manifest(l.e, "new.json")
	if err != nil {
		return err
	}
	live, err := l.c.client.Get(ctx, kube.Deployments, reportNS, reportName)
	if err != nil {
		return err
	}
	live.Object["spec"].(map[string]any)["template"] = kube.Field(o, "spec", "template")
	if _, err := l.c.client.Update(ctx, kube.Deployments, reportNS, live); err != nil {
		return err
	}
	r, _, stuck := l.c.watchRollout(ctx, reportNS, reportName, image(o), stuckAfter)
	if ctx.Err() != nil || r.Want == 0 {
		return stuck
	}
	l.e.Record(secondRelease{r})
	if stuck == nil {
		return nil
	}
	l.e.Step("it did not roll out; check that the controller manager works at all")
	if _, err := l.c.client.CreateYAML(ctx, "default", fmt.Sprintf(web, "alive", "alive", "alive", "web:1")); err != nil {
		return err
	}
	if _, err := l.c.waitRollout(ctx, "default", "alive", "web:1", bound); err != nil {
		return fmt.Errorf("the controller manager does nothing: %w", err)
	}
	if err := l.c.setImage(ctx, "default", "alive", "web", "web:2"); err != nil {
		return err
	}
	elsewhere, _, err := l.c.watchRollout(ctx, "default", "alive", "web:2", bound)
	if ctx.Err() != nil {
		return err
	}
	still, _, err := l.c.look(ctx, reportNS, reportName, image(o))
	if err != nil {
		return err
	}
	l.e.Record(stillStuck{Elsewhere: elsewhere, Still: still})
	return labkit.Enough
}

// told checks what an operator can see of the collision.
func told(ctx context.Context, e *labkit.Env, c *cluster, _ kube.Program) error {
	d, err := c.client.Get(ctx, kube.Deployments, "yce", "yce-test")
	if err != nil {
		return err
	}
	if got := d.GetAnnotations()[countKey]; got != "1" {
		return fmt.Errorf("the Deployment's %s is %q, want 1", countKey, got)
	}
	rss, err := c.replicaSets(ctx, "yce", "yce-test")
	if err != nil {
		return err
	}
	for _, rs := range rss {
		if _, ok := rs.GetAnnotations()[countKey]; ok {
			return fmt.Errorf("the count was copied to ReplicaSet %s", rs.GetName())
		}
	}
	var got map[string]int
	return wait.Until(ctx, "the event ReplicaSetNameCollision", 10*time.Second, func(ctx context.Context) (bool, error) {
		got, err = c.events(ctx, "yce", "yce-test")
		return got["ReplicaSetNameCollision"] == 1, err
	})
}

// undo rolls back and forth with the kubectl of the time, and kills the
// controller manager in between.
func undo(ctx context.Context, e *labkit.Env, c *cluster, p kube.Program) error {
	before, err := c.replicaSets(ctx, "yce", "yce-test")
	if err != nil {
		return err
	}
	for i, file := range []string{"old.json", "new.json", "old.json", "new.json"} {
		m, err := manifest(e, file)
		if err != nil {
			return err
		}
		e.Step("kubectl rollout undo: back to %s", image(m))
		if i == 2 {
			if err := c.killCM(ctx, p); err != nil {
				return err
			}
		}
		if _, err := c.kubectl(ctx, "--namespace=yce", "rollout", "undo", "deployment/yce-test"); err != nil {
			return err
		}
		if _, err := c.mustRollOut(ctx, "yce", "yce-test", image(m)); err != nil {
			return err
		}
	}
	after, err := c.replicaSets(ctx, "yce", "yce-test")
	if err != nil {
		return err
	}
	if len(after) != len(before) {
		return fmt.Errorf("%d ReplicaSets before undo, %d after", len(before), len(after))
	}
	return nil
}

// tags releases the tags of tags.txt one after the other.
func tags(ctx context.Context, e *labkit.Env, c *cluster, p kube.Program) error {
	list, err := readTags(e.Root)
	if err != nil {
		return err
	}
	if n := len(Collisions(list)); n < 5 {
		return fmt.Errorf("only %d of the %d tags collide with an earlier one", n, len(list))
	}
	e.Record(releasing{list})
	if _, err := c.client.CreateYAML(ctx, "default", fmt.Sprintf(web, "web", "web", "web", "web:"+list[0])); err != nil {
		return err
	}
	begin := time.Now()
	for i, tag := range list {
		if i > 0 {
			if err := c.setImage(ctx, "default", "web", "web", "web:"+tag); err != nil {
				return err
			}
		}
		if i%10 == 9 {
			// Somewhere in the rollout.
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Duration(e.Rand.IntN(400)) * time.Millisecond):
			}
			if err := c.killCM(ctx, p); err != nil {
				return err
			}
		}
		rs, err := c.mustRollOut(ctx, "default", "web", "web:"+tag)
		if err != nil {
			return err
		}
		if rs.GetLabels()[hashLabel] != strings.TrimPrefix(rs.GetName(), "web-") {
			return fmt.Errorf("ReplicaSet %s has the hash label %q", rs.GetName(), rs.GetLabels()[hashLabel])
		}
	}
	rss, err := c.replicaSets(ctx, "default", "web")
	if err != nil {
		return err
	}
	if len(rss) != len(list) {
		return fmt.Errorf("%d releases created %d ReplicaSets", len(list), len(rss))
	}
	events, err := c.events(ctx, "default", "web")
	if err != nil {
		return err
	}
	// A controller manager that is killed may take its last event with it.
	said, want := events["ReplicaSetNameCollision"], len(Collisions(list))
	if said > want || said < want-len(list)/10 {
		return fmt.Errorf("%d events ReplicaSetNameCollision for %d collisions: %v", said, want, events)
	}
	e.Fact("%d releases in %.0f s, %d collisions, %d events about them", len(list), time.Since(begin).Seconds(), want, said)
	return nil
}

// metricsThere reads ours.
func metricsThere(ctx context.Context, e *labkit.Env, c *cluster, _ kube.Program) error {
	page, err := metrics.Get(ctx, c.cm.URL+"/metrics")
	if err == nil && page["holdfast_hash_collision_renamed_total"] == nil {
		err = errors.New("the controller manager has no metric holdfast_hash_collision_renamed_total")
	}
	return err
}

// readTags reads the lab's image tags.
func readTags(root string) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(root, "tools", "labs", "hash-collision-v1.2.0", "tags.txt"))
	return strings.Fields(string(raw)), err
}

// Collisions returns the tags whose templates have the adler32 of an earlier
// one. Tags of one length at one place in a text collide when their bytes have
// the same sum and the same weighted sum, whatever the rest of the text is.
func Collisions(tags []string) []string {
	seen := map[[2]int]bool{}
	var out []string
	for _, t := range tags {
		var k [2]int
		for i := range len(t) {
			k[0] += int(t[i])
			k[1] += (len(t) - i) * int(t[i])
		}
		if seen[k] {
			out = append(out, t)
		}
		seen[k] = true
	}
	return out
}
