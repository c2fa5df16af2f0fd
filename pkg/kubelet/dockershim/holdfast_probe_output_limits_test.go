// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockershim

import (
	"bytes"
	"io"
	"testing"
	"time"

	dockertypes "github.com/docker/docker/api/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/dockershim/libdocker"
	"k8s.io/kubernetes/pkg/util/outputlimit"
)

// printer is a command that prints to both streams and needs all to be read.
type printer struct {
	mib     int
	written int64
}

func (p *printer) ExecInContainer(_ libdocker.Interface, _ *dockertypes.ContainerJSON, _ []string, _ io.Reader, stdout, stderr io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for i := 0; i < p.mib; i++ {
		for _, w := range []io.Writer{stdout, stderr} {
			n, err := w.Write(chunk)
			p.written += int64(n)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func TestExecSyncOutputLimits(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ProbeOutputLimits, on)()
			for _, mib := range []int{1, 16, 20} {
				ds, docker, _ := newTestDockerService()
				docker.SetFakeRunningContainers([]*libdocker.FakeContainer{{ID: "id", Name: "/id", Running: true}})
				p := &printer{mib: mib}
				ds.streamingRuntime = &streamingRuntime{client: docker, execHandler: p}
				stdout, stderr, err := execSync(ds, "id", []string{"print"}, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				want := mib << 20
				if on && want > outputlimit.ExecStream {
					want = outputlimit.ExecStream
				}
				if len(stdout) != want || len(stderr) != want || p.written != int64(mib)<<21 {
					t.Errorf("gate %v, %d MiB: kept %d and %d, want %d; the command wrote %d", on, mib, len(stdout), len(stderr), want, p.written)
				}
			}
		}()
	}
}
