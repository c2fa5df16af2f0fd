// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"hash/fnv"
	"strconv"

	"k8s.io/kubernetes/pkg/api"
	hashutil "k8s.io/kubernetes/pkg/util/hash"
)

// GetPodTemplateSpecHashWithCount returns the hash of a template after count
// collisions. Count 0 is the hash that a 1.2 controller has always used.
//
// Any other count is FNV-1a over the same dump with the count's digits after
// it. adler32 is no use for these: its collisions come from the template, and
// two templates that have collided once would do so again whatever follows.
func GetPodTemplateSpecHashWithCount(template api.PodTemplateSpec, count int) uint32 {
	if count == 0 {
		return GetPodTemplateSpecHash(template)
	}
	hasher := fnv.New32a()
	hashutil.DeepHashObject(hasher, template)
	hasher.Write([]byte(strconv.Itoa(count)))
	return hasher.Sum32()
}
