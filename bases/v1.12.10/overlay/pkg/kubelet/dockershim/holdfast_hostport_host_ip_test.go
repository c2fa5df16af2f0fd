// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockershim

import (
	"context"
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
	runtimeapi "k8s.io/kubernetes/pkg/kubelet/apis/cri/runtime/v1alpha2"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
)

func hostIPGate(t *testing.T, on bool) func() {
	return utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.HostPortHostIP, on)
}

// hostIPSandbox has ports 8080 TCP, 8081 UDP, 8082 UDP, … with these addresses.
func hostIPSandbox(hostIPs ...string) *runtimeapi.PodSandboxConfig {
	c := makeSandboxConfig("web", "ns", "u1", 0)
	for i, ip := range hostIPs {
		protocol := runtimeapi.Protocol_TCP
		if i > 0 {
			protocol = runtimeapi.Protocol_UDP
		}
		c.PortMappings = append(c.PortMappings, &runtimeapi.PortMapping{Protocol: protocol, ContainerPort: int32(80 + i), HostPort: int32(8080 + i), HostIp: ip})
	}
	return c
}

// overDisk is a docker service whose checkpoints are files, as the kubelet's are, and the path
// of sandbox "sb".
func overDisk(t *testing.T) (*dockerService, string, func()) {
	dir, err := ioutil.TempDir("", "dockershim")
	require.NoError(t, err)
	ds, _, _ := newTestDockerService()
	ds.checkpointManager, err = checkpointmanager.NewCheckpointManager(dir)
	require.NoError(t, err)
	return ds, filepath.Join(dir, "sb"), func() { os.RemoveAll(dir) }
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
				require.NoError(t, ds.checkpointManager.CreateCheckpoint("sb", constructPodSandboxCheckpoint(hostIPSandbox("", hostIP))))
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

// stockFiles are what a stock kubelet 1.12.10 writes for sandboxes with no, one and two ports,
// whatever their hostIP.
var stockFiles = []string{
	`{"version":"v1","name":"web","namespace":"ns","data":{},"checksum":815459779}`,
	`{"version":"v1","name":"web","namespace":"ns","data":{"port_mappings":[{"protocol":"tcp","container_port":80,"host_port":8080}]},"checksum":3670715548}`,
	`{"version":"v1","name":"web","namespace":"ns","data":{"port_mappings":[{"protocol":"tcp","container_port":80,"host_port":8080},{"protocol":"udp","container_port":81,"host_port":8081}]},"checksum":2515114724}`,
}

// TestHoldfastHostPortHostIPFile: the file without host IPs has stock's bytes, and with them one
// more key and stock's checksum. What stock wrote is read.
func TestHoldfastHostPortHostIPFile(t *testing.T) {
	for n, stock := range stockFiles {
		for _, on := range []bool{true, false} {
			for _, hostIP := range []string{"", "0.0.0.0", "10.0.0.7"} {
				func() {
					defer hostIPGate(t, on)()
					ds, path, done := overDisk(t)
					defer done()
					require.NoError(t, ioutil.WriteFile(path, []byte(stock), 0644))
					m, err := ds.GetPodPortMappings("sb")
					require.NoError(t, err)
					assert.Len(t, m, n)

					ips := []string{hostIP, hostIP}[:n]
					require.NoError(t, ds.checkpointManager.CreateCheckpoint("sb", constructPodSandboxCheckpoint(hostIPSandbox(ips...))))
					b, err := ioutil.ReadFile(path)
					require.NoError(t, err)
					want := stock
					if on && hostIP == "10.0.0.7" && n > 0 {
						want = strings.Replace(stock, `]},"checksum"`, `],"holdfast_host_ips":["`+strings.Join(ips, `","`)+`"]},"checksum"`, 1)
						assert.NotEqual(t, stock, want)
					}
					assert.Equal(t, want, string(b), "%d ports, gate %v, hostIP %q", n, on, hostIP)
					_, err = ds.GetPodPortMappings("sb")
					assert.NoError(t, err)
				}()
			}
		}
	}
}

// TestHoldfastHostPortHostIPRead: what is on disk is believed as little as the pod.
func TestHoldfastHostPortHostIPRead(t *testing.T) {
	defer hostIPGate(t, true)()
	for hostIP, want := range map[string]string{`"127.0.0.1"`: "127.0.0.1", `"; rm"`: "", `""`: "", `null`: "", ``: "", `"127.0.0.1","127.0.0.1"`: ""} {
		ds, path, done := overDisk(t)
		defer done()
		require.NoError(t, ds.checkpointManager.CreateCheckpoint("sb", constructPodSandboxCheckpoint(hostIPSandbox("10.0.0.7"))))
		b, err := ioutil.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, ioutil.WriteFile(path, []byte(strings.Replace(string(b), `"10.0.0.7"`, hostIP, 1)), 0644))
		m, err := ds.GetPodPortMappings("sb")
		require.NoError(t, err, hostIP)
		require.Len(t, m, 1)
		assert.Equal(t, want, m[0].HostIP, hostIP)
	}
}

// TestHoldfastHostPortHostIPCorrupt: the checksum still covers the ports.
func TestHoldfastHostPortHostIPCorrupt(t *testing.T) {
	defer hostIPGate(t, true)()
	ds, path, done := overDisk(t)
	defer done()
	require.NoError(t, ds.checkpointManager.CreateCheckpoint("sb", constructPodSandboxCheckpoint(hostIPSandbox("10.0.0.7"))))
	b, err := ioutil.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, ioutil.WriteFile(path, []byte(strings.Replace(string(b), "8080", "8081", 1)), 0644))
	_, err = ds.GetPodPortMappings("sb")
	assert.Error(t, err)
}

// TestHoldfastHostPortHostIPHooks: RunPodSandbox records the hostIP before the network is
// made, from which the plug-in asks for it.
func TestHoldfastHostPortHostIPHooks(t *testing.T) {
	defer hostIPGate(t, true)()
	ds, _, _ := newTestDockerService()
	resp, err := ds.RunPodSandbox(context.Background(), &runtimeapi.RunPodSandboxRequest{Config: hostIPSandbox("127.0.0.1")})
	require.NoError(t, err)
	m, err := ds.GetPodPortMappings(resp.PodSandboxId)
	require.NoError(t, err)
	require.Len(t, m, 1)
	assert.Equal(t, "127.0.0.1", m[0].HostIP)
}
