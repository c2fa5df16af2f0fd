// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"holdfast/cmd/internal/kubeapi"
)

// pod is what is read of a pod. What a container's spec has (environment, arguments) is kept for
// its hash only, and dropped with it: nothing prints a spec.
type pod struct {
	Metadata struct {
		Name, Namespace, UID string
		Annotations          map[string]string
	}
	Spec struct {
		NodeName       string
		NodeSelector   map[string]string
		Affinity       *affinity
		InitContainers []map[string]any
		Containers     []map[string]any
		Volumes        []volume
		HostNetwork    bool
		GracePeriod    *int64 `json:"terminationGracePeriodSeconds"`
	}
	Status struct {
		Phase             string
		ContainerStatuses []struct {
			Name, Image string
			State       struct {
				Running *struct{ StartedAt string }
			}
		}
	}

	// whole: Spec has all that the API server knows, see whole.
	whole bool
}

type affinity struct {
	NodeAffinity *struct {
		Required *struct {
			NodeSelectorTerms []term
		} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
	}
}

type term struct{ MatchExpressions []expression }

type expression struct {
	Key, Operator string
	Values        []string
}

type volume struct {
	Name    string
	Claim   *struct{ ClaimName string } `json:"persistentVolumeClaim"`
	GitRepo *struct{ Repository, Revision, Directory string }
	source
}

// source is what is looked at of a volume's or a PersistentVolume's kind.
type source struct{ RBD, Glusterfs, FlexVolume *struct{} }

// persistentVolume is what is read of one.
type persistentVolume struct {
	Spec struct {
		source
		ClaimRef *struct{ Namespace, Name string }
	}
}

func (p *pod) name() string { return p.Metadata.Namespace + "/" + p.Metadata.Name }

func (p *pod) ended() bool { return p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" }

// The annotations by which a kubelet knows where a pod comes from, and which pod of the API stands
// for a static one.
const (
	sourceAnnotation = "kubernetes.io/config.source"
	mirrorAnnotation = "kubernetes.io/config.mirror"
)

// whole gives pods, as their kubelet tells them, the specs that the API server has: a kubelet leaves
// out what its release does not know. A static pod's is the kubelet's own.
func whole(pods, ofAPI []*pod) {
	specs := map[string]*pod{}
	for _, p := range ofAPI {
		p.whole = true
		specs[p.Metadata.UID] = p
	}
	for _, p := range pods {
		if p.static() {
			p.whole = true
		} else if q := specs[p.Metadata.UID]; q != nil && q != p {
			p.Spec, p.whole = q.Spec, true
		}
	}
}

// static tells whether the pod comes from a file or URL on the node.
func (p *pod) static() bool {
	a := p.Metadata.Annotations
	return a[sourceAnnotation] != "" && a[sourceAnnotation] != "api" || a[mirrorAnnotation] != ""
}

// uid is what the kubelet and its containers have as the pod's UID: a mirror pod's own is another.
func (p *pod) uid() string {
	if m := p.Metadata.Annotations[mirrorAnnotation]; m != "" {
		return m
	}
	return p.Metadata.UID
}

// ownUID: the manifest of a static pod sets the UID itself. Else it is an MD5 sum in hexadecimal of
// a dump of the release's internal type.
func (p *pod) ownUID() bool {
	u := p.uid()
	return len(u) != 32 || strings.Trim(u, "0123456789abcdef") != ""
}

// running tells whether the status says so of a container.
func (p *pod) running(container string) (image string, ok bool) {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == container {
			return s.Image, s.State.Running != nil
		}
	}
	return "", false
}

// mount is a volumeMount with a subPath.
type mount struct{ container, volume string }

func (p *pod) subPaths() []mount {
	var out []mount
	for _, list := range [][]map[string]any{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range list {
			mounts, _ := c["volumeMounts"].([]any)
			for _, m := range mounts {
				m, _ := m.(map[string]any)
				if s, _ := m["subPath"].(string); s != "" {
					v, _ := m["name"].(string)
					out = append(out, mount{text(c, "name"), v})
				}
			}
		}
	}
	return out
}

func (p *pod) onClaim(volume string) bool {
	for _, v := range p.Spec.Volumes {
		if v.Name == volume {
			return v.Claim != nil
		}
	}
	return false
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

func number(m map[string]any, key string, def int64) int64 {
	n, ok := m[key].(json.Number)
	if !ok {
		return def
	}
	i, err := strconv.ParseInt(n.String(), 10, 32)
	if err != nil || i < 0 {
		return def
	}
	return i
}

// readiness is a container's readiness probe, nil if it has none.
func readiness(c map[string]any) map[string]any {
	p, _ := c["readinessProbe"].(map[string]any)
	return p
}

// firstProbe is the longest time from a kubelet's start to the readiness that a working probe gives:
// upstream waits for a random part of the period before the first one (prober/worker.go).
func firstProbe(p map[string]any) time.Duration {
	period := max(number(p, "periodSeconds", 10), 1)
	return time.Duration(period*max(number(p, "successThreshold", 1), 1)+max(number(p, "timeoutSeconds", 1), 1)) * time.Second
}

// decodePods reads a list of pods.
func decodePods(data []byte) ([]*pod, error) {
	var list struct {
		Kind  string
		Items *[]*pod
	}
	if err := kubeapi.Decode(data, &list); err != nil {
		return nil, err
	}
	// A kubelet without pods answers "items": null.
	if list.Kind != "PodList" && list.Items == nil {
		return nil, fmt.Errorf("the answer is not a list of pods")
	}
	out := []*pod{}
	if list.Items != nil {
		for _, p := range *list.Items {
			if p != nil && p.Metadata.Name != "" {
				out = append(out, p)
			}
		}
	}
	return out, nil
}
