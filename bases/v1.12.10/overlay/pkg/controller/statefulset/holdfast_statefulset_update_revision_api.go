// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import apps "k8s.io/api/apps/v1"

// statefulSet is the type of sets that this release's controller works with.
type statefulSet = apps.StatefulSet
