// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package operationexecutor

import expandcache "k8s.io/kubernetes/pkg/controller/volume/expand/cache"

// expansion is what expands a volume and sends the event.
func expansion(g OperationGenerator, request *expandcache.PVCWithResizeRequest) (func() error, error) {
	f, _, err := g.GenerateExpandVolumeFunc(request, nil)
	return f, err
}
