// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticpod computes the UIDs that kubelets of older releases give static pods.
//
// The UID of a static pod whose manifest names none is md5 of a go-spew dump of the internal
// type core.Pod, as it is decoded and defaulted (applyDefaults in package config; the name of
// the node and of the file do not enter, because DeepHashObject resets the hash). The dump
// prints each field, set or not, and the name of each type, so each release has UIDs of its
// own: 1.9 has Container.VolumeDevices and PodSpec.DNSConfig, and calls the package core that
// was api; 1.8 has seven fields that 1.7 has not, and EmptyDirVolumeSource.SizeLimit is a
// pointer there. The table of types is made of what the code of each release says of its types.
//
// A pod has a UID in a release only if it sets no field that the release does not know: what
// a kubelet ignored is not in the pod that it started.
package staticpod

import (
	"crypto/md5"
	"encoding/hex"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/kubelet/container/hashcompat"
)

// UID is what kubelets of a release give a pod.
type UID struct {
	UID types.UID
	// Release is "1.8" or "1.7".
	Release string
}

var podType = reflect.TypeOf(&core.Pod{})

var release, drift = hashcompat.NewRelease(podType, table, func(t reflect.Type) string {
	return strings.Replace(t.String(), "core.", "api.", -1)
})

// Drift returns one line for each difference between the table and the types of this build.
// It is empty in a correct build; else no older UID is known.
func Drift() []string { return drift }

// Older returns the UIDs that kubelets of 1.8 and 1.7 give a pod, which is as applyDefaults
// gets it, without a UID of its own. There are two of each release that knows all fields
// which are set: of upstream's build, and after it of one with Go 1.9 or later, which prints a
// time and a number of any size in another way.
func Older(pod *core.Pod) []UID {
	if release == nil {
		return nil
	}
	var uids []UID
	for _, g := range []hashcompat.Generation{hashcompat.Gen18, hashcompat.Gen17} {
		for _, newerGo := range []bool{false, true} {
			if text, ok := release.Print(pod, g, newerGo); ok {
				uids = append(uids, UID{sum(text), g.String()})
			}
		}
	}
	return uids
}

func sum(text []byte) types.UID {
	s := md5.Sum(text)
	return types.UID(hex.EncodeToString(s[:]))
}
