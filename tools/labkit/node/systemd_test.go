// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// dbusCall is a call of systemd's manager as the D-Bus specification lays it
// out: method, then the unit's name and mode, and an array of properties. Of the
// properties, Delegate comes second.
func dbusCall(method, unit string) []byte {
	str := func(b []byte, s string) []byte {
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
		return append(append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...), 0)
	}
	pad := func(b []byte) []byte {
		for len(b)%8 != 0 {
			b = append(b, 0)
		}
		return b
	}
	fields := pad(append(str([]byte("\x03\x01s\x00"), method), "\x08\x01g\x00\x08ssa(sv)a\x00"...))
	body := pad(str(str(nil, unit), "replace"))
	for _, p := range []string{"MemoryAccounting", "Delegate", "DefaultDependencies"} {
		body = append(str(pad(body), p), "\x01b\x00"...)
		for len(body)%4 != 0 {
			body = append(body, 0)
		}
		body = append(body, 1, 0, 0, 0)
	}
	b := []byte{'l', 1, 0, 1}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	b = binary.LittleEndian.AppendUint32(b, 7)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(fields)))
	return append(append(b, fields...), body...)
}

func TestRelayMessages(t *testing.T) {
	const hello = "\x00AUTH EXTERNAL 30\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n"
	for _, c := range []struct {
		method, unit string
		amended      bool
	}{
		{"StartTransientUnit", "kubepods-besteffort.slice", true},
		{"StartTransientUnit", "docker-0123.scope", false},
		{"StopUnit", "kubepods-besteffort.slice", false},
	} {
		one := dbusCall(c.method, c.unit)
		want := hello + string(one) + string(one)
		var got bytes.Buffer
		if err := relayMessages(&got, strings.NewReader(want)); !errors.Is(err, io.EOF) {
			t.Errorf("%s %s: %v, want the end of the input", c.method, c.unit, err)
		}
		if !strings.Contains(want, string(delegateTrue)) {
			t.Fatal("the test's own message has no Delegate")
		}
		if c.amended {
			want = strings.ReplaceAll(want, string(delegateTrue), string(addRefFalse))
		}
		if got.String() != want {
			t.Errorf("%s %s:\n got %q\nwant %q", c.method, c.unit, got.String(), want)
		}
	}
	if len(delegateTrue) != len(addRefFalse) {
		t.Errorf("the property has %d bytes, its substitute %d", len(delegateTrue), len(addRefFalse))
	}
	big := string(dbusCall("StopUnit", "a.slice"))
	for name, in := range map[string]string{
		"big endian": hello + "B" + big[1:],
		"too long":   hello + big[:4] + "\xff\xff\xff\xff" + big[8:],
		"cut":        hello + big[:len(big)-1],
	} {
		if err := relayMessages(io.Discard, strings.NewReader(in)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: error %v, want another", name, err)
		}
	}
}

func TestCgroupDriver(t *testing.T) {
	for in, want := range map[string]string{"": Cgroupfs, "cgroupfs": Cgroupfs, "systemd": Systemd} {
		if got, err := (Config{CgroupDriver: in}).cgroupDriver(); got != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
	if _, err := (Config{CgroupDriver: "cgroup"}).cgroupDriver(); err == nil || !strings.Contains(err.Error(), "Config.CgroupDriver") {
		t.Errorf("error %v, want one that names the field", err)
	}
}

func TestTellEmpty(t *testing.T) {
	root := t.TempDir()
	agent := filepath.Join(t.TempDir(), "agent")
	l, err := net.ListenPacket("unixgram", agent)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, procs := range map[string]string{"a.service": "", "b.service": "12\n", "c.scope": ""} {
		dir := filepath.Join(root, "system.slice", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(procs), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := tellEmpty(root, agent); err != nil {
		t.Fatal(err)
	}
	_ = l.SetReadDeadline(time.Now().Add(time.Second))
	var told []string
	for b := make([]byte, 100); ; {
		n, _, err := l.ReadFrom(b)
		if err != nil {
			break
		}
		told = append(told, string(b[:n]))
	}
	if len(told) != 1 || told[0] != "/system.slice/a.service" {
		t.Errorf("%q", told)
	}
}
