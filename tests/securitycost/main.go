// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Securitycost takes the CPU time of what the series security limits, by the kubelet's own
// code of the tree that it is built with: probes, execs and mounts as they should be used. (The
// check security-use times streams with kubectl, through an API server.)
//
// With --against=STOCK it runs that program and itself in turn, and prints the ratios
// stock/ours, pair by pair: their median and an interval that has the true median with a
// probability of at least 95 % (order statistics, no assumption about the noise). It needs
// root for the mounts, which are made in a mount namespace of its own.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sort"
	"time"

	"golang.org/x/sys/unix"
)

// init keeps main on the first thread: the mount namespace is a thread's, and /proc/mounts
// shows that of the first.
func init() { runtime.LockOSThread() }

func main() {
	against := flag.String("against", "", "the same program linked with the stock tree; empty: measure once and print JSON")
	pairs := flag.Int("pairs", 20, "runs of each program, in turn; 6 or more for an interval")
	only := flag.String("only", "", "one of the measures")
	flag.Parse()
	err := func() error {
		if *against == "" {
			out, err := measureAll(*only)
			if err != nil {
				return err
			}
			return json.NewEncoder(os.Stdout).Encode(out)
		}
		if *pairs < 6 {
			return fmt.Errorf("--pairs=%d: want 6 or more", *pairs)
		}
		return compare(*against, *only, *pairs)
	}()
	if err != nil {
		fmt.Fprintf(os.Stderr, "securitycost: %v\n", err)
		os.Exit(1)
	}
}

// measureAll returns the CPU seconds of each measure, user and system, of this process and
// of the programs that it ran.
func measureAll(only string) (map[string]float64, error) {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return nil, fmt.Errorf("a mount namespace of its own: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "securitycost")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := map[string]float64{}
	for _, m := range measures {
		if only != "" && only != m.name {
			continue
		}
		do, clean, err := m.prepare(dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %v", m.name, err)
		}
		err = do(m.times/10 + 1) // warm
		before := cpu()
		if err == nil {
			err = do(m.times)
		}
		out[m.name] = cpu() - before
		clean()
		if err != nil {
			return nil, fmt.Errorf("%s: %v", m.name, err)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("--only=%s: there is no such measure", only)
	}
	return out, nil
}

// cpu is what this process and its ended programs have used, in seconds.
func cpu() float64 {
	runtime.GC() // what was left to collect belongs to what made it
	sum := 0.0
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var r unix.Rusage
		if err := unix.Getrusage(who, &r); err != nil {
			panic(err)
		}
		sum += time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
	}
	return sum
}

func compare(against, only string, pairs int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ratios, took := map[string][]float64{}, map[string][2]float64{}
	for i := 0; i < pairs; i++ {
		got := [2]map[string]float64{}
		for j := range got {
			k := (i + j) % 2 // who goes first takes turns too
			cmd := exec.Command([]string{against, self}[k], "--only="+only)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err == nil {
				err = json.Unmarshal(out, &got[k])
			}
			if err != nil {
				return fmt.Errorf("%v: %v", cmd.Args, err)
			}
		}
		for name, ours := range got[1] {
			stock, ok := got[0][name]
			if !ok || ours <= 0 {
				return fmt.Errorf("%s: stock %v, ours %v", name, stock, ours)
			}
			ratios[name] = append(ratios[name], stock/ours)
			t := took[name]
			took[name] = [2]float64{t[0] + stock/float64(pairs), t[1] + ours/float64(pairs)}
		}
	}
	low := rank(pairs)
	fmt.Printf("CPU time, stock/ours, %d pairs; interval of the median with at least 95 %%\n", pairs)
	fmt.Printf("%-16s %10s %10s %8s %8s %8s\n", "what", "stock", "ours", "median", "from", "to")
	for _, m := range measures {
		r := ratios[m.name]
		if len(r) == 0 {
			continue
		}
		sort.Float64s(r)
		fmt.Printf("%-16s %8.1fms %8.1fms %8.3f %8.3f %8.3f\n", m.name, took[m.name][0]*1000, took[m.name][1]*1000,
			(r[(pairs-1)/2]+r[pairs/2])/2, r[low], r[pairs-1-low])
	}
	return nil
}

// rank is the index of the interval's lower end in n sorted values: each value is below the
// median with probability 1/2, so the count of those below it is binomial.
func rank(n int) int {
	p, c := 1.0, 1.0 // p is the probability of k or fewer, times 2^n; c the last addend
	total := 1.0
	for i := 0; i < n; i++ {
		total *= 2
	}
	k := 0
	for 2*p/total <= 0.05 {
		k++
		c = c * float64(n-k+1) / float64(k)
		p += c
	}
	if k == 0 {
		return 0
	}
	return k - 1
}
