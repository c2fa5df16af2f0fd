// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/util/mount"
	"k8s.io/kubernetes/pkg/volume"
)

var (
	rbdOutputMasked = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_rbd_output_masked_total",
		Help: "Outputs of rbd from which a key was taken.",
	})
	rbdOutputSlow = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_rbd_output_slow_total",
		Help: "Minutes after the first that rbd map or rbd unmap took.",
	})
)

func init() {
	prometheus.MustRegister(rbdOutputMasked, rbdOutputSlow)
}

const (
	// maskedKey stands for a key in errors, logs and events.
	maskedKey = "***"

	// shortestKey is the length, in bytes, from which on a key is looked for
	// wherever rbd may have printed it. A real one has 40; a shorter text is a
	// mistake, and would be found in every word.
	shortestKey = 8
)

// rbdTimeouts end a command that only asks when the monitors or OSDs do not answer, in
// seconds. Ceph's own are 300 s for the monitors and none for the OSDs.
var rbdTimeouts = []string{"--client_mount_timeout=30", "--rados_mon_op_timeout=30", "--rados_osd_op_timeout=30"}

// slowCommand is how long rbd map and rbd unmap may take before the log and an event
// speak of it, and how often they do. The commands are never killed: nobody knows what a
// half-done one leaves in the kernel.
var slowCommand = time.Minute

// rbdExec runs commands for the plugin. Of rbd's, those that only ask get time-outs,
// those that can hang in the kernel are spoken of, and what they print has no key in it.
type rbdExec struct {
	mount.Exec
	host volume.VolumeHost
}

// newRBDExec returns what runs commands for the plugin on host.
func newRBDExec(host volume.VolumeHost) mount.Exec {
	return &rbdExec{host.GetExec(rbdPluginName), host}
}

// Run runs a command and returns what it wrote to both of its outputs.
func (e *rbdExec) Run(cmd string, args ...string) ([]byte, error) {
	if cmd != "rbd" || len(args) == 0 {
		return e.Exec.Run(cmd, args...)
	}
	run := args
	switch args[0] {
	case "status", "info", "lock":
		run = append(append([]string{}, args...), rbdTimeouts...)
	case "map", "unmap":
		done := make(chan struct{})
		defer close(done)
		go e.speakOf(withoutKeys(args), done)
	}
	output, err := e.Exec.Run(cmd, run...)
	return maskKeys(output, keysOf(args)), err
}

// speakOf logs and records, each minute until done is closed, that a command still runs.
func (e *rbdExec) speakOf(args []string, done <-chan struct{}) {
	tick := time.NewTicker(slowCommand)
	defer tick.Stop()
	for since := time.Now(); ; {
		select {
		case <-done:
			return
		case <-tick.C:
			rbdOutputSlow.Inc()
			message := fmt.Sprintf("rbd %s has been running for %v and is waited for", shownText(strings.Join(args, " ")), time.Since(since)/time.Second*time.Second)
			glog.Warning(message)
			nodeEvent(e.host, v1.EventTypeWarning, "RBDCommandSlow", message)
		}
	}
}

// keysOf are the keys on a command line of rbd.
func keysOf(args []string) []string {
	var keys []string
	for i, a := range args {
		switch {
		case strings.HasPrefix(a, "--key="):
			keys = append(keys, strings.TrimPrefix(a, "--key="))
		case a == "--key" && i+1 < len(args):
			keys = append(keys, args[i+1])
		}
	}
	return keys
}

// withoutKeys is a command line as it is shown.
func withoutKeys(args []string) []string {
	shown := append([]string{}, args...)
	for i, a := range args {
		switch {
		case strings.HasPrefix(a, "--key="):
			shown[i] = "--key=" + maskedKey
		case a == "--key" && i+1 < len(args):
			shown[i+1] = maskedKey
		}
	}
	return shown
}

var (
	// Ceph's "failed to decode key '…'": a key that is none may be a password, and of any length.
	undecodedKey = regexp.MustCompile(`(?s)(decode key ')(.*?)(')`)
	// 28 bytes in base64: one that was read from a keyring is on no command line.
	anyCephKey = regexp.MustCompile(`[A-Za-z0-9+/]{38}==`)
)

// maskKeys returns what rbd printed without keys: those that it was given, and what looks
// like one. The parsers read the masked text. They take "***" for no answer at all, so a
// key that stands for something else there makes an error and never "no watchers".
func maskKeys(output []byte, keys []string) []byte {
	masked := output
	for _, k := range keys {
		for _, k := range []string{k, strings.TrimSpace(k)} {
			if len(k) >= shortestKey {
				masked = bytes.Replace(masked, []byte(k), []byte(maskedKey), -1)
			}
		}
	}
	masked = undecodedKey.ReplaceAll(masked, []byte("${1}"+maskedKey+"${3}"))
	masked = anyCephKey.ReplaceAll(masked, []byte(maskedKey))
	if !bytes.Equal(masked, output) {
		rbdOutputMasked.Inc()
	}
	return masked
}

// What a line of the log, an error and an event have of what a pod's author chooses, who can name
// pool, image and monitors and so the server whose answers rbd prints; in bytes.
const (
	maxShownName   = 255
	maxShownText   = 1 << 10
	maxShownOutput = 10 << 10
)

// shownName is a name, quoted if it could forge a line of the log.
func shownName(name string) string {
	if name = cutTo(name, maxShownName); strings.IndexFunc(name, unicode.IsControl) >= 0 {
		return strconv.Quote(name)
	}
	return name
}

// shownText is a list of names in one line.
func shownText(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, cutTo(text, maxShownText))
}

// shownOutput is what a command printed.
func shownOutput(output []byte) string { return cutTo(string(output), maxShownOutput) }

func cutTo(text string, most int) string {
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}

// shownImage is "pool/image" of a mount.
func (b *rbdMounter) shownImage() string { return shownName(b.Pool) + "/" + shownName(b.Image) }
