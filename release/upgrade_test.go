// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

const old = "v1.7.16"

// manifests is the folder of static pods.
const manifests = "/etc/kubernetes/manifests"

// dropIn and extra are the administrator's files, which no package may touch.
const (
	dropIn = "[Service]\nEnvironment=\"KUBELET_KUBECONFIG_ARGS=--kubeconfig=/etc/kubernetes/kubelet.conf --require-kubeconfig=true\"\nEnvironmentFile=-/etc/default/kubelet\n" +
		"ExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS --container-runtime=remote $KUBELET_EXTRA_ARGS\n"
	extra = "KUBELET_EXTRA_ARGS=--fail-swap-on=false\n"
)

// newNode is a machine on which the stock package's kubelet runs.
func newNode(t *testing.T, releases string, ownVar bool) *machine {
	t.Helper()
	m := newMachine(t, releases, ownVar)
	m.run(`mkdir -p /etc/kubernetes /etc/systemd/system/kubelet.service.d /var/lib/kubelet
echo "server: https://x" >/etc/kubernetes/kubelet.conf
rm -f /usr/sbin/policy-rc.d /etc/apt/sources.list /etc/apt/sources.list.d/*
cat >/etc/systemd/system/kubelet.service.d/10-kubeadm.conf <<'EOF'
` + dropIn + `EOF
echo -n "` + extra + `" >/etc/default/kubelet
dpkg -i /release/stock.deb
systemctl daemon-reload
for n in 9 10; do echo "deb [signed-by=/release/r$n/holdfast-release.asc] file:///release/r$n/apt ./" >/etc/apt/r$n.list; done`)
	m.runs(old)
	return m
}

// install installs the packages of release n from its signed folder.
func (m *machine) install(n string, packages string) (string, error) {
	return m.try(fmt.Sprintf("o='-o Dir::Etc::sourcelist=/etc/apt/r%s.list -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any'\napt-get $o -qq update 2>&1\napt-get $o -y -q install %s 2>&1", n, packages))
}

// runs waits until a kubelet of a version is what the unit runs, and answers.
func (m *machine) runs(version string) {
	m.t.Helper()
	script := `pid=$(systemctl show -p MainPID --value kubelet); [[ $pid != 0 ]]; /proc/$pid/exe --version; (exec 3<>/dev/tcp/127.0.0.1/10248)`
	end := time.Now().Add(time.Minute)
	for {
		out, err := m.try(script)
		if err == nil && strings.TrimSpace(out) == "Kubernetes "+version {
			return
		}
		if time.Now().After(end) {
			m.t.Fatalf("the kubelet is not %s: %v %s\n%s", version, err, out, m.run("systemctl status kubelet || true"))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// starts are the kubelets that were started, oldest first.
func (m *machine) starts() []string {
	return strings.Split(strings.TrimSpace(m.run("cut -d' ' -f1 /run/kubelet.starts")), "\n")
}

func (m *machine) want(what string, got, want any) {
	m.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		m.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestUpgrade: upstream's package, Holdfast's, the next one, and back.
func TestUpgrade(t *testing.T) {
	long(t)
	dir := releases(t)
	for name, ownVar := range map[string]bool{"one file system": false, "var on its own": true} {
		t.Run(name, func(t *testing.T) { there(t, newNode(t, dir, ownVar)) })
	}
	t.Run("page", func(t *testing.T) { page(t, newNode(t, dir, false)) })
	t.Run("refused", func(t *testing.T) { refused(t, newNode(t, dir, false)) })
	t.Run("a stock package that does not stop its kubelet", func(t *testing.T) { runsOn(t, newNode(t, dir, false)) })
	t.Run("policy", func(t *testing.T) { policy(t, newNode(t, dir, false)) })
	t.Run("removed", func(t *testing.T) { removed(t, newNode(t, dir, false)) })
	t.Run("killed", func(t *testing.T) { killed(t, newNode(t, dir, false)) })
	t.Run("rpm", func(t *testing.T) { rpms(t, newMachine(t, dir, false)) })
	t.Run("an rpm without the folder of static pods", func(t *testing.T) { folder(t, newMachine(t, dir, false)) })
	t.Run("a deb without Pre-Depends", func(t *testing.T) { missing(t, newNode(t, dir, false)) })
	for name, ownVar := range map[string]bool{"a link in var": false, "a link in var on its own": true} {
		t.Run(name, func(t *testing.T) { linked(t, newNode(t, dir, ownVar), ownVar) })
	}
}

const kept = "/usr/lib/holdfast/kept/" + old

func there(t *testing.T, m *machine) {
	const n9, n10 = "v1.9.11+holdfast.9", "v1.9.11+holdfast.10"
	began := time.Now()
	out, err := m.install("9", "kubelet")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m.runs(n9)
	t.Logf("upstream's to Holdfast's: %.1f s", time.Since(began).Seconds())
	m.want("started", m.starts(), []string{old, n9})
	m.want("kept", m.run("sha256sum <"+kept+"/kubelet"), m.run("dpkg --fsys-tarfile /release/stock.deb | tar -xO ./usr/bin/kubelet | sha256sum"))
	m.run("test -e " + kept + "/unit/lib/systemd/system/kubelet.service -a -e " + kept + "/unit/etc/systemd/system/kubelet.service.d/10-kubeadm.conf -a -e " + kept + "/environment/etc/default/kubelet")
	m.want("dpkg --verify", m.run("dpkg --verify kubelet kubectl-holdfast"), "")
	if out, err = m.install("10", "kubelet"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m.runs(n10)
	m.want("started", m.starts(), []string{old, n9, n10})
	m.want("kept", m.run("ls /usr/lib/holdfast/kept"), old+"\n")
	out = m.run("kubectl-holdfast node back --settle 1s 2>&1 || echo status $?")
	m.runs(old)
	m.want("started", m.starts(), []string{old, n9, n10, old})
	has(t, out, old+" runs and is healthy")
	m.want("dpkg --verify", m.run("dpkg --verify kubelet"), "??5??????   /usr/bin/kubelet\n")
	m.want("the drop-in", m.run("cat /etc/systemd/system/kubelet.service.d/10-kubeadm.conf"), dropIn)
	m.want("the environment file", m.run("cat /etc/default/kubelet"), extra)
	m.want("enabled", m.run("systemctl is-enabled kubelet"), "enabled\n")
	// Holdfast again, and upstream's package over it.
	if out, err = m.install("10", "--reinstall kubelet"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m.runs(n10)
	m.run("dpkg -i /release/stock.deb 2>&1")
	m.runs(old)
}

// page types what docs/user/packages.md says for Debian, from the package to the way back. Each line
// of output that the page shows must be in what is printed; "…" in it stands for anything.
func page(t *testing.T, m *machine) {
	text, err := os.ReadFile("../docs/user/packages.md")
	must(t, err)
	typed := 0
	for _, heading := range []string{"## Debian, Ubuntu", "## Back"} {
		_, rest, _ := strings.Cut(string(text), "\n"+heading+"\n")
		section, _, _ := strings.Cut(rest, "\n## ")
		_, rest, ok := strings.Cut(section, "```console\n")
		block, _, _ := strings.Cut(rest, "```")
		if !ok {
			t.Fatalf("%s has no block", heading)
		}
		out := ""
		for line := range strings.Lines(strings.ReplaceAll(block, "DIR", "/release/r9")) {
			if command, ok := strings.CutPrefix(line, "# "); ok {
				typed++
				out, err = m.try("cd /release/r9\n" + strings.TrimSpace(command) + " 2>&1")
				t.Logf("%s%v %s", line, err, out)
				if err != nil && !strings.Contains(command, "kubectl-holdfast node") { // no docker runs here: it cannot compare
					t.Errorf("%s%v %s", line, err, out)
				}
				continue
			}
			for _, part := range strings.Split(strings.TrimSpace(line), "…") {
				if !strings.Contains(strings.Join(strings.Fields(out), " "), strings.Join(strings.Fields(part), " ")) {
					t.Errorf("it does not print %q:\n%s", part, out)
				}
			}
		}
		m.runs(map[string]string{"## Debian, Ubuntu": "v1.9.11+holdfast.9", "## Back": old}[heading])
	}
	if typed < 8 {
		t.Errorf("only %d commands", typed)
	}
}

// refused: the package manager leaves the kubelet as it is, and it runs.
func refused(t *testing.T, m *machine) {
	if out, err := m.install("9", "kubectl-holdfast"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	before := m.run("sha256sum </usr/bin/kubelet")
	for name, c := range map[string]struct{ do, undo, want string }{
		"flag":       {"echo KUBELET_EXTRA_ARGS=--api-servers=http://x >/etc/default/kubelet", "echo -n '" + extra + "' >/etc/default/kubelet", "HF101"},
		"standalone": {"sed -i 's,--kubeconfig=[^ ]* --require-kubeconfig=true,--container-runtime=remote,' /etc/systemd/system/kubelet.service.d/10-kubeadm.conf; systemctl daemon-reload", "cat >/etc/systemd/system/kubelet.service.d/10-kubeadm.conf <<'EOF'\n" + dropIn + "EOF\nsystemctl daemon-reload", "HF102"},
		"not loaded": {"touch -d '+2 min' /etc/systemd/system/kubelet.service.d/10-kubeadm.conf", "systemctl daemon-reload", "HF502"},
		"disabled":   {"systemctl disable kubelet 2>/dev/null", "systemctl enable kubelet 2>/dev/null", "HF530"},
		"masked":     {"systemctl mask kubelet 2>/dev/null", "systemctl unmask kubelet 2>/dev/null", "systemctl unmask kubelet.service"},
		"edited":     {"cp -a /lib/systemd/system/kubelet.service /tmp/; echo '# mine' >>/lib/systemd/system/kubelet.service; systemctl daemon-reload", "cp -a /tmp/kubelet.service /lib/systemd/system/; systemctl daemon-reload", "kubelet.service was edited"},
		"no room":    {"mkdir -p /usr/lib/holdfast; mount -t tmpfs -o size=512k none /usr/lib/holdfast", "umount /usr/lib/holdfast", "HF504"},
	} {
		t.Run(name, func(t *testing.T) {
			m.t = t
			m.run(c.do)
			out, err := m.install("9", "kubelet")
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("%v, want %s\n%s", err, c.want, out)
			}
			m.want("the file", m.run("sha256sum </usr/bin/kubelet"), before)
			m.want("the package", m.run("dpkg-query -W -f '${Version} ${Status}' kubelet"), "1.7.16-00 install ok installed")
			m.want("kept", m.run("ls /usr/lib/holdfast/kept 2>/dev/null || true"), "")
			if name != "disabled" && name != "masked" { // upstream's own script does not start such a unit
				m.runs(old)
			}
			m.run(c.undo + "\nsystemctl start kubelet")
		})
	}
	m.t = t
	out, err := m.try("dpkg -i /release/arm64/apt/kubelet_*.deb 2>&1")
	if err == nil || !strings.Contains(out, "package architecture (arm64) does not match system (amd64)") {
		t.Errorf("another architecture: %v\n%s", err, out)
	}
	// Where systemd does not answer, nobody can tell how the kubelet is started.
	out, err = m.try("unshare --mount bash -c 'mount -t tmpfs none /run/systemd; dpkg -i /release/r9/apt/kubelet_*.deb' 2>&1")
	if err == nil || !strings.Contains(out, "HF503") {
		t.Errorf("no systemd: %v\n%s", err, out)
	}
	m.want("the file", m.run("sha256sum </usr/bin/kubelet"), before)
	m.runs(old)
	for name, release := range map[string]string{"another key": "signed-by=/release/other.asc", "no key": "arch=amd64"} {
		out, err := m.try(`echo "deb [` + release + `] file:///release/r9/apt ./" >/tmp/bad.list; apt-get -o Dir::Etc::sourcelist=/tmp/bad.list -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any -qq update 2>&1`)
		if err == nil {
			t.Errorf("%s: %s", name, out)
		}
	}
	m.run("echo KUBELET_EXTRA_ARGS=--fail-swap-on=false >/etc/default/kubelet; mkdir -p /etc/holdfast; touch /etc/holdfast/skip-check; systemctl disable kubelet 2>/dev/null")
	if out, err := m.install("9", "kubelet"); err != nil {
		t.Errorf("skip-check: %v\n%s", err, out)
	}
	has(t, m.run("cat /usr/lib/holdfast/journal; ls /usr/lib/holdfast/kept"), "was ignored: HF530", old)
}

// runsOn: a kubelet that upstream's package did not stop is restarted, once.
func runsOn(t *testing.T, m *machine) {
	m.run("dpkg -i /release/stock-runs-on.deb 2>&1")
	before := m.starts()
	if out, err := m.install("9", "kubelet"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	m.runs("v1.9.11+holdfast.9")
	m.want("started", m.starts(), append(before, "v1.9.11+holdfast.9"))
	m.run("test -d " + manifests)
}

// policy: a policy against services is obeyed, and the package says that its kubelet does not run.
func policy(t *testing.T, m *machine) {
	m.run("printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d")
	out, err := m.install("9", "kubelet")
	if err != nil || !strings.Contains(out, "this version does not run yet: start it with systemctl restart kubelet") {
		t.Errorf("%v %s", err, out)
	}
	m.runs(old)
	m.run("systemctl restart kubelet")
	m.runs("v1.9.11+holdfast.9")
}

// removed: upstream's package was removed; Holdfast's is then a first one, and enabled as that is.
func removed(t *testing.T, m *machine) {
	m.run("dpkg -r kubelet; DPKG_MAINTSCRIPT_PACKAGE=kubelet deb-systemd-helper mask kubelet.service; rm -r /etc/kubernetes")
	out, err := m.install("9", "kubelet")
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	m.want("kept", m.run("ls /usr/lib/holdfast/kept 2>/dev/null || true"), "")
	m.want("enabled", m.run("systemctl is-enabled kubelet"), "enabled\n")
	m.run("test -d " + manifests + "; echo 'server: https://x' >/etc/kubernetes/kubelet.conf; systemctl start kubelet")
	m.runs("v1.9.11+holdfast.9")
}

// killed: dpkg is killed at many points; then it ends what it began.
func killed(t *testing.T, m *machine) {
	debs := "/release/r9/apt/kubelet_*.deb"
	m.run("dpkg -i /release/r9/apt/kubectl-holdfast_*.deb")
	for _, delay := range []string{"0.05", "0.2", "0.4", "0.7", "1.1", "1.6"} {
		m.run("dpkg -i " + debs + " >/tmp/dpkg.log 2>&1 & pid=$!; sleep " + delay + "; kill -KILL $pid 2>/dev/null || true; wait $pid || true")
		m.run("sleep 1; dpkg --configure -a --force-confold 2>&1 || true; dpkg -i " + debs + " 2>&1")
		m.runs("v1.9.11+holdfast.9")
		m.want("kept", m.run("ls /usr/lib/holdfast/kept"), old+"\n")
		m.want("kept", m.run("sha256sum <"+kept+"/kubelet"), m.run("dpkg --fsys-tarfile /release/stock.deb | tar -xO ./usr/bin/kubelet | sha256sum"))
		m.run("dpkg -i /release/stock.deb 2>&1")
		m.runs(old)
	}
	// As if killed when it had unpacked the unit: that is no edit of an administrator.
	m.run("dpkg --fsys-tarfile " + debs + " | tar -xO ./lib/systemd/system/kubelet.service >/lib/systemd/system/kubelet.service; systemctl daemon-reload; dpkg -i " + debs + " 2>&1")
	m.runs("v1.9.11+holdfast.9")
}

// missing: of packages without Pre-Depends apt brings the kubelet alone, and its check is not there.
func missing(t *testing.T, m *machine) {
	m.run("sed s,/r9/,/no-pre-depends/,g /etc/apt/r9.list >/etc/apt/rbad.list")
	out, err := m.install("bad", "kubelet")
	if err == nil || !strings.Contains(out, "the package kubectl-holdfast is missing") {
		t.Errorf("%v %s", err, out)
	}
	m.want("the package", m.run("dpkg-query -W -f '${Version} ${Status}' kubelet"), "1.7.16-00 install ok installed")
	m.runs(old)
}

// linked: a kubelet kept by a link in /var takes the whole upgrade with it where that is another
// file system. This is why it is kept beside /usr.
func linked(t *testing.T, m *machine, ownVar bool) {
	m.run("dpkg -i /release/r10/apt/kubectl-holdfast_*.deb")
	out, err := m.try("dpkg -i /release/link-in-var/apt/kubelet_*.deb 2>&1")
	if !ownVar {
		if err != nil {
			t.Errorf("%v %s", err, out)
		}
		m.runs("v1.9.11+holdfast.10")
		return
	}
	if err == nil || !strings.Contains(out, "Invalid cross-device link") {
		t.Errorf("%v %s", err, out)
	}
	m.runs(old)
}

// rpms: the same for an rpm, whose scripts restart nothing.
func rpms(t *testing.T, m *machine) {
	m.run(`mkdir -p /etc/kubernetes /etc/systemd/system/kubelet.service.d /var/lib/kubelet
echo "server: https://x" >/etc/kubernetes/kubelet.conf
cat >/etc/systemd/system/kubelet.service.d/10-kubeadm.conf <<'EOF'
` + dropIn + `EOF
rpm -i --nodeps /release/stock.rpm
sed -i 's/RestartSec=10/RestartSec=7/' /etc/systemd/system/kubelet.service
systemctl daemon-reload; systemctl enable kubelet; systemctl start kubelet
rpm --import /release/r9/holdfast-release.asc`)
	m.runs(old)
	m.run("echo KUBELET_EXTRA_ARGS=--api-servers=http://x >/etc/default/kubelet; rpm -K /release/r9/yum/*.rpm; rpm -U --nodeps /release/r9/yum/kubectl-holdfast-*.rpm")
	if out, err := m.try("rpm -U --nodeps /release/r9/yum/kubelet-*.rpm 2>&1"); err == nil || !strings.Contains(out, "HF101") {
		t.Errorf("%v %s", err, out)
	}
	m.want("kept", m.run("ls /usr/lib/holdfast/kept 2>/dev/null || true"), "")
	m.runs(old)
	m.run("echo -n '" + extra + "' >/etc/default/kubelet; rpm -U --nodeps /release/r9/yum/kubelet-*.rpm 2>&1")
	m.runs(old) // rpm restarts nothing
	m.want("kept", m.run("ls /usr/lib/holdfast/kept"), old+"\n")
	has(t, m.run("cat /etc/systemd/system/kubelet.service"), "RestartSec=7")
	m.want("the drop-in", m.run("cat /etc/systemd/system/kubelet.service.d/10-kubeadm.conf"), dropIn)
	m.want("the empty folder", m.run("rpm -qf --qf '%{VERSION}\n' "+manifests), "1.9.11+holdfast.9\n")
	m.run("systemctl restart kubelet")
	m.runs("v1.9.11+holdfast.9")
	m.run("echo '{}' >" + manifests + "/pod.yaml; rpm -U --nodeps /release/r10/yum/*.rpm 2>&1; systemctl restart kubelet")
	m.runs("v1.9.11+holdfast.10")
	m.want("the folder", m.run("ls "+manifests), "pod.yaml\n")
	m.run("kubectl-holdfast node back --settle 1s 2>&1 || true")
	m.runs(old)
	has(t, m.run("rpm -V kubelet || true"), "/usr/bin/kubelet")
}

// folder: an rpm that does not own the folder of static pods takes it away where it is empty.
func folder(t *testing.T, m *machine) {
	m.run("rpm -i --nodeps /release/stock.rpm; rpm -U --nodeps /release/r10/yum/kubectl-holdfast-*.rpm; mkdir -p /etc/holdfast; touch /etc/holdfast/skip-check")
	m.run("test -d " + manifests + "; rpm -U --nodeps /release/no-manifests/yum/kubelet-*.rpm 2>&1")
	m.want("the folder", m.run("ls -d "+manifests+" 2>/dev/null || echo none"), "none\n")
}
