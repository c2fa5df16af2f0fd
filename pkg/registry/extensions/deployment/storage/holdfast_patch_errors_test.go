// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/apis/extensions"
)

// TestRollbackNamedByURL: a rollback reaches the Deployment that the URL names, or
// none. With the gate off it reaches the one that the body names.
func TestRollbackNamedByURL(t *testing.T) {
	for _, on := range []bool{true, false} {
		if err := utilfeature.DefaultFeatureGate.Set(map[bool]string{true: "RollbackNamedByURL=true", false: "RollbackNamedByURL=false"}[on]); err != nil {
			t.Fatal(err)
		}
		defer utilfeature.DefaultFeatureGate.Set("RollbackNamedByURL=true")
		for _, tc := range []struct {
			name, url, body string
			refused         func(error) bool // by ours
		}{
			{"the same", name, name, nil},
			{"another", "other", name, errors.IsBadRequest},
			{"a URL of none", "none", name, errors.IsNotFound},
		} {
			storage, server := newStorage(t)
			ctx := genericapirequest.WithNamespace(genericapirequest.NewContext(), namespace)
			for _, n := range []string{name, "other"} {
				d := validNewDeployment()
				d.Name = n
				if _, err := storage.Deployment.Create(ctx, d, rest.ValidateAllObjectFunc, false); err != nil {
					t.Fatal(err)
				}
			}
			asked := genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{IsResourceRequest: true, Namespace: namespace, Resource: "deployments", Subresource: "rollback", Name: tc.url})
			_, err := storage.Rollback.Create(asked, &extensions.DeploymentRollback{Name: tc.body, RollbackTo: extensions.RollbackConfig{Revision: 1}}, rest.ValidateAllObjectFunc, false)
			refused := tc.refused
			if !on {
				refused = nil
			}
			if refused == nil && err != nil || refused != nil && !refused(err) {
				t.Errorf("gate %v, %s: %v", on, tc.name, err)
			}
			for _, n := range []string{name, "other"} {
				obj, err := storage.Deployment.Get(ctx, n, &metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if got, want := obj.(*extensions.Deployment).Spec.RollbackTo != nil, n == tc.body && refused == nil; got != want {
					t.Errorf("gate %v, %s: %s is rolled back: %v, want %v", on, tc.name, n, got, want)
				}
			}
			storage.Deployment.Store.DestroyFunc()
			server.Terminate(t)
		}
	}
}
