// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplatehash

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"holdfast/cmd/internal/dump"
)

// templateHashLabel is the label that a ReplicaSet's template has beside those of
// its Deployment's.
const templateHashLabel = "pod-template-hash"

// Template returns the pod template in a Deployment, ReplicaSet or DaemonSet. An object without
// a kind is one of these, or a PodTemplateSpec itself. A ReplicaSet's template has a label that
// its Deployment's, which is what is hashed, has not; it is taken away.
func Template(o map[string]any) (map[string]any, error) {
	kind, _ := o["kind"].(string)
	switch kind {
	case "", "Deployment", "ReplicaSet", "DaemonSet":
	case "Pod":
		return nil, errors.New("a Pod has none of its own: its labels have the hash of the template that it was made from, to which admission has added since; give its Deployment, ReplicaSet or DaemonSet")
	default:
		return nil, fmt.Errorf("a %s: only Deployments, ReplicaSets and DaemonSets have a hash of their template", kind)
	}
	spec, ok := o["spec"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("spec: missing, or not an object")
	}
	t, ok := spec["template"].(map[string]any)
	if !ok {
		if kind != "" {
			return nil, errors.New("spec.template: missing, or not an object")
		}
		if _, isSpec := spec["containers"].([]any); !isSpec {
			return nil, errors.New("spec: has neither template nor containers; give a Deployment or a pod template")
		}
		return o, nil
	}
	if kind == "ReplicaSet" {
		return withoutHashLabel(t), nil
	}
	return t, nil
}

// hashing are those of releases in which objects of a kind have a hash.
func hashing(kind string, releases []*Release) ([]*Release, error) {
	if kind != "DaemonSet" {
		return releases, nil
	}
	var out []*Release
	for _, r := range releases {
		if r.Counts {
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no hash: a DaemonSet has none before 1.7")
	}
	return out, nil
}

// noHash says why objects of a kind have no hash of their template in any
// release; "" if they have.
func noHash(kind string) string {
	switch kind {
	case "StatefulSet":
		return "a StatefulSet has none: from 1.7 on its pods have the label controller-revision-hash, which is a checksum of the serialised revision and not of the template's dump"
	case "Job", "CronJob", "ReplicationController":
		return "a " + kind + " has none: only Deployments, and DaemonSets from 1.7 on, hash their template"
	}
	return ""
}

func withoutHashLabel(template map[string]any) map[string]any {
	metadata, _ := template["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	if _, ok := labels[templateHashLabel]; !ok {
		return template
	}
	template, metadata, labels = clone(template), clone(metadata), clone(labels)
	delete(labels, templateHashLabel)
	metadata["labels"], template["metadata"] = labels, metadata
	return template
}

// Missing lists the fields that an API server of r always fills in and that
// template lacks, as paths. If there are any, the hash is not the controller's.
func (r *Release) Missing(template map[string]any) []string {
	var missing []string
	want := func(o map[string]any, path string, names ...string) {
		for _, n := range names {
			if _, ok := o[n]; !ok {
				missing = append(missing, path+"."+n)
			}
		}
	}
	spec, _ := template["spec"].(map[string]any)
	want(spec, "spec", "restartPolicy", "terminationGracePeriodSeconds", "dnsPolicy", "securityContext")
	if !r.internal {
		want(spec, "spec", "schedulerName")
	}
	for _, list := range []string{"initContainers", "containers"} {
		items, _ := spec[list].([]any)
		for i, item := range items {
			c, _ := item.(map[string]any)
			path := fmt.Sprintf("spec.%s[%d]", list, i)
			want(c, path, "terminationMessagePath", "imagePullPolicy", "resources")
			if !r.internal {
				want(c, path, "terminationMessagePolicy")
			}
		}
	}
	return missing
}

// Dump is the text that r's controllers hash for template.
func (r *Release) Dump(template map[string]any) ([]byte, error) {
	node, err := r.types()
	if err != nil {
		return nil, err
	}
	if r.internal {
		if err := r.initContainers(template); err != nil {
			return nil, err
		}
		template = toInternal(template)
	}
	text, err := node.Spew(template, r.layout)
	if err != nil {
		return nil, fmt.Errorf("Kubernetes %s: %w", r.Name, err)
	}
	return text, nil
}

// initContainers refuses what 1.3 to 1.5 turn into fields of the internal type.
func (r *Release) initContainers(template map[string]any) error {
	metadata, _ := template["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	for _, a := range []string{"pod.alpha.kubernetes.io/init-containers", "pod.beta.kubernetes.io/init-containers"} {
		if _, ok := annotations[a]; ok && r.Name != "1.2" {
			return fmt.Errorf("Kubernetes %s: metadata.annotations: %s becomes a field there, and its dump is not known", r.Name, a)
		}
	}
	return nil
}

// toInternal does what the conversion of a v1 pod spec of 1.2 to 1.5 to the internal
// type does beyond copying fields of the same name.
func toInternal(template map[string]any) map[string]any {
	t := clone(template)
	spec, ok := t["spec"].(map[string]any)
	if !ok {
		return t
	}
	spec = clone(spec)
	t["spec"] = spec
	sc, _ := spec["securityContext"].(map[string]any)
	sc = clone(sc)
	for _, f := range []string{"hostNetwork", "hostPID", "hostIPC"} {
		if v, ok := spec[f]; ok {
			sc[f] = v
		}
	}
	spec["securityContext"] = sc
	if name, _ := spec["serviceAccountName"].(string); name == "" && spec["serviceAccount"] != nil {
		spec["serviceAccountName"] = spec["serviceAccount"]
	}
	return t
}

// clone copies one level; nil becomes an empty map.
func clone(m map[string]any) map[string]any {
	c := make(map[string]any, len(m)+1)
	maps.Copy(c, m)
	return c
}

// WrongCase are the fields of a pod template, or a Pod, that the release knows in another spelling of
// capital letters only: "spec.hostnetwork".
func (r *Release) WrongCase(template map[string]any) ([]string, error) {
	types, err := r.types()
	if err != nil {
		return nil, err
	}
	_, stray := types.Unknown(types, template)
	data, err := schemas.ReadFile("schema/" + r.Name + ".json")
	if err != nil {
		return nil, err
	}
	var table struct{ Types map[string]dump.Type }
	if err := json.Unmarshal(data, &table); err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, t := range table.Types {
		for _, f := range t.Fields {
			known[strings.ToLower(f.JSON)] = true
		}
	}
	return slices.DeleteFunc(stray, func(path string) bool {
		return !known[strings.ToLower(path[strings.LastIndexByte(path, '.')+1:])]
	}), nil
}
