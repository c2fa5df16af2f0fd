// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

// answerStats does nothing: the test's cAdvisor of 1.12 needs no answers.
func answerStats(tk *TestKubelet) {}
