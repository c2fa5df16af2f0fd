// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rvcursor decides from which resourceVersion a reflector restarts its
// watch.
//
// A reflector lists, then watches from the list's resourceVersion, and when the
// watch ends it watches again from the resourceVersion of the last event that it
// received: that place is called the cursor here. kube-apiserver 1.7.0 to
// 1.7.12, 1.8.0 to 1.8.7 and 1.9.0 to 1.9.2 (watch cache on) send, with a DELETED
// event, the object as it was before, with the resourceVersion of its last update (kubernetes/kubernetes#58547).
// A cursor that follows such an event goes back, and the next watch starts in the
// past: all that happened since is replayed, or the server answers 410 Gone.
//
// The rule: within one watch, the cursor is the larger of two well-formed
// resourceVersions. If either of the two is not well-formed nothing can be said
// about their order, and the cursor follows the event, as upstream's does. What is
// well-formed, and which is larger, is KEP-5504's definition, which holds for every
// storage that Kubernetes has had: see WellFormed and Less.
//
// A watch from "" or "0" begins with an ADDED event for each object that there is,
// in no order of their versions. They say nothing about what was received, so until
// another type of event comes the cursor follows them, as upstream's does. Upstream's
// newest reflector leaves them out as well (client-go v0.37.2, Reflector.watch:
// propagateRVFromStart). A list of kube-apiserver never has such a version.
//
// The cursor never decides about the event itself: the reflector applies every
// event to its store. It also knows nothing of lists: a list sets the place from
// which the first watch after it starts, also to a smaller resourceVersion, as after
// a restore of etcd from a backup.
//
// The package knows no feature gate, no metrics library and no API client, because
// client-go must not depend on those of one binary. A binary connects them with
// SetEnabledFunc, SetMetricsProvider and SetServerVersionFunc; package
// k8s.io/kubernetes/pkg/util/reflector/monotonicrv does it for Kubernetes' own. Without
// them the rule is on, nothing is counted and the warning names no server version.
package rvcursor
