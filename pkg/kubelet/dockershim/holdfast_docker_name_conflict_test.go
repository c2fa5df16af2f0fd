// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockershim

import (
	"fmt"
	"strings"
	"testing"

	dockertypes "github.com/docker/docker/api/types"
	dockercontainer "github.com/docker/docker/api/types/container"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/dockershim/libdocker"
)

const (
	unquotedConflict = `Error response from daemon: Conflict. The name "/%s" is already in use by container %s. You have to remove (or rename) that container to be able to reuse that name.`
	quotedConflict   = `Error response from daemon: Conflict. The container name "/%s" is already in use by container "%s". You have to remove (or rename) that container to be able to reuse that name.`
)

// namingDocker is a docker that refuses a name which a container has, in the words of one
// of its releases.
type namingDocker struct {
	*libdocker.FakeDockerClient
	conflict string
	// hidden has docker's containers by their names, as far as it does not list them.
	hidden map[string]*hiddenContainer
	// created has the names asked for.
	created []string
}

type hiddenContainer struct {
	id      string
	running bool
	// gone: docker keeps the name, and knows no container of that ID.
	gone bool
}

func (d *namingDocker) CreateContainer(c dockertypes.ContainerCreateConfig) (*dockercontainer.ContainerCreateCreatedBody, error) {
	d.created = append(d.created, c.Name)
	if h := d.hidden[c.Name]; h != nil {
		return nil, fmt.Errorf(d.conflict, c.Name, h.id)
	}
	return d.FakeDockerClient.CreateContainer(c)
}

func (d *namingDocker) RemoveContainer(id string, opts dockertypes.ContainerRemoveOptions) error {
	for name, h := range d.hidden {
		switch {
		case h.id != id:
		case h.gone:
			return fmt.Errorf("Error response from daemon: No such container: %s", id)
		case h.running && !opts.Force:
			return fmt.Errorf("Error response from daemon: You cannot remove a running container %s. Stop the container before attempting removal or force remove", id)
		default:
			delete(d.hidden, name)
			return nil
		}
	}
	return d.FakeDockerClient.RemoveContainer(id, opts)
}

// TestHoldfastDockerNameConflict: a pod's sandbox, whose name a container has that docker
// does not list. The kubelet tries again as it would: what a dead container has is free at
// the second try, and what a running one has never is.
func TestHoldfastDockerNameConflict(t *testing.T) {
	id := strings.Repeat("223f81c54de6b6ad", 4)
	for name, test := range map[string]struct {
		conflict string
		off      bool
		hidden   hiddenContainer
		// starts: the try that succeeds, 0 for none of the three.
		starts int
		kept   bool
	}{
		"docker 1.11":                         {conflict: unquotedConflict, starts: 2},
		"docker 1.11, gate off":               {conflict: unquotedConflict, off: true, starts: 2},
		"docker 1.11, running":                {conflict: unquotedConflict, hidden: hiddenContainer{running: true}, kept: true},
		"docker 17.04":                        {conflict: quotedConflict, starts: 2},
		"docker 17.04, gate off":              {conflict: quotedConflict, off: true, kept: true},
		"docker 17.04, running":               {conflict: quotedConflict, hidden: hiddenContainer{running: true}, kept: true},
		"docker 17.04, only the name is left": {conflict: quotedConflict, hidden: hiddenContainer{gone: true}, starts: 1, kept: true},
		"another conflict": {
			conflict: `Error response from daemon: Conflict. The name "/%s" waits for "%s"`, kept: true},
	} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DockerNameConflictQuotedID, !test.off)()
			ds, fake, _ := newTestDockerServiceWithVersionCache()
			config := makeSandboxConfig("pod", "ns", "uid", 0)
			sandbox := makeSandboxName(config)
			test.hidden.id = id
			docker := &namingDocker{FakeDockerClient: fake, conflict: test.conflict, hidden: map[string]*hiddenContainer{sandbox: &test.hidden}}
			ds.client = docker

			starts := 0
			for try := 1; try <= 3 && starts == 0; try++ {
				if err := runPodSandbox(ds, config); err == nil {
					starts = try
				} else if !strings.Contains(err.Error(), id) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if starts != test.starts {
				t.Errorf("%s: the sandbox starts at try %d, want %d", name, starts, test.starts)
			}
			if _, kept := docker.hidden[sandbox]; kept != test.kept {
				t.Errorf("%s: the container with the name is kept: %v", name, kept)
			}
			last := docker.created[len(docker.created)-1]
			if random := last != sandbox; random != test.hidden.gone {
				t.Errorf("%s: the last name is %s", name, last)
			}
		}()
	}
}

// What is no conflict of a name removes nothing.
func TestHoldfastMatchConflict(t *testing.T) {
	for _, message := range []string{
		"",
		"Error: image app:latest not found",
		`Conflict. The container name "/k8s_a" is already in use by container "".`,
		`Conflict. The container name "/k8s_a" is already in use by container "k8s_b".`,
		`Conflict. The container name "/k8s_a" is already in use by container "` + strings.Repeat("a", 65) + `".`,
	} {
		if m := matchConflict(message); m != nil {
			t.Errorf("%q: %q", message, m)
		}
	}
	if m := matchConflict(fmt.Sprintf(quotedConflict, "k8s_a", "0123abc")); len(m) != 2 || m[1] != "0123abc" {
		t.Errorf("%q", m)
	}
}
