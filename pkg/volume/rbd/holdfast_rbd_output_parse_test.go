// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// Answers of rbd in the forms of its releases. 16.2 was run; the others are the forms of
// the reports that are named, with other names and numbers in them.
var lockLists = map[string]struct {
	text string
	want []rbdLock
}{
	"no lock":                                {"", nil},
	"no lock, a log line (kubernetes#75581)": {"2019-03-22 03:00:00.000 7f1e5a7fc700 -1 auth: unable to find a keyring on /etc/ceph/ceph.client.admin.keyring\n", nil},
	"jewel, one blank between padded columns (kubernetes#54136)": {
		"There is 1 exclusive lock on this image.\nLocker       ID                       Address                  \nclient.4254 kubelet_lock_magic_node1 10.16.153.105:0/710245699 \n",
		[]rbdLock{{"kubelet_lock_magic_node1", "client.4254", "10.16.153.105:0/710245699"}}},
	"luminous, librbd's own lock (ceph's documentation of exclusive locks)": {
		"There is 1 exclusive lock on this image.\nLocker      ID                   Address             \nclient.4123 auto 139643345791728 192.168.122.245:0/10 \n",
		[]rbdLock{{"auto 139643345791728", "client.4123", "192.168.122.245:0/10"}}},
	"16.2, two blanks": {
		"There is 1 exclusive lock on this image.\nLocker       ID                        Address                 \nclient.4277  kubelet_lock_magic_node1  10.95.0.11:0/1582627961\n",
		[]rbdLock{{"kubelet_lock_magic_node1", "client.4277", "10.95.0.11:0/1582627961"}}},
	"16.2, shared": {
		"There are 2 shared locks on this image.\nLock tag: backup\nLocker       ID  Address\nclient.5     a   10.0.0.1:0/5\nclient.6     b   [2001:db8::1]:0/6\n",
		[]rbdLock{{"a", "client.5", "10.0.0.1:0/5"}, {"b", "client.6", "[2001:db8::1]:0/6"}}},
	"jewel, JSON": {`{"kubelet_lock_magic_node1":{"locker":"client.4254","address":"10.16.153.105:0/71"}}`,
		[]rbdLock{{"kubelet_lock_magic_node1", "client.4254", "10.16.153.105:0/71"}}},
	"16.2, JSON after a log line with brackets": {"2021 -1 mon [v2:10.0.0.1:3300/0] {x}\n" + `[{"id":"kubelet_lock_magic_node1","locker":"client.4277","address":"10.95.0.11:0/15"}]` + "\n",
		[]rbdLock{{"kubelet_lock_magic_node1", "client.4277", "10.95.0.11:0/15"}}},
	"JSON, none": {"[]\n", nil},
}

var statuses = map[string]struct {
	text string
	want []string
}{
	"hammer to luminous (rbd_util.go of 1.9.11)": {"Watchers:\n\twatcher=10.16.153.105:0/710245699 client.14163 cookie=1\n", []string{"watcher=10.16.153.105:0/710245699 client.14163"}},
	"none":            {"Watchers: none\n", nil},
	"none, log lines": {"2019 7f -1 did not load config file, using default settings.\nWatchers: none\n2019 7f -1 bye\n", nil},
	"16.2, two": {"Watchers:\n\twatcher=10.95.0.11:0/1 client.4277 cookie=18446462598732840961\n2021 -1 between\n\twatcher=10.95.0.12:0/2 client.4278 cookie=2\n",
		[]string{"watcher=10.95.0.11:0/1 client.4277", "watcher=10.95.0.12:0/2 client.4278"}},
	"unknown form is a watcher": {"Watchers:\n\twatcher=gibberish\n", []string{"watcher=gibberish"}},
	"said to be none, and one":  {"Watchers: none\n\twatcher=1.2.3.4:0/1 client.1 cookie=1\n", []string{"watcher=1.2.3.4:0/1 client.1"}},
	"jewel, JSON":               {`{"watchers":{"watcher":{"address":"10.0.0.1:0/1","client":4254,"cookie":1}}}`, []string{"watcher=10.0.0.1:0/1 client.4254"}},
	"nautilus, JSON":            {"x {y\n" + `{"watchers":[{"address":"10.0.0.1:0/1","client":4254,"cookie":18446462598732840961}]}`, []string{"watcher=10.0.0.1:0/1 client.4254"}},
	"JSON, none":                {`{"watchers":[]}`, nil},
}

var infos = map[string]struct {
	text string
	size int64
	feat []string
}{
	"jewel (rbd_util.go of 1.9.11)": {"rbd image 'x':\n\tsize 1024 MB in 256 objects\n\torder 22 (4096 kB objects)\n\tblock_name_prefix: rbd_data.1253ac238e1f29\n\tformat: 2\n\tfeatures: layering, exclusive-lock\n", 1 << 30, []string{"layering", "exclusive-lock"}},
	"mimic (kubernetes#66437)":      {"rbd image 'x':\n\tsize 1 GiB in 256 objects\n\tfeatures: layering\n", 1 << 30, []string{"layering"}},
	"nautilus (kubernetes#72431)":   {"2019 -1 x\nrbd image 'x':\n\tsize 2 TiB in 524288 objects\n", 2 << 40, nil},
	"16.2, rounded":                 {"\tsize 1.1 GiB in 275 objects\n\tfeatures: \n", 1127428915, []string{}},
	"bytes":                         {"\tsize 512 B in 1 objects\n", 512, nil},
	"kB of luminous":                {"\tsize 4096 kB in 1 objects\n", 4 << 20, nil},
	"JSON":                          {"2019 -1 {x}\n" + `{"name":"x","size":1073741824,"objects":256,"features":["layering","exclusive-lock"],"flags":[]}`, 1 << 30, []string{"layering", "exclusive-lock"}},
}

func TestParseLockList(t *testing.T) {
	for name, c := range lockLists {
		got, err := parseLockList([]byte(c.text))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, bad := range []string{
		"There is 1 exclusive lock on this image.\n",
		"There are 2 shared locks on this image.\nclient.5 a 10.0.0.1:0/5\n",
		"There is 1 exclusive lock on this image.\nclient.5 *** \n",
		// Of a form that we do not know, but not empty.
		"1 lock\n* kubelet_lock_magic_node1 held by 4277\n",
		"Locks: client.4277 at 10.0.0.1:0/5: backup (exclusive), since 2019\n",
		`{"locks":[{"name":"kubelet_lock_magic_node1","owner":"client.4277"}]}`,
	} {
		if got, err := parseLockList([]byte(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

func TestParseStatus(t *testing.T) {
	for name, c := range statuses {
		got, err := parseStatus([]byte(c.text))
		if err != nil || watcherTexts(got) != strings.Join(c.want, "|") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, bad := range []string{"", "Watchers:\n", "none\n", `{"watchers":null}`, `{"watchers":"x"}`, "{}", "***"} {
		if got, err := parseStatus([]byte(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

func watcherTexts(ws []rbdWatcher) string {
	var texts []string
	for _, w := range ws {
		texts = append(texts, w.String())
	}
	return strings.Join(texts, "|")
}

func TestParseInfo(t *testing.T) {
	for name, c := range infos {
		got, err := parseInfo([]byte(c.text))
		if err != nil || got.size != c.size || !reflect.DeepEqual(got.features, c.feat) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, bad := range []string{"", "size many in 3 objects", "size 99999999999 EiB in 1 objects", `{"size":-1}`, "size *** in 2 objects"} {
		if got, err := parseInfo([]byte(bad)); err == nil {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}

// Lines of a library's log at any place change no answer, and rows cut anywhere make no
// answer of fewer rows.
func TestParsersAmongLogLines(t *testing.T) {
	const log = "2019-03-22 03:00:00.000 7f1e5a7fc700 -1 asok(0x55) AdminSocketConfigObs::init: [v2:10.0.0.1:3300/0] {}"
	for name, c := range lockLists {
		lines := strings.SplitAfter(c.text, "\n")
		for i := range lines {
			text := strings.Join(lines[:i], "") + log + "\n" + strings.Join(lines[i:], "")
			if got, err := parseLockList([]byte(text)); err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s, log at line %d: %v, %v", name, i, got, err)
			}
		}
	}
	for name, c := range statuses {
		lines := strings.SplitAfter(c.text, "\n")
		for i := range lines {
			text := strings.Join(lines[:i], "") + log + "\n" + strings.Join(lines[i:], "")
			if got, err := parseStatus([]byte(text)); err != nil || watcherTexts(got) != strings.Join(c.want, "|") {
				t.Errorf("%s, log at line %d: %v, %v", name, i, got, err)
			}
		}
		for i := range c.text {
			if got, err := parseStatus([]byte(c.text[:i])); err == nil && len(got) == 0 && len(c.want) > 0 && !strings.Contains(c.text[:i], "none") {
				t.Errorf("%s, cut at %d: nobody watches", name, i)
			}
		}
	}
}

func FuzzParseLockList(f *testing.F) {
	for _, c := range lockLists {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		locks, err := parseLockList([]byte(text))
		if err != nil {
			return
		}
		for _, l := range locks {
			if l.id == "" || l.locker == "" {
				t.Errorf("%q has the lock %+v", text, l)
			}
		}
		if again, err := parseLockList([]byte("a log line\n" + text)); err != nil || len(again) != len(locks) {
			t.Errorf("%q has %v, behind a log line %v, %v", text, locks, again, err)
		}
	})
}

func FuzzParseStatus(f *testing.F) {
	for _, c := range statuses {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		watchers, err := parseStatus([]byte(text))
		if strings.Contains(text, "watcher=") && (err != nil || len(watchers) == 0) {
			t.Errorf("%q: %v, %v", text, watchers, err)
		}
		if err == nil && len(watchers) == 0 && !strings.Contains(text, "Watchers: none") && !strings.Contains(strings.ToLower(text), `watchers"`) && !strings.ContainsAny(text, "\\ſ") {
			t.Errorf("%q: nobody watches", text)
		}
	})
}

func FuzzParseInfo(f *testing.F) {
	for _, c := range infos {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if image, err := parseInfo([]byte(text)); err == nil && image.size < 0 {
			t.Errorf("%q: size %d", text, image.size)
		}
	})
}

// What is printed with a decimal is never read as more than what is there.
func TestRoundedSizes(t *testing.T) {
	for bytes := int64(1 << 30); bytes < 3<<30; bytes += 10007 * 4096 {
		text := fmt.Sprintf("size %.1f GiB in 5 objects", float64(bytes)/(1<<30))
		if got, err := parseInfo([]byte(text)); err != nil || got.size > bytes {
			t.Fatalf("%d bytes, %q: %+v, %v", bytes, text, got, err)
		}
	}
}
