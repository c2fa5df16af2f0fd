// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockershim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/ioutil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	runtimeapi "k8s.io/kubernetes/pkg/kubelet/apis/cri/v1alpha1/runtime"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/network"
	"k8s.io/kubernetes/pkg/kubelet/network/hostport"
	"k8s.io/kubernetes/pkg/kubelet/predecessor"
)

const checkpointGoldens = "testdata/checkpoint-compat"

// setGates sets feature gates ("CheckpointCompat=false,…") and returns what puts
// both back to their default.
func setGates(t *testing.T, gates string) func() {
	require.NoError(t, utilfeature.DefaultFeatureGate.Set(gates))
	return func() {
		require.NoError(t, utilfeature.DefaultFeatureGate.Set("CheckpointCompat=true,LegacyCheckpointWrite=true"))
	}
}

// goldenCheckpoints returns the files that the named release wrote, by sandbox ID.
func goldenCheckpoints(t *testing.T, version string) map[string][]byte {
	files, err := filepath.Glob(filepath.Join(checkpointGoldens, version, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files, version)
	golden := map[string][]byte{}
	for _, f := range files {
		b, err := ioutil.ReadFile(f)
		require.NoError(t, err)
		golden[strings.TrimSuffix(filepath.Base(f), ".json")] = b
	}
	return golden
}

// newHandlerOver makes the handler as the kubelet does at start, over a
// directory with the given files.
func newHandlerOver(t *testing.T, files map[string][]byte) (*PersistentCheckpointHandler, string) {
	root, err := ioutil.TempDir("", "dockershim")
	require.NoError(t, err)
	dir := filepath.Join(root, sandboxCheckpointDir)
	require.NoError(t, os.Mkdir(dir, 0755))
	for id, b := range files {
		require.NoError(t, ioutil.WriteFile(filepath.Join(dir, id), b, 0644))
	}
	return restartHandler(t, root), root
}

func restartHandler(t *testing.T, root string) *PersistentCheckpointHandler {
	h, err := NewPersistentCheckpointHandler(root)
	require.NoError(t, err)
	return h.(*PersistentCheckpointHandler)
}

// cameFrom sets the kubelet that was here before, "" for not known, and returns
// what puts it back.
func cameFrom(version string) func() {
	predecessor.Default = predecessor.New()
	if version != "" {
		predecessor.Default = predecessor.NewKnown(version)
	}
	return func() { predecessor.Default = predecessor.New() }
}

func readCheckpointFile(t *testing.T, root, id string) []byte {
	b, err := ioutil.ReadFile(filepath.Join(root, sandboxCheckpointDir, id))
	require.NoError(t, err)
	return b
}

func kindOf(t *testing.T, root, id string) checkpointKind {
	kind, _ := classifyCheckpoint(readCheckpointFile(t, root, id))
	return kind
}

// expected is what the files of one ID say, whoever wrote them.
var expectedPorts = map[string][]string{
	"noports":     {},
	"hostnetwork": {},
	"oneport":     {"tcp 80 8080"},
	"twoports":    {"tcp 80 80", "tcp 443 443"},
	"udp":         {"udp 53 10053", "tcp 53 0"},
}

func ports(c *PodSandboxCheckpoint) []string {
	out := []string{}
	for _, m := range c.Data.PortMappings {
		out = append(out, fmt.Sprintf("%s %d %d", *m.Protocol, *m.ContainerPort, *m.HostPort))
	}
	return out
}

// TestHoldfastCheckpointCompatAccepts reads what the real releases wrote, and
// what becomes of it at start.
func TestHoldfastCheckpointCompatAccepts(t *testing.T) {
	for _, tc := range []struct {
		before, gates string
		// expect is the kind of file that each release's become.
		expect map[string]checkpointKind
	}{
		{"v1.7.0", "LegacyCheckpointWrite=true", map[string]checkpointKind{"v1.7.0": checkpoint17, "v1.8.15": checkpointDual, "v1.9.11": checkpointDual, "written-by-us": checkpointDual}},
		{"v1.7.0", "LegacyCheckpointWrite=false", map[string]checkpointKind{}},
		{"v1.8.15", "LegacyCheckpointWrite=true", map[string]checkpointKind{}},
		{"v1.9.11", "LegacyCheckpointWrite=true", map[string]checkpointKind{}},
		{"none", "LegacyCheckpointWrite=true", map[string]checkpointKind{}},
		// Not known: nothing is rewritten.
		{"", "LegacyCheckpointWrite=true", map[string]checkpointKind{"v1.7.0": checkpoint17, "written-by-us": checkpointDual}},
		{"", "LegacyCheckpointWrite=false", map[string]checkpointKind{}},
	} {
		for _, version := range []string{"v1.7.0", "v1.8.15", "v1.9.11", "written-by-us"} {
			what := fmt.Sprintf("%s from %q with %s", version, tc.before, tc.gates)
			expect, ok := tc.expect[version]
			if !ok {
				expect = checkpointNative
			}
			restoreGates, restore := setGates(t, tc.gates), cameFrom(tc.before)
			golden := goldenCheckpoints(t, version)
			handler, root := newHandlerOver(t, golden)
			times := map[string]os.FileInfo{}
			for round := 0; round < 2; round++ { // the second reads what the first rewrote
				for id := range golden {
					c, err := handler.GetCheckpoint(id)
					require.NoError(t, err, "%s %s round %d", what, id, round)
					assert.Equal(t, expectedPorts[id], ports(c))
					assert.Equal(t, "ns1", c.Namespace)
					assert.Equal(t, id == "hostnetwork", c.Data.HostNetwork)
					assert.Equal(t, calculateChecksum(*c), c.CheckSum)
					f, err := os.Stat(filepath.Join(root, sandboxCheckpointDir, id))
					require.NoError(t, err)
					if round > 0 {
						assert.True(t, os.SameFile(times[id], f), "%s %s: written again though nothing changed", what, id)
					}
					times[id] = f
				}
				handler = restartHandler(t, root)
			}
			for id, b := range golden {
				assert.Equal(t, expect, kindOf(t, root, id), "%s %s", what, id)
				original, _ := classifyCheckpoint(b)
				switch now := string(readCheckpointFile(t, root, id)); {
				case original == expect:
					assert.Equal(t, string(b), now, "%s %s: a file that needs nothing was touched", what, id)
				case expect == checkpointNative:
					assert.Equal(t, string(goldenCheckpoints(t, "v1.9.11")[id]), now, "%s %s: not what 1.9.11 writes", what, id)
				case expect == checkpointDual:
					assert.Equal(t, string(goldenCheckpoints(t, "written-by-us")[id]), now, "%s %s: not what we write for 1.7", what, id)
				}
			}
			restoreGates()
			restore()
			os.RemoveAll(root)
		}
	}
}

// TestHoldfastCheckpointCompatGateOff holds that stock behaviour is left alone.
func TestHoldfastCheckpointCompatGateOff(t *testing.T) {
	defer setGates(t, "CheckpointCompat=false")()
	handler, root := newHandlerOver(t, goldenCheckpoints(t, "v1.7.0"))
	defer os.RemoveAll(root)
	before := counterValue(t, checkpointsWouldAccept)
	_, err := handler.GetCheckpoint("oneport")
	assert.EqualError(t, err, "checkpoint is corrupted")
	_, err = os.Stat(filepath.Join(root, sandboxCheckpointDir, "oneport"))
	assert.True(t, os.IsNotExist(err), "stock removes it")
	assert.Equal(t, before+1, counterValue(t, checkpointsWouldAccept))
	require.NoError(t, handler.CreateCheckpoint("new", NewPodSandboxCheckpoint("ns", "n")))
	assert.Equal(t, checkpointNative, kindOf(t, root, "new"))
	assert.Equal(t, checkpoint17, kindOf(t, root, "udp"), "a file was rewritten")
}

// TestHoldfastCheckpointCompatGateOffOrder: what was written for 1.7 is lost if CheckpointCompat
// is switched off at once, and stays after a start with LegacyCheckpointWrite=false.
func TestHoldfastCheckpointCompatGateOffOrder(t *testing.T) {
	defer cameFrom("v1.7.0")()
	defer setGates(t, "CheckpointCompat=true,LegacyCheckpointWrite=true")()
	for _, between := range []bool{false, true} {
		require.NoError(t, utilfeature.DefaultFeatureGate.Set("CheckpointCompat=true,LegacyCheckpointWrite=true"))
		handler, root := newHandlerOver(t, nil)
		defer os.RemoveAll(root)
		require.NoError(t, handler.CreateCheckpoint("ours", NewPodSandboxCheckpoint("ns", "n")))
		require.Equal(t, checkpointDual, kindOf(t, root, "ours"))
		if between {
			require.NoError(t, utilfeature.DefaultFeatureGate.Set("LegacyCheckpointWrite=false"))
			restartHandler(t, root)
		}
		require.NoError(t, utilfeature.DefaultFeatureGate.Set("CheckpointCompat=false,LegacyCheckpointWrite=true"))
		_, err := restartHandler(t, root).GetCheckpoint("ours")
		_, stat := os.Stat(filepath.Join(root, sandboxCheckpointDir, "ours"))
		if between {
			assert.NoError(t, err)
			assert.NoError(t, stat)
		} else {
			assert.EqualError(t, err, "checkpoint is corrupted")
			assert.True(t, os.IsNotExist(stat))
		}
	}
}

// TestHoldfastCheckpointCompatWritesForPredecessor: new checkpoints are readable
// for 1.7 where it, or an older one, was here before, and native elsewhere. What
// is found on disk counts only where nothing better is known.
func TestHoldfastCheckpointCompatWritesForPredecessor(t *testing.T) {
	defer cameFrom("")()
	for _, tc := range []struct {
		before, found, gates string
		expect               checkpointKind
	}{
		{"v1.7.0", "v1.7.0", "LegacyCheckpointWrite=true", checkpointDual},
		{"v1.7.0", "v1.7.0", "LegacyCheckpointWrite=false", checkpointNative},
		{"v1.7.0", "v1.7.0", "CheckpointCompat=false", checkpointNative},
		{"v1.7.0", "", "LegacyCheckpointWrite=true", checkpointDual}, // a drained node
		{"v1.7.0", "v1.9.11", "LegacyCheckpointWrite=true", checkpointDual},
		{"v1.6.13", "", "LegacyCheckpointWrite=true", checkpointDual},
		{"v1.8.15", "v1.8.15", "LegacyCheckpointWrite=true", checkpointNative},
		{"v1.9.11", "v1.9.11", "LegacyCheckpointWrite=true", checkpointNative},
		{"v1.9.11", "v1.7.0", "LegacyCheckpointWrite=true", checkpointNative}, // they outlived an upgrade
		{"none", "v1.7.0", "LegacyCheckpointWrite=true", checkpointNative},
		{"", "", "LegacyCheckpointWrite=true", checkpointNative},
		{"", "v1.9.11", "LegacyCheckpointWrite=true", checkpointNative},
		{"", "v1.7.0", "LegacyCheckpointWrite=true", checkpointDual},
		{"", "v1.7.0", "LegacyCheckpointWrite=false", checkpointNative},
	} {
		restoreGates := setGates(t, tc.gates)
		cameFrom(tc.before)
		files := map[string][]byte{}
		if tc.found != "" {
			files = goldenCheckpoints(t, tc.found)
		}
		handler, root := newHandlerOver(t, files)
		for round := 0; round < 2; round++ { // after a restart only ours are left
			c := NewPodSandboxCheckpoint("ns", "n")
			c.Data.HostNetwork = round == 1
			require.NoError(t, handler.CreateCheckpoint("new", c))
			assert.Equal(t, tc.expect, kindOf(t, root, "new"), "%+v round %d", tc, round)
			got, err := handler.GetCheckpoint("new")
			require.NoError(t, err)
			assert.Equal(t, *c, *got)
			for id := range files {
				require.NoError(t, handler.RemoveCheckpoint(id))
			}
			cameFrom(tc.before)
			handler = restartHandler(t, root)
		}
		restoreGates()
		os.RemoveAll(root)
	}
}

// TestHoldfastCheckpointCompatNewestDecides: one checkpoint of 1.7 that outlived
// an upgrade does not speak for 1.7.
func TestHoldfastCheckpointCompatNewestDecides(t *testing.T) {
	defer cameFrom("")()
	for _, newest := range []string{"old", "new"} {
		cameFrom("")
		root, err := ioutil.TempDir("", "dockershim")
		require.NoError(t, err)
		dir := filepath.Join(root, sandboxCheckpointDir)
		require.NoError(t, os.Mkdir(dir, 0755))
		for name, version := range map[string]string{"old": "v1.7.0", "new": "v1.9.11"} {
			require.NoError(t, ioutil.WriteFile(filepath.Join(dir, name), goldenCheckpoints(t, version)["oneport"], 0644))
			at := time.Now().Add(-time.Hour)
			if name == newest {
				at = at.Add(time.Minute)
			}
			require.NoError(t, os.Chtimes(filepath.Join(dir, name), at, at))
		}
		restartHandler(t, root)
		assert.Equal(t, newest == "old", writeDual(), "the newest is the %s one", newest)
		os.RemoveAll(root)
	}
}

// TestHoldfastCheckpointCompatKnownLater: the API server was away when the kubelet
// started, so that checkpoints were written as stock does. They become what the
// kubelet before accepts when it is known, and not only at the next start, which may
// be that kubelet's own.
func TestHoldfastCheckpointCompatKnownLater(t *testing.T) {
	defer cameFrom("")()
	rootDir, err := ioutil.TempDir("", "predecessor")
	require.NoError(t, err)
	defer os.RemoveAll(rootDir)
	node := func(version string) *v1.Node {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
		n.Status.NodeInfo.KubeletVersion = version
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, LastHeartbeatTime: metav1.Now()}}
		return n
	}
	kubeletStarts := func() {
		predecessor.Default = predecessor.New()
		predecessor.Default.Start(predecessor.Config{RootDirectory: rootDir, Identity: predecessor.Identity{NodeName: "node1"}, Version: "v1.9.11+holdfast.2"})
	}
	create := func(h *PersistentCheckpointHandler, id string) {
		c := NewPodSandboxCheckpoint("ns", "n")
		c.Data.HostNetwork = id == "early-host"
		require.NoError(t, h.CreateCheckpoint(id, c))
	}

	kubeletStarts()
	handler, root := newHandlerOver(t, nil)
	defer os.RemoveAll(root)
	create(handler, "early")
	create(handler, "early-host")
	create(handler, "early-removed")
	require.NoError(t, handler.RemoveCheckpoint("early-removed"))
	assert.Equal(t, checkpointNative, kindOf(t, root, "early"))
	predecessor.Default.Observe(node("v1.7.0"))
	create(handler, "late")
	for _, id := range []string{"early", "early-host", "late"} {
		assert.Equal(t, checkpointDual, kindOf(t, root, id), id)
		c, err := handler.GetCheckpoint(id)
		require.NoError(t, err)
		assert.Equal(t, id == "early-host", c.Data.HostNetwork, id)
	}
	ids, err := handler.ListCheckpoints()
	require.NoError(t, err)
	assert.Len(t, ids, 3, "a removed checkpoint came back")

	// The other way: stock 1.9.11 ran since, and the record is old.
	kubeletStarts()
	handler = restartHandler(t, root)
	assert.Equal(t, checkpointDual, kindOf(t, root, "early"))
	predecessor.Default.Observe(node("v1.9.11"))
	assert.Equal(t, checkpointNative, kindOf(t, root, "early"))

	// With the gate off nothing is looked at, then or later.
	defer setGates(t, "CheckpointCompat=false")()
	os.RemoveAll(rootDir)
	require.NoError(t, os.Mkdir(rootDir, 0755))
	kubeletStarts()
	handler = restartHandler(t, root)
	predecessor.Default.Observe(node("v1.7.0"))
	create(handler, "off")
	assert.Equal(t, checkpointNative, kindOf(t, root, "early"))
	assert.Equal(t, checkpointNative, kindOf(t, root, "off"))
}

// TestHoldfastCheckpointCompatKnownMeanwhile: a checkpoint that is written or
// removed in the very moment is neither missed nor made anew.
func TestHoldfastCheckpointCompatKnownMeanwhile(t *testing.T) {
	defer cameFrom("")()
	for round := 0; round < 20; round++ {
		rootDir, err := ioutil.TempDir("", "predecessor")
		require.NoError(t, err)
		predecessor.Default = predecessor.New()
		predecessor.Default.Start(predecessor.Config{RootDirectory: rootDir, Identity: predecessor.Identity{NodeName: "node1"}})
		handler, root := newHandlerOver(t, nil)
		for i := 0; i < 10; i++ {
			require.NoError(t, handler.CreateCheckpoint(fmt.Sprintf("old%d", i), NewPodSandboxCheckpoint("ns", "n")))
		}
		var wg sync.WaitGroup
		wg.Add(3)
		go func() {
			defer wg.Done()
			n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
			n.Status.NodeInfo.KubeletVersion = "v1.7.0"
			predecessor.Default.Observe(n)
		}()
		go func() {
			defer wg.Done()
			for i := 0; i < 10; i++ {
				assert.NoError(t, handler.CreateCheckpoint(fmt.Sprintf("new%d", i), NewPodSandboxCheckpoint("ns", "n")))
			}
		}()
		go func() {
			defer wg.Done()
			for i := 0; i < 10; i++ {
				assert.NoError(t, handler.RemoveCheckpoint(fmt.Sprintf("old%d", i)))
			}
		}()
		wg.Wait()
		ids, err := handler.ListCheckpoints()
		require.NoError(t, err)
		assert.Len(t, ids, 10)
		for _, id := range ids {
			assert.Equal(t, checkpointDual, kindOf(t, root, id), id)
		}
		os.RemoveAll(root)
		os.RemoveAll(rootDir)
	}
}

// TestHoldfastCheckpointCompatCorrupt changes each byte of each file and holds
// that nothing is accepted that says something else than the original.
func TestHoldfastCheckpointCompatCorrupt(t *testing.T) {
	files := goldenCheckpoints(t, "v1.7.0")
	for id, b := range goldenCheckpoints(t, "written-by-us") {
		files["ours"+id] = b
	}
	for id, b := range files {
		_, original := classifyCheckpoint(b)
		require.NotNil(t, original, id)
		for i := range b {
			for _, flip := range []byte{0x01, 0x02, 0x20, 0x80} {
				broken := append([]byte{}, b...)
				broken[i] ^= flip
				if kind, c := classifyCheckpoint(broken); kind != checkpointCorrupt {
					// Only spelling: upper case in a key, or a key that no release reads.
					assert.Equal(t, *original, *c, "%s byte %d: %s", id, i, broken)
				}
			}
		}
	}
	for what, blob := range map[string]string{
		"host_network under a 1.7 checksum":  strings.Replace(string(files["noports"]), `"data":{}`, `"data":{"host_network":true}`, 1),
		"no data":                            fmt.Sprintf(`{"version":"v1","name":"n","namespace":"s","checksum":%d}`, checksum17(&PodSandboxCheckpoint{Version: "v1", Name: "n", Namespace: "s"})+1),
		"a mapping that is null":             withChecksum17(t, `{"version":"v1","name":"n","namespace":"s","data":{"port_mappings":[null]}}`),
		"a mapping without a protocol":       withChecksum17(t, `{"version":"v1","name":"n","namespace":"s","data":{"port_mappings":[{"container_port":1,"host_port":1}]}}`),
		"not JSON":                           "{",
		"empty":                              "",
		"dual whose native checksum is null": strings.Replace(string(files["ourshostnetwork"]), "holdfast_native_checksum", "other", 1),
	} {
		kind, _ := classifyCheckpoint([]byte(blob))
		assert.Equal(t, checkpointCorrupt, kind, what)

		// As upstream: GetCheckpoint fails and removes the file; start leaves it.
		handler, root := newHandlerOver(t, map[string][]byte{"x": []byte(blob)})
		assert.Equal(t, blob, string(readCheckpointFile(t, root, "x")), what)
		_, err := handler.GetCheckpoint("x")
		assert.Error(t, err, what)
		_, err = os.Stat(filepath.Join(root, sandboxCheckpointDir, "x"))
		assert.True(t, os.IsNotExist(err), what)
		os.RemoveAll(root)
	}
}

func withChecksum17(t *testing.T, s string) string {
	var c PodSandboxCheckpoint
	require.NoError(t, json.Unmarshal([]byte(s), &c))
	return strings.TrimSuffix(s, "}") + fmt.Sprintf(`,"checksum":%d}`, checksum17(&c))
}

// portsPlugin is a network plugin that, like CNI, needs a sandbox's port mappings
// to take it down.
type portsPlugin struct {
	network.NoopNetworkPlugin
	ds   *dockerService
	seen [][]*hostport.PortMapping
}

func (p *portsPlugin) Name() string { return "ports" }

func (p *portsPlugin) TearDownPod(namespace, name string, id kubecontainer.ContainerID) error {
	m, err := p.ds.GetPodPortMappings(id.ID)
	if err == nil {
		p.seen = append(p.seen, m)
	}
	return err
}

// TestHoldfastCheckpointCompatStopPodSandbox: the sandbox of a 1.7 kubelet is
// stopped by the first call, and its host port is known to the network plugin,
// with and without its container.
func TestHoldfastCheckpointCompatStopPodSandbox(t *testing.T) {
	for _, containerGone := range []bool{false, true} {
		ds, fakeDocker, _ := newTestDockerService()
		plugin := &portsPlugin{ds: ds}
		ds.network = network.NewPluginManager(plugin)
		config := makeSandboxConfigWithLabelsAndAnnotations("sandbox-oneport", "ns1", "0", 0, nil, nil)
		config.PortMappings = []*runtimeapi.PortMapping{{Protocol: runtimeapi.Protocol_TCP, ContainerPort: 80, HostPort: 8080}}
		id, err := ds.RunPodSandbox(config)
		require.NoError(t, err)
		require.NoError(t, ds.checkpointHandler.(*PersistentCheckpointHandler).store.Write(id, goldenCheckpoints(t, "v1.7.0")["oneport"]))
		ds.clearNetworkReady(id) // a kubelet that has just started
		if containerGone {
			fakeDocker.InjectError("inspect_container", fmt.Errorf("No such container: %s", id))
			fakeDocker.InjectError("stop", fmt.Errorf("No such container: %s", id))
		}
		assert.NoError(t, ds.StopPodSandbox(id), "container gone: %v", containerGone)
		if assert.Len(t, plugin.seen, 1) && assert.Len(t, plugin.seen[0], 1) {
			assert.Equal(t, int32(8080), plugin.seen[0][0].HostPort)
		}
	}
}

// TestHoldfastCheckpointCompatListPodSandbox: a sandbox that only its 1.7
// checkpoint remembers is listed, so that it is cleaned up by its name.
func TestHoldfastCheckpointCompatListPodSandbox(t *testing.T) {
	ds, _, _ := newTestDockerService()
	require.NoError(t, ds.checkpointHandler.(*PersistentCheckpointHandler).store.Write("gone", goldenCheckpoints(t, "v1.7.0")["oneport"]))
	list, err := ds.ListPodSandbox(nil)
	require.NoError(t, err)
	if assert.Len(t, list, 1) {
		assert.Equal(t, "sandbox-oneport", list[0].Metadata.Name)
	}
}

// TestHoldfastCheckpointCompatWrittenByUs holds the bytes that the old kubelets
// are asked about. To change them on purpose, delete the folder and run it with
// HOLDFAST_UPDATE_GOLDEN=1.
func TestHoldfastCheckpointCompatWrittenByUs(t *testing.T) {
	dir := filepath.Join(checkpointGoldens, "written-by-us")
	for id, b := range goldenCheckpoints(t, "v1.9.11") {
		_, c := classifyCheckpoint(b)
		blob, err := encodeCheckpoint(c, true)
		require.NoError(t, err)
		file := filepath.Join(dir, id+".json")
		if os.Getenv("HOLDFAST_UPDATE_GOLDEN") != "" {
			require.NoError(t, os.MkdirAll(dir, 0755))
			require.NoError(t, ioutil.WriteFile(file, blob, 0644))
		}
		golden, err := ioutil.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, string(golden), string(blob))
	}
}

// TestHoldfastCheckpointCompatReadByOldKubelets asks the real code of the old
// releases what they make of our files. It needs their modules in the cache.
func TestHoldfastCheckpointCompatReadByOldKubelets(t *testing.T) {
	dir, err := filepath.Abs(filepath.Join(checkpointGoldens, "written-by-us"))
	require.NoError(t, err)
	for version, accepts := range map[string]bool{"v1.7.0": true, "v1.8.15": false, "v1.9.11": false} {
		cmd := exec.Command("go", "mod", "download", "k8s.io/kubernetes@"+version)
		cmd.Dir, cmd.Env = "/", append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("module of %s is not in the cache: %s", version, out)
		}
		var stderr bytes.Buffer
		cmd = exec.Command(filepath.Join(checkpointGoldens, "regenerate.sh"), version, "read", dir)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		require.NoError(t, err, "%s", stderr.String())
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		assert.Len(t, lines, len(expectedPorts))
		for _, line := range lines {
			assert.Equal(t, accepts, strings.Contains(line, " accepted: ns1/sandbox-"), "%s: %s", version, line)
		}
	}
}

func BenchmarkHoldfastCheckpointCompat(b *testing.B) {
	for _, version := range []string{"v1.9.11", "v1.7.0"} {
		blob, err := ioutil.ReadFile(filepath.Join(checkpointGoldens, version, "twoports.json"))
		require.NoError(b, err)
		b.Run(version, func(b *testing.B) {
			handler := &PersistentCheckpointHandler{store: NewTestPersistentCheckpointHandler().(*PersistentCheckpointHandler).store}
			handler.store.Write("x", blob)
			for i := 0; i < b.N; i++ {
				if _, err := handler.GetCheckpoint("x"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func counterValue(t *testing.T, c prometheus.Counter) float64 {
	var m dto.Metric
	require.NoError(t, c.Write(&m))
	return m.GetCounter().GetValue()
}

// TestHoldfastCheckpointCompatNoCommonChecksum shows why there is no file that
// 1.7 and 1.9 both accept. The two dumps differ only by the text that is hashed
// in the middle, below; every step of FNV-1a is a permutation of its 32-bit
// state, so the checksums are equal only if hashing that text brings some state
// back to itself. It never does. The 2^32 states take minutes:
// HOLDFAST_EXHAUSTIVE=1.
func TestHoldfastCheckpointCompatNoCommonChecksum(t *testing.T) {
	const prime = 16777619
	step := func(h uint32, s string) uint32 {
		for i := 0; i < len(s); i++ {
			h = (h ^ uint32(s[i])) * prime
		}
		return h
	}
	for _, hostNetwork := range []bool{false, true} {
		text := fmt.Sprintf(" HostNetwork:(bool)%v", hostNetwork)
		// The two checksums are as this says, with nothing but the text between them.
		c := NewPodSandboxCheckpoint("ns", "n")
		c.Data.HostNetwork = hostNetwork
		before := "(dockershim.PodSandboxCheckpoint){Version:(string)v1 Name:(string)n Namespace:(string)ns " +
			"Data:(*dockershim.CheckpointData){PortMappings:([]*dockershim.PortMapping)<nil>"
		after := "} CheckSum:(uint64)0}"
		state := step(2166136261, before)
		require.Equal(t, checksum17(c), uint64(step(state, after)))
		require.Equal(t, calculateChecksum(*c), uint64(step(step(state, text), after)))

		if os.Getenv("HOLDFAST_EXHAUSTIVE") == "" {
			continue
		}
		for h := uint64(0); h < 1<<32; h++ {
			if step(uint32(h), text) == uint32(h) {
				t.Errorf("%q brings state %d back: a common checksum is possible", text, h)
			}
		}
	}
}
