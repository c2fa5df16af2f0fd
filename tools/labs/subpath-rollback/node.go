// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package subpathrollback

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

// create makes a pod and waits until it is what its kind says.
func (l *lab) create(ctx context.Context, k kind, name string) error {
	if err := l.make(ctx, k, name); err != nil {
		return err
	}
	return l.wait(ctx, name)
}

// make makes the pod's host directory, if it has one, and the pod.
func (l *lab) make(ctx context.Context, k kind, name string) error {
	if k.fs != "" {
		if err := l.node.Run(ctx, "bash", "-euc", `mkdir -p "$1/dir/deep"; for f in dir/a dir/deep/b file rofile; do echo "$f of $2" > "$1/$f"; done`,
			"-", path.Join(l.root, k.fs, name), name); err != nil {
			return err
		}
		sums, err := l.sum(ctx)
		if err != nil {
			return err
		}
		for file, s := range sums {
			if strings.HasPrefix(file, path.Join(k.fs, name)+"/") {
				l.sums[file] = s
			}
		}
	}
	made, err := l.c.Client.CreateYAML(ctx, ns, k.yaml(name, l.root))
	if err != nil {
		return err
	}
	l.pods[name] = &pod{k, string(made[0].GetUID())}
	return nil
}

// wait waits until the pod is what its kind says.
func (l *lab) wait(ctx context.Context, name string) error {
	p := l.pods[name]
	return wait.Until(ctx, fmt.Sprintf("container of pod %s is %s", name, p.state), time.Minute, func(ctx context.Context) (bool, error) {
		if p.state == noneOf {
			o, err := l.c.Client.Get(ctx, kube.Pods, ns, name)
			if err != nil {
				return false, err
			}
			for _, c := range kube.Slice(o, "status", "containerStatuses") {
				state, _ := c.(map[string]any)["state"].(map[string]any)
				waiting, _ := state["waiting"].(map[string]any)
				if waiting["reason"] == "CreateContainerConfigError" {
					return true, nil
				}
			}
			return false, fmt.Errorf("%v", kube.Field(o, "status", "containerStatuses"))
		}
		cs, err := l.node.Docker.PodContainers(ctx, ns, name, true)
		if err != nil {
			return false, err
		}
		for _, c := range cs {
			if c.State != p.state {
				continue
			}
			m, err := l.node.Docker.Inspect(ctx, c.ID)
			if err != nil {
				return false, err
			}
			// The trigger: 1.9 mounts a subPath by way of its bind, 1.7 does not.
			host, _ := m["HostConfig"].(map[string]any)
			bound := strings.Contains(fmt.Sprint(host["Binds"]), "/volume-subpaths/")
			if want := l.node.KubeletProgram().Base != old; bound != want {
				return false, fmt.Errorf("binds of container %.12s: %v, want binds by volume-subpaths: %v", c.ID, host["Binds"], want)
			}
			return true, nil
		}
		return false, fmt.Errorf("%d containers, none %s", len(cs), p.state)
	})
}

// swap ends the kubelet and starts another one, which looks at every pod.
func (l *lab) swap(ctx context.Context, to kube.Program, kill bool) error {
	from := l.node.KubeletProgram()
	for try := 1; ; try++ {
		end := l.node.StopKubelet
		if kill {
			end = l.node.KillKubelet
		}
		if err := end(); err != nil {
			return err
		}
		n, err := l.binds()
		if err != nil {
			return err
		}
		l.e.Fact("%d binds below volume-subpaths between %s and %s", n, l.describe(from), l.describe(to))
		if n == 0 || !l.ours() || from.Variant != labkit.Ours || len(from.Gates) > 0 {
			break
		}
		// Some of the pods are started again and again, and the kubelet was ended
		// in the moment that no kubelet can close. It is not what is judged.
		if try == 5 {
			return fmt.Errorf("%d binds remained, in %d cases: the kubelet ended while it started a container", n, try)
		}
		if err := l.node.StartKubelet(ctx, from); err != nil {
			return err
		}
		if err := l.mounted(ctx); err != nil {
			return err
		}
		if err := l.unbound(ctx); err != nil {
			return err
		}
	}
	if err := l.node.StartKubelet(ctx, to); err != nil {
		return err
	}
	return l.mounted(ctx)
}

func (l *lab) describe(p kube.Program) string {
	return strings.Join(append([]string{p.Base, string(p.Variant)}, p.GateArgs()...), " ")
}

// binds counts the mount points below volume-subpaths in the node's mount
// namespace. The kubelet binds its root directory to itself, and a mount in one
// of the two appears in both.
func (l *lab) binds() (int, error) {
	mounts, err := l.node.Mounts()
	points := map[string]bool{}
	for _, m := range mounts {
		if strings.HasPrefix(m.Mountpoint, "/var/lib/kubelet/pods/") && strings.Contains(m.Mountpoint, "/volume-subpaths/") {
			points[m.Mountpoint] = true
		}
	}
	return len(points), err
}

func (l *lab) unbound(ctx context.Context) error {
	return wait.Until(ctx, "no bind below volume-subpaths", 45*time.Second, func(ctx context.Context) (bool, error) {
		n, err := l.binds()
		if err == nil && n > 0 {
			err = fmt.Errorf("%d are left", n)
		}
		return err == nil, err
	})
}

// mounted waits until the kubelet has mounted the volumes of all pods: a volume
// of a pod that is deleted before that is found again after three minutes only.
func (l *lab) mounted(ctx context.Context) error {
	return wait.Until(ctx, "the new kubelet has mounted the volumes of all pods", 2*time.Minute, func(context.Context) (bool, error) {
		text, err := l.node.Kubelet.LastRunLog()
		for name, p := range l.pods {
			if err == nil && !strings.Contains(text, fmt.Sprintf("All volumes are attached and mounted for pod \"%s_%s(%s)\"", name, ns, p.uid)) {
				err = fmt.Errorf("not yet of pod %s", name)
			}
		}
		return err == nil, err
	})
}

// insideAll looks into every container that runs.
func (l *lab) insideAll(ctx context.Context) error {
	for name, p := range l.pods {
		if p.state != runs {
			continue
		}
		if err := l.inside(ctx, name); err != nil {
			return fmt.Errorf("inside pod %s: %w", name, err)
		}
	}
	return nil
}

// inside reads and writes as the pod's container does, in its mount namespace.
func (l *lab) inside(ctx context.Context, name string) error {
	p := l.pods[name]
	cs, err := l.node.Docker.PodContainers(ctx, ns, name, false)
	if err == nil && len(cs) != 1 {
		err = fmt.Errorf("%d containers run", len(cs))
	}
	if err != nil {
		return err
	}
	m, err := l.node.Docker.Inspect(ctx, cs[0].ID)
	if err != nil {
		return err
	}
	state, _ := m["State"].(map[string]any)
	pid, _ := state["Pid"].(float64)
	root := fmt.Sprintf("/proc/%d/root", int(pid))
	for file, want := range p.inside {
		if want == "" {
			want = strings.TrimPrefix(strings.Replace(file, "/ro/", "/dir/deep/", 1), "/") + " of " + name
		}
		b, err := os.ReadFile(root + file)
		if err != nil {
			return err
		}
		if got := strings.TrimSpace(string(b)); got != want {
			return fmt.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	if p.mounts != hostKind("", "").mounts {
		return nil
	}
	for _, file := range []string{"/ro/new", "/rofile"} {
		if err := os.WriteFile(root+file, []byte("x"), 0o644); !errors.Is(err, syscall.EROFS) {
			return fmt.Errorf("writing %s, which is read-only: %v", file, err)
		}
	}
	text := "written " + time.Now().Format(time.RFC3339Nano)
	for _, file := range []string{"dir/written", "file"} {
		b := []byte(file + " of " + name)
		if file != "file" {
			b = []byte(text)
		}
		f, err := os.OpenFile(filepath.Join(root, file), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			return err
		}
		if _, err = f.Write(b); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	// What was written is in the host's directory.
	host := path.Join(l.root, p.fs, name)
	out, err := l.node.Output(ctx, "cat", host+"/dir/written")
	if err != nil || out != text {
		return fmt.Errorf("the host's directory has %q, want %q: %v", out, text, err)
	}
	sums, err := l.sum(ctx)
	if err != nil {
		return err
	}
	for _, file := range []string{"dir/written", "file"} {
		file = path.Join(p.fs, name, file)
		if l.sums[file] = sums[file]; sums[file] == "" {
			return fmt.Errorf("%s is not there", file)
		}
	}
	return nil
}

// restart kills the pod's container; the kubelet starts another one. A kubelet
// of another release may just be recreating it for its hash.
func (l *lab) restart(ctx context.Context, name string) error {
	var cs []node.Container
	if err := wait.Until(ctx, "the container of pod "+name+" runs", 90*time.Second, func(ctx context.Context) (bool, error) {
		var err error
		cs, err = l.node.Docker.PodContainers(ctx, ns, name, false)
		return err == nil && len(cs) == 1, err
	}); err != nil {
		return err
	}
	if err := l.node.Docker.Call(ctx, http.MethodPost, "/containers/"+cs[0].ID+"/kill", "", nil, nil); err != nil {
		return err
	}
	return l.another(ctx, name, cs[0].ID)
}

// byHand is docker cp and docker restart by a person: docker looks for the path
// again, must refuse what it finds, and the kubelet starts another container.
func (l *lab) byHand(ctx context.Context, name string) error {
	cs, err := l.node.Docker.PodContainers(ctx, ns, name, false)
	if err == nil && len(cs) != 1 {
		err = fmt.Errorf("%d containers of pod %s run", len(cs), name)
	}
	if err != nil {
		return err
	}
	for _, c := range [][2]string{{http.MethodGet, "/archive?path=/dir"}, {http.MethodPost, "/restart?t=1"}} {
		var refused *node.DockerError
		err := l.node.Docker.Call(ctx, c[0], "/containers/"+cs[0].ID+c[1], "", nil, nil)
		if !errors.As(err, &refused) || !strings.Contains(refused.Body, "not a directory") {
			return fmt.Errorf("docker %s of pod %s: %v, want the error that something is not a directory", c[1], name, err)
		}
	}
	return l.another(ctx, name, cs[0].ID)
}

// another waits until the pod has a container other than id, and looks into it.
func (l *lab) another(ctx context.Context, name, id string) error {
	since := time.Now()
	if err := wait.Until(ctx, "pod "+name+" has another container", 90*time.Second, func(ctx context.Context) (bool, error) {
		now, err := l.node.Docker.PodContainers(ctx, ns, name, false)
		return err == nil && len(now) == 1 && now[0].ID != id, err
	}); err != nil {
		return err
	}
	l.e.Fact("container of pod %s restarted by %s after %.1f s", name, l.describe(l.node.KubeletProgram()), time.Since(since).Seconds())
	if err := l.wait(ctx, name); err != nil {
		return err
	}
	return l.inside(ctx, name)
}

// sum is the checksum of each file below the host directories.
func (l *lab) sum(ctx context.Context) (map[string]string, error) {
	out, err := l.node.Output(ctx, "bash", "-euc", `cd "$1"; find . -type f -exec sha256sum {} +`, "-", l.root)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if sum, file, ok := strings.Cut(line, "  ./"); ok {
			sums[file] = sum
		}
	}
	return sums, nil
}

// dealt waits until the kubelet has dealt with the directories of the pods,
// which are being deleted, and records what became of them and of the files.
func (l *lab) dealt(ctx context.Context, what string, names ...string) error {
	for _, name := range names {
		if err := l.c.Client.WaitGone(ctx, kube.Pods, ns, name, 2*time.Minute); err != nil {
			return err
		}
	}
	dir := func(name string) string { return filepath.Join(l.node.Dir, "kubelet", "pods", l.pods[name].uid) }
	var stay []string
	if err := wait.Until(ctx, "the kubelet has removed the pods' directories or reported why not", 2*time.Minute, func(ctx context.Context) (bool, error) {
		text, err := l.node.Kubelet.LastRunLog()
		if err != nil {
			return false, err
		}
		stay = nil
		for _, name := range names {
			uid := l.pods[name].uid
			if _, err := os.Stat(dir(name)); err == nil {
				stay = append(stay, name)
				// It tries again and again.
				if strings.Count(text, fmt.Sprintf("Failed to remove orphaned pod %q dir", uid)) < 2 {
					return false, fmt.Errorf("the directory of pod %s still exists", name)
				}
			} else if !os.IsNotExist(err) {
				return false, err
			}
			if !strings.Contains(text, fmt.Sprintf("Orphaned pod %q found, removing", uid)) {
				return false, fmt.Errorf("the kubelet's log does not say that it removes orphan %s", name)
			}
		}
		return true, nil
	}); err != nil {
		return err
	}
	sums, err := l.sum(ctx)
	if err != nil {
		return err
	}
	o := dealtWith{What: what, Files: map[string]file{}}
	for _, name := range names {
		p := l.pods[name]
		o.Pods = append(o.Pods, podDir{Name: name, Stays: slices.Contains(stay, name), Host: p.fs != ""})
		for f, want := range l.sums {
			if p.fs != "" && strings.HasPrefix(f, path.Join(p.fs, name)+"/") {
				o.Files[f] = file{Pod: name, Was: want, Is: sums[f]}
				delete(l.sums, f)
			}
		}
		delete(l.pods, name)
	}
	// Files of pods that still run are not to change either.
	for file, want := range l.sums {
		if sums[file] != want {
			return fmt.Errorf("%s has changed, although its pod runs", file)
		}
	}
	l.e.Record(o)
	return nil
}

func replaceHost(s, dir string) string { return strings.ReplaceAll(s, "HOST", dir) }
