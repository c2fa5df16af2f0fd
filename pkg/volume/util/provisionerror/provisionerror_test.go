// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package provisionerror

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
)

const glusterfs = "kubernetes.io/glusterfs"

func count(t *testing.T, of *prometheus.CounterVec, plugin string) float64 {
	var m dto.Metric
	if err := of.WithLabelValues(plugin, Create).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func TestRedact(t *testing.T) {
	for _, c := range []struct {
		plugin string
		err    error
		shown  bool
	}{
		// What servers and the network answer.
		{glusterfs, errors.New("create volume error: error creating volume internal-page"), false},
		{glusterfs, errors.New("create volume error: error creating volume Post http://10.0.0.1:1/volumes: dial tcp 10.0.0.1:1: connect: connection refused"), false},
		{"kubernetes.io/quobyte", errors.New("internal-page"), false},
		{"kubernetes.io/quobyte", errors.New(""), false},
		{"kubernetes.io/portworx-volume", errors.New("HTTP-404: internal-page"), false},
		{"kubernetes.io/scaleio", errors.New("internal-page"), false},
		{"kubernetes.io/storageos", errors.New("API error: internal-page"), false},
		// An answer that has one of the plugin's own errors in it is an answer.
		{glusterfs, errors.New("claim Selector is not supported\ninternal-page"), false},
		{glusterfs, errors.New("internal-page claim Selector is not supported"), false},
		{glusterfs, errors.New(`invalid option "internal page" for volume plugin kubernetes.io/glusterfs`), false},
		{"kubernetes.io/quobyte", errors.New("StorageClass for provisioner kubernetes.io/quobyte must have {internal}"), false},
		// What the plugins say of claims, classes and secrets.
		{glusterfs, errors.New("invalid AccessModes [ReadWriteOnce]: only AccessModes [ReadWriteOnce ReadOnlyMany ReadWriteMany] are supported"), true},
		{glusterfs, errors.New("not able to parse your claim Selector"), true},
		{glusterfs, errors.New(`invalid option "resturi" for volume plugin kubernetes.io/glusterfs`), true},
		{glusterfs, errors.New("gidMin must be >= 2000"), true},
		{glusterfs, errors.New("StorageClass for provisioner kubernetes.io/glusterfs must contain 'resturl' parameter"), true},
		{glusterfs, errors.New(`StorageClass for provisioner "kubernetes.io/glusterfs" must have gidMax value >= gidMin`), true},
		{glusterfs, errors.New(`StorageClass for provisioner "kubernetes.io/glusterfs" must have valid ( for eg, 'client.ssl on') volume option`), true},
		{glusterfs, errors.New("create volume error: failed to create glusterfs REST client, REST URL is empty"), true},
		{"kubernetes.io/quobyte", errors.New("Quobyte API server missing or malformed: must be a http(s)://host:port pair or multiple pairs separated by commas"), true},
		{"kubernetes.io/quobyte", errors.New(`Missing "password" in secret kube-system/quobyte-admin`), true},
		{"kubernetes.io/storageos", errors.New(`failed to get secret from ["default"/"storageos.api"]`), true},
		{"kubernetes.io/scaleio", errors.New("ScaleIO gateway not provided"), true},
		{glusterfs, apierrs.NewNotFound(schema.GroupResource{Resource: "secrets"}, "heketi"), true},
		// Others.
		{"kubernetes.io/gce-pd", errors.New("googleapi: Error 403: quota"), true},
		{glusterfs, nil, true},
	} {
		for _, on := range []bool{true, false} {
			func() {
				defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ProvisionErrorsWithoutResponse, on)()
				before, wouldBefore := count(t, redacted, c.plugin), count(t, wouldRedact, c.plugin)
				got := Redact(c.plugin, Create, "default/claim", c.err)
				if c.shown || !on {
					if got != c.err {
						t.Errorf("gate %v: %s: %v became %v", on, c.plugin, c.err, got)
					}
					if n := count(t, redacted, c.plugin) - before; n != 0 {
						t.Errorf("gate %v: %s: %v: counted %v times", on, c.plugin, c.err, n)
					}
					if n := count(t, wouldRedact, c.plugin) - wouldBefore; (n == 1) != (!c.shown && !on) {
						t.Errorf("gate %v: %s: %v: counted %v times as what would be redacted", on, c.plugin, c.err, n)
					}
					return
				}
				if got == nil || strings.Contains(got.Error(), "internal") || strings.Contains(got.Error(), "10.0.0.1") || !strings.HasPrefix(got.Error(), c.plugin+" failed to create the volume: ") {
					t.Errorf("%s: %v became %v", c.plugin, c.err, got)
				}
				if n := count(t, wouldRedact, c.plugin) - wouldBefore; n != 0 {
					t.Errorf("%s: %v: counted %v times as what would be redacted", c.plugin, c.err, n)
				}
				if n := count(t, redacted, c.plugin) - before; n != 1 {
					t.Errorf("%s: %v: counted %v times", c.plugin, c.err, n)
				}
			}()
		}
	}
}
