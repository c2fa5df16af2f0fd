// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/cmd/internal/kubeapi"
)

// What is kept of each object is what a check needs: no environment, argument or annotation of a
// template, of which only a sum remains.

func (c *cluster) takeNode(raw json.RawMessage) error {
	var o struct {
		Metadata meta
		Status   struct {
			Conditions []condition
			NodeInfo   struct{ KubeletVersion string }
		}
	}
	if err := kubeapi.Decode(raw, &o); err != nil {
		return err
	}
	n := node{name: o.Metadata.Name}
	n.kubelet, n.known = parseRelease(o.Status.NodeInfo.KubeletVersion)
	for _, cond := range o.Status.Conditions {
		if cond.Type == "Ready" {
			n.ready, n.since = cond.Status, cond.LastTransitionTime
		}
	}
	c.nodes = append(c.nodes, n)
	return nil
}

func (c *cluster) takeService(raw json.RawMessage) error {
	var o struct {
		Metadata meta
		Spec     struct {
			Selector  map[string]string
			ClusterIP string
			Unready   bool `json:"publishNotReadyAddresses"`
			Ports     []struct {
				Protocol   string
				TargetPort any
			}
		}
	}
	if err := kubeapi.Decode(raw, &o); err != nil {
		return err
	}
	if len(o.Spec.Selector) == 0 {
		return nil
	}
	tolerates, _ := strconv.ParseBool(o.Metadata.Annotations["service.alpha.kubernetes.io/tolerate-unready-endpoints"])
	s := service{id: o.Metadata.id(), namespace: o.Metadata.Namespace, selector: o.Spec.Selector, headless: o.Spec.ClusterIP == "None", unready: o.Spec.Unready || tolerates}
	for _, p := range o.Spec.Ports {
		name, _ := p.TargetPort.(string)
		s.ports = append(s.ports, port{name, p.Protocol})
	}
	for k := range o.Spec.Selector {
		c.keys[k] = true
	}
	c.services = append(c.services, s)
	return nil
}

// managerName is how pods of the controller manager are called.
var managerName = regexp.MustCompile(`^kube-controller-manager(-|$)`)

func (c *cluster) takePod(raw json.RawMessage) error {
	var o struct {
		Metadata meta
		Spec     struct {
			NodeName string
			Volumes  []struct{ RBD *struct{} }

			Containers []struct {
				Command, Args []string
				Ports         []struct{ Name, Protocol string }
			}
		}
		Status struct {
			Phase, PodIP string
			Conditions   []condition
		}
	}
	if err := kubeapi.Decode(raw, &o); err != nil {
		return err
	}
	c.podCount++
	for _, v := range o.Spec.Volumes {
		if v.RBD != nil {
			c.rbd++
		}
	}
	if o.Status.Phase == "Succeeded" || o.Status.Phase == "Failed" {
		return nil
	}
	m := &o.Metadata
	p := pod{name: m.Name, uid: m.UID, ip: o.Status.PodIP, node: o.Spec.NodeName, deleting: m.DeletionTimestamp != nil}
	for _, cond := range o.Status.Conditions {
		if cond.Type == "Ready" {
			p.ready, p.since = cond.Status == "True", cond.LastTransitionTime
		}
	}
	for k, v := range m.Labels {
		if c.keys[k] {
			if p.labels == nil {
				p.labels = map[string]string{}
			}
			p.labels[k] = v
		}
	}
	for _, s := range o.Spec.Containers {
		for _, x := range s.Ports {
			if x.Name != "" {
				p.ports = append(p.ports, x.Name+"/"+x.Protocol)
			}
		}
	}
	if m.Namespace == "kube-system" && !p.deleting && (m.Labels["component"] == "kube-controller-manager" || m.Labels["k8s-app"] == "kube-controller-manager" || managerName.MatchString(m.Name)) {
		x := manager{pod: m.Name, port: "10252", gates: map[string]bool{}}
		for _, s := range o.Spec.Containers {
			for _, arg := range slices.Concat(s.Command, s.Args) {
				x.argument(arg)
			}
		}
		c.managers = append(c.managers, x)
	}
	c.pods[m.Namespace] = append(c.pods[m.Namespace], p)
	return nil
}

var portForm = regexp.MustCompile(`^[0-9]{1,5}$`)

// argument takes what matters of the controller manager's command line. A command line that is one
// string for a shell is cut at spaces.
func (m *manager) argument(arg string) {
	for word := range strings.FieldsSeq(arg) {
		name, value, _ := strings.Cut(word, "=")
		switch strings.ReplaceAll(name, "_", "-") {
		case "--port":
			if portForm.MatchString(value) {
				m.port = value
			}
		case "--feature-gates":
			for g := range strings.SplitSeq(value, ",") {
				gate, set, _ := strings.Cut(g, "=")
				if _, ours := gates[gate]; ours {
					m.gates[gate] = strings.EqualFold(set, "true")
				}
			}
		}
	}
}

const leaderAnnotation = "control-plane.alpha.kubernetes.io/leader"

func (c *cluster) takeEndpoints(raw json.RawMessage) error {
	o, err := decodeEndpoints(raw)
	if err != nil {
		return err
	}
	m := &o.Metadata
	e := endpoints{rules: m.Annotations["holdfast/rules"] != "", ready: o.ready()}
	c.endpoints[m.id()] = e
	if text := m.Annotations[leaderAnnotation]; m.Namespace == "kube-system" && (m.Name == "kube-controller-manager" || m.Name == "kube-scheduler") && text != "" {
		var record struct {
			HolderIdentity string
			RenewTime      time.Time
		}
		if json.Unmarshal([]byte(text), &record) == nil && !record.RenewTime.IsZero() {
			c.leases = append(c.leases, lease{m.Name, record.HolderIdentity, record.RenewTime})
		}
	}
	return nil
}

type endpointsObject struct {
	Metadata meta
	Subsets  []struct {
		Addresses []struct {
			IP        string
			TargetRef *struct{ Kind, Name, UID string }
		}
	}
}

func decodeEndpoints(raw []byte) (*endpointsObject, error) {
	o := &endpointsObject{}
	return o, kubeapi.Decode(raw, o)
}

// ready are the ready addresses, each once.
func (o *endpointsObject) ready() []address {
	seen := map[address]bool{}
	for _, s := range o.Subsets {
		for _, a := range s.Addresses {
			x := address{ip: a.IP}
			if r := a.TargetRef; r != nil && r.Kind == "Pod" {
				x.pod, x.uid = r.Name, r.UID
			}
			seen[x] = true
		}
	}
	return slices.Collect(maps.Keys(seen))
}

func (c *cluster) takeVolume(raw json.RawMessage) error {
	var o struct{ Spec struct{ RBD *struct{} } }
	err := kubeapi.Decode(raw, &o)
	if o.Spec.RBD != nil {
		c.rbd++
	}
	return err
}

// workloadObject is a Deployment, ReplicaSet or DaemonSet.
type workloadObject struct {
	Metadata meta
	Spec     struct {
		Paused   bool
		Template map[string]any
	}
	Status struct {
		ObservedGeneration int64
		CollisionCount     *int64
	}
}

// workload takes an object, with the name that its next one would get if names says so: that takes
// most of the time.
func (c *cluster) workload(raw json.RawMessage, names func(uid string) bool) (workload, error) {
	var o workloadObject
	if err := kubeapi.Decode(raw, &o); err != nil {
		return workload{}, err
	}
	m := &o.Metadata
	w := workload{name: m.Name, namespace: m.Namespace, uid: m.UID, owner: m.controller(), deleting: m.DeletionTimestamp != nil,
		seen: o.Status.ObservedGeneration >= m.Generation && !o.Spec.Paused}
	if names(m.UID) {
		w.wants = c.wants(m.Name, o.Spec.Template, o.Status.CollisionCount)
	}
	w.template = sumOf(o.Spec.Template)
	return w, nil
}

func (c *cluster) takeDeployment(raw json.RawMessage) error {
	w, err := c.workload(raw, func(uid string) bool { return c.stuck[uid] })
	c.deployments = append(c.deployments, w)
	return err
}

func (c *cluster) takeReplicaSet(raw json.RawMessage) error {
	w, err := c.workload(raw, func(string) bool { return false })
	c.replicaSets = append(c.replicaSets, w)
	return err
}

func (c *cluster) takeDaemonSet(raw json.RawMessage) error {
	w, err := c.workload(raw, func(string) bool { return true })
	c.daemonSets = append(c.daemonSets, w)
	return err
}

func (c *cluster) takeStatefulSet(raw json.RawMessage) error {
	var o struct {
		Metadata meta
		Spec     struct {
			Replicas       *int64
			UpdateStrategy struct {
				Type          string
				RollingUpdate *struct{ Partition *int64 }
			}
		}
		Status struct{ CollisionCount int64 }
	}
	if err := kubeapi.Decode(raw, &o); err != nil {
		return err
	}
	m := &o.Metadata
	s := statefulSet{name: m.Name, namespace: m.Namespace, uid: m.UID, collisions: o.Status.CollisionCount, rolls: o.Spec.UpdateStrategy.Type != "OnDelete" && m.DeletionTimestamp == nil}
	replicas := int64(1)
	if o.Spec.Replicas != nil {
		replicas = *o.Spec.Replicas
	}
	if r := o.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil && *r.Partition >= replicas {
		s.rolls = false
	}
	c.sets = append(c.sets, s)
	return nil
}

func (c *cluster) takeRevision(raw json.RawMessage) error {
	var o struct {
		Metadata meta
		Revision int64
		Data     struct {
			Spec struct{ Template map[string]any }
		}
	}
	if err := kubeapi.Decode(raw, &o); err != nil {
		return err
	}
	m := &o.Metadata
	c.revisions = append(c.revisions, workload{name: m.Name, namespace: m.Namespace, uid: m.UID, owner: m.controller(), deleting: m.DeletionTimestamp != nil,
		template: sumOf(o.Data.Spec.Template), revision: o.Revision})
	return nil
}
