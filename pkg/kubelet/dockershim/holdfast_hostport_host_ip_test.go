// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockershim

import (
	"encoding/json"
	"io/ioutil"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	runtimeapi "k8s.io/kubernetes/pkg/kubelet/apis/cri/v1alpha1/runtime"
)

func hostIPGate(t *testing.T, on bool) func() {
	return utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.HostPortHostIP, on)
}

func hostIPSandbox(hostIPs ...string) *runtimeapi.PodSandboxConfig {
	c := makeSandboxConfig("web", "ns", "u1", 0)
	for i, ip := range hostIPs {
		c.PortMappings = append(c.PortMappings, &runtimeapi.PortMapping{Protocol: runtimeapi.Protocol_TCP, ContainerPort: int32(80 + i), HostPort: int32(8080 + i), HostIp: ip})
	}
	return c
}

// overDisk is a docker service whose checkpoints are files, as the kubelet's are, and the path
// of sandbox "sb".
func overDisk(t *testing.T) (*dockerService, string, func()) {
	dir, err := ioutil.TempDir("", "dockershim")
	require.NoError(t, err)
	ds, _, _ := newTestDockerService()
	ds.checkpointHandler, err = NewPersistentCheckpointHandler(dir)
	require.NoError(t, err)
	return ds, filepath.Join(dir, sandboxCheckpointDir, "sb"), func() { os.RemoveAll(dir) }
}

// TestHoldfastHostPortHostIP: what a network plug-in is told of the hostIP of a pod.
func TestHoldfastHostPortHostIP(t *testing.T) {
	for hostIP, want := range map[string]string{
		"":                       "",
		"127.0.0.1":              "127.0.0.1",
		"10.0.0.7":               "10.0.0.7",
		"0.0.0.0":                "",
		"::":                     "",
		"::1":                    "::1",
		"2001:DB8:0::7":          "2001:db8::7",
		"localhost":              "",
		"127.0.0.1 -j ACCEPT":    "",
		strings.Repeat("1", 1e6): "",
	} {
		for _, on := range []bool{true, false} {
			func() {
				defer hostIPGate(t, on)()
				ds, _, done := overDisk(t)
				defer done()
				require.NoError(t, ds.checkpointHandler.CreateCheckpoint("sb", constructPodSandboxCheckpoint(hostIPSandbox("", hostIP))))
				m, err := ds.GetPodPortMappings("sb")
				require.NoError(t, err)
				require.Len(t, m, 2)
				if !on {
					want = ""
				}
				assert.Equal(t, want, m[1].HostIP, "gate %v, hostIP of %d bytes", on, len(hostIP))
				assert.Equal(t, "", m[0].HostIP)
				assert.Equal(t, int32(8081), m[1].HostPort)
			}()
		}
	}
}

// TestHoldfastHostPortHostIPFile: the file without host IPs has stock's bytes, and with them
// one more key and stock's checksum.
func TestHoldfastHostPortHostIPFile(t *testing.T) {
	write := func(on bool, hostIP string) string {
		defer hostIPGate(t, on)()
		ds, path, done := overDisk(t)
		defer done()
		require.NoError(t, ds.checkpointHandler.CreateCheckpoint("sb", constructPodSandboxCheckpoint(hostIPSandbox(hostIP))))
		b, err := ioutil.ReadFile(path)
		require.NoError(t, err)
		return string(b)
	}
	// What stock 1.9.11 writes for this sandbox: TestHoldfastHostPortHostIPOfReleases has its checksums.
	stock := write(false, "127.0.0.1")
	assert.NotContains(t, stock, "host_ips")
	assert.Equal(t, stock, write(false, ""))
	assert.Equal(t, stock, write(true, ""))
	assert.Equal(t, stock, write(true, "0.0.0.0"))
	ours := write(true, "127.0.0.1")
	assert.Equal(t, stock, strings.Replace(ours, `,"holdfast_host_ips":["127.0.0.1"]`, "", 1))
	assert.NotEqual(t, stock, ours)
}

// stockCheckpoint has the JSON of a stock 1.9 kubelet: it ignores other keys.
type stockCheckpoint struct {
	Version   string `json:"version"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Data      *struct {
		PortMappings []*struct {
			Protocol      *Protocol `json:"protocol,omitempty"`
			ContainerPort *int32    `json:"container_port,omitempty"`
			HostPort      *int32    `json:"host_port,omitempty"`
		} `json:"port_mappings,omitempty"`
		HostNetwork bool `json:"host_network,omitempty"`
	} `json:"data,omitempty"`
	CheckSum uint64 `json:"checksum"`
}

// TestHoldfastHostPortHostIPOfReleases: files that 1.8.15 and 1.9.11 wrote are read, written
// again to the byte, and keep their checksum when they get a host IP, so that those
// releases accept that too.
func TestHoldfastHostPortHostIPOfReleases(t *testing.T) {
	defer hostIPGate(t, true)()
	for _, release := range []string{"v1.8.15", "v1.9.11"} {
		files, err := filepath.Glob(filepath.Join("testdata/checkpoint-compat", release, "*.json"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			golden, err := ioutil.ReadFile(file)
			require.NoError(t, err)
			ds, path, done := overDisk(t)
			defer done()
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0755))
			require.NoError(t, ioutil.WriteFile(path, golden, 0644))
			c, err := ds.checkpointHandler.GetCheckpoint("sb")
			require.NoError(t, err, file)
			require.NoError(t, ds.checkpointHandler.CreateCheckpoint("sb", c))
			again, err := ioutil.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, strings.TrimSpace(string(golden)), string(again), file)

			for range c.Data.PortMappings {
				c.Data.HostIPs = append(c.Data.HostIPs, "127.0.0.1")
			}
			require.NoError(t, ds.checkpointHandler.CreateCheckpoint("sb", c))
			again, err = ioutil.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, len(c.Data.PortMappings), strings.Count(string(again), "127.0.0.1"), file)
			var want, got stockCheckpoint
			require.NoError(t, json.Unmarshal(golden, &want))
			require.NoError(t, json.Unmarshal(again, &got))
			assert.Equal(t, want, got, file)
		}
	}
}

// TestHoldfastHostPortHostIPRead: what is on disk is believed as little as the pod.
func TestHoldfastHostPortHostIPRead(t *testing.T) {
	defer hostIPGate(t, true)()
	for hostIP, want := range map[string]string{`"127.0.0.1"`: "127.0.0.1", `"; rm"`: "", `""`: "", `null`: "", ``: "", `"127.0.0.1","127.0.0.1"`: ""} {
		ds, path, done := overDisk(t)
		defer done()
		require.NoError(t, ds.checkpointHandler.CreateCheckpoint("sb", constructPodSandboxCheckpoint(hostIPSandbox("10.0.0.7"))))
		b, err := ioutil.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, ioutil.WriteFile(path, []byte(strings.Replace(string(b), `"10.0.0.7"`, hostIP, 1)), 0644))
		m, err := ds.GetPodPortMappings("sb")
		require.NoError(t, err, hostIP)
		require.Len(t, m, 1)
		assert.Equal(t, want, m[0].HostIP, hostIP)
	}
}

// TestHoldfastHostPortHostIPHooks: RunPodSandbox records the hostIP before the network is
// made, from which the plug-in asks for it.
func TestHoldfastHostPortHostIPHooks(t *testing.T) {
	defer hostIPGate(t, true)()
	ds, _, _ := newTestDockerService()
	id, err := ds.RunPodSandbox(hostIPSandbox("127.0.0.1"))
	require.NoError(t, err)
	m, err := ds.GetPodPortMappings(id)
	require.NoError(t, err)
	require.Len(t, m, 1)
	assert.Equal(t, "127.0.0.1", m[0].HostIP)
}
