// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcollisionv120

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
)

// The tags of the original report, which collide, and one that does not.
const (
	tagA = "web:201703151133"
	tagB = "web:201703211640"
	tagC = "web:201703301250"
)

// recreateNS has the Deployments of strategy Recreate, and one that gets it
// while it runs under a counted name.
const recreateNS = "recreate"

var recreated = []string{"direct", "older", "undone"}

// recreate brings Deployments of strategy Recreate into each state that a
// collision leaves them in.
func recreate(ctx context.Context, e *labkit.Env, c *cluster, _ kube.Program) error {
	if err := c.namespace(ctx, recreateNS); err != nil {
		return err
	}
	e.Step("strategy Recreate: a collision with the running ReplicaSet, one with an older ReplicaSet, and an undo after a collision")
	for _, name := range append([]string{"switched"}, recreated...) {
		images := []string{tagA, tagB}
		if name == "older" {
			images = []string{tagA, tagC, tagB}
		}
		text := fmt.Sprintf(web, name, name, name, images[0])
		if name != "switched" {
			text = strings.Replace(text, "strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 1}}", "strategy: {type: Recreate}", 1)
		}
		if _, err := c.client.CreateYAML(ctx, recreateNS, text); err != nil {
			return err
		}
		for i, img := range images {
			if i > 0 {
				if err := c.setImage(ctx, recreateNS, name, "web", img); err != nil {
					return err
				}
			}
			if _, err := c.mustRollOut(ctx, recreateNS, name, img); err != nil {
				return err
			}
		}
	}
	if _, err := c.kubectl(ctx, "--namespace="+recreateNS, "rollout", "undo", "deployment/undone"); err != nil {
		return err
	}
	if _, err := c.mustRollOut(ctx, recreateNS, "undone", tagA); err != nil {
		return err
	}
	// What stays exposed: it has a counted name and pods when its strategy
	// changes.
	_, err := c.client.PatchMerge(ctx, kube.Deployments, recreateNS, "switched", `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`)
	return err
}

// leave goes back to the stock controller manager, and to ours again; then it
// switches the gate off, and lets a stock one take over by leader election.
func leave(ctx context.Context, e *labkit.Env, c *cluster, p kube.Program) error {
	e.Step("find the Deployment that has a counted name and strategy Recreate, pause it, as the page says, and go back to stock")
	exposed, err := c.pageCommand(ctx, "kubectl get deployments --all-namespaces")
	if err != nil {
		return err
	}
	e.Record(exposedOnes{exposed})
	if err := c.pause(ctx, "switched"); err != nil {
		return err
	}
	before, err := c.settled(ctx)
	if err != nil {
		return err
	}
	if err := c.swapCM(ctx, e.Stock(base, kcm)); err != nil {
		return err
	}
	const quietly = 35 * time.Second // one full resync, which is every 30 s
	if err := c.stays(ctx, whenStock, before, quietly); err != nil {
		return fmt.Errorf("after the swap back to stock: %w", err)
	}
	if err := c.scaled(ctx, 3); err != nil {
		return fmt.Errorf("after the swap back to stock: %w", err)
	}
	e.Step("un-pause it in the same patch as a release that does not collide")
	_, err = c.kubectl(ctx, "--namespace="+recreateNS, "patch", "deployment", "switched", "--patch",
		fmt.Sprintf(`{"spec":{"paused":false,"template":{"spec":{"containers":[{"name":"web","image":%q}]}}}}`, tagC))
	if err != nil {
		return err
	}
	if _, err := c.mustRollOut(ctx, recreateNS, "switched", tagC); err != nil {
		return err
	}
	if err := releaseWithStock(ctx, e, c); err != nil {
		return err
	}
	if before, err = c.settled(ctx); err != nil {
		return err
	}
	if err := c.swapCM(ctx, p); err != nil {
		return err
	}
	if err := c.stays(ctx, whenOurs, before, 10*time.Second); err != nil {
		return fmt.Errorf("after the swap to Holdfast: %w", err)
	}
	return nil
}

// releaseWithStock does the next releases with the stock controller manager.
func releaseWithStock(ctx context.Context, e *labkit.Env, c *cluster) error {
	e.Step("delete the old ReplicaSet that has the name; the stock controller manager then creates its own ReplicaSet of that name")
	current, err := manifest(e, "new.json")
	if err != nil {
		return err
	}
	taken := "yce-test-" + reported
	if err := c.client.DeleteNow(ctx, kube.ReplicaSets, "yce", taken); err != nil {
		return err
	}
	r, rs := rollout{}, (*kube.Object)(nil)
	err = wait.Until(ctx, taken+" of "+image(current), bound, func(ctx context.Context) (bool, error) {
		var err error
		r, rs, err = c.look(ctx, "yce", "yce-test", image(current))
		return err == nil && rs != nil && rs.GetName() == taken, err
	})
	if ctx.Err() != nil || r.Want == 0 {
		return err
	}
	e.Record(takenAgain{Rollout: r, Name: taken})
	if err != nil {
		return labkit.Enough
	}
	e.Step("release with the stock controller manager")
	if err := c.setImage(ctx, "yce", "yce-test", "yce-test", "img.reg.3g:15000/yce-alpha:next"); err != nil {
		return err
	}
	if err := c.setImage(ctx, "default", "web", "web", "web:next"); err != nil {
		return err
	}
	if _, err := c.mustRollOut(ctx, "yce", "yce-test", "img.reg.3g:15000/yce-alpha:next"); err != nil {
		return err
	}
	_, err = c.mustRollOut(ctx, "default", "web", "web:next")
	return err
}

// gateOff collides once more on ours and switches the gate off.
func gateOff(ctx context.Context, e *labkit.Env, c *cluster, p kube.Program) error {
	e.Step("strategy Recreate: collide under Holdfast, then switch the gate off")
	if err := c.collide(ctx, tagC, tagA); err != nil {
		return err
	}
	before, err := c.settled(ctx)
	if err != nil {
		return err
	}
	off := p
	off.Gates = map[string]bool{gate: false}
	if err := c.swapCM(ctx, off); err != nil {
		return err
	}
	if err := c.stays(ctx, whenGateOff, before, 5*time.Second); err != nil {
		return fmt.Errorf("gate off: %w", err)
	}
	if err := c.scaled(ctx, 2); err != nil {
		return fmt.Errorf("gate off: %w", err)
	}
	return nil
}

// failover collides once more on ours, which is the leader, and kills it; a
// stock controller manager that waits for the lease takes over.
func failover(ctx context.Context, e *labkit.Env, c *cluster, p kube.Program) error {
	e.Step("strategy Recreate: collide under Holdfast, then fail over to stock")
	// The defaults are 15, 10 and 2 s.
	elect := []string{"--leader-elect=true", "--leader-elect-lease-duration=5s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s"}
	if err := c.namespace(ctx, "kube-system"); err != nil { // of the lease
		return err
	}
	if err := c.cm.Stop(); err != nil {
		return err
	}
	if err := c.startCM(ctx, p, elect...); err != nil {
		return err
	}
	if err := c.collide(ctx, tagC, tagB); err != nil {
		return err
	}
	leader := c.cm
	if err := c.startCM(ctx, e.Stock(base, kcm), elect...); err != nil {
		return err
	}
	before, err := c.settled(ctx)
	if err != nil {
		return err
	}
	if err := leader.Kill(); err != nil {
		return err
	}
	// Only the one that leads scales.
	if err := c.scaled(ctx, 3); err != nil {
		return fmt.Errorf("failover to stock: %w", err)
	}
	if err := c.scaled(ctx, 2); err != nil {
		return fmt.Errorf("failover to stock: %w", err)
	}
	now, err := c.settled(ctx)
	if err != nil {
		return err
	}
	e.Record(kept{When: whenFailover, Before: replicaSetLines(before), Now: replicaSetLines(now)})
	return c.swapCM(ctx, p)
}

// collide releases first and then second to the Deployments of strategy
// Recreate; the second collides with an older release.
func (c *cluster) collide(ctx context.Context, first, second string) error {
	for _, img := range []string{first, second} {
		for _, name := range recreated {
			if err := c.setImage(ctx, recreateNS, name, "web", img); err != nil {
				return err
			}
		}
		for _, name := range recreated {
			if _, err := c.mustRollOut(ctx, recreateNS, name, img); err != nil {
				return err
			}
		}
	}
	return nil
}

// scaled scales the Deployments of strategy Recreate and waits until the very
// ReplicaSet that has their pods has n; each pod that need not go stays. So the
// controller manager that runs has looked at them, and knows them as its own.
func (c *cluster) scaled(ctx context.Context, n int64) error {
	for _, name := range recreated {
		d, err := c.client.Get(ctx, kube.Deployments, recreateNS, name)
		if err != nil {
			return err
		}
		before, rs, err := c.look(ctx, recreateNS, name, image(d))
		if err != nil {
			return err
		}
		o := scaledTo{Name: name, From: before.Want, To: n}
		if rs == nil {
			c.e.Record(before) // a rollout that is not done
			return labkit.Enough
		}
		o.Was = string(rs.GetUID())
		pods, err := c.podsOf(ctx, name)
		if err != nil {
			return err
		}
		if _, err := c.client.PatchMerge(ctx, kube.Deployments, recreateNS, name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, n)); err != nil {
			return err
		}
		after, err := c.mustRollOut(ctx, recreateNS, name, image(d))
		if err != nil {
			return err
		}
		now, err := c.podsOf(ctx, name)
		if err != nil {
			return err
		}
		for _, uid := range pods {
			if slices.Contains(now, uid) {
				o.Kept++
			}
		}
		o.Is = string(after.GetUID())
		c.e.Record(o)
	}
	return nil
}

// podsOf lists the UIDs of a Deployment's pods.
func (c *cluster) podsOf(ctx context.Context, name string) ([]string, error) {
	list, err := c.client.List(ctx, kube.Pods, recreateNS, "app="+name)
	var uids []string
	for i := range list {
		uids = append(uids, string(list[i].GetUID()))
	}
	return uids, err
}

// pause pauses a Deployment of recreateNS and waits until the controller has
// seen it.
func (c *cluster) pause(ctx context.Context, name string) error {
	if _, err := c.kubectl(ctx, "--namespace="+recreateNS, "rollout", "pause", "deployment/"+name); err != nil {
		return err
	}
	return wait.Until(ctx, name+" is observed", bound, func(ctx context.Context) (bool, error) {
		d, err := c.client.Get(ctx, kube.Deployments, recreateNS, name)
		return err == nil && kube.Int(d, "status", "observedGeneration") >= d.GetGeneration(), err
	})
}

// pageCommand runs the indented block of the page that begins with start, and
// returns what it prints. Its kubectl is the one of the base.
func (c *cluster) pageCommand(ctx context.Context, start string) (string, error) {
	page := filepath.Join(c.e.Root, "patches", "hash-collision", "v1.2.0", "README.md")
	raw, err := os.ReadFile(page)
	if err != nil {
		return "", err
	}
	_, rest, ok := strings.Cut(string(raw), "\n    "+start)
	block, _, end := strings.Cut(rest, "\n\n")
	if !ok || !end {
		return "", fmt.Errorf("%s has no block that begins with %q", page, start)
	}
	bin := c.e.Path("bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %q --server=%s \"$@\"\n", c.e.Stock(base, "kubectl").Path, c.api.URL)
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(script), 0o755); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", start+block)
	cmd.Env = append(os.Environ(), "HOME="+c.e.Path(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var status *exec.ExitError
	if errors.As(err, &status) && status.ExitCode() == 1 { // grep's, of the last Deployment
		err = nil
	}
	c.e.Logf("%s%s\n%s", start, block, out)
	return string(out), err
}

// settled waits until ReplicaSets and pods have been the same for 2 s, and
// returns the census. It is taken before a controller manager is swapped.
func (c *cluster) settled(ctx context.Context) (string, error) {
	last, since := "", time.Now()
	err := wait.Until(ctx, "ReplicaSets and pods no longer change", bound, func(ctx context.Context) (bool, error) {
		now, err := c.census(ctx)
		if now != last {
			last, since = now, time.Now()
		}
		return err == nil && time.Since(since) >= 2*time.Second, err
	})
	return last, err
}

// stays watches for d whether ReplicaSets and pods are those of the census before, with
// the same sizes, and records what it saw. A change is enough.
func (c *cluster) stays(ctx context.Context, when, before string, d time.Duration) error {
	for end := time.Now().Add(d); ; {
		now, err := c.census(ctx)
		if err != nil {
			return err
		}
		if now != before || time.Now().After(end) {
			c.e.Record(kept{When: when, Before: before, Now: now})
		}
		if now != before {
			return labkit.Enough
		}
		if time.Now().After(end) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// difference names the lines that two censuses do not share.
func difference(before, now string) string {
	a, b := strings.Split(before, "\n"), strings.Split(now, "\n")
	var out []string
	for _, l := range a {
		if !slices.Contains(b, l) {
			out = append(out, "was: "+l)
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			out = append(out, "is: "+l)
		}
	}
	return "ReplicaSets or pods changed: " + strings.Join(out, "; ")
}

func replicaSetLines(census string) string {
	var out []string
	for _, l := range strings.Split(census, "\n") {
		if strings.HasPrefix(l, kube.ReplicaSets.Resource+" ") {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}
