// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"sigs.k8s.io/yaml"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

// install does what the page of the program has under "Install".
func (l *inPods) install(ctx context.Context, guarded bool) (err error) {
	if l.program, err = write(ctx, l.e, l.c, podImage, "traffic-off"); err != nil {
		return err
	}
	if guarded {
		if l.probes, err = probesOf(l.program.pod); err != nil {
			return err
		}
	} else {
		if l.program.pod, err = unguarded(l.program.pod); err != nil {
			return err
		}
		if err := os.WriteFile(l.program.file(programFile), l.program.pod, 0o644); err != nil {
			return err
		}
	}
	webhook := l.e.Path("webhook.yaml")
	if err := errors.Join(os.Remove(l.program.file(kustomizeFile)), os.Rename(l.program.file(webhookFile), webhook)); err != nil {
		return err
	}
	if err := l.kubectl(ctx, "apply", "-f", l.program.dir); err != nil {
		return err
	}
	if err := l.podsReady(ctx, 2*time.Minute); err != nil {
		return err
	}
	if err := l.kubectl(ctx, "apply", "-f", webhook); err != nil {
		return err
	}
	if err := l.kubectl(ctx, "label", "namespace", ns, "holdfast/endpoints-rules=enabled"); err != nil {
		return err
	}
	if err := l.program.called(ctx, probe); err != nil {
		return err
	}
	return l.settled(ctx)
}

func (l *inPods) kubectl(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, l.e.Stock(base, "kubectl").Path, append([]string{"--kubeconfig=" + l.c.APIServer.AdminKubeconfig}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+l.e.Path("kubectl")) // for its caches
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	l.e.Logf("kubectl %s: %s", strings.Join(args, " "), strings.TrimSpace(string(out)))
	return nil
}

// unguarded takes from a DaemonSet what the program has against its own failing.
func unguarded(text []byte) ([]byte, error) {
	o := &kube.Object{}
	if err := yaml.Unmarshal(text, &o.Object); err != nil {
		return nil, err
	}
	var kept []any
	probed, broken := 0, 0
	for _, c := range kube.Slice(o, "spec", "template", "spec", "containers") {
		m, _ := c.(map[string]any)
		switch {
		case m["name"] == guarding:
			broken++
			continue
		case m["livenessProbe"] != nil:
			probed++
			delete(m, "livenessProbe")
		}
		kept = append(kept, m)
	}
	if probed != 1 || broken != 1 {
		return nil, fmt.Errorf("the manifest has %d liveness probes and %d breakers, want one of each", probed, broken)
	}
	kube.Field(o, "spec", "template", "spec").(map[string]any)["containers"] = kept
	return yaml.Marshal(o.Object)
}

// podsReady waits until each pod of the program is ready.
func (l *inPods) podsReady(ctx context.Context, bound time.Duration) error {
	_, err := l.c.Client.WaitList(ctx, kube.Pods, programPods, "app="+programPods, bound, "of endpoints-rules are ready", func(pods []kube.Object) (bool, error) {
		if len(pods) != l.replicas() {
			return false, fmt.Errorf("there are %d pods, want %d", len(pods), l.replicas())
		}
		for i := range pods {
			if kube.Condition(&pods[i], "Ready") != "True" {
				return false, fmt.Errorf("%s is not ready", pods[i].GetName())
			}
		}
		return true, nil
	})
	return err
}

// replicas is how many pods the program has.
func (l *inPods) replicas() int { return 1 }

// instance is a running container of the program's pod.
type instance struct {
	pod, id  string
	pid      int
	restarts int
	started  time.Time
}

func (i instance) signal(sig syscall.Signal) error {
	if err := syscall.Kill(i.pid, sig); err != nil {
		return fmt.Errorf("send %v to process %d of pod %s: %w", sig, i.pid, i.pod, err)
	}
	return nil
}

// stopped waits until no thread of the process runs any more: a signal that was sent is not
// there yet.
func (i instance) stopped(ctx context.Context) error {
	return wait.Every(ctx, fmt.Sprintf("all threads of process %d are stopped", i.pid), 10*time.Millisecond, 5*time.Second, func(context.Context) (bool, error) {
		threads, err := procfs.AllThreads(i.pid)
		if err != nil {
			return false, err
		}
		for _, t := range threads {
			if s, err := t.Stat(); err != nil || s.State != "T" {
				return false, errors.Join(err, fmt.Errorf("thread %d has the state %q", t.PID, s.State))
			}
		}
		return len(threads) > 0, nil
	})
}

// gone says whether the process has ended.
func (i instance) gone() bool { return errors.Is(syscall.Kill(i.pid, 0), syscall.ESRCH) }

// running is the container of that name, as dockerd has it.
func (l *inPods) running(ctx context.Context, name string) (out instance, err error) {
	all, err := l.master.Docker.Containers(ctx, false)
	if err != nil {
		return out, err
	}
	for _, c := range all {
		if c.Labels[node.LabelNamespace] != programPods || c.Labels[node.LabelContainer] != name || c.State != "running" {
			continue
		}
		if out.id != "" {
			return out, fmt.Errorf("two containers %s run", name)
		}
		m, err := l.master.Docker.Inspect(ctx, c.ID)
		if err != nil {
			return out, err
		}
		o := &kube.Object{Object: m}
		out = instance{pod: c.Labels[node.LabelPod], id: c.ID, pid: int(kube.Int(o, "State", "Pid"))}
		if out.started, err = time.Parse(time.RFC3339Nano, kube.String(o, "State", "StartedAt")); err != nil {
			return out, err
		}
		_, err = fmt.Sscan(c.Labels[labelRestarts], &out.restarts)
		if err != nil || out.pid <= 1 {
			return out, fmt.Errorf("container %s: process %d, label %s=%q", name, out.pid, labelRestarts, c.Labels[labelRestarts])
		}
	}
	if out.id == "" {
		return out, fmt.Errorf("no container %s runs", name)
	}
	return out, nil
}

// labelRestarts is where dockershim keeps how often the container was started before.
const labelRestarts = "annotation.io.kubernetes.container.restartCount"

// another waits until another container of that name runs.
func (l *inPods) another(ctx context.Context, was instance, name string, bound time.Duration) (now instance, err error) {
	err = wait.Until(ctx, "another container "+name+" runs", bound, func(ctx context.Context) (bool, error) {
		var err error
		now, err = l.running(ctx, name)
		return err == nil && now.id != was.id, err
	})
	return now, err
}
