// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/handlers/features"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/apis/extensions"
)

// checkURL compares the Deployment that a rollback names with that of the request's
// URL: the authorizer has seen the URL only, so that a role with resourceNames
// would give access to every Deployment of the namespace. The answer is 404 if there
// is no Deployment of the URL's name, as for a rollback that names it twice, else 400.
func (r *RollbackREST) checkURL(ctx genericapirequest.Context, rollback *extensions.DeploymentRollback) error {
	if !utilfeature.DefaultFeatureGate.Enabled(features.RollbackNamedByURL) {
		return nil
	}
	// Only a caller inside the process comes without a request.
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	if !ok || info.Name == rollback.Name {
		return nil
	}
	if _, err := r.store.Get(ctx, info.Name, &metav1.GetOptions{}); err != nil {
		return err
	}
	return errors.NewBadRequest(fmt.Sprintf("the URL names the deployment %q, and the rollback in the body names %q", info.Name, rollback.Name))
}
