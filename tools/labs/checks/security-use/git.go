// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package securityuse

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
)

const (
	gitPort = "9418"
	sshPort = "2222"
)

// gitRepo sets up a pod with ten gitRepo volumes on each node and looks at their files.
func (l *lab) gitRepo(ctx context.Context) error {
	dir := l.e.Path("git")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	first, err := repository(ctx, dir)
	if err != nil {
		return err
	}
	plain, secure, authority, err := l.serveHTTP(dir)
	if err != nil {
		return err
	}
	if err := l.serveGit(ctx, dir); err != nil {
		return err
	}
	config, err := l.serveSSH(ctx, dir)
	if err != nil {
		return err
	}
	for _, n := range l.nodes {
		// /etc is the node's own.
		if err := n.Run(ctx, "git", "config", "--system", "http.sslCAInfo", authority); err != nil {
			return err
		}
		if err := n.Run(ctx, "git", "config", "--system", "core.sshCommand", "ssh -F "+config); err != nil {
			return err
		}
	}
	bare := filepath.Join(dir, "repo.git")
	urls := map[string]string{
		"http":  plain + "/repo.git",
		"https": secure + "/repo.git",
		"git":   "git://" + machine.IP + ":" + gitPort + "/repo.git",
		"ssh":   "ssh://root@" + machine.IP + ":" + sshPort + bare,
		"scp":   "root@" + machine.IP + ":" + bare, // ssh's port is in its configuration
	}
	main, volumes := node.Web("main"), []corev1.Volume{}
	for _, r := range repositories {
		for name, git := range map[string]*corev1.GitRepoVolumeSource{
			r + "-revision": {Repository: urls[r], Revision: first, Directory: "src"},
			r + "-dot":      {Repository: urls[r], Directory: "."},
		} {
			volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{GitRepo: git}})
			main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/git/" + name})
		}
	}
	if err := l.create(ctx, "git", true, func(*node.Node) ([]corev1.Container, []corev1.Volume) {
		return []corev1.Container{main}, volumes
	}); err != nil {
		return err
	}
	took := timed{What: gitMount}
	for _, n := range l.nodes {
		o, err := l.c.Client.Get(ctx, kube.Pods, ns, n.Name+"-git")
		if err != nil {
			return err
		}
		seen := files{Node: n.Name, There: map[string]bool{}}
		for _, r := range repositories {
			for file := range gitFiles {
				_, err := os.Stat(filepath.Join(n.Dir, "kubelet", "pods", string(o.GetUID()), "volumes", "kubernetes.io~git-repo", r+"-"+file))
				seen.There[r+"-"+file] = err == nil
			}
		}
		l.e.Record(seen)
		mean, err := mountMean(ctx, n)
		if err != nil {
			return err
		}
		took.add(n.Name, mean)
	}
	l.e.Record(took)
	return nil
}

// mountMean is the mean time of setting up a gitRepo volume, as the kubelet counts it.
func mountMean(ctx context.Context, n *node.Node) (time.Duration, error) {
	text, err := load.Get(ctx, n.KubeletURL+"/metrics")
	if err != nil {
		return 0, err
	}
	value := map[string]float64{}
	for _, line := range strings.Split(text, "\n") {
		if name, labels, ok := strings.Cut(line, "{"); ok && strings.HasPrefix(name, "storage_operation_duration_seconds_") &&
			strings.Contains(labels, `operation_name="volume_mount"`) && strings.Contains(labels, `volume_plugin="kubernetes.io/git-repo"`) {
			f := strings.Fields(labels)
			if value[strings.TrimPrefix(name, "storage_operation_duration_seconds_")], err = strconv.ParseFloat(f[len(f)-1], 64); err != nil {
				return 0, fmt.Errorf("%s: %w", line, err)
			}
		}
	}
	if value["count"] < 10 {
		return 0, fmt.Errorf("the kubelet of %s counted %v set-ups of gitRepo volumes, want 10", n.Name, value["count"])
	}
	return time.Duration(value["sum"] / value["count"] * float64(time.Second)), nil
}

// repository makes repo.git in dir with two commits and returns the first.
func repository(ctx context.Context, dir string) (string, error) {
	script := `set -e
export GIT_CONFIG_NOSYSTEM=1 HOME="$PWD" GIT_AUTHOR_NAME=lab GIT_AUTHOR_EMAIL=lab@holdfast.test GIT_COMMITTER_NAME=lab GIT_COMMITTER_EMAIL=lab@holdfast.test
git init -q work
cd work
echo one > one
git add one
git commit -q -m one
git rm -q one
echo two > two
git add two
git commit -q -m two
cd ..
git clone -q --bare work repo.git
git -C repo.git update-server-info
git -C work rev-parse HEAD~1`
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("make a repository: %w: %s", err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// serveHTTP serves dir by HTTP and HTTPS and returns both URLs and the file of the
// authority that the second is signed by.
func (l *lab) serveHTTP(dir string) (plain, secure, authority string, err error) {
	for _, encrypted := range []bool{false, true} {
		s := httptest.NewUnstartedServer(http.FileServer(http.Dir(dir)))
		s.Listener.Close()
		if s.Listener, err = net.Listen("tcp", machine.IP+":0"); err != nil {
			return "", "", "", err
		}
		l.e.OnStop("git over HTTP", func(context.Context) error { s.Close(); return nil })
		if !encrypted {
			s.Start()
			plain = s.URL
			continue
		}
		pki, err := l.e.GetPKI()
		if err != nil {
			return "", "", "", err
		}
		cert, err := pki.Issue("git-https", "git", nil, machine.IP)
		if err != nil {
			return "", "", "", err
		}
		pair, err := tls.LoadX509KeyPair(cert.CertFile, cert.KeyFile)
		if err != nil {
			return "", "", "", err
		}
		s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		s.StartTLS()
		secure, authority = s.URL, pki.CAFile
	}
	return plain, secure, authority, nil
}

func (l *lab) serveGit(ctx context.Context, dir string) error {
	out, err := exec.CommandContext(ctx, "git", "--exec-path").Output()
	if err != nil {
		return err
	}
	_, err = l.e.Start(ctx, process.Process{Name: "git-daemon", Path: filepath.Join(strings.TrimSpace(string(out)), "git-daemon"),
		Args:   []string{"--base-path=" + dir, "--export-all", "--reuseaddr", "--listen=" + machine.IP, "--port=" + gitPort, dir},
		Health: func(ctx context.Context) error { return dial(ctx, gitPort) }})
	return err
}

// serveSSH starts an sshd of the lab's own, which root enters with a key of the lab's
// own, and returns the configuration file with which ssh reaches it.
func (l *lab) serveSSH(ctx context.Context, dir string) (string, error) {
	ssh := filepath.Join(dir, "ssh")
	if err := os.MkdirAll(ssh, 0o700); err != nil {
		return "", err
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // where sshd confines itself
		return "", err
	}
	for _, key := range []string{"host", "user"} {
		if out, err := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", filepath.Join(ssh, key)).CombinedOutput(); err != nil {
			return "", fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
	}
	public, err := os.ReadFile(filepath.Join(ssh, "host.pub"))
	if err != nil {
		return "", err
	}
	for file, text := range map[string]string{
		"sshd_config": fmt.Sprintf("ListenAddress %s\nPort %s\nHostKey %s/host\nAuthorizedKeysFile %s/user.pub\nPermitRootLogin prohibit-password\n"+
			"PasswordAuthentication no\nStrictModes no\nUsePAM no\nPidFile none\n", machine.IP, sshPort, ssh, ssh),
		"ssh_config": fmt.Sprintf("Host *\n  Port %s\n  IdentityFile %s/user\n  UserKnownHostsFile %s/known_hosts\n  StrictHostKeyChecking yes\n  BatchMode yes\n",
			sshPort, ssh, ssh),
		"known_hosts": fmt.Sprintf("[%s]:%s %s", machine.IP, sshPort, public),
	} {
		if err := os.WriteFile(filepath.Join(ssh, file), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	_, err = l.e.Start(ctx, process.Process{Name: "sshd", Path: "/usr/sbin/sshd", Args: []string{"-D", "-e", "-f", filepath.Join(ssh, "sshd_config")},
		Health: func(ctx context.Context) error { return dial(ctx, sshPort) }})
	return filepath.Join(ssh, "ssh_config"), err
}

func dial(ctx context.Context, port string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", machine.IP+":"+port)
	if err == nil {
		err = c.Close()
	}
	return err
}
