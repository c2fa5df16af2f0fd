// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

// answerStats makes the test's cAdvisor answer what the kubelet asks in a sync.
func answerStats(tk *TestKubelet) { tk.chainMock() }
