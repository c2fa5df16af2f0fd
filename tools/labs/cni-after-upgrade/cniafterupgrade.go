// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cniafterupgrade is the lab cni-after-upgrade: what a kubelet leaves of pods' networks.
// See tools/labs/cni-after-upgrade/README.md.
package cniafterupgrade

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	base = "v1.9.11"
	old  = "v1.7.0"
	ns   = "default"
	// each is how many pods of each kind there are.
	each     = 2
	patience = 2 * time.Minute
	// settle is for what should be taken down: a kubelet collects dead sandboxes once a minute.
	settle = 100 * time.Second
)

// Kinds of pods, by what happens to them in a phase; a pod is called KIND-PHASE-N.
const (
	stays         = "stays"          // nothing
	deleted       = "deleted"        // deleted while the kubelet is down
	killed        = "killed"         // its container is killed
	sandboxKilled = "sandbox-killed" // its sandbox is killed while the kubelet is down
	lost          = "lost"           // docker has lost its containers while the kubelet is down
	lostDeleted   = "lost-deleted"   // as lost, and deleted
	lostFailed    = "lost-failed"    // as lost-deleted, and the first DEL fails
	addFails      = "add-fails"      // its first ADD fails
	removed       = "removed"        // its sandbox is stopped and removed while ADD runs
)

// Phases, in their order.
const (
	swap   = "swap"
	adds   = "adds"
	reboot = "reboot"
	ended  = "end"
)

var phases = []string{swap, adds, reboot, ended}

// kinds are the pods that a phase must have had.
var kinds = map[string][]string{
	swap:   {stays, deleted, killed, sandboxKilled, lost, lostDeleted},
	adds:   {addFails, removed},
	reboot: {stays, deleted, lostDeleted, lostFailed},
	ended:  {stays},
}

func init() {
	labkit.Register(labkit.Lab{
		Name:     "cni-after-upgrade",
		Summary:  "addresses and veths of pods that are gone stay, after a swap from 1.7.0, failed ADDs and a reboot",
		Test:     []labkit.Variant{labkit.Ours},
		Packages: []string{node.CNIPackage},
		Steps:    steps,
		Oracle:   oracle,
		Timeout:  func(labkit.Profile) time.Duration { return 20 * time.Minute },
		Needs: []labkit.Binary{labkit.StockBinary(base, "kube-apiserver"), labkit.StockBinary(base, "kube-controller-manager"),
			labkit.StockBinary(old, "kubelet"), labkit.BinaryUnderTest(base, "kubelet")},
	})
}

type lab struct {
	e    *labkit.Env
	c    *node.Cluster
	node *node.Node
	// dir has the plugins, their configuration and what they write.
	dir string
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	kill := e.Rand.IntN(2) == 0
	how := map[bool]string{true: "kill -9", false: "SIGTERM"}[kill]
	return []labkit.Step{
		{Text: "start etcd, apiserver and controller manager v1.9.11, and a node with the stock kubelet v1.7.0 and CNI: bridge, host-local, portmap, and a plugin that counts", Do: l.start},
		{Text: fmt.Sprintf("%s: %s of 1.7.0; while no kubelet runs, pods are deleted, sandboxes killed, containers removed from docker; start the kubelet under test", swap, how),
			Do: func(ctx context.Context) error { return l.swap(ctx, kill) }},
		{Text: "a container has the name of a pod's sandbox; delete the pod", Do: l.named},
		{Text: adds + ": ADD fails for pods after the other plugins have succeeded; a pod is deleted while its ADD runs, and ADD ends when docker has its sandbox no more", Do: l.adds},
		{Text: reboot + ": power off, start docker; pods are deleted and containers removed from docker; start the kubelet; some DELs fail once", Do: l.reboot},
		{Text: ended + ": delete all pods", Do: l.end},
		labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }),
	}
}

func (l *lab) start(ctx context.Context) error {
	c, err := l.e.StartStockCluster(ctx, base)
	if err != nil {
		return err
	}
	l.c, l.dir = c, l.e.Path("cni")
	if l.node, err = l.e.StartNode(ctx, c.APIServer, node.Config{Name: "node1", CNI: true}); err != nil {
		return err
	}
	c.Nodes = []*node.Node{l.node}
	if err := l.plugins(); err != nil {
		return err
	}
	if err := l.startKubelet(ctx, l.e.Stock(old, "kubelet")); err != nil {
		return err
	}
	if err := c.WaitNodeReady(ctx, l.node.Name, patience); err != nil {
		return err
	}
	if err := l.make(ctx, swap, kinds[swap]...); err != nil {
		return err
	}
	links, err := l.node.Output(ctx, "ip", "-o", "link", "show", "master", "cni0")
	if err == nil && strings.Count(links, "\n") < each*len(kinds[swap]) {
		err = fmt.Errorf("the bridge has too few links:\n%s", links)
	}
	return err
}

// plugins writes the network: the kit's, with a folder of leases that the lab can read and the
// plugin that counts.
func (l *lab) plugins() error {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return err
	}
	for _, p := range []string{"bridge", "host-local", "loopback", "portmap"} {
		if err := os.Symlink(filepath.Join("/usr/lib/cni", p), filepath.Join(l.dir, p)); err != nil {
			return err
		}
	}
	if err := os.Symlink(node.ToolPath(l.e.Root, "cnicount"), filepath.Join(l.dir, "cnicount")); err != nil {
		return err
	}
	conf := fmt.Sprintf(`{
  "cniVersion": "0.3.1",
  "name": "lab",
  "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
     "ipam": {"type": "host-local", "subnet": %q, "dataDir": %q, "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": false},
    {"type": "cnicount", "dir": %q}
  ]
}
`, l.node.PodCIDR, l.dir, l.dir)
	return os.WriteFile(filepath.Join(l.dir, "10-lab.conflist"), []byte(conf), 0o644)
}

func (l *lab) startKubelet(ctx context.Context, p kube.Program) error {
	return l.node.StartKubelet(ctx, p, "--cni-conf-dir="+l.dir, "--cni-bin-dir="+l.dir)
}

func name(kind, phase string, i int) string { return fmt.Sprintf("%s-%s-%d", kind, phase, i) }

// names are the pods of these kinds of a phase.
func names(phase string, kinds ...string) []string {
	var out []string
	for _, k := range kinds {
		for i := range each {
			out = append(out, name(k, phase, i))
		}
	}
	return out
}

// make makes pods and waits until they run.
func (l *lab) make(ctx context.Context, phase string, kinds ...string) error {
	for _, p := range names(phase, kinds...) {
		if err := l.c.Client.Make(ctx, ns, node.Pod(p, l.node.Name, node.Web("web"))); err != nil {
			return err
		}
	}
	return l.ready(ctx, names(phase, kinds...)...)
}

func (l *lab) ready(ctx context.Context, pods ...string) error {
	for _, p := range pods {
		if _, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, p, patience, "is ready", func(o *kube.Object) (bool, error) {
			return kubeletlab.PodReady(o), nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) delete(ctx context.Context, pods ...string) error {
	for _, p := range pods {
		if err := l.c.Client.DeleteNow(ctx, kube.Pods, ns, p); err != nil {
			return err
		}
	}
	return nil
}

// containers are docker's of these pods, also those that do not run.
func (l *lab) containers(ctx context.Context, kind string, pods ...string) ([]node.Container, error) {
	all, err := l.node.Docker.Containers(ctx, true)
	return slices.DeleteFunc(all, func(c node.Container) bool {
		return c.Labels[node.LabelType] != kind || !slices.Contains(pods, c.Labels[node.LabelPod])
	}), err
}

const (
	sandbox   = "podsandbox"
	container = "container"
)

// kill ends the containers of pods, which stay in docker's list.
func (l *lab) kill(ctx context.Context, kind string, pods ...string) error {
	cs, err := l.containers(ctx, kind, pods...)
	if err == nil && len(cs) != len(pods) {
		err = fmt.Errorf("%d of kind %s for %d pods", len(cs), kind, len(pods))
	}
	for _, c := range cs {
		if err == nil {
			err = l.node.Docker.Call(ctx, http.MethodPost, "/containers/"+c.ID+"/kill", "", nil, nil)
		}
	}
	return err
}

// lose removes all containers of pods from docker.
func (l *lab) lose(ctx context.Context, pods ...string) error {
	for _, kind := range []string{container, sandbox} {
		cs, err := l.containers(ctx, kind, pods...)
		if err == nil && len(cs) < len(pods) {
			err = fmt.Errorf("%d of kind %s for %d pods", len(cs), kind, len(pods))
		}
		for _, c := range cs {
			if err == nil {
				err = l.node.Docker.Call(ctx, http.MethodDelete, "/containers/"+c.ID+"?force=1", "", nil, nil)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) swap(ctx context.Context, kill bool) error {
	end := l.node.StopKubelet
	if kill {
		end = l.node.KillKubelet
	}
	if err := end(); err != nil {
		return err
	}
	if err := l.delete(ctx, names(swap, deleted, lostDeleted)...); err != nil {
		return err
	}
	if err := l.kill(ctx, sandbox, names(swap, sandboxKilled)...); err != nil {
		return err
	}
	if err := l.kill(ctx, container, names(swap, killed)...); err != nil {
		return err
	}
	if err := l.lose(ctx, names(swap, lost, lostDeleted)...); err != nil {
		return err
	}
	if err := l.startKubelet(ctx, l.e.UnderTest(base, "kubelet")); err != nil {
		return err
	}
	return l.look(ctx, swap, names(swap, stays, killed, sandboxKilled, lost)...)
}

// named is what became of a pod whose sandbox's name a container has, after it was deleted.
type named struct {
	// Running: the container does, and the pod cannot start.
	Running bool
	Gone    bool
	// There: the container is still there.
	There bool
}

func (l *lab) named(ctx context.Context) error {
	if err := l.node.StopKubelet(); err != nil {
		return err
	}
	made := map[string]string{}
	for _, pod := range []string{"named-dead", "named-running"} {
		if err := l.c.Client.Make(ctx, ns, node.Pod(pod, l.node.Name, node.Web("web"))); err != nil {
			return err
		}
		p, err := l.c.Client.Get(ctx, kube.Pods, ns, pod)
		if err != nil {
			return err
		}
		var c struct{ Id string }
		if err := l.node.Docker.Call(ctx, http.MethodPost, fmt.Sprintf("/containers/create?name=k8s_POD_%s_%s_%s_0", pod, ns, p.GetUID()), "application/json",
			strings.NewReader(fmt.Sprintf(`{"Image":%q}`, node.WebImage("v1"))), &c); err != nil {
			return err
		}
		made[pod] = c.Id
	}
	if err := l.node.Docker.Call(ctx, http.MethodPost, "/containers/"+made["named-running"]+"/start", "", nil, nil); err != nil {
		return err
	}
	if err := l.startKubelet(ctx, l.e.UnderTest(base, "kubelet")); err != nil {
		return err
	}
	if err := wait.Until(ctx, "docker refuses both names", patience, func(context.Context) (bool, error) {
		log, err := l.node.Kubelet.LastRunLog()
		for _, id := range made {
			if !strings.Contains(log, `is already in use by container \"`+id) && !strings.Contains(log, `is already in use by container "`+id) {
				return false, err
			}
		}
		return true, err
	}); err != nil {
		return err
	}
	for _, pod := range slices.Sorted(maps.Keys(made)) {
		if err := l.c.Client.Delete(ctx, kube.Pods, ns, pod); err != nil {
			return err
		}
		o := named{Running: pod == "named-running"}
		if err := l.c.Client.WaitGone(ctx, kube.Pods, ns, pod, time.Minute); err == nil {
			o.Gone = true
		} else if ctx.Err() != nil {
			return err
		}
		_, err := l.node.Docker.Inspect(ctx, made[pod])
		o.There = err == nil
		l.e.Logf("%+v", o)
		l.e.Record(o)
	}
	return nil
}

func (l *lab) file(command, what, pod string) string {
	return filepath.Join(l.dir, strings.Join([]string{command, what, pod}, "-"))
}

// tell has the plugin fail or hold calls for pods.
func (l *lab) tell(command, what string, pods ...string) error {
	for _, p := range pods {
		if err := os.WriteFile(l.file(command, what, p), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) adds(ctx context.Context) error {
	held := names(adds, removed)
	if err := l.tell("ADD", "fail", names(adds, addFails)...); err != nil {
		return err
	}
	if err := l.tell("ADD", "hold", held...); err != nil {
		return err
	}
	if err := l.make(ctx, adds, addFails); err != nil {
		return err
	}
	for _, p := range held {
		if err := l.c.Client.Make(ctx, ns, node.Pod(p, l.node.Name, node.Web("web"))); err != nil {
			return err
		}
	}
	if err := wait.Until(ctx, "ADD runs", patience, func(context.Context) (bool, error) {
		calls, err := l.calls()
		n := 0
		for _, c := range calls {
			if slices.Contains(held, c.Pod) {
				n++
			}
		}
		return n >= len(held), err
	}); err != nil {
		return err
	}
	if err := l.delete(ctx, held...); err != nil {
		return err
	}
	if err := wait.Until(ctx, "the kubelet has removed the sandboxes", patience, func(ctx context.Context) (bool, error) {
		cs, err := l.containers(ctx, sandbox, held...)
		return len(cs) == 0, err
	}); err != nil {
		return err
	}
	for _, p := range held {
		if err := os.Remove(l.file("ADD", "hold", p)); err != nil {
			return err
		}
	}
	return l.look(ctx, adds, slices.Concat(names(swap, stays, killed, sandboxKilled, lost), names(adds, addFails))...)
}

func (l *lab) reboot(ctx context.Context) error {
	if err := l.make(ctx, reboot, kinds[reboot]...); err != nil {
		return err
	}
	if err := l.node.PowerOff(ctx); err != nil {
		return err
	}
	if err := l.node.StartDocker(ctx); err != nil {
		return err
	}
	if err := l.delete(ctx, names(reboot, deleted, lostDeleted, lostFailed)...); err != nil {
		return err
	}
	if err := l.lose(ctx, names(reboot, lostDeleted, lostFailed)...); err != nil {
		return err
	}
	if err := l.tell("DEL", "fail", names(reboot, lostFailed)...); err != nil {
		return err
	}
	if err := l.startKubelet(ctx, l.e.UnderTest(base, "kubelet")); err != nil {
		return err
	}
	return l.look(ctx, reboot, slices.Concat(names(swap, stays, killed, sandboxKilled, lost), names(adds, addFails), names(reboot, stays))...)
}

func (l *lab) end(ctx context.Context) error {
	pods, err := l.c.Client.List(ctx, kube.Pods, ns, "")
	if err != nil {
		return err
	}
	for i := range pods {
		if err := l.c.Client.Delete(ctx, kube.Pods, ns, pods[i].GetName()); err != nil {
			return err
		}
	}
	for i := range pods {
		if err := l.c.Client.WaitGone(ctx, kube.Pods, ns, pods[i].GetName(), patience); err != nil {
			return err
		}
	}
	return l.look(ctx, ended)
}

// call is a line of the plugin that counts: see tools/cmd/cnicount.
type call struct {
	Command, Sandbox, Pod string
	Failed                bool
}

func (l *lab) calls() ([]call, error) {
	f, err := os.Open(filepath.Join(l.dir, "calls.jsonl"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []call
	s := bufio.NewScanner(f)
	for s.Scan() {
		var c call
		if err := json.Unmarshal(s.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		out = append(out, c)
	}
	return out, s.Err()
}

// seen is what there is after a phase.
type seen struct {
	Phase string
	// Sandboxes run; Links are on the bridge; Without have no lease.
	Sandboxes, Links, Without int
	// Stray are the pods of the leases whose sandbox does not run, one for each.
	Stray []string
	// Adds, Dels and failed calls of pods of this phase, by kind; Owed are the pods of those
	// sandboxes, of any phase, that had an ADD, do not run and had no DEL that succeeded.
	Adds, Dels, Failed map[string]int
	Owed               []string
}

// clean is whether nothing is left.
func (s seen) clean() bool {
	return s.Links == s.Sandboxes && s.Without == 0 && len(s.Stray) == 0 && len(s.Owed) == 0
}

func (l *lab) look(ctx context.Context, phase string, pods ...string) error {
	if err := l.ready(ctx, pods...); err != nil {
		return err
	}
	var s seen
	// What stays is for the oracle.
	if err := wait.Until(ctx, "all is taken down that should be", settle, func(ctx context.Context) (bool, error) {
		var err error
		s, err = l.see(ctx, phase)
		return s.clean(), err
	}); err != nil && (ctx.Err() != nil || s.Phase == "") {
		return err
	}
	l.e.Logf("%+v", s)
	l.e.Record(s)
	return nil
}

func (l *lab) see(ctx context.Context, phase string) (seen, error) {
	s := seen{Phase: phase, Adds: map[string]int{}, Dels: map[string]int{}, Failed: map[string]int{}}
	links, err := l.node.Output(ctx, "ip", "-o", "link", "show", "master", "cni0")
	if err != nil && !strings.Contains(links, "does not exist") { // a pod that starts makes it
		return seen{}, err
	}
	s.Links = strings.Count(links, "\n")
	cs, err := l.node.Docker.Containers(ctx, false)
	if err != nil {
		return seen{}, err
	}
	run := map[string]bool{}
	for _, c := range cs {
		if c.Labels[node.LabelType] == sandbox {
			run[c.ID] = true
		}
	}
	s.Sandboxes = len(run)
	calls, err := l.calls()
	if err != nil {
		return seen{}, err
	}
	pod, owed := map[string]string{}, map[string]string{}
	for _, c := range calls {
		pod[c.Sandbox] = c.Pod
		if kind, _, ok := strings.Cut(c.Pod, "-"+phase+"-"); ok {
			switch {
			case c.Failed:
				s.Failed[kind]++
			case c.Command == "ADD":
				s.Adds[kind]++
			default:
				s.Dels[kind]++
			}
		}
		switch {
		case c.Command == "ADD":
			owed[c.Sandbox] = c.Pod
		case !c.Failed:
			delete(owed, c.Sandbox)
		}
	}
	for id, p := range owed {
		if !run[id] {
			s.Owed = append(s.Owed, p)
		}
	}
	leases, err := l.leases()
	if err != nil {
		return seen{}, err
	}
	for _, id := range leases {
		if !run[id] {
			s.Stray = append(s.Stray, pod[id])
		}
	}
	for id := range run {
		if !slices.Contains(leases, id) {
			s.Without++
		}
	}
	slices.Sort(s.Stray)
	slices.Sort(s.Owed)
	return s, nil
}

// leases are the sandboxes of host-local's leases.
func (l *lab) leases() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(l.dir, "lab", "*.*.*.*"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		switch {
		case os.IsNotExist(err): // released meanwhile
		case err != nil:
			return nil, err
		default:
			id, _, _ := strings.Cut(string(b), "\n")
			out = append(out, strings.TrimSpace(id))
		}
	}
	return out, nil
}
