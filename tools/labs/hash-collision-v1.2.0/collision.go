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
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
)

func init() {
	labkit.Register(labkit.Lab{
		Name:    "hash-collision-v1.2.0",
		Summary: "1.2.0: the second rollout never happens when both pod templates have the same adler32",
		Plan: func(labkit.Profile) []string {
			return []string{
				"start etcd with its v2 API, kube-apiserver v1.2.0 and the controller manager under test; a loop reports pods as ready",
				"create the Deployment of the original report; oracle: its ReplicaSet is the report's, yce-test-" + reported,
				"release the report's second image; oracle: within 20 s its replicas are in a ReplicaSet of that image and the status says so",
				"if not: the same controller rolls out another Deployment, so it is alive, and the first one is still as it was",
				"where it rolled out: an event and the count say why; kubectl v1.2.0 rollout undo, twice; kill the controller manager in between",
				"where it rolled out: 100 releases of another Deployment with tags yyyymmddHHMM, 11 of which collide; kill -9 of the controller manager during every tenth",
				"where it rolled out: Deployments of strategy Recreate collide with the ReplicaSet that runs and with an older one, and are undone",
				"where it rolled out: back to the stock controller manager; oracle: all ReplicaSets and pods are those of before the swap, for more than one full resync; stock scales those of strategy Recreate",
				"where it rolled out: a Deployment that got strategy Recreate under another name was paused before, as the page says; it rolls out when un-paused with a release that does not collide",
				"where it rolled out: the next releases that do not collide roll out; ours again, nothing changes",
				"where it rolled out: those of strategy Recreate collide again; the gate is switched off; then again, and the leader is killed and stock takes over; oracle: the pods stay, and are scaled",
			}
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kubectl"),
			labkit.StockBinary(base, kcm),
			labkit.BinaryUnderTest(base, kcm),
		},
		Packages: []string{"jq"}, // the page's command
		Timeout:  func(labkit.Profile) time.Duration { return 15 * time.Minute },
		Run:      runCollision,
	})
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

func runCollision(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	underTest := e.UnderTest(base, kcm)
	c, stop, err := start(ctx, e, underTest)
	if err != nil {
		return labkit.Result{}, err
	}
	defer stop()

	const ns, name = "yce", "yce-test"
	if err := c.namespace(ctx, ns); err != nil {
		return labkit.Result{}, err
	}
	first, err := manifest(e, "old.json")
	if err != nil {
		return labkit.Result{}, err
	}
	second, err := manifest(e, "new.json")
	if err != nil {
		return labkit.Result{}, err
	}
	oldImage, newImage := image(first), image(second)

	e.Step("create Deployment %s with %s", name, oldImage)
	if _, err := c.client.Create(ctx, kube.Deployments, ns, first); err != nil {
		return labkit.Result{}, err
	}
	oldRS, err := c.waitRollout(ctx, ns, name, oldImage, 60*time.Second)
	if err != nil {
		return labkit.Result{}, err
	}
	if oldRS.GetName() != name+"-"+reported {
		return labkit.Result{}, fmt.Errorf("the ReplicaSet is %s, the report's was %s-%s", oldRS.GetName(), name, reported)
	}

	e.Step("release %s", newImage)
	live, err := c.client.Get(ctx, kube.Deployments, ns, name)
	if err != nil {
		return labkit.Result{}, err
	}
	live.Object["spec"].(map[string]any)["template"] = kube.Field(second, "spec", "template")
	if _, err := c.client.Update(ctx, kube.Deployments, ns, live); err != nil {
		return labkit.Result{}, err
	}
	newRS, stuck := c.waitRollout(ctx, ns, name, newImage, stuckAfter)
	if stuck != nil {
		if ctx.Err() != nil {
			return labkit.Result{}, stuck
		}
		e.Step("it did not; look whether the controller works at all")
		if _, err := c.client.CreateYAML(ctx, "default", fmt.Sprintf(web, "alive", "alive", "alive", "web:1")); err != nil {
			return labkit.Result{}, err
		}
		if _, err := c.waitRollout(ctx, "default", "alive", "web:1", bound); err != nil {
			return labkit.Result{}, fmt.Errorf("the controller manager does nothing: %w", err)
		}
		if err := c.setImage(ctx, "default", "alive", "web", "web:2"); err != nil {
			return labkit.Result{}, err
		}
		if _, err := c.waitRollout(ctx, "default", "alive", "web:2", bound); err != nil {
			return labkit.Result{}, fmt.Errorf("the controller manager does nothing: %w", err)
		}
		if _, why, err := c.rolledOut(ctx, ns, name, newImage); err != nil {
			return labkit.Result{}, err
		} else if why == "" {
			return labkit.Result{}, errors.New("it rolled out after all, only slowly")
		}
		rss, err := c.replicaSets(ctx, ns, name)
		if err != nil {
			return labkit.Result{}, err
		}
		if len(rss) != 1 || image(&rss[0]) != oldImage {
			return labkit.Result{}, fmt.Errorf("not the incident: %v", stuck)
		}
		return labkit.ReproducedBecause("%v after its release %s has the one ReplicaSet %s of %s; another Deployment rolls out", stuckAfter, name, rss[0].GetName(), oldImage), nil
	}
	e.Fact("%s: %s for %s", name, newRS.GetName(), newImage)

	steps := []func(context.Context, *labkit.Env, *cluster, kube.Program) error{told, undo, tags, recreate, leave, gateOff, failover}
	for _, step := range steps {
		if err := step(ctx, e, c, underTest); err != nil {
			var s *stuckError
			if errors.As(err, &s) && ctx.Err() == nil {
				return labkit.ReproducedBecause("%v", err), nil
			}
			return labkit.Result{}, err
		}
	}
	if err := metrics(ctx, e, c); err != nil {
		return labkit.Result{}, err
	}
	return labkit.AbsentBecause("the report's second image and 100 releases rolled out; the stock controller manager went on from there, also with strategy Recreate, by swap and by failover, and so did ours with the gate off"), nil
}

// stuckError is a rollout that did not happen: a verdict, not a failure of the
// lab.
type stuckError struct{ error }

func (c *cluster) mustRollOut(ctx context.Context, ns, deployment, img string) (*kube.Object, error) {
	rs, err := c.waitRollout(ctx, ns, deployment, img, bound)
	if err != nil {
		return nil, &stuckError{err}
	}
	return rs, nil
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
	e.Step("release %d tags, %d of which collide", len(list), len(Collisions(list)))
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
		return fmt.Errorf("%d releases made %d ReplicaSets", len(list), len(rss))
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

// metrics prints ours as facts.
func metrics(ctx context.Context, e *labkit.Env, c *cluster) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cm.URL+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if !strings.Contains(string(body), "holdfast_hash_collision_renamed_total") {
		return errors.New("the controller manager has no metric holdfast_hash_collision_renamed_total")
	}
	for _, l := range strings.Split(string(body), "\n") {
		if strings.HasPrefix(l, "holdfast_") {
			e.Logf("metric %s", l)
		}
	}
	return nil
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
