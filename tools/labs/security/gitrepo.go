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
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

// From 1.11 on upstream refuses an option as repository itself.
var gitRepo, gitRepoSince12 = gitRepoRow(gitExploits), gitRepoRow(gitExploits[1:])

// gitRepoRow is the row of a release that lets these exploits through; upstream refuses the others.
func gitRepoRow(open []string) row {
	return row{
		fix:     "gitrepo-hardening",
		gate:    "GitRepoVolumeHardening",
		summary: "a pod with a gitRepo volume runs commands on the node and reads its disk",
		starts: "serve repositories by git daemon and HTTP; create two pods with legitimate gitRepo volumes, " +
			"and three whose gitRepo volumes have an option as repository, a clone below .git with a hook, and a path of the node",
		does:   "wait until each of the three has reached the node or is refused",
		oracle: fmt.Sprintf("%v: the files that option and hook write are on the node, or the pod with the node's repository is ready; absent: each pod's events have the refusal", open),
		start:  startGitRepo,
		look:   func(ctx context.Context, l *lab) error { return lookGitRepo(ctx, l, open) },
		judge:  func(h *history.History) finding { return judgeGitRepo(h, open) },
	}
}

// clones are the pods that cloned as they should, and what became of the others.
type clones struct {
	Legitimate []string
	Exploits   map[string]exploit
	Counted    float64
}

type exploit struct{ Did, Refused bool }

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
	volume := func(name, repository, revision, directory, file string) *corev1.Pod {
		return pod(name, func(c *corev1.Container) {
			c.VolumeMounts = []corev1.VolumeMount{{Name: "git", MountPath: "/git"}}
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: kube.Exec("/labpod", "probe", "/git/"+file), PeriodSeconds: 1}
		}, corev1.Volume{Name: "git", VolumeSource: corev1.VolumeSource{
			GitRepo: &corev1.GitRepoVolumeSource{Repository: repository, Revision: revision, Directory: directory}}})
	}
	return l.pods(ctx, volume("git-http", "http://"+listener.Addr().String()+"/repo.git", first, "src", "src/one"),
		volume("git-git", git+"/repo.git", "", ".", "two"),
		volume("git-option", "--upload-pack=touch "+l.e.Path("marker-option")+";", "", "file:///nonexistent", "none"),
		volume("git-hook", git+"/outer/.git", "HEAD", "g/.git", "none"),
		volume("git-path", filepath.Join(dir, "repo.git"), "", ".", "two"))
}

// gitLegitimate are the pods that must get theirs.
var gitLegitimate = []string{"git-http", "git-git"}

func lookGitRepo(ctx context.Context, l *lab, open []string) error {
	o := clones{Exploits: map[string]exploit{}}
	for _, name := range gitLegitimate {
		if err := l.waitReady(ctx, name, patience); err != nil {
			return fmt.Errorf("a legitimate volume: %w", err)
		}
		o.Legitimate = append(o.Legitimate, name)
	}
	happened := map[string]func() bool{
		"git-option": func() bool { return exists(l.e.Path("marker-option")) },
		"git-hook":   func() bool { return exists(l.e.Path("marker-hook")) },
		"git-path": func() bool {
			o, err := l.c.Client.Get(ctx, kube.Pods, ns, "git-path")
			return err == nil && kubeletlab.PodReady(o)
		},
	}
	refused := func(name string) bool {
		says := "is refused (feature gate GitRepoVolumeHardening)"
		if !slices.Contains(open, name) {
			says = "is an invalid value for repository"
		}
		return strings.Contains(strings.Join(l.messages(name, "FailedMount"), "\n"), says)
	}
	for _, name := range gitExploits {
		if err := wait.Until(ctx, "pod "+name+" has reached the node or is refused", patience, func(context.Context) (bool, error) {
			return happened[name]() || refused(name), nil
		}); err != nil {
			return err
		}
	}
	// A refusal is for good: look again after all of them.
	for _, name := range gitExploits {
		o.Exploits[name] = exploit{Did: happened[name](), Refused: refused(name)}
	}
	var err error
	if o.Counted, err = l.counted(ctx, "holdfast_gitrepo_hardening_refused_total"); err != nil {
		return err
	}
	l.e.Record(o)
	return nil
}

func judgeGitRepo(h *history.History, open []string) finding {
	o := history.One[clones](h)
	if !slices.Equal(o.Legitimate, gitLegitimate) {
		return cannotTell("of the legitimate volumes only those of %v were set up", o.Legitimate)
	}
	var did []string
	for _, name := range gitExploits {
		switch e := o.Exploits[name]; {
		case e.Did:
			did = append(did, name)
		case !e.Refused:
			return cannotTell("pod %s has neither reached the node nor been refused", name)
		}
	}
	if n := len(did); n > 0 && !slices.Equal(did, open) && h.Variant == string(labkit.Stock) {
		return cannotTell("of %v only %v worked, want %v", gitExploits, did, open)
	}
	return finding{happened: len(did) > 0, saw: fmt.Sprintf("%d of %d pods reached the node %v; both legitimate volumes were set up", len(did), len(gitExploits), did)}.
		counting(h, "holdfast_gitrepo_hardening_refused_total", o.Counted, float64(len(open))).
		measure("pods that reached the node", float64(len(did)), "")
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
