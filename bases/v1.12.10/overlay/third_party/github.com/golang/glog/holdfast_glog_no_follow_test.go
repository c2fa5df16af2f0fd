// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package glog

import (
	"io/ioutil"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// inDir has log files go to a new folder, and returns it.
func inDir(t *testing.T) (string, func()) {
	onceLogDirs.Do(createLogDirs)
	dir, err := ioutil.TempDir("", "glog-no-follow")
	if err != nil {
		t.Fatal(err)
	}
	before := logDirs
	logDirs = []string{dir}
	return dir, func() {
		logDirs = before
		os.RemoveAll(dir)
	}
}

// createOver creates a log file at t where plant has put something first, writes to it, and
// returns its name.
func createOver(t *testing.T, plant func(name string) error) string {
	now := time.Now()
	file, _ := logName("INFO", now)
	name := filepath.Join(logDirs[0], file)
	if err := plant(name); err != nil {
		t.Fatal(err)
	}
	before := LogFilesReplaced()
	f, got, err := create("INFO", now)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got != name {
		t.Fatalf("created %s, want %s", got, name)
	}
	if _, err := f.WriteString("logged"); err != nil {
		t.Fatal(err)
	}
	if n := LogFilesReplaced() - before; n != 1 {
		t.Errorf("%d replaced, want 1", n)
	}
	return name
}

func isLog(t *testing.T, name string) {
	if fi, err := os.Lstat(name); err != nil || !fi.Mode().IsRegular() {
		t.Errorf("%s: %v, %v, want a regular file", name, fi, err)
	}
	if b, err := ioutil.ReadFile(name); err != nil || string(b) != "logged" {
		t.Errorf("%s: %q, %v", name, b, err)
	}
}

func TestCreateFollowsNoLink(t *testing.T) {
	for kind, link := range map[string]func(string, string) error{"symbolic link": os.Symlink, "hard link": os.Link} {
		dir, done := inDir(t)
		victim := filepath.Join(dir, "victim")
		if err := ioutil.WriteFile(victim, []byte("of another"), 0600); err != nil {
			t.Fatal(err)
		}
		name := createOver(t, func(name string) error { return link(victim, name) })
		if b, err := ioutil.ReadFile(victim); err != nil || string(b) != "of another" {
			t.Errorf("%s: the other file is %q, %v", kind, b, err)
		}
		isLog(t, name)
		done()
	}
}

// TestCreateThroughDanglingLink: a link to a file that is not there creates none.
func TestCreateThroughDanglingLink(t *testing.T) {
	dir, done := inDir(t)
	defer done()
	victim := filepath.Join(dir, "victim")
	isLog(t, createOver(t, func(name string) error { return os.Symlink(victim, name) }))
	if _, err := os.Lstat(victim); !os.IsNotExist(err) {
		t.Errorf("the link's target: %v", err)
	}
}

// TestCreateOverFifo: stock waits for a reader, here for ever.
func TestCreateOverFifo(t *testing.T) {
	_, done := inDir(t)
	defer done()
	isLog(t, createOver(t, func(name string) error { return syscall.Mkfifo(name, 0600) }))
}

// TestCreateOverLog: a log of the same second and process id is gone after, as on stock.
func TestCreateOverLog(t *testing.T) {
	_, done := inDir(t)
	defer done()
	isLog(t, createOver(t, func(name string) error {
		return ioutil.WriteFile(name, []byte("a log that is longer"), 0644)
	}))
}

func TestCreateOverFolder(t *testing.T) {
	dir, done := inDir(t)
	defer done()
	now := time.Now()
	name, _ := logName("INFO", now)
	if err := os.Mkdir(filepath.Join(dir, name), 0755); err != nil {
		t.Fatal(err)
	}
	if f, _, err := create("INFO", now); err == nil {
		f.Close()
		t.Error("a log file was created where a folder is")
	}
	if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
		t.Error(err)
	}
}

// TestCreateGivesUp: somebody puts a link there again each time. It is never opened, and the tries
// end.
func TestCreateGivesUp(t *testing.T) {
	dir, done := inDir(t)
	defer done()
	victim, name := filepath.Join(dir, "victim"), filepath.Join(dir, "log")
	removed := 0
	defer func() { remove = os.Remove }()
	remove = func(name string) error {
		if removed++; removed > 100 {
			t.Fatal("the tries do not end")
		}
		if err := os.Remove(name); err != nil {
			return err
		}
		return os.Symlink(victim, name)
	}
	if err := os.Symlink(victim, name); err != nil {
		t.Fatal(err)
	}
	if f, err := createLogFile(name); err == nil || !os.IsExist(err) {
		f.Close()
		t.Errorf("the log file was created, or not for the link: %v", err)
	}
	if removed != 9 {
		t.Errorf("%d links were removed, want 9", removed)
	}
	if _, err := os.Lstat(victim); !os.IsNotExist(err) {
		t.Errorf("the link's target: %v", err)
	}
}
