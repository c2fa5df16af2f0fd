// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlocks

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// three nodes, the last with --hostname-override; the watchers w1 to w3 are theirs, w9 is
// nobody's.
func threeNodes() *cluster {
	return &cluster{nodes: []*node{
		{name: "n1", host: "node1", ips: []string{"10.0.0.11", "10.1.0.11"}, minor: 7, ready: true},
		{name: "n2", host: "node2", ips: []string{"10.0.0.12"}, minor: 9, ready: true},
		{name: "n3", host: "10.0.0.13", ips: []string{"10.0.0.13"}, minor: 9, ready: true},
	}}
}

var (
	w1      = Watcher{Address: "10.0.0.11:0/1", Client: "client.1"}
	w1again = Watcher{Address: "10.0.0.11:0/4", Client: "client.4"}
	w1other = Watcher{Address: "10.1.0.11:0/5", Client: "client.5"}
	w2      = Watcher{Address: "10.0.0.12:0/2", Client: "client.2"}
	w3      = Watcher{Address: "10.0.0.13:0/3", Client: "client.3"}
	w9      = Watcher{Address: "10.0.0.99:0/9", Client: "client.9"}

	lock1   = Lock{"kubelet_lock_magic_node1", "client.11", "10.0.0.11:0/8"}
	lock2   = Lock{"kubelet_lock_magic_node2", "client.12", "10.0.0.12:0/8"}
	lockOld = Lock{"kubelet_lock_magic_gone", "client.13", "10.0.0.77:0/8"}
	upper   = Lock{"kubelet_lock_magic_NODE1", "client.11", "10.0.0.11:0/8"}
	prefix  = Lock{"kubelet_lock_magic_node", "client.14", "10.0.0.78:0/8"}
	real3   = Lock{"kubelet_lock_magic_real", "client.16", "10.0.0.13:0/8"}
	moved   = Lock{"kubelet_lock_magic_node2", "client.17", "10.0.0.11:0/8"}
	backup  = Lock{"backup", "client.15", "10.0.0.50:0/8"}
	librbd  = Lock{"auto 94062", "client.1", "10.0.0.11:0/1"}

	writer1 = user{pod: "ns/a", node: "n1"}
	writer2 = user{pod: "ns/b", node: "n2"}
	writer3 = user{pod: "ns/f", node: "n3"}
	ended1  = user{pod: "ns/g", node: "n1", ended: true}
	reader1 = user{pod: "ns/c", node: "n1", readOnly: true}
	reader2 = user{pod: "ns/d", node: "n2", readOnly: true}
	reader3 = user{pod: "ns/e", node: "n3", readOnly: true}
)

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		users    []user
		reported string // the node whose status has the volume
		notReady string // a node that is not Ready
		locks    []Lock
		watchers []Watcher
		want     Verdict
		text     string // in note and remedy
		remedies int
	}{
		"nothing":                                        {want: Free},
		"a pod that has not mounted it":                  {users: []user{writer1}, want: Free},
		"librbd's lock, its client gone":                 {locks: []Lock{librbd}, want: Free},
		"its pod":                                        {users: []user{writer1}, watchers: []Watcher{w1}, want: InUse},
		"its pod, mapped twice":                          {users: []user{writer1}, watchers: []Watcher{w1, w1again}, want: InUse},
		"its pod, two addresses of the node":             {users: []user{writer1}, watchers: []Watcher{w1, w1other}, want: InUse},
		"its pod and its kubelet's lock":                 {users: []user{writer1}, locks: []Lock{lock1}, watchers: []Watcher{w1}, want: InUse},
		"the lock's host in capitals":                    {users: []user{writer1}, locks: []Lock{upper}, watchers: []Watcher{w1}, want: InUse},
		"librbd's lock":                                  {users: []user{writer1}, locks: []Lock{librbd}, watchers: []Watcher{w1}, want: InUse},
		"no pod, in the node's status":                   {reported: "n1", watchers: []Watcher{w1}, want: InUse},
		"readers":                                        {users: []user{reader1, reader2}, watchers: []Watcher{w1, w2}, want: InUse},
		"readers beside a writer":                        {users: []user{writer1, reader2, reader3}, locks: []Lock{lock1}, watchers: []Watcher{w1, w2, w3}, want: InUse},
		"a lock of a node without a pod":                 {locks: []Lock{lock1}, want: StaleLock, text: "open\nwhen n1 does not have the image in /proc/mounts: rbd status rbd/img | grep -qx 'Watchers: none' && rbd lock remove --rbd_blocklist_on_break_lock=false rbd/img kubelet_lock_magic_node1 client.11", remedies: 1},
		"a lock of a node that is not Ready":             {notReady: "n1", locks: []Lock{lock1}, want: StaleLock, text: "may have the image mounted\nwhen node1 is powered off, or has not mounted it: rbd status", remedies: 1},
		"the same, and its pod is still there":           {notReady: "n1", users: []user{writer1}, locks: []Lock{lock1}, want: StaleLock, text: "n1 is mounting it now, or has it mounted and is cut off from Ceph"},
		"a lock of a node without a pod, a pod waits":    {users: []user{writer2}, locks: []Lock{lock1}, want: StaleLock, text: "no client has the image open\n", remedies: 1},
		"a lock, and a pod that reads there":             {users: []user{reader1}, locks: []Lock{lock1}, want: StaleLock, text: "no client has the image open\n", remedies: 1},
		"a lock, and a pod that writes there":            {users: []user{writer1}, locks: []Lock{lock1}, want: StaleLock, text: "n1 is mounting it now, or has it mounted and is cut off from Ceph"},
		"a lock, and the node reports the volume":        {reported: "n1", locks: []Lock{lock1}, want: StaleLock, text: "n1 is mounting it now, or has it mounted and is cut off from Ceph"},
		"a lock, and a pod that ended there":             {users: []user{ended1}, locks: []Lock{lock1}, want: StaleLock, text: "ns/g, which has ended on n1, used the image, which may still be mounted there\nwhen n1 does not have the image in /proc/mounts: rbd status", remedies: 1},
		"its pod has ended":                              {users: []user{ended1}, watchers: []Watcher{w1}, want: LeakedMapping, remedies: 1},
		"no node's lock, and a pod runs":                 {users: []user{{pod: "ns/b", node: "n2", running: true}}, locks: []Lock{lockOld}, want: StaleLock, text: "ns/b runs"},
		"no node's lock, and a pod waits":                {users: []user{writer2}, locks: []Lock{lockOld}, want: StaleLock, text: "when gone is powered off", remedies: 1},
		"a lock of a host that is no node":               {locks: []Lock{lockOld}, want: StaleLock, text: "when gone is powered off", remedies: 1},
		"a kubelet's lock and librbd's, no client":       {locks: []Lock{librbd, lock2}, want: StaleLock, text: "kubelet_lock_magic_node2 client.12", remedies: 1},
		"its pod is gone":                                {watchers: []Watcher{w1}, want: LeakedMapping, text: "on node n1, when no process has it mounted: rbd unmap /dev/rbd/rbd/img", remedies: 1},
		"its pod is on another node":                     {users: []user{writer2}, watchers: []Watcher{w1}, want: LeakedMapping, remedies: 1},
		"open on no node":                                {watchers: []Watcher{w9}, want: LeakedMapping, text: "10.0.0.99"},
		"a reader's and one that is gone":                {users: []user{reader2}, watchers: []Watcher{w2, w1}, want: LeakedMapping, text: "10.0.0.11", remedies: 1},
		"two writers":                                    {users: []user{writer1, writer2}, watchers: []Watcher{w1, w2}, want: DoubleMount, text: "2 addresses"},
		"two writers, one of no pod":                     {users: []user{writer1}, watchers: []Watcher{w1, w9}, want: DoubleMount},
		"two writers, no pod":                            {watchers: []Watcher{w1, w2}, want: DoubleMount},
		"a node whose pods read and write":               {users: []user{reader1, writer1, writer2}, watchers: []Watcher{w1, w2}, want: DoubleMount},
		"two writers and a reader":                       {users: []user{writer1, writer2, reader3}, watchers: []Watcher{w1, w2, w3}, want: DoubleMount, text: "2 addresses"},
		"two writers, one's lock":                        {users: []user{writer1, writer2}, locks: []Lock{lock1}, watchers: []Watcher{w1, w2}, want: DoubleMount},
		"no kubelet's lock":                              {locks: []Lock{backup}, want: ForeignLock, text: `"backup" of client.15 (10.0.0.50:0/8)`},
		"no kubelet's lock, in use":                      {users: []user{writer1}, locks: []Lock{backup}, watchers: []Watcher{w1}, want: ForeignLock},
		"another node's lock":                            {users: []user{writer1}, locks: []Lock{lock2}, watchers: []Watcher{w1}, want: ForeignLock, text: "kubelet_lock_magic_node2"},
		"a lock whose host begins like the node's":       {users: []user{writer1}, locks: []Lock{prefix}, watchers: []Watcher{w1}, want: ForeignLock},
		"an overridden host name's lock":                 {users: []user{writer3}, locks: []Lock{real3}, watchers: []Watcher{w3}, want: InUse},
		"an overridden host name's lock, others watch":   {users: []user{writer1}, locks: []Lock{real3}, watchers: []Watcher{w1}, want: ForeignLock, text: "kubelet_lock_magic_real"},
		"an overridden host name's lock, nobody watches": {users: []user{writer3}, locks: []Lock{real3}, want: StaleLock, text: "n3 is mounting it now"},
		"a known host's lock from another's address":     {users: []user{writer1}, locks: []Lock{moved}, watchers: []Watcher{w1}, want: ForeignLock},
	} {
		cl := threeNodes()
		v := &volume{pool: "rbd", image: "img", monitors: []string{"10.0.0.1:6789"}, users: c.users}
		for _, n := range cl.nodes {
			n.ready = n.name != c.notReady
			if n.name == c.reported {
				n.reported = []string{"kubernetes.io/rbd/[10.0.0.1:6789]:img"}
			}
		}
		a := cl.judge(v, c.locks, c.watchers)
		if all := a.Note + "\n" + strings.Join(a.Remedy, "\n"); a.Verdict != c.want || !strings.Contains(all, c.text) || len(a.Remedy) != c.remedies {
			t.Errorf("%s: %s, want %s (%d remedies, %q): %s", name, a.Verdict, c.want, c.remedies, c.text, all)
		}
		if len(a.Watchers) != len(c.watchers) || len(a.Locks) != len(c.locks) || len(a.Pods) != len(c.users) && !c.users[0].ended {
			t.Errorf("%s: not everything is in the answer: %+v", name, a)
		}
	}
}

// An image that has another list of monitors elsewhere in the API may be the same one.
func TestJudgeTwin(t *testing.T) {
	for name, tc := range map[string]struct {
		users    []user
		reported string
		monitors []string
		twin     bool
	}{
		"a pod has the other":                {users: []user{writer1}, monitors: []string{"10.0.0.1:6789", "10.0.0.2:6789"}, twin: true},
		"a node reports it":                  {reported: "n1", monitors: []string{"mon"}, twin: true},
		"nobody has the other":               {monitors: []string{"mon"}},
		"the same monitors in another order": {users: []user{writer1}, monitors: []string{"b", "a"}},
	} {
		c := threeNodes()
		v := &volume{pool: "rbd", image: "img", monitors: []string{"a", "b"}, pvs: []string{"old"}}
		c.volumes = []*volume{v, {pool: "rbd", image: "img", monitors: tc.monitors, users: tc.users}, {pool: "fast", image: "img", monitors: []string{"c"}, users: []user{writer1}}}
		for _, n := range c.nodes {
			if n.name == tc.reported {
				n.reported = []string{"kubernetes.io/rbd/[mon]:img"}
			}
		}
		leak, lock := c.judge(v, nil, []Watcher{w1}), c.judge(v, []Lock{lock1}, nil)
		if tc.twin {
			for _, a := range []Answer{leak, lock} {
				if len(a.Remedy) > 0 || !strings.Contains(a.Note, "behind the monitors "+strings.Join(tc.monitors, ",")+" is in use") {
					t.Errorf("%s: %+v", name, a)
				}
			}
		}
		if (leak.Verdict == Unknown) != tc.twin || (leak.Verdict == LeakedMapping) == tc.twin || lock.Verdict != StaleLock || (len(lock.Remedy) == 0) != tc.twin {
			t.Errorf("%s: %+v, %+v", name, leak, lock)
		}
	}
}

// Where something could not be read nobody is accused, and nothing is to be removed.
func TestJudgeBlind(t *testing.T) {
	for _, kind := range []string{"nodes", "pods", "persistentvolumes"} {
		c := threeNodes()
		c.unread = []string{kind}
		v := &volume{pool: "rbd", image: "img"}
		for _, ws := range [][]Watcher{{w1}, {w9}, {w1, w2}} {
			if a := c.judge(v, nil, ws); a.Verdict != Unknown || len(a.Remedy) > 0 || !strings.Contains(a.Note, kind+" could not be read") || len(a.Watchers) != len(ws) {
				t.Errorf("%s: %+v", kind, a)
			}
		}
		if a := c.judge(v, []Lock{lock1}, nil); a.Verdict != StaleLock || len(a.Remedy) > 0 || !strings.Contains(a.Note, kind+" could not be read") {
			t.Errorf("%s: %+v", kind, a)
		}
	}
}

// The remedy asks the Ceph that was asked, and prints no line that a terminal would change.
func TestRemovalOptions(t *testing.T) {
	v := &volume{pool: "rbd", image: "img", monitors: []string{"10.0.0.1:6789", "b:1"}}
	r := &ceph{id: "u", keyring: "/a b"}
	a := threeNodes().judge(v, []Lock{lock1}, nil, r.options(v)...)
	rbd := "rbd --id u --keyring '/a b' -m 10.0.0.1:6789,b:1 "
	if len(a.Remedy) != 1 || strings.Count(a.Remedy[0], rbd) != 2 || !slices.Equal(a.Monitors, v.monitors) {
		t.Errorf("%q of %v", a.Remedy, a.Monitors)
	}
	a = threeNodes().judge(&volume{pool: "rbd", image: "a\n$(x)"}, []Lock{lock1}, nil)
	if len(a.Remedy) > 0 || !strings.Contains(a.Note, "control characters") {
		t.Errorf("%q: %s", a.Remedy, a.Note)
	}
}

// A remedy is copied into a shell, and a name in it is somebody's text.
func TestRemediesAreQuoted(t *testing.T) {
	evil := &volume{pool: "rbd", image: "a; rm -rf ~ '$(x)"}
	a := threeNodes().judge(evil, []Lock{{"kubelet_lock_magic_x y", "client.1", ""}}, nil)
	if want := `when 'x y' is powered off, or has not mounted it: rbd status 'rbd/a; rm -rf ~ '\''$(x)' | grep -qx 'Watchers: none' && rbd lock remove --rbd_blocklist_on_break_lock=false 'rbd/a; rm -rf ~ '\''$(x)' 'kubelet_lock_magic_x y' client.1`; !slices.Equal(a.Remedy, []string{want}) {
		t.Errorf("%q, want %q", a.Remedy, want)
	}
	a = threeNodes().judge(evil, nil, []Watcher{w1})
	if len(a.Remedy) != 1 || !strings.HasSuffix(a.Remedy[0], `rbd unmap '/dev/rbd/rbd/a; rm -rf ~ '\''$(x)'`) {
		t.Errorf("%q", a.Remedy)
	}
	for s, want := range map[string]string{"a b": "a b", "a\x1b[2Jb": `"a\x1b[2Jb"`, "a\nb": `"a\nb"`} {
		if got := plain(s); got != want {
			t.Errorf("%q is shown as %q", s, got)
		}
	}
}

// What rbd's status says, by the source of its releases: from hammer on the watchers or that
// there are none, then, since nautilus, a migration, and since pacific a cache.
var statusTexts = map[string]struct {
	text    string
	removes bool
}{
	"nobody":                    {"Watchers: none\n", true},
	"nobody, a migration":       {"Watchers: none\nMigration:\n\tsource: rbd/a (5e2c)\n\tdestination: rbd/b (5e2e)\n\tstate: prepared\n", true},
	"nobody, a cache":           {"Watchers: none\nimage cache state:\n\tclean: true  size: 1 GiB  host: n1  path: /c\n", true},
	"one":                       {"Watchers:\n\twatcher=10.0.0.11:0/1 client.4277 cookie=1\n", false},
	"one, an evil source":       {"Watchers:\n\twatcher=10.0.0.11:0/1 client.4277 cookie=1\nMigration:\n\tsource: rbd/Watchers: none (5e2c)\n\tstate: prepared\n", false},
	"two":                       {"Watchers:\n\twatcher=10.0.0.11:0/1 client.4277 cookie=1\n\twatcher=10.0.0.12:0/1 client.4278 cookie=1\n", false},
	"nothing, as of an error":   {"", false},
	"none, but for the console": {"", false}, // on standard error
}

// A lock's removal that is pasted looks again, and removes nothing of an image that is open.
func TestRemovalLooksAgain(t *testing.T) {
	dir := t.TempDir()
	program := "#!/bin/sh\necho \"$@\" >> \"" + dir + "/calls\"\n[ $1 = status ] || exit 0\necho '2021 -1 a log line' >&2\ncat \"" + dir + "/err\" >&2\ncat \"" + dir + "/status\"\n[ -s \"" + dir + "/status\" ]\n"
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("rbd", program)
	for name, c := range statusTexts {
		write("calls", "")
		write("status", c.text)
		write("err", map[bool]string{true: "Watchers: none\n"}[strings.HasSuffix(name, "console")])
		sh := exec.Command("sh", "-c", removal(&volume{pool: "rbd", image: "a b"}, lock1, nil))
		sh.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		err := sh.Run()
		calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
		want := "status rbd/a b\n"
		if c.removes {
			want += "lock remove --rbd_blocklist_on_break_lock=false rbd/a b kubelet_lock_magic_node1 client.11\n"
		}
		if string(calls) != want || (err == nil) != c.removes {
			t.Errorf("%s: %v, rbd was run as\n%swant\n%s", name, err, calls, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	c := &cluster{
		nodes: []*node{{name: "a", host: "node1", minor: 7}, {name: "b", host: "node10", minor: 9}, {name: "c", host: "node100", minor: 8}, {name: "d", host: "node2", minor: -1}, {name: "e", host: "node22", minor: 9},
			{name: "f", host: "10.0.0.1", minor: 7}, {name: "g", host: "10.0.0.11", minor: 7}, {name: "h", host: "10.0.0.11.example", minor: 7}, {name: "i", host: "2001:db8::1", minor: 8}, {name: "j", host: "2001:db8::10", minor: 8}},
		volumes: []*volume{{pool: "fast", image: "i", monitors: []string{"m"}}, {pool: "slow", image: "i", monitors: []string{"m"}},
			{pool: "slow", image: "i", monitors: []string{"other"}}, {pool: "slow", image: "j", monitors: []string{"m"}}},
	}
	want := []string{
		"fast/i and slow/i are one volume for Kubernetes up to 1.9, because its volume names do not contain the pool",
		"the kubelet 1.7 on node1 treats locks of node10 as its own and mounts the image, because it compares host names by prefix",
		"the kubelet 1.7 on node1 treats locks of node100 as its own and mounts the image, because it compares host names by prefix",
	}
	if got := c.warnings(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
