// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package names has the labels and annotations that the program reads and
// writes, and those of Kubernetes 1.9 that it must know.
package names

// Prefix of every label and annotation of this project.
const Prefix = "holdfast/"

const (
	// OptIn is the label that a namespace must have, with the value OptInValue.
	OptIn      = Prefix + "endpoints-rules"
	OptInValue = "enabled"
	// Rules, an annotation on Endpoints, has the names of the rules that placed
	// addresses and how many each did: "image-pending=3,traffic-off=1".
	Rules = Prefix + "rules"
	// Touched, an annotation on a Service, has the time of the last touch, which
	// makes the endpoints controller compute its Endpoints anew.
	Touched = Prefix + "touched"
	// Saved and TrippedBy, annotations on the webhook configuration, have the
	// webhooks that a breaker took out of it, and the breakers that did with when
	// they last said so: "m1=1500000000,m2=1500000030".
	Saved     = Prefix + "webhooks"
	TrippedBy = Prefix + "tripped-by"
)

const (
	// Leader marks Endpoints that are a lock (client-go leader election).
	Leader = "control-plane.alpha.kubernetes.io/leader"
	// TolerateUnready on a Service has the endpoints controller take every pod
	// for ready (pkg/controller/endpoint of 1.9).
	TolerateUnready = "service.alpha.kubernetes.io/tolerate-unready-endpoints"
	// System is the namespace of the controllers' leader election.
	System = "kube-system"
)
