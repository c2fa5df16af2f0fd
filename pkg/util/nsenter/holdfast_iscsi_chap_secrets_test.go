//go:build linux
// +build linux

// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nsenter

import (
	"bytes"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/golang/glog"
)

func TestForLog(t *testing.T) {
	for in, want := range map[string]string{
		"iscsiadm -m node -o update -n node.session.auth.password -v sEcret": "iscsiadm -m node -o update -n node.session.auth.password -v <masked>",
		"iscsiadm -o update -n node.session.auth.authmethod -v CHAP":         "iscsiadm -o update -n node.session.auth.authmethod -v CHAP",
		"mount -t cifs -o vers=3.0,username=u,password=sEcret,ro //s/s /d":   "mount -t cifs -o vers=3.0,username=u,password=<masked>,ro //s/s /d",
		"mount -t ceph -o name=admin,secret=sEcret m:/ /d":                   "mount -t ceph -o name=admin,secret=<masked> m:/ /d",
		"rbd map p/i --id admin --key=sEcret":                                "rbd map p/i --id admin --key=<masked>",
		"--mount=/rootfs/proc/1/ns/mnt -- /bin/findmnt -o target":            "--mount=/rootfs/proc/1/ns/mnt -- /bin/findmnt -o target",
	} {
		if got := strings.Join(forLog(strings.Split(in, " ")), " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The lines that commands log at -v=5.
func TestExecLogsNoPassword(t *testing.T) {
	flag.Set("logtostderr", "true")
	flag.Set("v", "5")
	defer flag.Set("v", "0")
	old := os.Stderr
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = w
	lines := runLogged(t, "iscsiadm", "-n", "node.session.auth.password", "-v", "sEcret")
	glog.Flush()
	os.Stderr = old
	w.Close()
	var logged bytes.Buffer
	io.Copy(&logged, r)
	if strings.Count(logged.String(), "node.session.auth.password") != lines || strings.Contains(logged.String(), "sEcret") {
		t.Errorf("logged: %q", logged.String())
	}
}
