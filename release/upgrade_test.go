// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const old = "v1.7.16"

// releases are what the machines find at /release: r9 and r10 of Holdfast, signed, and stock.deb in
// the form of upstream's package of 2017: its prerm stops the kubelet, its postinst starts it. The
// kubelets are stand-ins, kubectl-holdfast is the real one.
func releases(t *testing.T) string {
	t.Helper()
	dir, work := t.TempDir(), t.TempDir()
	root, err := filepath.Abs("..")
	must(t, err)
	pass := filepath.Join(work, "pass")
	must(t, os.WriteFile(pass, []byte("a long passphrase\n"), 0o600))
	t.Setenv("HOLDFAST_PASSPHRASE_FILE", pass)
	must(t, keygen(filepath.Join(work, "keys")))
	k, err := openKeys(filepath.Join(work, "keys"))
	must(t, err)
	base, err := readBase(root, "")
	must(t, err)
	for n, day := range map[string]int{"9": 21, "10": 22} {
		b := &builder{source: &source{root: root, base: base, version: "v1.9.11+holdfast." + n, date: time.Date(2026, 11, day, 0, 0, 0, 0, time.UTC)},
			out: filepath.Join(dir, "r"+n), work: work, keys: k}
		program, err := b.compile("cmd", operators, "linux", "amd64")
		must(t, err)
		must(t, b.packages(standIn(t, b.version, ""), program))
		must(t, b.repositories())
	}
	must(t, keygen(filepath.Join(work, "other")))
	must(t, exec.Command("cp", filepath.Join(work, "other", pgpPublic), filepath.Join(dir, "other.asc")).Run())
	stock := filepath.Join(work, "stock")
	unit := "[Unit]\nDescription=kubelet\n\n[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\nStartLimitInterval=0\nRestartSec=10\n\n[Install]\nWantedBy=multi-user.target\n"
	for file, text := range map[string]string{
		"DEBIAN/control":                      "Package: kubelet\nVersion: 1.7.16-00\nArchitecture: amd64\nMaintainer: a test <test@holdfast.invalid>\nDepends: iptables (>= 1.4.21), iproute2, socat, util-linux, mount, ebtables, ethtool\nDescription: in the form of upstream's\n",
		"DEBIAN/postinst":                     "#!/bin/sh\nset -e\ndeb-systemd-helper unmask kubelet.service >/dev/null || true\ndeb-systemd-helper enable kubelet.service >/dev/null || true\nif [ -d /run/systemd/system ]; then systemctl --system daemon-reload; deb-systemd-invoke start kubelet.service || true; fi\n",
		"DEBIAN/prerm":                        "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then deb-systemd-invoke stop kubelet.service; fi\n",
		"lib/systemd/system/kubelet.service":  unit,
		"etc/kubernetes/manifests/.gitignore": "",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(stock, file)), 0o755))
		mode := os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		must(t, os.WriteFile(filepath.Join(stock, file), []byte(text), mode))
	}
	must(t, os.MkdirAll(filepath.Join(stock, "usr/bin"), 0o755))
	must(t, exec.Command("cp", standIn(t, old, "api-servers"), filepath.Join(stock, "usr/bin/kubelet")).Run())
	if out, err := exec.Command("dpkg-deb", "--root-owner-group", "-b", stock, filepath.Join(dir, "stock.deb")).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	must(t, exec.Command("chmod", "-R", "a+rX", dir).Run())
	return dir
}

// standIn is testdata/kubelet of a version.
func standIn(t *testing.T, version, more string) string {
	file := filepath.Join(t.TempDir(), "kubelet")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-X=main.version="+version+" -X=main.more="+more, "-o", file, "./testdata/kubelet")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return file
}

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
	end := time.Now().Add(20 * time.Second)
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
	t.Run("refused", func(t *testing.T) { refused(t, newNode(t, dir, false)) })
	t.Run("killed", func(t *testing.T) { killed(t, newNode(t, dir, false)) })
	t.Run("rpm", func(t *testing.T) { rpms(t, newMachine(t, dir, false)) })
	t.Run("no Pre-Depends", func(t *testing.T) { missing(t, newNode(t, dir, false)) })
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
	m.want("dpkg --verify", m.run("dpkg --verify kubelet"), "??5?????? c /usr/bin/kubelet\n")
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
			if name != "disabled" { // upstream's own script does not start a unit that is disabled
				m.runs(old)
			}
			m.run(c.undo + "\nsystemctl start kubelet")
		})
	}
	m.t = t
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
	has(t, m.run("cat /usr/lib/holdfast/journal; ls /usr/lib/holdfast/kept"), "passed over HF530", old)
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
}

// missing: dpkg is told not to look at what the package needs.
func missing(t *testing.T, m *machine) {
	out, err := m.try("dpkg -i --force-depends /release/r9/apt/kubelet_*.deb 2>&1")
	if err == nil || !strings.Contains(out, "the package kubectl-holdfast is missing") {
		t.Errorf("%v %s", err, out)
	}
	m.runs(old)
}

// rpms: files and scripts, on a machine without a package of dpkg's for the kubelet.
func rpms(t *testing.T, m *machine) {
	m.run(`mkdir -p /etc/kubernetes/manifests /etc/systemd/system/kubelet.service.d /var/lib/kubelet /tmp/stock
echo "server: https://x" >/etc/kubernetes/kubelet.conf
dpkg --fsys-tarfile /release/stock.deb | tar -xC /tmp/stock
cp /tmp/stock/usr/bin/kubelet /usr/bin/
cat >/etc/systemd/system/kubelet.service.d/10-kubeadm.conf <<'EOF'
` + dropIn + `EOF
sed 's/RestartSec=10/RestartSec=7/' /tmp/stock/lib/systemd/system/kubelet.service >/etc/systemd/system/kubelet.service
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
	m.run("systemctl restart kubelet")
	m.runs("v1.9.11+holdfast.9")
	m.run("rpm -U --nodeps /release/r10/yum/*.rpm 2>&1; systemctl restart kubelet")
	m.runs("v1.9.11+holdfast.10")
	m.run("test -d /etc/kubernetes/manifests; rpm -qf /etc/kubernetes/manifests; kubectl-holdfast node back --settle 1s 2>&1 || true")
	m.runs(old)
}
