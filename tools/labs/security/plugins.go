// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"holdfast/tools/build/base"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/wait"
)

var iscsi = row{
	fix:      "iscsi-chap-secrets",
	summary:  "CHAP passwords of iSCSI volumes are in the kubelet's log",
	programs: map[string]string{"iscsiadm": iscsiadm},
	starts:   "create a pod with an iSCSI volume and a Secret with CHAP passwords; the kubelet's PATH begins with an iscsiadm that refuses the password and prints it",
	does:     "read the kubelet's log and the pod's events",
	oracle:   "the password is in the log or in an event; absent: the log names the setting and has <masked> in the output of iscsiadm",
	start:    startISCSI,
	look:     lookISCSI,
	judge:    judgeISCSI,
}

const (
	chapPassword = "lab-chap-password-71c3"
	chapKey      = "discovery.sendtargets.auth.password"
)

// iscsiadm stands for open-iscsi's, which needs a kernel module and a daemon.
const iscsiadm = `#!/bin/sh
case "$*" in
*"-o show") echo "iface.transport_name = tcp" ;;
*" -n ` + chapKey + ` -v "*)
  for value; do :; done
  echo "iscsiadm: ` + refusedCHAP + `$value" >&2
  exit 7 ;;
esac
`

// refusedCHAP is what iscsiadm prints before the password.
const refusedCHAP = "could not set " + chapKey + " to "

// chap is how often the kubelet's log has the output of iscsiadm, the password and what is in
// its place; and how often the pod's events have the password. An error while the kubelet
// waits for a volume's device makes no event in v1.9.11, and one in v1.12.10.
type chap struct{ Refused, Password, Masked, Events int }

// withPrograms puts what rows need first on the PATH of all that the lab starts. The lab's
// process has a machine of its own, and ends with it.
func (l *lab) withPrograms(rows []row) error {
	dir := l.e.Path("programs")
	for _, r := range rows {
		for name, text := range r.programs {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
				return err
			}
		}
	}
	return os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

// iscsiHosts gives the node the folder of a kernel with iSCSI, without a host: from 1.12 on the
// kubelet reads it before it calls iscsiadm.
func (l *lab) iscsiHosts(ctx context.Context) error {
	const class = "/sys/class"
	dir := l.e.Path("sys-class")
	if err := os.MkdirAll(filepath.Join(dir, "iscsi_host"), 0o755); err != nil {
		return err
	}
	return l.node.Run(ctx, "mount", "-t", "overlay", "overlay", "-o", "lowerdir="+dir+":"+class, class)
}

func startISCSI(ctx context.Context, l *lab) error {
	if base.Minor(l.base) >= 12 {
		if err := l.iscsiHosts(ctx); err != nil {
			return err
		}
	}
	secret := kube.Secret("chap", map[string]string{"discovery.sendtargets.auth.username": "lab-chap-user", chapKey: chapPassword})
	secret.Type = "kubernetes.io/iscsi-chap"
	return l.pods(ctx, secret, pod("chap", mountData, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{
		TargetPortal: machine.IP + ":3260", IQN: "iqn.2018-01.test.holdfast:chap", FSType: "ext4", DiscoveryCHAPAuth: true,
		SecretRef: &corev1.LocalObjectReference{Name: "chap"}}}}))
}

func lookISCSI(ctx context.Context, l *lab) error {
	var o chap
	if err := wait.Until(ctx, "the kubelet's log has the output of iscsiadm", patience, func(context.Context) (bool, error) {
		log, err := l.node.Kubelet.LastRunLog()
		if err != nil {
			return false, err
		}
		o = chap{strings.Count(log, refusedCHAP), strings.Count(log, chapPassword), strings.Count(log, refusedCHAP+"<masked>"),
			strings.Count(strings.Join(l.messages("chap", "FailedMount"), "\n"), chapPassword)}
		return o.Refused > 0, nil
	}); err != nil {
		return err
	}
	l.e.Record(o)
	return nil
}

func judgeISCSI(h *history.History) finding {
	o := history.One[chap](h)
	happened := o.Password+o.Events > 0
	if o.Refused == 0 || !happened && o.Masked == 0 {
		return cannotTell("the kubelet's log has %d refusals by iscsiadm, %d of them with <masked>", o.Refused, o.Masked)
	}
	return finding{happened: happened, saw: fmt.Sprintf("the password is %d times in the kubelet's log and %d times in events; iscsiadm refused it in %d lines",
		o.Password, o.Events, o.Refused)}.
		measure("passwords in the log", float64(o.Password), "").measure("passwords in events", float64(o.Events), "")
}

// From 1.10 on no line has Heketi's configuration, so a key from a Secret is in none.
var (
	heketi        = heketiRow("create volume of size: ", "heketi-parameter", "heketi-secret")
	heketiSince12 = heketiRow("Provision VolumeOptions ", "heketi-parameter")
)

// heketiRow is the row of a release that logs the keys of these claims, and whose log names the
// API of each volume to create in a line with that text.
func heketiRow(line string, logged ...string) row {
	return row{
		fix:     "heketi-key-log",
		summary: "Heketi's key is in the log of the controller manager",
		kcmArgs: []string{"--v=4"}, // from here on a StorageClass's parameters are logged, too
		starts:  "serve an API that refuses every volume; create two StorageClasses glusterfs for it, one with the key as parameter and one with a Secret, and a claim of each; the controller manager runs with --v=4",
		does:    "read the controller manager's log",
		oracle:  "a key is in the log; absent: the controller manager tried to create both volumes, and the log has <masked>",
		start:   startHeketi,
		look:    func(ctx context.Context, l *lab) error { return lookHeketi(ctx, l, line) },
		judge:   func(h *history.History) finding { return judgeHeketi(h, logged) },
	}
}

// heketiKeys are by the name of StorageClass and claim, which is also the path of the API.
var heketiKeys = map[string]string{"heketi-parameter": "lab-heketi-key-4b1d", "heketi-secret": "lab-heketi-key-9e07"}

// keys are how often the controller manager's log has each key, how often it has a volume
// with that StorageClass's API to create, and how often what is there instead.
type keys struct {
	Logged, Created map[string]int
	Masked          int
}

func startHeketi(ctx context.Context, l *lab) error {
	url, err := l.serve("Heketi", machine.IP, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "no volumes here")
	})
	if err != nil {
		return err
	}
	secret := kube.Secret("heketi", map[string]string{"key": heketiKeys["heketi-secret"]})
	secret.Type = glusterfs
	all := []runtime.Object{secret}
	for name, parameters := range map[string]map[string]string{
		"heketi-parameter": {"restuserkey": heketiKeys["heketi-parameter"]},
		"heketi-secret":    {"secretName": "heketi", "secretNamespace": ns},
	} {
		parameters["resturl"], parameters["restuser"] = url+"/"+name, "admin"
		all = append(all, storageClass(name, parameters)...)
	}
	return l.pods(ctx, all...)
}

// storageClass is a StorageClass glusterfs and a claim of that name.
func storageClass(name string, parameters map[string]string) []runtime.Object {
	return []runtime.Object{
		&storagev1.StorageClass{TypeMeta: typed("StorageClass", "storage.k8s.io/v1"), ObjectMeta: metav1.ObjectMeta{Name: name},
			Provisioner: glusterfs, Parameters: parameters},
		&corev1.PersistentVolumeClaim{TypeMeta: typed("PersistentVolumeClaim", "v1"), ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new(name), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: size}}},
	}
}

func typed(kind, api string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: api, Kind: kind} }

func lookHeketi(ctx context.Context, l *lab, create string) error {
	var o keys
	if err := wait.Until(ctx, "the controller manager's log has the attempts to create both volumes", patience, func(context.Context) (bool, error) {
		log, err := l.c.ControllerManager.LastRunLog()
		if err != nil {
			return false, err
		}
		o = keys{map[string]int{}, map[string]int{}, 0}
		for name, key := range heketiKeys {
			o.Logged[name] = strings.Count(log, key)
			for line := range strings.Lines(log) {
				if strings.Contains(line, create) && strings.Contains(line, "/"+name) {
					o.Created[name]++
					o.Masked += strings.Count(line, "<masked>")
				}
			}
		}
		return o.created(), nil
	}); err != nil {
		return err
	}
	l.e.Record(o)
	return nil
}

func (o keys) created() bool {
	for name := range heketiKeys {
		if o.Created[name] == 0 {
			return false
		}
	}
	return true
}

func judgeHeketi(h *history.History, logged []string) finding {
	o := history.One[keys](h)
	byParameter, bySecret := o.Logged["heketi-parameter"], o.Logged["heketi-secret"]
	happened := byParameter+bySecret > 0
	switch {
	case !o.created():
		return cannotTell("attempts to create volumes in the controller manager's log: %v", o.Created)
	case happened && h.Variant != string(labkit.Ours) && slices.ContainsFunc(logged, func(name string) bool { return o.Logged[name] == 0 }):
		return cannotTell("keys in the log: %v", o.Logged)
	case !happened && o.Masked == 0:
		return cannotTell("neither a key nor <masked> is in the log")
	}
	return finding{happened: happened, saw: fmt.Sprintf("the key of the StorageClass is %d times in the controller manager's log, the key of the Secret %d times", byParameter, bySecret)}.
		measure("keys in the log", float64(byParameter+bySecret), "")
}
