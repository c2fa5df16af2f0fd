// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"time"

	"github.com/golang/glog"
	cadvisorapi "github.com/google/cadvisor/info/v1"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/predecessor"
	"k8s.io/kubernetes/pkg/version"
)

// predecessorWait bounds how long the start of the kubelet waits for the Node. Static
// pods, the API server itself perhaps, start after it. It is a variable for tests.
var predecessorWait = 2 * time.Second

const (
	// predecessorTries bounds the reads after that, one each predecessorRetry.
	// Then the node status is left to do it.
	predecessorTries = 120
	predecessorRetry = time.Second
)

// nodeRead is the answer to a read of the Node. No Node is an answer too.
type nodeRead struct {
	node *v1.Node
	err  error
}

// earlyNodeRead gets the answer to the read that ReadPredecessorNode began. It is
// nil if there is none, as in a kubelet whose clients the caller made.
var earlyNodeRead chan nodeRead

// ReadPredecessorNode begins to read the Node. The kubelet calls it as soon as it
// has a client, so that the answer is there when learnPredecessor wants it: until
// then this kubelet writes nothing to the Node.
func ReadPredecessorNode(client heartbeatClient, name types.NodeName) {
	read := make(chan nodeRead, 1)
	earlyNodeRead = read
	go func() { read <- readNode(nodesOf(client), name) }()
}

func readNode(client v1core.NodesGetter, name types.NodeName) nodeRead {
	// Not from the API server's cache, which can be older than our last write.
	node, err := client.Nodes().Get(string(name), metav1.GetOptions{})
	return nodeRead{node, err}
}

// learnPredecessor finds out which kubelet was here before this one, before this
// one writes anything that should depend on it. If the API server does not answer
// in time, what an earlier process saved has to do, and the read goes on.
func (kl *Kubelet) learnPredecessor(machine *cadvisorapi.MachineInfo) {
	// One for all that follows: what goes on beside the start is of this one.
	known := predecessor.Default
	known.Start(predecessor.Config{
		RootDirectory: kl.rootDirectory,
		Identity: predecessor.Identity{
			NodeName:   string(kl.nodeName),
			MachineID:  machine.MachineID,
			SystemUUID: machine.SystemUUID,
		},
		Version: version.Get().GitVersion,
	})
	defer known.Report()
	if kl.heartbeatClient == nil {
		return
	}
	client := nodesOf(kl.heartbeatClient)
	early := earlyNodeRead
	earlyNodeRead = nil
	tried := make(chan struct{})
	go func() {
		if early != nil {
			observePredecessor(known, <-early)
		}
		if !known.Observed() {
			observePredecessor(known, readNode(client, kl.nodeName))
		}
		close(tried)
		for i := 1; i < predecessorTries && !known.Observed(); i++ {
			time.Sleep(predecessorRetry)
			observePredecessor(known, readNode(client, kl.nodeName))
		}
	}()
	select {
	case <-tried:
	case <-time.After(predecessorWait):
	}
}

func observePredecessor(known *predecessor.Predecessor, read nodeRead) {
	switch {
	case read.err == nil:
		known.Observe(read.node)
	case apierrors.IsNotFound(read.err):
		known.Observe(nil)
	default:
		glog.V(2).Infof("Cannot read yet which kubelet was here before: %v", read.err)
	}
}
