// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package glog

import (
	"fmt"
	"os"
	"sync/atomic"
)

// createTries is how often what stands under the name of a new log file is removed. Who
// puts something there again each time has the log file created in the next folder, or not.
const createTries = 10

var filesReplaced uint64 // atomic

var remove = os.Remove // a test puts something there again

// LogFilesReplaced is how many files and links stood under the name of a new log file, and
// were removed.
func LogFilesReplaced() uint64 { return atomic.LoadUint64(&filesReplaced) }

// createLogFile creates the log file name, and never opens what is there: its name tells
// second and process id in advance, so others can put a link to any file there
// (CVE-2024-45339). What is there is removed, as os.Create would empty it.
func createLogFile(name string) (*os.File, error) {
	for try := 1; ; try++ {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0666)
		if !os.IsExist(err) || try == createTries {
			return f, err
		}
		found, err := os.Lstat(name)
		if os.IsNotExist(err) {
			continue
		}
		if err == nil && found.IsDir() {
			err = fmt.Errorf("%s is a folder", name)
		}
		if err == nil {
			err = remove(name) // the link itself
		}
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		atomic.AddUint64(&filesReplaced, 1)
		// Not into the log: its lock is held.
		fmt.Fprintf(os.Stderr, "log: %s was there already (%v) and is replaced\n", name, found.Mode())
	}
}
