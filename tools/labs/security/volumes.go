// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/wait"
)

var devicePath = row{
	fix:     "storageos-device-path",
	gate:    "StorageOSDevicePathCheck",
	summary: "a StorageOS server that a pod names makes the kubelet mount any device of the node into the pod",
	starts:  "serve a StorageOS API on the machine that answers with a volume whose ID is a path to " + device + "; create a pod whose own Secret names the server",
	does:    "read the pod's FailedMount events and the kubelet's log",
	oracle:  "the kubelet tries to mount the device that the server named; absent: the kubelet sent a request to the server, and the event says that the ID is refused",
	start:   startDevicePath,
	look:    lookDevicePath,
	judge:   judgeDevicePath,
}

// device is no block device, so nothing is mounted or formatted in the end.
const device = "/dev/null"

// attached is how often the kubelet's log has the device as a disk, what the pod's
// FailedMount events say, and how often the server was asked.
type attached struct {
	Disk    int
	Events  string
	Asked   int
	Counted float64
}

// storageOS is a pod with a volume of the StorageOS server at url.
func (l *lab) storageOS(ctx context.Context, name, url string) error {
	secret := kube.Secret(name, map[string]string{"apiAddress": "tcp://" + strings.TrimPrefix(url, "http://"), "apiUsername": "u", "apiPassword": "p"})
	secret.Type = "kubernetes.io/storageos"
	return l.pods(ctx, secret, pod(name, mountData, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		StorageOS: &corev1.StorageOSVolumeSource{VolumeName: "volume1", FSType: "ext4", SecretRef: &corev1.LocalObjectReference{Name: name}}}}))
}

func mountData(c *corev1.Container) {
	c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
}

func startDevicePath(ctx context.Context, l *lab) error {
	url, err := l.serve("StorageOS", machine.IP, func(w http.ResponseWriter, r *http.Request) {
		l.asked.add("device")
		_, _ = io.WriteString(w, `{"apiVersion": "1", "id": "../../../..`+device+`", "name": "volume1", "namespace": "default"}`)
	})
	if err != nil {
		return err
	}
	return l.storageOS(ctx, "device-path", url)
}

// asDisk is what the kubelet logs when the device is neither mounted nor formatted, and
// refusal what the event says on ours.
const (
	asDisk  = `disk "` + device + `"`
	refusal = "answered a volume ID that is no file name"
)

func lookDevicePath(ctx context.Context, l *lab) error {
	var o attached
	if err := wait.Until(ctx, "pod device-path has an event about the volume's device", patience, func(context.Context) (bool, error) {
		log, err := l.node.Kubelet.LastRunLog()
		if err != nil {
			return false, err
		}
		o.Disk = strings.Count(log, asDisk)
		o.Events = strings.Join(l.messages("device-path", "FailedMount"), "\n")
		if o.Disk == 0 && !strings.Contains(o.Events, refusal) {
			return false, fmt.Errorf("events: %q", o.Events)
		}
		return true, nil
	}); err != nil {
		return err
	}
	o.Asked = l.asked.count("device")
	var err error
	if o.Counted, err = l.counted(ctx, "holdfast_storageos_device_path_refused_total"); err != nil {
		return err
	}
	l.e.Record(o)
	return nil
}

func judgeDevicePath(h *history.History) finding {
	o := history.One[attached](h)
	happened := o.Disk > 0
	if o.Asked == 0 || !happened && !strings.Contains(o.Events, refusal) {
		return cannotTell("the server got %d requests; events: %s", o.Asked, o.Events)
	}
	saw := "the ID that the server sent was refused"
	if happened {
		saw = "the kubelet tried to mount the device that the server named"
	}
	return finding{happened: happened, saw: saw}.
		counting(h, "holdfast_storageos_device_path_refused_total", o.Counted, 1)
}

var pluginPanic = row{
	fix:     "volume-plugin-panic",
	gate:    "VolumePluginPanicRecovery",
	summary: "a pod's volume makes the volume plugin panic, and other pods' volumes are not mounted",
	does:    "create a pod with a scaleIO volume without secretRef, wait 20 s, or longer if the kubelet's log has few panics then, and read its events and the log",
	oracle:  fmt.Sprintf("the kubelet's log has at least %d panics that only the last handler caught; absent: no panic, an event of the pod reports the error, and a pod that is created afterwards gets its volume", manyPanics),
	look:    lookPluginPanic,
	judge:   judgePluginPanic,
}

// manyPanics are more than a fault that ends by itself makes.
const manyPanics = 11

// panics are how often the kubelet's log has one that ended the round of the reconciler, after 20 s
// and in the end, and the events of the pod.
type panics struct {
	Logged  int
	Events  string
	Ready   bool // a pod that came later
	Counted float64
	End     int
}

func lookPluginPanic(ctx context.Context, l *lab) error {
	if err := l.pods(ctx, pod("plugin-panic", mountData, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		ScaleIO: &corev1.ScaleIOVolumeSource{Gateway: "https://" + machine.IP + ":1/api", System: "s", VolumeName: "v"}}})); err != nil {
		return err
	}
	// The kubelet would go on as long as the pod is bound, beside the other rows.
	defer func() { _ = l.c.Client.DeleteNow(context.WithoutCancel(ctx), kube.Pods, ns, "plugin-panic") }()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(20 * time.Second):
	}
	logged := func() (int, error) {
		log, err := l.node.Kubelet.LastRunLog()
		return strings.Count(log, "Observed a panic: "), err
	}
	var o panics
	var err error
	if o.Logged, err = logged(); err != nil {
		return err
	}
	// Beside the volumes of the other rows there are few rounds in a second.
	if o.End = o.Logged; o.Logged > 0 {
		if err := wait.Until(ctx, "the kubelet's log has many panics", patience, func(context.Context) (bool, error) {
			if o.End, err = logged(); err != nil {
				return false, err
			}
			return wait.AtLeast(o.End, manyPanics)
		}); err != nil {
			return err
		}
	}
	if l.e.Variant == labkit.Ours {
		if err := wait.Until(ctx, "pod plugin-panic has an event", patience, func(context.Context) (bool, error) {
			o.Events = strings.Join(l.messages("plugin-panic", "FailedMount"), "\n")
			return strings.Contains(o.Events, panicked), nil
		}); err != nil {
			return err
		}
		if err := l.pods(ctx, pod("after-panic", mountData, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})); err != nil {
			return err
		}
		if err := l.waitReady(ctx, "after-panic", patience); err != nil {
			return err
		}
		o.Ready = true
	}
	if o.Counted, err = l.counted(ctx, `holdfast_volume_plugin_panic_recovered_total`); err != nil {
		return err
	}
	l.e.Record(o)
	return nil
}

const panicked = "the volume plugin panicked: "

func judgePluginPanic(h *history.History) finding {
	o := history.One[panics](h)
	switch {
	case o.End >= manyPanics:
	case o.End > 0:
		return cannotTell("%d panics in the kubelet's log", o.End)
	case h.Variant == string(labkit.Ours) && (!o.Ready || !strings.Contains(o.Events, panicked)):
		return cannotTell("ready %v; events: %s", o.Ready, o.Events)
	}
	return finding{happened: o.End > 0, saw: fmt.Sprintf("%d panics in the kubelet's log within 20 s, %d in the end", o.Logged, o.End)}.
		counting(h, "holdfast_volume_plugin_panic_recovered_total", o.Counted, 1).
		measure("panics within 20 s", float64(o.Logged), "")
}
