// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package clustersmoke

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
)

// served is what there was of the Deployment when it should have served Version.
type served struct {
	Version string
	Seconds float64
	// Observed: the status is of the newest generation.
	Observed                     bool
	Replicas, Updated, Available int64
	Images                       []string // of the pods' containers
	Ready, NotReady              []string // addresses in Endpoints
	Answers                      map[string]string
}

// notYet says what is missing, of what comes by and by.
func (o served) notYet() string {
	switch want := node.WebImage(o.Version); {
	case !o.Observed || o.Replicas != replicas || o.Updated != replicas || o.Available != replicas:
		return fmt.Sprintf("the Deployment is not rolled out: observed %t, %d replicas, %d updated, %d available", o.Observed, o.Replicas, o.Updated, o.Available)
	case len(o.Images) != replicas || slices.ContainsFunc(o.Images, func(i string) bool { return i != want }):
		return fmt.Sprintf("the pods have the images %q, want %d of %s", o.Images, replicas, want)
	case len(o.Ready) != replicas || len(o.NotReady) > 0:
		return fmt.Sprintf("Endpoints have ready %v, not ready %v", o.Ready, o.NotReady)
	}
	return ""
}

// fault says what is wrong, "" if nothing is.
func (o served) fault() string {
	if f := o.notYet(); f != "" {
		return f
	}
	hosts := map[string]bool{}
	for _, a := range o.Ready {
		got, host, _ := strings.Cut(o.Answers[a], " ")
		if got != o.Version {
			return fmt.Sprintf("address %s answers %q, want version %s", a, o.Answers[a], o.Version)
		}
		hosts[host] = true
	}
	if len(hosts) != replicas {
		return fmt.Sprintf("%d addresses answer from %d pods", len(o.Ready), len(hosts))
	}
	return ""
}

// reflectors are the names in the controller manager's metrics or log. client-go makes them
// of the source file that started a reflector (see the toolchain patch
// reflector-names).
type reflectors struct {
	Names   []string
	FromLog bool // "k8s.io/client-go/informers/factory.go:131"
}

// updated is a rolling update under load, by the ReplicaSets with replicas.
type updated struct {
	Load          load.Report
	Before, After []string
}

// reconnected is a restart of the API server beneath the others, by the IDs of the
// Deployment's containers.
type reconnected struct {
	Heartbeat     bool   // of the same kubelet, after it
	Died          string // which of controller manager and kubelet ended, "" if neither
	Before, After []string
}

type rolledBack struct {
	Status      int // of the answer to the rollback
	Body        string
	Image       string // that the Deployment then has
	ReplicaSets int
}

// restarted is a restart of controller manager and kubelet, by the IDs of the
// Deployment's containers.
type restarted struct {
	Round         int
	Heartbeat     bool // of the new kubelet
	Before, After []string
}

type deleted struct{ Left []string }

func judge(h *history.History) labkit.Outcome {
	var facts, wrong []string
	bad := func(format string, a ...any) { wrong = append(wrong, fmt.Sprintf(format, a...)) }
	var versions []string
	for _, o := range history.Of[served](h) {
		versions = append(versions, o.Version)
		if f := o.fault(); f != "" {
			bad("%s, within its time limit: %s", o.Version, f)
			continue
		}
		facts = append(facts, fmt.Sprintf("%s served by 3 pods after %.1f s", o.Version, o.Seconds))
	}
	for _, o := range history.Of[reflectors](h) {
		informers, all := "reflector_k8s_io_kubernetes_vendor_k8s_io_client_go_informers_factory_go_", "reflector_k8s_io_kubernetes_"
		if o.FromLog {
			informers, all = "k8s.io/client-go/informers/factory.go:", "k8s.io/"
		}
		found := false
		for _, n := range o.Names {
			found = found || strings.HasPrefix(n, informers)
			if !strings.HasPrefix(n, all) || strings.Contains(n, "@") {
				bad("a reflector has the name %s", n)
			}
		}
		if !found {
			bad("no reflector has a name that begins with %s", informers)
		}
	}
	for _, o := range history.Of[updated](h) {
		facts = append(facts, fmt.Sprintf("rolling update: %v", o.Load))
		if o.Load.OK+o.Load.Failed == 0 {
			return labkit.InconclusiveBecause("the load sent nothing")
		}
		if o.Load.Failed > 0 {
			bad("the rolling update lost requests: %v", o.Load)
		}
		if len(o.Before) != 1 || len(o.After) != 1 || o.Before[0] == o.After[0] {
			bad("ReplicaSets with replicas: %v before the update, %v after it", o.Before, o.After)
		}
	}
	for _, o := range history.Of[rolledBack](h) {
		if o.Status/100 != 2 {
			bad("rollback answers %d: %s", o.Status, o.Body)
		}
		if want := node.WebImage("v1"); o.Image != want {
			bad("after the rollback the Deployment has image %s, want %s", o.Image, want)
		}
		if o.ReplicaSets != 2 {
			bad("%d ReplicaSets after the rollback, want 2", o.ReplicaSets)
		}
	}
	// kept finds the containers that a restart cost.
	kept := func(restart string, before, after []string) {
		if len(before) != replicas {
			bad("%s: %d containers of the Deployment ran before it, want %d", restart, len(before), replicas)
		}
		for _, id := range before {
			if !slices.Contains(after, id) {
				bad("%s: container %.12s did not survive it", restart, id)
			}
		}
	}
	for _, o := range history.Of[reconnected](h) {
		const restart = "restart of the API server"
		if !o.Heartbeat {
			bad("%s: no heartbeat of the kubelet after it", restart)
		}
		if o.Died != "" {
			bad("%s: %s", restart, o.Died)
		}
		kept(restart, o.Before, o.After)
	}
	for _, o := range history.Of[restarted](h) {
		restart := fmt.Sprintf("restart %d", o.Round)
		if !o.Heartbeat {
			bad("%s: no heartbeat of the new kubelet", restart)
		}
		kept(restart, o.Before, o.After)
	}
	for _, o := range history.Of[deleted](h) {
		if len(o.Left) > 0 {
			bad("after the deletion there is still %s", strings.Join(o.Left, ", "))
		}
	}
	var res labkit.Outcome
	switch n := restarts(labkit.Profile(h.Profile)); {
	case len(wrong) > 0:
		res = labkit.FailedBecause("the cluster did not work correctly: %s", strings.Join(wrong, "; "))
	case !slices.Equal(versions, slices.Concat([]string{"v1", "v2", "v1"}, slices.Repeat([]string{"v1"}, n))),
		len(history.Of[reflectors](h)) != 1, len(history.Of[updated](h)) != 1,
		len(history.Of[reconnected](h)) != 1, len(history.Of[rolledBack](h)) != 1,
		len(history.Of[restarted](h)) != n, len(history.Of[deleted](h)) != 1:
		res = labkit.InconclusiveBecause("not all observations were recorded: versions served %v", versions)
	default:
		res = labkit.PassedBecause("the Deployment was created, updated, rolled back and deleted correctly, and survived the restarts")
	}
	res.Facts = facts
	return res
}
