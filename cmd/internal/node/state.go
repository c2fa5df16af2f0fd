// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"holdfast/cmd/internal/atomicfile"
)

// DefaultLib is where kept kubelets, the state and the journal are. It is on the file system of
// the programs: /var may be another one, on which no link to a program can be.
const DefaultLib = "/usr/lib/holdfast"

// state is LIB/state.json. It is all that node back needs, and what a run after a crash goes by.
type state struct {
	Version int    `json:"version"` // 1
	Program string `json:"program"` // the file that the unit starts
	// Original is the kubelet before the first Holdfast, nil if none was kept.
	Original *kept `json:"original,omitempty"`
	// Swap is the last swap, in or back.
	Swap *swapState `json:"swap,omitempty"`
}

// kept is a kubelet that was kept, with its unit.
type kept struct {
	Dir     string    `json:"dir"` // below LIB/kept
	Release string    `json:"release"`
	Sum     string    `json:"sha256"`
	RootDir string    `json:"rootDir"`
	Line    flags     `json:"line"`
	Time    time.Time `json:"time"`
}

func (k *kept) file() string { return filepath.Join(k.Dir, "kubelet") }

// The phases of a swap, in order. The kubelet runs in prepared, healthy, done and restored.
const (
	prepared  = "prepared"  // nothing has been touched
	stopping  = "stopping"  // from here on a run that finds this restores
	renaming  = "renaming"  // stopped; the program is replaced now
	starting  = "starting"  // replaced
	healthy   = "healthy"   // the new kubelet runs well; it has not settled
	done      = "done"      // compared
	restoring = "restoring" // something failed
	restored  = "restored"  // the kubelet from before runs
)

// swapState is a swap under way, or the last one.
type swapState struct {
	Back    bool        `json:"back"`
	Phase   string      `json:"phase"`
	Began   time.Time   `json:"began"`
	From    string      `json:"from"` // releases
	To      string      `json:"to"`
	ToSum   string      `json:"toSha256"`
	FromSum string      `json:"fromSha256"`
	Line    flags       `json:"line"`
	RootDir string      `json:"rootDir"`
	Before  []container `json:"before"`
	Why     string      `json:"why,omitempty"` // it was restored
}

// unfinished tells whether the program ended between two states with a kubelet.
func (s *swapState) unfinished() bool {
	return s != nil && (s.Phase == stopping || s.Phase == renaming || s.Phase == starting || s.Phase == restoring)
}

func stateFile(h *Host) string { return filepath.Join(h.Lib, "state.json") }

// readState returns an empty state if there is no file.
func readState(h *Host) (*state, error) {
	s := &state{Version: 1}
	b, err := os.ReadFile(stateFile(h))
	if os.IsNotExist(err) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(b, s)
	}
	if err == nil && s.Version != 1 {
		err = fmt.Errorf("version %d was written by a later kubectl-holdfast: use that program", s.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", stateFile(h), err)
	}
	return s, nil
}

func (s *state) write(h *Host) error {
	b, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return atomicfile.Write(stateFile(h), append(b, '\n'), 0o600)
}

// journal adds a line to LIB/journal. That it cannot is no reason to stop.
func journal(h *Host, format string, args ...any) {
	f, err := os.OpenFile(filepath.Join(h.Lib, "journal"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
	fmt.Fprintf(f, "%s %d %s\n", time.Now().UTC().Format(time.RFC3339Nano), os.Getpid(), text)
	_ = f.Sync()
}

var errLocked = errors.New("another node swap or node back is running")

// lock makes sure that one program at a time swaps. It ends with the process.
func lock(h *Host) (io.Closer, error) {
	if err := os.MkdirAll(filepath.Join(h.Lib, "kept"), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(h.Lib, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, errLocked
	}
	return f, nil
}

// keep keeps a kubelet that is no Holdfast, once. If there is no room, nothing is left of it.
func keep(h *Host, program string, k kept, files, envFiles []string) (*kept, error) {
	parent := filepath.Join(h.Lib, "kept")
	k.Dir = filepath.Join(parent, k.Release)
	for _, dir := range []string{k.Dir, k.Dir + "-" + k.Sum[:8]} {
		k.Dir = dir
		if s, err := sum(k.file()); err == nil && s == k.Sum {
			return &k, nil
		} else if os.IsNotExist(err) {
			break
		}
	}
	h.Step("keep")
	part := filepath.Join(parent, ".part")
	if err := os.RemoveAll(part); err != nil {
		return nil, err
	}
	fill := func() error {
		if err := os.MkdirAll(part, 0o700); err != nil {
			return err
		}
		if err := linkOrCopy(h, program, filepath.Join(part, "kubelet")); err != nil {
			return err
		}
		// Environment files may have secrets: only root reads them, as all of this folder.
		for sub, list := range map[string][]string{"unit": files, "environment": envFiles} {
			for _, f := range list {
				to := filepath.Join(part, sub, f)
				if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
					return err
				}
				if err := atomicfile.Copy(f, to, 0o600); err != nil {
					return err
				}
			}
		}
		b, err := json.MarshalIndent(k, "", " ")
		if err != nil {
			return err
		}
		if err := atomicfile.Write(filepath.Join(part, "kept.json"), append(b, '\n'), 0o600); err != nil {
			return err
		}
		if s, err := sum(filepath.Join(part, "kubelet")); err != nil || s != k.Sum {
			return fmt.Errorf("the saved file is not the running kubelet's (%v)", err)
		}
		h.Step("kept")
		return os.Rename(part, k.Dir)
	}
	if err := fill(); err != nil {
		os.RemoveAll(part)
		return nil, fmt.Errorf("the kubelet cannot be saved in %s: %w", k.Dir, err)
	}
	return &k, atomicfile.SyncDir(parent)
}
