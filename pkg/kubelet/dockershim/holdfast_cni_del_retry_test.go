// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockershim

import (
	"errors"
	"fmt"
	"io/ioutil"
	"os"
	"testing"
	"time"

	dockertypes "github.com/docker/docker/api/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/dockershim/libdocker"
	"k8s.io/kubernetes/pkg/kubelet/network"
)

// allocating is a network plugin that allocates something for each sandbox that it is asked to set
// up, also if it then fails, as a list of CNI plugins does whose last one fails.
type allocating struct {
	network.NoopNetworkPlugin
	allocated map[string]bool
	// dels counts the calls that take a sandbox down.
	dels int
	// setUp and tearDown are called with the sandbox before the answer is given.
	setUp, tearDown func(podSandboxID string) error
	docker          *losingDocker
}

func (p *allocating) Name() string { return "allocating" }

func (p *allocating) SetUpPod(namespace, name string, id kubecontainer.ContainerID, annotations map[string]string) error {
	p.allocated[id.ID] = true
	return p.setUp(id.ID)
}

func (p *allocating) TearDownPod(namespace, name string, id kubecontainer.ContainerID) error {
	p.dels++
	if err := p.tearDown(id.ID); err != nil {
		return err
	}
	delete(p.allocated, id.ID)
	return nil
}

// losingDocker is a docker that answers as docker does for containers that it does not know.
type losingDocker struct {
	*libdocker.FakeDockerClient
	lost map[string]bool
}

func (d *losingDocker) known(id string) error {
	if d.lost[id] {
		return fmt.Errorf("Error response from daemon: No such container: %s", id)
	}
	return nil
}

func (d *losingDocker) InspectContainer(id string) (*dockertypes.ContainerJSON, error) {
	if err := d.known(id); err != nil {
		return nil, err
	}
	return d.FakeDockerClient.InspectContainer(id)
}

func (d *losingDocker) StopContainer(id string, timeout time.Duration) error {
	if err := d.known(id); err != nil {
		return err
	}
	return d.FakeDockerClient.StopContainer(id, timeout)
}

func (d *losingDocker) RemoveContainer(id string, opts dockertypes.ContainerRemoveOptions) error {
	if err := d.known(id); err != nil {
		return err
	}
	d.lost[id] = true
	return d.FakeDockerClient.RemoveContainer(id, opts)
}

func newAllocating(t *testing.T) (*dockerService, *allocating, func()) {
	dir, err := ioutil.TempDir("", "dockershim")
	require.NoError(t, err)
	ds, fake, _ := newTestDockerServiceWithVersionCache()
	docker := &losingDocker{FakeDockerClient: fake, lost: map[string]bool{}}
	ds.client = docker
	ds.checkpointHandler, err = NewPersistentCheckpointHandler(dir)
	require.NoError(t, err)
	well := func(string) error { return nil }
	plugin := &allocating{allocated: map[string]bool{}, setUp: well, tearDown: well, docker: docker}
	ds.network = network.NewPluginManager(plugin)
	return ds, plugin, func() { os.RemoveAll(dir) }
}

// remove is what the kubelet's garbage collection does with a sandbox.
func remove(ds *dockerService, podSandboxID string) error {
	if err := ds.StopPodSandbox(podSandboxID); err != nil {
		return err
	}
	return ds.RemovePodSandbox(podSandboxID)
}

// TestHoldfastCNIDelRetry: what a network plugin has allocated for a sandbox is free when the
// sandbox is gone, whatever failed on the way. Off, as in stock, it stays.
func TestHoldfastCNIDelRetry(t *testing.T) {
	failed := errors.New("failed")
	config := makeSandboxConfig("pod", "ns", "uid", 0)
	// once fails the first time only.
	once := func() func(string) error {
		calls := 0
		return func(string) error {
			if calls++; calls == 1 {
				return failed
			}
			return nil
		}
	}
	for name, run := range map[string]func(t *testing.T, ds *dockerService, p *allocating){
		"set-up fails": func(t *testing.T, ds *dockerService, p *allocating) {
			p.setUp = func(string) error { return failed }
			id, err := ds.RunPodSandbox(config)
			assert.Error(t, err)
			assert.Contains(t, err.Error(), failed.Error())
			assert.NoError(t, remove(ds, id))
		},
		"set-up fails, and the first take-down": func(t *testing.T, ds *dockerService, p *allocating) {
			p.setUp, p.tearDown = func(string) error { return failed }, once()
			id, err := ds.RunPodSandbox(config)
			assert.Error(t, err)
			assert.NoError(t, remove(ds, id))
		},
		"stopped and removed during the set-up": func(t *testing.T, ds *dockerService, p *allocating) {
			p.setUp = func(id string) error { return remove(ds, id) }
			ds.RunPodSandbox(config)
		},
		"docker has lost the sandbox, and the first take-down fails": func(t *testing.T, ds *dockerService, p *allocating) {
			id, err := ds.RunPodSandbox(config)
			require.NoError(t, err)
			require.NoError(t, p.docker.StopContainer(id, 0))
			require.NoError(t, p.docker.RemoveContainer(id, dockertypes.ContainerRemoveOptions{}))
			// A kubelet that starts knows no network.
			ds.networkReady = map[string]bool{}
			p.tearDown = once()
			assert.Error(t, remove(ds, id))
			left, err := ds.ListPodSandbox(nil)
			require.NoError(t, err)
			for _, s := range left {
				assert.NoError(t, remove(ds, s.Id))
			}
		},
	} {
		for _, on := range []bool{true, false} {
			func() {
				defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CNIDelRetry, on)()
				ds, plugin, end := newAllocating(t)
				defer end()
				run(t, ds, plugin)
				if on {
					assert.Empty(t, plugin.allocated, name)
				} else {
					assert.Len(t, plugin.allocated, 1, "%s: off is not as stock", name)
				}
				left, err := ds.ListPodSandbox(nil)
				assert.NoError(t, err)
				assert.Empty(t, left, name)
				assert.Empty(t, ds.networkSetUps, name)
				checkpoints, err := ds.checkpointHandler.ListCheckpoints()
				assert.NoError(t, err)
				assert.Empty(t, checkpoints, name)
			}()
		}
	}
}

// TestHoldfastCNIDelRetryOnce: where nothing fails the plugin is called as by stock, and a sandbox
// that was stopped during its set-up does not count as started.
func TestHoldfastCNIDelRetryOnce(t *testing.T) {
	config := makeSandboxConfig("pod", "ns", "uid", 0)
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CNIDelRetry, on)()
			ds, plugin, end := newAllocating(t)
			defer end()
			id, err := ds.RunPodSandbox(config)
			require.NoError(t, err)
			assert.Len(t, plugin.allocated, 1)
			for i := 0; i < 3; i++ {
				assert.NoError(t, ds.StopPodSandbox(id))
			}
			assert.NoError(t, ds.RemovePodSandbox(id))
			assert.Equal(t, 1, plugin.dels, "gate %v", on)
			assert.Empty(t, ds.networkReady)

			plugin.setUp = ds.StopPodSandbox
			id, err = ds.RunPodSandbox(config)
			assert.Equal(t, on, err != nil, "gate %v: %v", on, err)
			assert.NoError(t, remove(ds, id))
			assert.Empty(t, plugin.allocated)
			assert.Empty(t, ds.networkReady)
		}()
	}
}
