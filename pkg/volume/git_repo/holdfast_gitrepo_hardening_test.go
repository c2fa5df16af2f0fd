// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package git_repo

import (
	"bytes"
	"fmt"
	"io/ioutil"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/volume"
)

func TestRefusedField(t *testing.T) {
	for _, tc := range []struct{ repository, revision, directory, want string }{
		{"https://github.com/kubernetes/kubernetes.git", "2a30ce65", "src", ""},
		{"http://git.example.com:8080/a.git", "", "", ""},
		{"https://user:password@git.example.com/a.git?b=c", "", ".", ""},
		{"git://10.0.0.1/a.git", "master", ".", ""},
		{"ssh://git@git.example.com:22/~me/a.git", "v1.0", "a", ""},
		{"git+ssh://git.example.com/a", "", "", ""},
		{"ssh+git://git.example.com/a", "", "", ""},
		{"git@github.com:kubernetes/kubernetes.git", "origin/release-1.9", "./src/", ""},
		{"git.example.com:a/b", "HEAD~1", "", ""},
		{"[git.example.com:2222]:a.git", "", "", ""},
		{"git@[::1]:a.git", "", "", ""},
		{"https://[2001:db8::1]:8443/a.git", "", "", ""},
		{"file:/srv/a.git", "", "", ""}, // a host named "file"
		{"https://git.example.com/a.git", "", "a/b/.git", ""},
		{"https://git.example.com/a.git", "", "..data", ""},

		{"--upload-pack=touch /tmp/x;", "", "file:///nonexistent", "repository"},
		{"-c", "", "", "repository"},
		{"--config=core.sshCommand=touch /tmp/x", "", "ssh://a/b", "repository"},
		{"", "", "", "repository"},
		{"/srv/a.git", "", "", "repository"},
		{"/srv/a:b.git", "", "", "repository"},
		{"./a:b", "", "", "repository"},
		{"../../../../a", "", "", "repository"},
		{"a.git", "", "", "repository"},
		{":a", "", "", "repository"},
		{"file:///srv/a.git", "", "", "repository"},
		{"FILE:///srv/a.git", "", "", "repository"},
		{"file://localhost/srv/a.git", "", "", "repository"},
		{"ext::sh -c touch% /tmp/x", "", "", "repository"},
		{"fd::17/foo", "", "", "repository"},
		{"http::http://a/b", "", "", "repository"},
		{"::http://a/b", "", "", "repository"},
		{"ext://a/b", "", "", "repository"},
		{"ftp://a/b", "", "", "repository"},
		{"rsync://a/b", "", "", "repository"},
		{"HTTPS://git.example.com/a.git", "", "", "repository"}, // git has no such transport
		{"https:///a.git", "", "", "repository"},
		{"ssh://-oProxyCommand=x/a", "", "", "repository"},
		{"ssh://%2DoProxyCommand=x/a", "", "", "repository"},
		{"ssh://%2doProxyCommand=x@a/b", "", "", "repository"},
		{"ssh://%5b-oProxyCommand=x%5d/b", "", "", "repository"},
		{"ssh://[%2DoProxyCommand=x]/b", "", "", "repository"},
		{"ssh://%5B%2doProxyCommand=x]/b", "", "", "repository"},
		{"ssh://[-oProxyCommand=x]/a", "", "", "repository"},
		{"[-oProxyCommand=x]:a", "", "", "repository"},
		{"git://a%0ab/c\nd", "", "", "repository"},

		{"https://a/b", "--orphan=x", "", "revision"},
		{"https://a/b", "-", "", "revision"},
		{"https://a/b", "", "--bare", "directory"},
		{"https://a/b", "master", "g/.git", "directory"},
		{"https://a/b", "master", `g\.git`, "directory"},
		{"https://a/b", "master", "./g/.git/.", "directory"},
	} {
		if got, rule := refusedField(tc.repository, tc.revision, tc.directory); got != tc.want || (got == "") != (rule == "") {
			t.Errorf("repository %q, revision %q, directory %q: refused %q (%s), want %q", tc.repository, tc.revision, tc.directory, got, rule, tc.want)
		}
	}
}

// seeds is how many inputs a fuzz test makes up: a million with HOLDFAST_EXHAUSTIVE=1.
func seeds() int {
	if os.Getenv("HOLDFAST_EXHAUSTIVE") != "" {
		return 1000000
	}
	return 10000
}

// TestRefusedRepositoryFuzz: what is allowed is neither a path nor an option nor a
// helper, judged by another reading of the same text than the rule's own.
func TestRefusedRepositoryFuzz(t *testing.T) {
	parts := []string{"http", "https", "ssh", "git", "file", "ext", ":", "::", "//", "/", "-", "@", "a", ".", "..", "[", "]", "%2d", "%5b", "~", " ", "\n", "--x=", "host"}
	r := rand.New(rand.NewSource(1))
	allowed := 0
	for i, all := 0, seeds(); i < all; i++ {
		s := ""
		for n := 1 + r.Intn(7); n > 0; n-- {
			s += parts[r.Intn(len(parts))]
		}
		if refusedRepository(s) != "" {
			continue
		}
		allowed++
		before := strings.SplitN(s, ":", 2)
		if len(before) != 2 || before[0] == "" || strings.ContainsAny(before[0], "/\n") || s[0] == '-' {
			t.Fatalf("%q is allowed", s)
		}
		if url := strings.SplitN(s, "://", 2); len(url) == 2 && !strings.ContainsAny(url[0], "/@[]: ~%=") && !repositorySchemes[url[0]] {
			t.Fatalf("%q is allowed", s)
		}
		if helper := strings.SplitN(s, "::", 2); len(helper) == 2 && !strings.ContainsAny(helper[0], "/@[]:% ~=") {
			t.Fatalf("%q is allowed", s)
		}
	}
	if allowed < 100 {
		t.Errorf("%d of %d were allowed: the test says nothing", allowed, seeds())
	}
	t.Logf("%d inputs, %d of them allowed", seeds(), allowed)
}

// TestAllowedRepositoryFuzz: a repository on another machine, in any form in which git can
// name it, is not refused.
func TestAllowedRepositoryFuzz(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	one := func(of ...string) string { return of[r.Intn(len(of))] }
	word := func(alphabet string) string {
		b := []byte{byte('a' + r.Intn(26))}
		for n := r.Intn(8); n > 0; n-- {
			b = append(b, alphabet[r.Intn(len(alphabet))])
		}
		return string(b)
	}
	for i, all := 0, seeds(); i < all; i++ {
		host := one(word("abc-019.")+".example.com", fmt.Sprintf("10.0.%d.%d", r.Intn(256), r.Intn(256)), "[2001:db8::"+word("abcdef019")[1:]+"1]")
		user := one("", "git@", word("abc._-9")+"@")
		path := ""
		for n := 1 + r.Intn(4); n > 0; n-- {
			path += "/" + one("", "~", ".", "-") + word("abc-._~ %:@=+&,;()\u00fc019")
		}
		path += one("", ".git", "/")
		var s string
		switch r.Intn(3) {
		case 0: // [user@]host:path
			s = user + host + ":" + one(path, path[1:])
		case 1:
			s = one("http", "https") + "://" + one(user, "name:pa-ss:w%2fd@") + host + one("", ":8080") + path + one("", "?a=b", "#c")
		default:
			s = one("ssh", "git", "git+ssh", "ssh+git") + "://" + user + host + one("", ":2222") + path
		}
		if field, rule := refusedField(s, one("", "master", word("abc/-019"), "HEAD~1"), one("", ".", word("abc.-_"), "./"+word("abc")+"/")); field != "" {
			t.Fatalf("%q: %s is refused: %s", s, field, rule)
		}
	}
	t.Logf("%d inputs", seeds())
}

func counterValue(t *testing.T, v *prometheus.CounterVec, field string) float64 {
	var m dto.Metric
	if err := v.WithLabelValues(field).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// setUpGitRepo sets a volume up with the real git and returns its folder.
func setUpGitRepo(t *testing.T, src *v1.GitRepoVolumeSource) (string, error) {
	rootDir, host := newTestHost(t)
	t.Cleanup(func() { os.RemoveAll(rootDir) })
	plugMgr := volume.VolumePluginMgr{}
	plugMgr.InitPlugins(ProbeVolumePlugins(), nil, host)
	plug, err := plugMgr.FindPluginByName(gitRepoPluginName)
	if err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("poduid")}}
	spec := volume.NewSpecFromVolume(&v1.Volume{Name: "vol1", VolumeSource: v1.VolumeSource{GitRepo: src}})
	m, err := plug.NewMounter(spec, pod, volume.VolumeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m.GetPath(), m.SetUp(nil)
}

// runGit runs git in dir.
func runGit(t *testing.T, dir string, args ...string) string {
	cmd := osexec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// newRepository makes a repository of two commits; file holds "one", then "two".
func newRepository(t *testing.T, dir string) (first string) {
	work := filepath.Join(dir, "work")
	runGit(t, dir, "init", "-q", "work")
	for _, text := range []string{"one", "two"} {
		if err := ioutil.WriteFile(filepath.Join(work, "file"), []byte(text), 0644); err != nil {
			t.Fatal(err)
		}
		runGit(t, work, "add", "file")
		runGit(t, work, "commit", "-q", "-m", text)
	}
	runGit(t, dir, "clone", "-q", "--bare", "work", "repo.git")
	runGit(t, filepath.Join(dir, "repo.git"), "update-server-info")
	return runGit(t, work, "rev-parse", "HEAD~1")
}

// gitDaemon serves dir by the git protocol on loopback.
func gitDaemon(t *testing.T, dir string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	cmd := osexec.Command("git", "daemon", "--base-path="+dir, "--export-all", "--reuseaddr", "--listen=127.0.0.1", fmt.Sprintf("--port=%d", port), dir)
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return address
		}
		if time.Now().After(end) {
			t.Fatalf("git daemon does not answer: %s", out.String())
		}
	}
}

// TestGitRepoLegitimateUse: what the volume is for works with the real git.
func TestGitRepoLegitimateUse(t *testing.T) {
	dir := t.TempDir()
	first := newRepository(t, dir)
	daemon := gitDaemon(t, dir)
	web := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer web.Close()
	for _, repository := range []string{web.URL + "/repo.git", "git://" + daemon + "/repo.git"} {
		for _, tc := range []struct{ revision, directory, file, text string }{
			{"", "", "repo/file", "two"},
			{"", "src", "src/file", "two"},
			{"", "a/b", "a/b/file", "two"},
			{"", ".", "file", "two"},
			{first, "", "repo/file", "one"},
			{first, "src", "src/file", "one"},
			{first, "./src/", "src/file", "one"},
			{"origin/HEAD~1", ".", "file", "one"},
		} {
			path, err := setUpGitRepo(t, &v1.GitRepoVolumeSource{Repository: repository, Revision: tc.revision, Directory: tc.directory})
			if err != nil {
				t.Errorf("%s %+v: %v", repository, tc, err)
				continue
			}
			if got, err := ioutil.ReadFile(filepath.Join(path, tc.file)); err != nil || string(got) != tc.text {
				t.Errorf("%s %+v: %q %v", repository, tc, got, err)
			}
		}
	}
}

// TestGitRepoHardening: each of the three is refused with the gate on, and works as
// in stock with it off, by the real git.
func TestGitRepoHardening(t *testing.T) {
	dir := t.TempDir()
	newRepository(t, dir)
	daemon := gitDaemon(t, dir)
	marker := filepath.Join(dir, "marker")

	// A tree that is itself a git directory with a hook.
	inner := filepath.Join(dir, "inner")
	runGit(t, dir, "clone", "-q", "--bare", "work", "inner")
	if err := ioutil.WriteFile(filepath.Join(inner, "config"), []byte("[core]\n\trepositoryformatversion = 0\n\tbare = false\n"), 0644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(inner, "hooks"), 0755); err != nil {
		t.Fatal(err)
	}
	if err := ioutil.WriteFile(filepath.Join(inner, "hooks", "post-checkout"), []byte("#!/bin/sh\necho hook > "+marker+"\n"), 0755); err != nil {
		t.Fatal(err)
	}
	if err := ioutil.WriteFile(filepath.Join(inner, "refs", "keep"), nil, 0644); err != nil {
		t.Fatal(err)
	}
	runGit(t, dir, "init", "-q", "outer")
	outer := filepath.Join(dir, "outer")
	runGit(t, outer, "--work-tree="+inner, "add", "--force", "--all")
	runGit(t, outer, "commit", "-q", "-m", "a git directory")

	wrote := func() bool {
		_, err := os.Stat(marker)
		os.Remove(marker)
		return err == nil
	}
	for _, tc := range []struct {
		name, field string
		src         *v1.GitRepoVolumeSource
		happened    func(path string) bool
	}{
		{"option", "repository", &v1.GitRepoVolumeSource{Repository: "--upload-pack=echo > " + marker + ";", Directory: "file:///nonexistent"},
			func(string) bool { return wrote() }},
		{"hook", "directory", &v1.GitRepoVolumeSource{Repository: "git://" + daemon + "/outer/.git", Revision: "HEAD", Directory: "g/.git"},
			func(string) bool { return wrote() }},
		{"path of the node", "repository", &v1.GitRepoVolumeSource{Repository: filepath.Join(dir, "repo.git")},
			func(path string) bool {
				_, err := os.Stat(filepath.Join(path, "repo", "file"))
				return err == nil
			}},
	} {
		for _, on := range []bool{false, true} {
			func() {
				defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GitRepoVolumeHardening, on)()
				refused, would := counterValue(t, gitRepoRefused, tc.field), counterValue(t, gitRepoWouldRefuse, tc.field)
				path, err := setUpGitRepo(t, tc.src)
				if happened := tc.happened(path); happened == on {
					t.Errorf("%s, gate %v: happened %v (%v)", tc.name, on, happened, err)
				}
				refused, would = counterValue(t, gitRepoRefused, tc.field)-refused, counterValue(t, gitRepoWouldRefuse, tc.field)-would
				if on && (err == nil || !strings.Contains(err.Error(), "gitRepo."+tc.field+" of volume \"vol1\" is refused") || refused != 1 || would != 0) {
					t.Errorf("%s: error %v, counted %v refused, %v would be refused", tc.name, err, refused, would)
				}
				if _, statErr := os.Stat(path); on && !os.IsNotExist(statErr) {
					t.Errorf("%s: something was written before it was refused: %v", tc.name, statErr)
				}
				if !on && (refused != 0 || would != 1) {
					t.Errorf("%s, gate off: counted %v refused, %v would be refused", tc.name, refused, would)
				}
			}()
		}
	}
}

// TestGitRepoVolumeDriver: off, nothing is cloned; a volume that is set up stays.
func TestGitRepoVolumeDriver(t *testing.T) {
	dir := t.TempDir()
	newRepository(t, dir)
	src := &v1.GitRepoVolumeSource{Repository: "git://" + gitDaemon(t, dir) + "/repo.git"}
	rootDir, host := newTestHost(t)
	defer os.RemoveAll(rootDir)
	plugin := &gitRepoPlugin{host}
	mounter := func() volume.Mounter {
		spec := volume.NewSpecFromVolume(&v1.Volume{Name: "vol1", VolumeSource: v1.VolumeSource{GitRepo: src}})
		m, err := plugin.NewMounter(spec, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("poduid")}}, volume.VolumeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GitRepoVolumeDriver, false)()
	if err := mounter().SetUp(nil); err == nil || !strings.Contains(err.Error(), "GitRepoVolumeDriver") {
		t.Errorf("driver off: %v", err)
	}
	defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GitRepoVolumeDriver, true)()
	if err := mounter().SetUp(nil); err != nil {
		t.Error(err)
	}
	defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GitRepoVolumeDriver, false)()
	if err := mounter().SetUp(nil); err != nil {
		t.Errorf("driver off, volume set up before: %v", err)
	}
}
