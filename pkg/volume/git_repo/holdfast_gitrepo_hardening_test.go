// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package git_repo

import (
	"bytes"
	"fmt"
	"io/ioutil"
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

// TestGitRepoHardening: each is refused with the gate on, and works as in stock with it off, by
// the real git.
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

	for _, tc := range []hardened{
		{"hook", "directory", &v1.GitRepoVolumeSource{Repository: "git://" + daemon + "/outer/.git", Revision: "HEAD", Directory: "g/.git"},
			func(string) bool { return written(marker) }},
		{"path of the node", "repository", &v1.GitRepoVolumeSource{Repository: filepath.Join(dir, "repo.git")},
			func(path string) bool {
				_, err := os.Stat(filepath.Join(path, "repo", "file"))
				return err == nil
			}},
	} {
		tc.test(t)
	}
}

// written says whether the file is there, and removes it.
func written(file string) bool {
	_, err := os.Stat(file)
	os.Remove(file)
	return err == nil
}

// hardened is a volume that is refused for a field, and what happens if it is not.
type hardened struct {
	name, field string
	src         *v1.GitRepoVolumeSource
	happened    func(path string) bool
}

func (tc hardened) test(t *testing.T) {
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
