// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package livecheck asks the API server whether a Service is really gone before the
// endpoints controller deletes the Endpoints of its name.
//
// The controller deletes Endpoints when its cache has no Service of that name. A
// cache that was taken back to the past, by whatever fault of the server, of the
// watch or of the reflector, lacks Services that exist, and then traffic to them
// stops. One GET for each deletion is a small price: the endpoints controller's role
// (system:controller:endpoint-controller) may get Services since RBAC has roles.
package livecheck

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubernetes/pkg/features"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
)

// The values of the label "result".
const (
	// resultKept: the Service exists, its Endpoints are kept.
	resultKept = "kept"
	// resultGone: the server confirmed that there is no such Service.
	resultGone = "gone"
	// resultError: the server gave no answer to go by, its Endpoints are kept.
	resultError = "error"
	// resultUnchecked: the feature gate is off, the server was not asked.
	resultUnchecked = "unchecked"
)

var checks = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "holdfast_endpoints_live_service_check_checks_total",
	Help: "Services that the endpoints controller's cache lacked when it was to delete their Endpoints, by what the API server said: kept (the Service exists), gone, error, unchecked (feature gate EndpointsLiveServiceCheck off, deleted without asking).",
}, []string{"result"})

func init() {
	prometheus.MustRegister(checks)
	for _, result := range []string{resultKept, resultGone, resultError, resultUnchecked} {
		checks.WithLabelValues(result)
	}
}

// Gone returns nil if the Endpoints namespace/name may be deleted: the API server
// says NotFound for the Service of that name, or the feature gate is off. Any other
// answer is an error, for which the caller must leave the Endpoints alone and try
// again later. retries is how often this key was tried before; only the first try
// is logged at a level that an operator sees.
func Gone(services corev1.ServicesGetter, namespace, name string, retries int) error {
	if !utilfeature.DefaultFeatureGate.Enabled(features.EndpointsLiveServiceCheck) {
		checks.WithLabelValues(resultUnchecked).Inc()
		return nil
	}
	_, err := services.Services(namespace).Get(name, metav1.GetOptions{})
	switch {
	case err == nil:
		checks.WithLabelValues(resultKept).Inc()
		err = fmt.Errorf("service %s/%s is missing from the cache of the endpoints controller but exists in the API server: its endpoints are not deleted", namespace, name)
	case errors.IsNotFound(err):
		checks.WithLabelValues(resultGone).Inc()
		return nil
	default:
		checks.WithLabelValues(resultError).Inc()
		err = fmt.Errorf("cannot tell whether service %s/%s, missing from the cache of the endpoints controller, is gone: its endpoints are not deleted: %v", namespace, name, err)
	}
	if retries == 0 {
		glog.Warning(err)
	}
	return err
}
