// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeapi"
)

// api is what the agent asks the API server.
type api struct {
	client *kubeapi.Client
	// namespace has the lock, node is this node's name.
	namespace, node string
}

const (
	askTimeout = 10 * time.Second
	maxAnswer  = 4 << 20
)

// The keys of the lock's data. No holder: it is free.
const (
	keyHolder  = "holder" // the node's name
	keyTarget  = "target"
	keyAttempt = "attempt"
	keySince   = "since" // RFC 3339
)

// lockObject is a ConfigMap with all of its fields that this program knows: what is read is written
// back as it was, with another data.
type lockObject struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   json.RawMessage   `json:"metadata"`
	Data       map[string]string `json:"data,omitempty"`
}

func (a *api) lockPath() string {
	return "/api/v1/namespaces/" + a.namespace + "/configmaps/" + lockName
}

func (a *api) readLock(ctx context.Context) (*lockObject, error) {
	b, err := a.client.Ask(ctx, http.MethodGet, a.lockPath(), "", maxAnswer, askTimeout)
	if err != nil {
		return nil, err
	}
	l := &lockObject{}
	if err := json.Unmarshal(b, l); err != nil || l.Metadata == nil {
		return nil, fmt.Errorf("the ConfigMap %s is not what the manifests have: apply them again", lockName)
	}
	return l, nil
}

// write replaces the lock if nobody has changed it since it was read, and tells whether it did.
// The metadata that was read has the resourceVersion that the API server compares.
func (a *api) write(ctx context.Context, l *lockObject) (bool, error) {
	body, err := json.Marshal(l)
	if err != nil {
		return false, err
	}
	_, err = a.client.Ask(ctx, http.MethodPut, a.lockPath(), string(body), maxAnswer, askTimeout)
	var status *kubeapi.StatusError
	if errors.As(err, &status) && status.Code == http.StatusConflict {
		return false, nil
	}
	return err == nil, err
}

// take takes the lock of the fleet, which is this node's until release. holder says who has it if
// this node has not.
func (a *api) take(ctx context.Context, t target) (mine bool, holder string, err error) {
	l, err := a.readLock(ctx)
	if err != nil {
		return false, "", err
	}
	switch l.Data[keyHolder] {
	case a.node:
		return true, "", nil
	case "":
	default:
		return false, finding.Clean(fmt.Sprintf("%s has it since %s for %s, attempt %s", l.Data[keyHolder], l.Data[keySince], l.Data[keyTarget], l.Data[keyAttempt])), nil
	}
	if l.Data == nil {
		l.Data = map[string]string{}
	}
	l.Data[keyHolder], l.Data[keySince] = a.node, time.Now().UTC().Format(time.RFC3339)
	l.Data[keyTarget], l.Data[keyAttempt] = t.name, fmt.Sprint(t.attempt)
	mine, err = a.write(ctx, l)
	return mine, "another node was faster", err
}

// release frees the lock if it is this node's. It is not an error if it is another's.
func (a *api) release(ctx context.Context) error {
	l, err := a.readLock(ctx)
	if err != nil || l.Data[keyHolder] != a.node {
		return err
	}
	for _, k := range []string{keyHolder, keyTarget, keyAttempt, keySince} {
		delete(l.Data, k)
	}
	done, err := a.write(ctx, l)
	if err == nil && !done {
		err = fmt.Errorf("the ConfigMap %s was changed meanwhile", lockName)
	}
	return err
}

// tooOld tells why the API server is too old for a kubelet of a release, "v1.9.11+holdfast.2". "": it
// is not.
func (a *api) tooOld(ctx context.Context, kubelet string) (why string, err error) {
	b, err := a.client.Ask(ctx, http.MethodGet, "/version", "", maxAnswer, askTimeout)
	if err != nil {
		return "", err
	}
	var v struct{ GitVersion string }
	if err := json.Unmarshal(b, &v); err != nil {
		return "", fmt.Errorf("/version: %w", err)
	}
	var server, node int
	if _, err := fmt.Sscanf(v.GitVersion, "v1.%d.", &server); err != nil {
		return "", fmt.Errorf("/version names no release of Kubernetes: %q", finding.Clean(v.GitVersion))
	}
	if _, err := fmt.Sscanf(kubelet, "v1.%d.", &node); err != nil {
		return "", fmt.Errorf("%q is no release of Kubernetes", finding.Clean(kubelet))
	}
	if node > server {
		return fmt.Sprintf("a kubelet of 1.%d is newer than the API server, 1.%d: upgrade the control plane first", node, server), nil
	}
	return "", nil
}

// ready tells why the node is not Ready by a heartbeat that is younger than the kubelet's start, in
// seconds since 1970. "": it is. Both times are of the node's own clock.
func (a *api) ready(ctx context.Context, started int64) (why string, err error) {
	b, err := a.client.Ask(ctx, http.MethodGet, "/api/v1/nodes/"+a.node, "", maxAnswer, askTimeout)
	if err != nil {
		return "", err
	}
	var n struct {
		Status struct {
			Conditions []struct {
				Type, Status, Reason, Message string
				LastHeartbeatTime             time.Time
			}
		}
	}
	if err := json.Unmarshal(b, &n); err != nil {
		return "", fmt.Errorf("the Node %s: %w", a.node, err)
	}
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type != "Ready":
		case c.LastHeartbeatTime.Unix() <= started:
			return "the Node has no heartbeat since the kubelet's start", nil
		case c.Status != "True":
			return finding.Clean(fmt.Sprintf("the Node is not Ready: %s %s", c.Reason, c.Message)), nil
		default:
			return "", nil
		}
	}
	return "the Node has no condition Ready", nil
}
