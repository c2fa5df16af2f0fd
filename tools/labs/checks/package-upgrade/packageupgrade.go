// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package packageupgrade is the lab package-upgrade: apt and dpkg replace the package of a kubelet that
// runs pods. See tools/labs/checks/package-upgrade/README.md.
package packageupgrade

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/tools/build/exit"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	base = "v1.9.11"
	old  = "v1.7.0"
	ns   = "default"
	// pods are how many pods there are, of one Service.
	pods = 4
)

// packages is the folder below the checkout that release/lab_test.go writes: upstream/, the form of a
// deb of 2017 without its kubelet, and the signed folders r9 and r10 of two releases of Holdfast.
const packages = "_output/packages"

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:      "package-upgrade",
		Folder:    "checks/package-upgrade",
		Summary:   "apt replaces packages of kubelet 1.7.0 and 1.9.11 in upstream's form with Holdfast's packages and their next release, and node back restores the old kubelet",
		Packages:  []string{node.SystemdPackage, "init-system-helpers", "apt-utils", "ebtables", "ethtool", "socat"},
		Variants:  []labkit.Variant{labkit.Ours},
		OnRequest: true,
		Needs: []labkit.Binary{labkit.StockBinary(base, "kube-apiserver"), labkit.StockBinary(base, "kube-controller-manager"),
			labkit.StockBinary(base, "kubelet"), labkit.StockBinary(old, "kubelet")},
		Steps: steps,
		Oracle: labkit.Oracle{Text: []string{
			"after each step the unit is active, the kubelet of that step runs, and it was down for at most 10 s; docker's container IDs and start times have not changed",
			"in steps that start only Holdfast's kubelet, no pod is published as not ready and no address leaves the Endpoints",
			"the administrator's files have not changed; the earlier kubelet is kept with its unit",
		}, Judge: judge},
		Timeout: func(labkit.Profile) time.Duration { return 30 * time.Minute },
	}}
}

type lab struct {
	e                *labkit.Env
	cluster          *node.Cluster
	n                *node.Node
	pods, endpoints  *kube.Recorder
	dir              string // packages, of the node
	admin            map[string]string
	unit             string
	stock17, stock19 kube.Program
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	out := []labkit.Step{
		{Text: "start the control plane v1.9.11 and a node with systemd, dpkg and apt; install a package of kubelet v1.7.0 in upstream's form", Do: l.start},
		{Text: fmt.Sprintf("create %d pods of a Service", pods), Do: l.create},
	}
	for _, s := range legs {
		out = append(out, labkit.Step{Text: s.text, Do: func(ctx context.Context) error { return l.step(ctx, s) }})
	}
	return append(out, labkit.AllRun(func(ctx context.Context) error { return l.cluster.Alive(ctx) }))
}

func (l *lab) start(ctx context.Context) error {
	l.dir = filepath.Join(l.e.Root, filepath.FromSlash(packages))
	if _, err := os.Stat(filepath.Join(l.dir, "r10")); err != nil {
		return exit.Preconditionf("%v: run make release-check, which makes the packages and runs this lab", err)
	}
	l.stock17, l.stock19 = l.e.Stock(old, "kubelet"), l.e.Stock(base, "kubelet")
	c, err := l.e.StartStockCluster(ctx, base, node.Config{Name: "node1", Kubelet: l.stock17, CgroupDriver: node.Systemd, Unit: kubeletlab.UnitFlags})
	if err != nil {
		return err
	}
	l.cluster, l.n = c, c.Nodes[0]
	line, err := kubeletlab.TakeOver(l.n)
	if err != nil {
		return err
	}
	l.e.OnStop("kubelet.service", func(ctx context.Context) error { return l.sh(ctx, "systemctl stop kubelet || true") })
	dropIn := "[Unit]\nDefaultDependencies=no\n\n[Service]\nEnvironment=\"KUBELET_LAB_ARGS=" + line + "\"\nEnvironmentFile=-" + kubeletlab.ExtraFile +
		"\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_LAB_ARGS $KUBELET_EXTRA_ARGS\nStandardOutput=append:" + l.e.Path("unit.log") + "\nStandardError=inherit\n"
	if err := os.WriteFile(l.e.Path("drop-in"), []byte(dropIn), 0o644); err != nil {
		return err
	}
	// /usr of the node is the machine's, and packages write there; /var/lib and /etc are its own
	// already. A policy against services is the machine's, too.
	if err := l.sh(ctx, `
mkdir -p "$OWN/upper" "$OWN/work" "$OWN/cache" "$OWN/apt"
mount -t overlay overlay -o "lowerdir=/usr,upperdir=$OWN/upper,workdir=$OWN/work" /usr
mount --bind "$OWN/cache" /var/cache
rm -f /usr/sbin/policy-rc.d
mkdir -p /etc/systemd/system/kubelet.service.d /etc/kubernetes/manifests
cp "$DROPIN" /etc/systemd/system/kubelet.service.d/10-kubeadm.conf
echo KUBELET_EXTRA_ARGS=--v=3 >/etc/default/kubelet
for r in r9 r10; do
  echo "deb [signed-by=$PACKAGES/$r/holdfast-release.asc] file:$PACKAGES/$r/apt ./" >"$OWN/apt/$r.list"
done
for v in 1 2; do
  mkdir -p "$OWN/five/$v"
  for p in a b c d; do
    mkdir -p "$OWN/build/DEBIAN" "$OWN/build/usr/share/lab-$p"
    printf 'Package: lab-%s\nVersion: %s\nArchitecture: all\nMaintainer: a lab <lab@holdfast.invalid>\nDescription: one of five\n' "$p" "$v" >"$OWN/build/DEBIAN/control"
    head -c 20000000 /dev/urandom >"$OWN/build/usr/share/lab-$p/data"
    dpkg-deb --root-owner-group -Znone -b "$OWN/build" "$OWN/five/$v/lab-$p.deb"
    rm -r "$OWN/build"
  done
done
(cd "$OWN/five/2" && apt-ftparchive packages . >Packages)
{ cat "$OWN/apt/r9.list"; echo "deb [trusted=yes] file:$OWN/five/2 ./"; } >"$OWN/apt/five.list"
dpkg -i "$OWN"/five/1/*.deb`); err != nil {
		return err
	}
	if err := l.upstream(ctx, l.stock17); err != nil {
		return err
	}
	return kubeletlab.Answers(ctx, l.n)
}

// upstream installs a package in upstream's form.
func (l *lab) upstream(ctx context.Context, p kube.Program) error {
	_, err := l.output(ctx, `
rm -rf "$OWN/stock"
cp -r "$PACKAGES/upstream" "$OWN/stock"
sed -i "s/VERSION/${BASE#v}-00/" "$OWN/stock/DEBIAN/control"
install -D -m 0755 "$PROGRAM" "$OWN/stock/usr/bin/kubelet"
dpkg-deb --root-owner-group -Zgzip -z1 -b "$OWN/stock" "$OWN/stock.deb"
dpkg -i "$OWN/stock.deb"`, "BASE="+p.Base, "PROGRAM="+p.Path)
	return err
}

// sh runs a script on the node.
func (l *lab) sh(ctx context.Context, script string) error {
	_, err := l.output(ctx, script)
	return err
}

// output is sh with what it prints, and more variables. An error has both.
func (l *lab) output(ctx context.Context, script string, env ...string) (string, error) {
	args := append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C",
		"OWN=" + filepath.Join(l.n.Dir, "own"), "PACKAGES=" + l.dir, "DROPIN=" + l.e.Path("drop-in")}, env...)
	return l.n.Output(ctx, "env", append(args, "bash", "-euo", "pipefail", "-c", script)...)
}

func (l *lab) create(ctx context.Context) error {
	text := "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}\n"
	for i := range pods {
		text += fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: web-%d, labels: {app: web}}\nspec:\n  nodeName: %s\n  terminationGracePeriodSeconds: 2\n  containers:\n"+
			"  - {name: main, image: '%s', imagePullPolicy: IfNotPresent, readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 3}}\n", i, l.n.Name, node.WebImage("v1"))
	}
	if _, err := l.cluster.Client.CreateYAML(ctx, ns, text); err != nil {
		return err
	}
	var err error
	if l.pods, err = l.cluster.Client.Record(ctx, kube.Pods, ns); err != nil {
		return err
	}
	if l.endpoints, err = l.cluster.Client.Record(ctx, kube.Endpoints, ns); err != nil {
		return err
	}
	if err := l.ready(ctx); err != nil {
		return err
	}
	l.admin, err = l.files(ctx)
	return err
}

// ready waits until all pods are ready, and in the Endpoints.
func (l *lab) ready(ctx context.Context) error {
	if err := kubeletlab.WaitReady(ctx, l.cluster.Client, ns, pods, 3*time.Minute); err != nil {
		return err
	}
	_, err := l.cluster.Client.WaitFor(ctx, kube.Endpoints, ns, "web", time.Minute, "has all pods", func(o *kube.Object) (bool, error) {
		if n := len(kubeletlab.ReadyPods(o)); n != pods {
			return false, fmt.Errorf("%d of %d pods are in it", n, pods)
		}
		return true, nil
	})
	return err
}

// files are the administrator's, with sums, and the folder of static pods, which is empty.
func (l *lab) files(ctx context.Context) (map[string]string, error) {
	out, err := l.output(ctx, "sha256sum /etc/systemd/system/kubelet.service.d/* /etc/default/kubelet /etc/kubernetes/kubelet.conf; ls -d /etc/kubernetes/manifests | sed 's/^/folder /'")
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for line := range strings.Lines(out) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[strings.TrimSpace(name)] = sum
	}
	return files, nil
}

// settled waits until the kubelet has synced all pods, and nothing changes any more.
func (l *lab) settled(ctx context.Context) (kubeletlab.Snapshot, error) {
	if err := kubeletlab.WaitSynced(ctx, l.n, pods, 2*time.Minute); err != nil {
		return nil, err
	}
	if err := l.ready(ctx); err != nil {
		return nil, err
	}
	return kubeletlab.WaitStable(ctx, l.n, 10*time.Second, 2*time.Minute)
}

// step does one of legs and records what became of the node.
func (l *lab) step(ctx context.Context, s leg) error {
	if s.upstream {
		if err := l.upstream(ctx, l.stock19); err != nil {
			return err
		}
		_, err := l.settled(ctx)
		return err
	}
	o := observed{Leg: s.name, Files: map[string]string{}}
	var err error
	if o.Before, err = kubeletlab.WaitStable(ctx, l.n, 3*time.Second, time.Minute); err != nil {
		return err
	}
	since := time.Now()
	out, failed := l.output(ctx, s.script)
	o.Took = time.Since(since).Seconds()
	l.e.Logf("%s: %v\n%s", s.name, failed, out)
	if failed != nil {
		o.Failed = lastLines(out, 5)
	}
	if o.After, err = l.settled(ctx); err != nil {
		return err
	}
	if o.Published, err = kubeletlab.Seen(l.pods, l.endpoints, ns, "web", since, func(string) bool { return true }); err != nil {
		return err
	}
	now, err := l.files(ctx)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(l.admin)) {
		if now[name] != l.admin[name] {
			o.Files[name] = "changed"
		}
	}
	return l.look(ctx, o)
}

// look asks systemd, dpkg and the folder of kept kubelets.
func (l *lab) look(ctx context.Context, o observed) error {
	out, err := l.output(ctx, `
systemctl is-active kubelet || true
pid=$(systemctl show -p MainPID --value kubelet)
"/proc/$pid/exe" --version
dpkg-query -W -f '${Version}\n' kubelet
systemctl show -p InactiveExitTimestampMonotonic --value kubelet
systemctl show -p ActiveExitTimestampMonotonic --value kubelet
for k in v1.7.0 v1.9.11; do
  if [[ -e /usr/lib/holdfast/kept/$k/unit/lib/systemd/system/kubelet.service ]]; then
    sha256sum <"/usr/lib/holdfast/kept/$k/kubelet" | cut -d' ' -f1
  else
    echo none
  fi
done
sha256sum <"$A" | cut -d' ' -f1
sha256sum <"$B" | cut -d' ' -f1
ls /usr/lib/holdfast/kept | wc -l`, "A="+l.stock17.Path, "B="+l.stock19.Path)
	if err != nil {
		return err
	}
	f := strings.Split(strings.TrimSpace(out), "\n")
	if len(f) != 10 {
		return fmt.Errorf("10 lines are wanted, not\n%s", out)
	}
	o.Active, o.Kubelet, o.Package = f[0], strings.TrimPrefix(f[1], "Kubernetes "), f[2]
	start, err := strconv.ParseInt(f[3], 10, 64)
	if err != nil {
		return err
	}
	stop, err := strconv.ParseInt(f[4], 10, 64)
	if err != nil {
		return err
	}
	o.Down = float64(start-stop) / 1e6
	for i, release := range []string{old, base} {
		if f[5+i] == f[7+i] {
			o.Kept = append(o.Kept, release)
		}
	}
	o.KeptAll, err = strconv.Atoi(f[9])
	l.e.Record(o)
	return err
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
