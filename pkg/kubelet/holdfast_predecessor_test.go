// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"io/ioutil"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/kubelet/predecessor"
)

// nodeServer is an API server with one Node, or none. It notes each request.
type nodeServer struct {
	*httptest.Server
	sync.Mutex
	version  string        // of the kubelet that wrote the Node, "" for no Node
	hang     chan struct{} // if not nil, reads wait until it is closed
	requests []string
}

func newNodeServer(version string) *nodeServer {
	s := &nodeServer{version: version}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		query := req.URL.Query()
		query.Del("timeout") // newer clients say it
		s.Lock()
		s.requests = append(s.requests, req.Method+" "+query.Encode())
		hang, version := s.hang, s.version
		s.Unlock()
		if hang != nil {
			<-hang
		}
		w.Header().Set("Content-Type", "application/json")
		var answer interface{} = &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
		if version != "" {
			answer = &v1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: testKubeletHostname},
				Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{KubeletVersion: version, MachineID: "m"}}}
		} else {
			w.WriteHeader(http.StatusNotFound)
		}
		json.NewEncoder(w).Encode(answer)
	}))
	return s
}

func (s *nodeServer) seen() []string {
	s.Lock()
	defer s.Unlock()
	return append([]string{}, s.requests...)
}

// predecessorKubelet is a kubelet with its own root directory and this server. Its start
// waits for the answer however long that takes: a machine under load is slow.
func predecessorKubelet(t *testing.T, s *nodeServer) (*Kubelet, func()) {
	tk := newTestKubelet(t, false /* controllerAttachDetachEnabled */)
	kl := tk.kubelet
	dir, err := ioutil.TempDir("", "predecessor")
	require.NoError(t, err)
	kl.rootDirectory = dir
	kl.heartbeatClient = nil
	if s != nil {
		client, err := newHeartbeatClient(&rest.Config{Host: s.URL, QPS: -1, Timeout: 10 * time.Second})
		require.NoError(t, err)
		kl.heartbeatClient = client
	}
	predecessor.Default = predecessor.New()
	wait := predecessorWait
	predecessorWait = time.Minute
	return kl, func() {
		predecessorWait = wait
		predecessor.Default = predecessor.New()
		os.RemoveAll(dir)
		tk.Cleanup()
	}
}

func knownRelease() string {
	if r, ok := predecessor.Default.Release(); ok {
		return r.String()
	}
	return ""
}

var testMachine = &cadvisorapi.MachineInfo{MachineID: "m"}

// TestLearnPredecessor: the version is known when the kubelet goes on to start,
// and after a restart without an API server.
func TestLearnPredecessor(t *testing.T) {
	s := newNodeServer("v1.8.15")
	defer s.Close()
	kl, cleanup := predecessorKubelet(t, s)
	defer cleanup()
	kl.learnPredecessor(testMachine)
	assert.Equal(t, "1.8.15", knownRelease())
	assert.Equal(t, []string{"GET "}, s.seen(), "one read, not from the cache")

	predecessor.Default = predecessor.New()
	kl.heartbeatClient = nil
	kl.learnPredecessor(testMachine)
	assert.Equal(t, "1.8.15", knownRelease(), "standalone")

	predecessor.Default = predecessor.New()
	kl.learnPredecessor(&cadvisorapi.MachineInfo{MachineID: "another"})
	assert.Equal(t, "", knownRelease(), "a cloned root directory")
}

func TestLearnPredecessorNoNode(t *testing.T) {
	s := newNodeServer("")
	defer s.Close()
	kl, cleanup := predecessorKubelet(t, s)
	defer cleanup()
	kl.learnPredecessor(testMachine)
	assert.True(t, predecessor.Default.Observed(), "there is no Node, and that is an answer")
	assert.Equal(t, "", knownRelease())
}

// TestLearnPredecessorAPIAway: a silent API server delays the start by
// predecessorWait and no more, and is heard when it speaks.
func TestLearnPredecessorAPIAway(t *testing.T) {
	s := newNodeServer("v1.7.0")
	defer s.Close()
	s.hang = make(chan struct{})
	wait := predecessorWait
	assert.Equal(t, 2*time.Second, wait)
	kl, cleanup := predecessorKubelet(t, s)
	defer cleanup()
	predecessorWait = wait
	began := time.Now()
	kl.learnPredecessor(testMachine)
	took := time.Since(began)
	assert.True(t, took >= predecessorWait && took < predecessorWait+5*time.Second, "took %v", took)
	assert.Equal(t, "", knownRelease())
	close(s.hang)
	for i := 0; i < 100 && knownRelease() == ""; i++ {
		time.Sleep(100 * time.Millisecond)
	}
	assert.Equal(t, "1.7.0", knownRelease())
}

// TestReadPredecessorNode: a read that began before the Kubelet was made is the one
// that counts, and no other is made unless it failed. A silent API server delays
// the start as it does without it.
func TestReadPredecessorNode(t *testing.T) {
	s := newNodeServer("v1.8.15")
	defer s.Close()
	kl, cleanup := predecessorKubelet(t, s)
	defer cleanup()
	ReadPredecessorNode(kl.heartbeatClient, kl.nodeName)
	for i := 0; i < 100 && len(s.seen()) == 0; i++ {
		time.Sleep(100 * time.Millisecond)
	}
	kl.learnPredecessor(testMachine)
	assert.Equal(t, "1.8.15", knownRelease())
	assert.Equal(t, []string{"GET "}, s.seen(), "one read, not from the cache")

	predecessor.Default = predecessor.New()
	kl.learnPredecessor(testMachine)
	assert.Len(t, s.seen(), 2, "an early read counts once")

	predecessor.Default = predecessor.New()
	nobody, err := newHeartbeatClient(&rest.Config{Host: "http://127.0.0.1:1"})
	require.NoError(t, err)
	ReadPredecessorNode(nobody, kl.nodeName)
	kl.learnPredecessor(testMachine)
	assert.True(t, predecessor.Default.Observed())
	assert.Len(t, s.seen(), 3, "it failed, so the Node is read again at once")

	predecessor.Default = predecessor.New()
	s.Lock()
	s.hang = make(chan struct{})
	s.Unlock()
	predecessorWait = 500 * time.Millisecond
	ReadPredecessorNode(kl.heartbeatClient, kl.nodeName)
	began := time.Now()
	kl.learnPredecessor(testMachine)
	took := time.Since(began)
	assert.True(t, took >= predecessorWait && took < predecessorWait+5*time.Second, "took %v", took)
	assert.False(t, predecessor.Default.Observed())
	close(s.hang)
	for i := 0; i < 100 && !predecessor.Default.Observed(); i++ {
		time.Sleep(100 * time.Millisecond)
	}
	assert.True(t, predecessor.Default.Observed())
	assert.Len(t, s.seen(), 4)
}

// TestLearnPredecessorOwn: what goes on beside the start notes in its own predecessor what it
// reads, not in that of a kubelet made later.
func TestLearnPredecessorOwn(t *testing.T) {
	s := newNodeServer("v1.7.0")
	defer s.Close()
	s.hang = make(chan struct{})
	kl, cleanup := predecessorKubelet(t, s)
	defer cleanup()
	predecessorWait = 100 * time.Millisecond
	own := predecessor.Default
	kl.learnPredecessor(testMachine)
	predecessor.Default = predecessor.New()
	predecessor.Default.Start(predecessor.Config{RootDirectory: kl.rootDirectory})
	close(s.hang)
	for i := 0; i < 1000 && !own.Observed(); i++ {
		time.Sleep(10 * time.Millisecond)
	}
	assert.True(t, own.Observed())
	assert.False(t, predecessor.Default.Observed())
}

// TestPredecessorBeforeNodeStatus: a process that has not seen the Node yet reads
// it past the API server's cache before it writes its status, and takes the
// version from it; later reads are as upstream's.
func TestPredecessorBeforeNodeStatus(t *testing.T) {
	s := newNodeServer("v1.8.15")
	defer s.Close()
	kl, cleanup := predecessorKubelet(t, s)
	defer cleanup()
	kl.setNodeStatusFuncs = []func(*v1.Node) error{func(n *v1.Node) error {
		assert.Equal(t, "1.8.15", knownRelease(), "not known before the status is made")
		n.Status.NodeInfo.KubeletVersion = "v1.9.11+holdfast.1"
		return nil
	}}
	predecessor.Default.Start(predecessor.Config{RootDirectory: kl.rootDirectory, Identity: predecessor.Identity{NodeName: testKubeletHostname, MachineID: "m"}})
	require.NoError(t, kl.tryUpdateNodeStatus(0))
	require.NoError(t, kl.tryUpdateNodeStatus(0))
	seen := s.seen()
	if assert.Len(t, seen, 4) {
		assert.Equal(t, "GET ", seen[0])
		assert.True(t, strings.HasPrefix(seen[1], "PATCH "), seen[1])
		assert.Equal(t, "GET resourceVersion=0", seen[2])
	}
	b, err := ioutil.ReadFile(filepath.Join(kl.rootDirectory, predecessor.RecordFile))
	require.NoError(t, err)
	assert.Contains(t, string(b), `"kubeletVersion": "v1.8.15"`)
}

// TestPredecessorIsLearnt: NewMainKubelet, which needs a whole node, learns the predecessor before
// it makes the runtime manager, and the kubelet's command begins to read the Node.
func TestPredecessorIsLearnt(t *testing.T) {
	source, err := ioutil.ReadFile("kubelet.go")
	require.NoError(t, err)
	at := func(text string) int { return strings.Index(string(source), text) }
	main, learn := at("\nfunc NewMainKubelet("), at("\n\tklet.learnPredecessor(machineInfo)\n")
	docker, manager := at("dockershim.NewDockerService("), at("kuberuntime.NewKubeGenericRuntimeManager(")
	assert.True(t, 0 < main && main < learn && learn < docker && docker < manager, "%d, %d, %d, %d", main, learn, docker, manager)
	source, err = ioutil.ReadFile("../../cmd/kubelet/app/server.go")
	require.NoError(t, err)
	client, read := at("heartbeatClient, err = "), at("\tkubelet.ReadPredecessorNode(heartbeatClient, nodeName)\n")
	assert.True(t, 0 < client && client < read, "%d, %d", client, read)
}
