// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockershim

import (
	"context"
	"testing"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	runtimeapi "k8s.io/kubernetes/pkg/kubelet/apis/cri/runtime/v1alpha2"
	"k8s.io/kubernetes/pkg/util/outputlimit"
)

func execSync(ds *dockerService, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	r, err := ds.ExecSync(context.Background(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: int64(timeout / time.Second)})
	return r.GetStdout(), r.GetStderr(), err
}

// TestExecSyncMessageSize: what is kept of both streams is in a message that dockershim's server
// sends (maxMsgSize in dockershim/remote).
func TestExecSyncMessageSize(t *testing.T) {
	defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ProbeOutputLimits, true)()
	stdout, stderr := outputlimit.ExecBuffer("id"), outputlimit.ExecBuffer("id")
	for i := 0; i < 10; i++ {
		stdout.Write(make([]byte, 1<<20))
		stderr.Write(make([]byte, 1<<20))
	}
	r := &runtimeapi.ExecSyncResponse{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: -1}
	if size := r.Size(); size > 8<<20 {
		t.Errorf("the message has %d bytes", size)
	}
}
