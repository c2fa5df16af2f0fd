// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

var gitRepo = row{
	slug:    "gitrepo-hardening",
	gate:    "GitRepoVolumeHardening",
	summary: "a pod with a gitRepo volume runs commands on the node and reads its disk",
	plan: []string{
		"serve repositories by git daemon and HTTP; create two pods that clone them as they should",
		"create three pods whose gitRepo volumes have an option for a repository, a clone below .git with a hook, and a path of the node",
		"oracle: the files that option and hook write on the node, and the pod that has the node's repository; absent: the refusal stands in each pod's events",
	},
	start: startGitRepo,
	judge: judgeGitRepo,
}

const gitPort = "9418"

// gitExploits are the pods that must not get their volume.
var gitExploits = []string{"git-option", "git-hook", "git-path"}

func startGitRepo(ctx context.Context, l *lab) error {
	dir := l.e.Path("git")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	first, err := repositories(ctx, dir, l.e.Path("marker-hook"))
	if err != nil {
		return err
	}
	if err := serveGit(ctx, l, dir); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", machine.IP+":0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(dir))}
	go func() { _ = server.Serve(listener) }()
	l.e.OnStop("git over HTTP", func(context.Context) error { return server.Close() })

	git := "git://" + machine.IP + ":" + gitPort
	volume := func(name, repository, revision, directory, file string) string {
		return pod(name,
			fmt.Sprintf("    volumeMounts: [{name: git, mountPath: /git}]\n    readinessProbe: {exec: {command: [/labpod, probe, /git/%s]}, periodSeconds: 1}\n", file),
			fmt.Sprintf("  volumes: [{name: git, gitRepo: {repository: %q, revision: %q, directory: %q}}]\n", repository, revision, directory))
	}
	return l.pods(ctx, volume("git-http", "http://"+listener.Addr().String()+"/repo.git", first, "src", "src/one")+
		volume("git-git", git+"/repo.git", "", ".", "two")+
		volume("git-option", "--upload-pack=touch "+l.e.Path("marker-option")+";", "", "file:///nonexistent", "none")+
		volume("git-hook", git+"/outer/.git", "HEAD", "g/.git", "none")+
		volume("git-path", filepath.Join(dir, "repo.git"), "", ".", "two"))
}

func judgeGitRepo(ctx context.Context, l *lab) (outcome, error) {
	for _, name := range []string{"git-http", "git-git"} {
		if err := l.waitReady(ctx, name, 60*time.Second); err != nil {
			return outcome{}, fmt.Errorf("a legitimate volume: %w", err)
		}
	}
	happened := map[string]func() bool{
		"git-option": func() bool { return exists(l.e.Path("marker-option")) },
		"git-hook":   func() bool { return exists(l.e.Path("marker-hook")) },
		"git-path": func() bool {
			o, err := l.c.Client.Get(ctx, kube.Pods, ns, "git-path")
			return err == nil && kubeletlab.PodReady(o)
		},
	}
	var did []string
	for _, name := range gitExploits {
		refused := func() bool {
			return strings.Contains(strings.Join(l.messages(name, "FailedMount"), "\n"), "is refused (feature gate GitRepoVolumeHardening)")
		}
		if err := wait.Until(ctx, "pod "+name+" has done its deed or is refused", 60*time.Second, func(context.Context) (bool, error) {
			return happened[name]() || refused(), nil
		}); err != nil {
			return outcome{}, err
		}
	}
	// A refusal is for good: look again after all of them.
	for _, name := range gitExploits {
		if happened[name]() {
			did = append(did, name)
		}
	}
	if n := len(did); n > 0 && n < len(gitExploits) && l.e.Variant == labkit.Stock {
		return outcome{}, fmt.Errorf("of %v only %v worked", gitExploits, did)
	}
	return outcome{len(did) > 0, fmt.Sprintf("%d of %d pods reached the node %v; both legitimate volumes were set up", len(did), len(gitExploits), did)},
		l.metric(ctx, "holdfast_gitrepo_hardening_refused_total", len(gitExploits))
}

// repositories makes repo.git with two commits, and outer, whose files are a git
// directory with a hook that makes the file marker. It returns the first commit.
func repositories(ctx context.Context, dir, marker string) (string, error) {
	var failed error
	git := func(in string, args ...string) string {
		if failed != nil {
			return ""
		}
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = filepath.Join(dir, in)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+dir, "GIT_AUTHOR_NAME=lab", "GIT_AUTHOR_EMAIL=lab@holdfast.test",
			"GIT_COMMITTER_NAME=lab", "GIT_COMMITTER_EMAIL=lab@holdfast.test")
		out, err := cmd.CombinedOutput()
		if err != nil {
			failed = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(file, text string, mode os.FileMode) {
		if failed == nil {
			file = filepath.Join(dir, file)
			if failed = os.MkdirAll(filepath.Dir(file), 0o755); failed == nil {
				failed = os.WriteFile(file, []byte(text), mode)
			}
		}
	}
	git("", "init", "-q", "work")
	for _, name := range []string{"one", "two"} {
		write("work/"+name, name+"\n", 0o644)
		git("work", "add", ".")
		git("work", "commit", "-q", "-m", name)
	}
	git("", "clone", "-q", "--bare", "work", "repo.git")
	git("repo.git", "update-server-info")
	first := git("work", "rev-parse", "HEAD~1")

	git("", "clone", "-q", "--bare", "work", "inner")
	write("inner/config", "[core]\n\trepositoryformatversion = 0\n\tbare = false\n", 0o644)
	write("inner/hooks/post-checkout", "#!/bin/sh\ntouch "+marker+"\n", 0o755)
	write("inner/refs/keep", "", 0o644) // git keeps no empty folder
	git("", "init", "-q", "outer")
	git("outer", "--work-tree="+filepath.Join(dir, "inner"), "add", "--force", "--all")
	git("outer", "commit", "-q", "-m", "a git directory")
	return first, failed
}

func serveGit(ctx context.Context, l *lab, dir string) error {
	out, err := exec.CommandContext(ctx, "git", "--exec-path").Output()
	if err != nil {
		return err
	}
	_, err = l.e.Start(ctx, process.Process{Name: "git-daemon", Path: filepath.Join(strings.TrimSpace(string(out)), "git-daemon"),
		Args: []string{"--base-path=" + dir, "--export-all", "--reuseaddr", "--listen=" + machine.IP, "--port=" + gitPort, dir},
		Health: func(ctx context.Context) error {
			var d net.Dialer
			c, err := d.DialContext(ctx, "tcp", machine.IP+":"+gitPort)
			if err == nil {
				err = c.Close()
			}
			return err
		}})
	return err
}
