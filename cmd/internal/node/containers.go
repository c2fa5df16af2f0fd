// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// container is a running container of a pod, by docker's labels.
type container struct {
	UID       string `json:"uid"` // of the pod
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Name      string `json:"name"`
	ID        string `json:"id"`
	Static    bool   `json:"static,omitempty"`
}

func (c container) String() string { return c.Namespace + "/" + c.Pod + " " + c.Name }

// The labels of the kubelets from 1.7 to 1.9.
const (
	labelUID       = "io.kubernetes.pod.uid"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelPod       = "io.kubernetes.pod.name"
	labelName      = "io.kubernetes.container.name"
	labelType      = "io.kubernetes.docker.type" // container or podsandbox
	labelSource    = "annotation.kubernetes.io/config.source"
)

// running lists the containers that run, without sandboxes. Of docker's answer nothing else than
// names and IDs is kept.
func running(ctx context.Context, h *Host, socket string) ([]container, error) {
	b, err := h.Get(ctx, socket, "http://docker/containers/json?filters="+url.QueryEscape(`{"label":["`+labelUID+`"]}`))
	if err != nil {
		return nil, fmt.Errorf("docker at %s: %w", socket, err)
	}
	var list []struct {
		ID     string `json:"Id"`
		Labels map[string]string
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("docker at %s: its answer is not a list of containers", socket)
	}
	static := map[string]bool{}
	var out []container
	for _, c := range list {
		l := c.Labels
		if src := l[labelSource]; src == "file" || src == "http" {
			static[l[labelUID]] = true
		}
		if l[labelUID] != "" && l[labelType] != "podsandbox" && l[labelName] != "POD" {
			out = append(out, container{UID: l[labelUID], Namespace: l[labelNamespace], Pod: l[labelPod], Name: l[labelName], ID: c.ID})
		}
	}
	for i := range out {
		out[i].Static = static[out[i].UID]
	}
	slices.SortFunc(out, func(a, b container) int {
		return strings.Compare(a.UID+" "+a.Name+" "+a.ID, b.UID+" "+b.Name+" "+b.ID)
	})
	return out, nil
}

// dockerRoot is where docker keeps its images.
func dockerRoot(ctx context.Context, h *Host, socket string) (string, error) {
	b, err := h.Get(ctx, socket, "http://docker/info")
	if err != nil {
		return "", fmt.Errorf("docker at %s: %w", socket, err)
	}
	var info struct{ DockerRootDir string }
	if err := json.Unmarshal(b, &info); err != nil || info.DockerRootDir == "" {
		return "", fmt.Errorf("docker at %s does not say where its images are", socket)
	}
	return info.DockerRootDir, nil
}

// change is what became of the containers of a node.
type change struct {
	Kept                            int
	Recreated, Restarted, New, Gone []container
}

// compare tells by pod UID and name of the container. A static pod's UID changes with the
// release: its container is the one of the same names.
func compare(before, after []container) change {
	var c change
	key := func(x container) string { return x.UID + " " + x.Name }
	is := map[string][]container{}
	for _, a := range after {
		is[key(a)] = append(is[key(a)], a)
	}
	was := map[string]bool{}
	var gone []container
	for _, b := range before {
		was[key(b)] = true
		switch now := is[key(b)]; {
		case len(now) == 0:
			gone = append(gone, b)
		case slices.ContainsFunc(now, func(x container) bool { return x.ID == b.ID }):
			c.Kept++
		default:
			c.Recreated = append(c.Recreated, b)
		}
	}
	for _, a := range after {
		if was[key(a)] {
			continue
		}
		i := slices.IndexFunc(gone, func(g container) bool { return g.Static && a.Static && g.String() == a.String() })
		if i >= 0 {
			c.Restarted = append(c.Restarted, a)
			gone = slices.Delete(gone, i, i+1)
			continue
		}
		c.New = append(c.New, a)
	}
	c.Gone = gone
	return c
}

// String is one line: "kept 112, recreated 1 (default/x app), new 3, gone 2".
func (c change) String() string {
	s := fmt.Sprintf("kept %d, recreated %d%s", c.Kept, len(c.Recreated), names(c.Recreated))
	if len(c.Restarted) > 0 {
		s += fmt.Sprintf(", static %d%s", len(c.Restarted), names(c.Restarted))
	}
	return s + fmt.Sprintf(", new %d, gone %d", len(c.New), len(c.Gone))
}

// names are at most five containers in brackets.
func names(list []container) string {
	if len(list) == 0 {
		return ""
	}
	var out []string
	for _, c := range list[:min(len(list), 5)] {
		out = append(out, c.String())
	}
	if n := len(list) - len(out); n > 0 {
		out = append(out, fmt.Sprintf("%d more", n))
	}
	return " (" + strings.Join(out, ", ") + ")"
}
