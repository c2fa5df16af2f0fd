// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package provisionerror decides what of a volume plugin's error is shown to those who
// read events and volumes. Some plugins send HTTP requests to a server that a
// StorageClass, a Service or a volume names, and put what it answers into their error.
// Whoever names the server so reads from the control plane's network (CVE-2020-8555,
// CVE-2025-13281).
package provisionerror

import (
	"fmt"
	"regexp"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// What is done with a volume.
const (
	Create  = "create"
	Delete  = "delete"
	Expand  = "expand"
	Mount   = "mount"
	Unmount = "unmount"
)

var (
	// asksServer has the plugins whose server is named by an object of the API. The
	// other plugins ask the cloud of the controller manager's own configuration, or
	// nobody.
	asksServer = map[string]bool{
		"kubernetes.io/glusterfs":       true,
		"kubernetes.io/portworx-volume": true,
		"kubernetes.io/quobyte":         true,
		"kubernetes.io/scaleio":         true,
		"kubernetes.io/storageos":       true,
	}

	// own matches the errors of these plugins about a claim, StorageClass or secret,
	// before anything is sent. Each is matched whole, and what varies in it is narrow,
	// so that no answer passes for one.
	own = regexp.MustCompile(`^(?:` +
		`invalid AccessModes \[[A-Za-z ]*\]: only AccessModes \[[A-Za-z ]*\] are supported|` +
		`not able to parse your claim Selector|claim Selector is not supported|` +
		`invalid (?:option|value) "[\w.-]*" for volume plugin kubernetes\.io/[a-z-]+|` +
		`gidM(?:in|ax) must be [<>]= \d+|` +
		`StorageClass for provisioner "?kubernetes\.io/[a-z-]+"? must (?:contain|have) [\w '(),:=>.-]+|` +
		`create volume error: failed to create glusterfs REST client, REST (?:URL is empty|server authentication failed)|` +
		`failed to create glusterfs rest client, REST server authentication failed|` +
		`Quobyte (?:registry|API server) missing or malformed: must be a [\w():/ ]+ pair or multiple pairs separated by commas|` +
		`Missing "(?:user|password)" in secret [\w.-]*/[\w.-]*|` +
		`failed to get secret from \["[\w.-]*"/"[\w.-]*"\]|` +
		`ScaleIO (?:gateway|system|storage pool|protection domain) not provided|secret ref not provided|` +
		`(?:secret|configMap) not found|invalid volume size of 0 specified` +
		`)$`)

	redacted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_provision_error_redaction_redacted_total",
		Help: "Errors of volume plugins that were shown without what the storage server answered, by plugin and operation.",
	}, []string{"plugin", "operation"})
	wouldRedact = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_provision_error_redaction_would_redact_total",
		Help: "Errors of volume plugins that would have been shown without what the storage server answered if the feature gate ProvisionErrorsWithoutResponse were on, by plugin and operation.",
	}, []string{"plugin", "operation"})
)

func init() {
	prometheus.MustRegister(redacted, wouldRedact)
}

// answered is an error of Answer.
type answered struct{ error }

// Answer is the error of a volume plugin's request to a server that a pod's author may
// name, without what was answered, and err itself with the gate off, and for nil. of
// names the volume for the log, which gets the error up to 4 KiB: the server may answer
// any length. The plugin calls it where it asks, because the kubelet's events have other
// errors of the plugin too, for example of mount(8).
func Answer(plugin, operation, of string, err error) error {
	if err == nil {
		return nil
	}
	if !utilfeature.DefaultFeatureGate.Enabled(features.ProvisionErrorsWithoutResponse) {
		wouldRedact.WithLabelValues(plugin, operation).Inc()
		return err
	}
	redacted.WithLabelValues(plugin, operation).Inc()
	glog.Warningf("%s failed to %s volume %.256q: %.4096q", plugin, operation, of, err.Error())
	return answered{fmt.Errorf("%s failed to %s the volume: see the log of kubelet or kube-controller-manager for what the storage server answered, or why it did not (feature gate %s)",
		plugin, operation, features.ProvisionErrorsWithoutResponse)}
}

// Redact is the error of a volume plugin as events and volumes may show it, and err
// itself where it quotes no server, with the gate off, and for nil. operation is one of
// the constants, of names the claim or volume for the log, which gets the error, 10,240 characters of it.
func Redact(plugin, operation, of string, err error) error {
	if err == nil || !asksServer[plugin] {
		return err
	}
	if _, ok := err.(answered); ok {
		return err
	}
	if _, ok := err.(apierrs.APIStatus); ok || own.MatchString(err.Error()) {
		return err
	}
	if !utilfeature.DefaultFeatureGate.Enabled(features.ProvisionErrorsWithoutResponse) {
		wouldRedact.WithLabelValues(plugin, operation).Inc()
		return err
	}
	redacted.WithLabelValues(plugin, operation).Inc()
	// As often as stock logs the event. The server chooses how long its answer is.
	glog.Warningf("%s failed to %s the volume of %s: %.10240q", plugin, operation, of, err.Error())
	return fmt.Errorf("%s failed to %s the volume: see the log of kube-controller-manager for what the storage server answered, or why it did not (feature gate %s)",
		plugin, operation, features.ProvisionErrorsWithoutResponse)
}
