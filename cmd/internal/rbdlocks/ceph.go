// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlocks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"sort"
	"strings"
	"time"
)

// Lock is an advisory lock on an image.
type Lock struct {
	ID      string `json:"id"`
	Locker  string `json:"locker"`
	Address string `json:"address"`
}

// Watcher is a client that has an image open.
type Watcher struct {
	Address string `json:"address"`
	Client  string `json:"client"`
	Node    string `json:"node,omitempty"`
}

// limits bound what is asked, and for how long.
type limits struct {
	// question ends one that rbd's own time-outs do not, as of a name that nobody resolves.
	question time.Duration
	// mapping is what a kubelet that holds a lock gets to map the image.
	mapping time.Duration
	// fresh is how old what the API said may be for a finding: thousands of images take long.
	fresh time.Duration
	// silence is how long a question without an answer takes at least, silences how many in a
	// row are enough for a Ceph: a thousand images of monitors that are down would take a day.
	silence  time.Duration
	silences int
	// progress is how often the number of images is told.
	progress time.Duration
}

func defaultLimits() limits {
	return limits{question: 2 * time.Minute, mapping: 2 * time.Second, fresh: 10 * time.Second,
		silence: 25 * time.Second, silences: 3, progress: 30 * time.Second}
}

// ceph runs rbd. Only these options are given: no key is ever on a command line.
type ceph struct {
	program           string
	conf, id, keyring string
	anyMonitor        bool // ask also monitors that only pods name
	limits            limits
}

// options are those that say which Ceph an image is in, and who asks.
func (c *ceph) options(v *volume) []string {
	var args []string
	for _, o := range [][2]string{{"--conf", c.conf}, {"--id", c.id}, {"--keyring", c.keyring}} {
		if o[1] != "" {
			args = append(args, o[0], o[1])
		}
	}
	if c.conf == "" && len(v.monitors) > 0 {
		args = append(args, "-m", strings.Join(v.monitors, ","))
	}
	return args
}

// ask runs a question and decodes its JSON. rbd's standard error is not mixed in.
func (c *ceph) ask(ctx context.Context, v *volume, into any, words ...string) error {
	// Pool and image are others' text: not taken for options if they begin with a dash.
	args := append(words, "--pool="+v.pool, "--image="+v.image, "--format", "json",
		"--client_mount_timeout=30", "--rados_mon_op_timeout=30", "--rados_osd_op_timeout=30")
	args = append(args, c.options(v)...)
	ctx, cancel := context.WithTimeout(ctx, c.limits.question)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return fmt.Errorf("rbd %s: no answer within %v", strings.Join(words, " "), c.limits.question)
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		var ee *exec.ExitError
		if !errors.As(err, &ee) {
			return err
		}
		return fmt.Errorf("rbd %s: %w: %s", strings.Join(words, " "), err, lines[len(lines)-1])
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("rbd %s: its answer is not the expected JSON: %w", strings.Join(words, " "), err)
	}
	return nil
}

// locks are the image's: a list since Ceph 13, an object by ID before.
func (c *ceph) locks(ctx context.Context, v *volume) ([]Lock, error) {
	var raw json.RawMessage
	if err := c.ask(ctx, v, &raw, "lock", "list"); err != nil {
		return nil, err
	}
	var list []Lock
	if json.Unmarshal(raw, &list) == nil {
		return list, nil
	}
	list = nil
	if err := members(raw, func(id string, value json.RawMessage) error {
		var l Lock
		err := json.Unmarshal(value, &l)
		l.ID = id
		list = append(list, l)
		return err
	}); err != nil {
		return nil, fmt.Errorf("rbd lock list: %w", err)
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].ID < list[j].ID })
	return list, nil
}

// members calls each for the members of an object in their order. A key may come again: a
// map would keep the last.
func members(object json.RawMessage, each func(key string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("it is no object: %.40q (%v)", object, err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		name, _ := key.(string) // an object's keys are strings
		if err := each(name, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// watchers are the image's: a list since Ceph 12 and late releases of 10, an object before
// (ceph/ceph#12525, #12741), whose keys are all "watcher".
func (c *ceph) watchers(ctx context.Context, v *volume) ([]Watcher, error) {
	type row struct {
		Address string
		Client  int64
	}
	var answer struct{ Watchers json.RawMessage }
	if err := c.ask(ctx, v, &answer, "status"); err != nil {
		return nil, err
	}
	var rows []row
	if err := json.Unmarshal(answer.Watchers, &rows); err != nil || rows == nil {
		rows = nil
		if err := members(answer.Watchers, func(_ string, value json.RawMessage) error {
			var r row
			err := json.Unmarshal(value, &r)
			rows = append(rows, r)
			return err
		}); err != nil {
			return nil, fmt.Errorf("rbd status: it names no watchers: %w", err)
		}
	}
	var out []Watcher
	for _, r := range rows {
		out = append(out, Watcher{Address: r.Address, Client: fmt.Sprintf("client.%d", r.Client)})
	}
	return out, nil
}
