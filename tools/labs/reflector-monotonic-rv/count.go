// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package reflectormonotonicrv

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/process"
)

var (
	configMaps = kube.GVR{Version: "v1", Resource: "configmaps"}
	secrets    = kube.GVR{Version: "v1", Resource: "secrets"}
)

const countedPath = "/api/v1/namespaces/" + ns + "/"

// counted is what the counting controller had of one resource.
type counted struct {
	Resource string
	// Objects were created, deleted and created, over so many Restarts of a watch.
	Objects, Restarts int
	// Replays are ADDED and MODIFIED events that came a second time.
	Replays int
	// Flaps are calls of the delete handler for an object whose name lives.
	Flaps   int
	Watches []string // the versions that watches started from
	Events  int
}

// count runs the counting controller (hack/tests/rvcount), built with
// the client-go under test, through the incident with ConfigMaps and Secrets.
func (l *lab) count(ctx context.Context) error {
	pki, err := l.e.GetPKI()
	if err != nil {
		return err
	}
	conf, err := pki.Kubeconfig("rvcount", l.p.URL, "rvcount", "system:masters")
	if err != nil {
		return err
	}
	proc, err := l.e.Start(ctx, process.Process{Name: "rvcount", Path: l.e.UnderTest(base, "rvcount").Path, Args: []string{"--kubeconfig=" + conf, "--namespace=" + ns}})
	if err != nil {
		return err
	}
	resources := []kube.GVR{configMaps, secrets}
	for _, r := range resources {
		if err := l.p.WaitWatches(ctx, countedPath+r.Resource, 1, time.Minute); err != nil {
			return err
		}
	}
	var names []string
	for i := range l.services {
		names = append(names, fmt.Sprintf("c%02d", i))
	}
	l.e.Step("ConfigMaps and Secrets: create old; create, delete and create %d; delete old", len(names))
	for _, r := range resources {
		kind := map[kube.GVR]string{configMaps: "ConfigMap", secrets: "Secret"}[r]
		create := func(n string) error {
			_, err := l.c.Client.CreateYAML(ctx, ns, fmt.Sprintf("apiVersion: v1\nkind: %s\nmetadata: {name: %s}\n", kind, n))
			return err
		}
		remove := func(n string) error { return l.c.Client.Delete(ctx, r, ns, n) }
		err := create("old")
		for _, do := range []func(string) error{create, remove, create} {
			for _, n := range names {
				err = errors.Join(err, do(n))
			}
		}
		if err := errors.Join(err, remove("old")); err != nil {
			return err
		}
	}
	for _, r := range resources {
		if err := l.p.WaitWatches(ctx, countedPath+r.Resource, l.restarts+1, 2*time.Minute); err != nil {
			return err
		}
	}
	if !proc.Alive() {
		return fmt.Errorf("rvcount ended: %v; log %s", proc.Err(), proc.LogPath)
	}
	if err := proc.Stop(); err != nil {
		return err
	}
	result, err := readCounts(proc.LogPath, names)
	if err != nil {
		return err
	}
	for _, r := range resources {
		c := result[r.Resource]
		if c == nil {
			c = &counted{}
		}
		c.Resource, c.Objects, c.Restarts = r.Resource, len(names), l.restarts
		l.e.Record(*c)
		l.shown = l.shown || c.Replays+c.Flaps > 0
	}
	return nil
}

// readCounts reads the counting controller's output. names are the objects that live
// at the end.
func readCounts(path string, names []string) (map[string]*counted, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lives := map[string]bool{}
	for _, n := range names {
		lives[n] = true
	}
	result := map[string]*counted{}
	seen := map[string]bool{}
	deleted := map[string]int{} // by resource and name: calls of the delete handler
	s := bufio.NewScanner(f)
	for s.Scan() {
		var l struct{ What, Resource, Type, Name, UID, ResourceVersion string }
		if !strings.HasPrefix(s.Text(), `{"what"`) || json.Unmarshal(s.Bytes(), &l) != nil {
			continue // the program's other log
		}
		c := result[l.Resource]
		if c == nil {
			c = &counted{}
			result[l.Resource] = c
		}
		switch l.What {
		case "watch":
			c.Watches = append(c.Watches, l.ResourceVersion)
		case "event":
			c.Events++
			key := l.Resource + "/" + l.UID + "/" + l.ResourceVersion + "/" + l.Type
			if l.Type != "DELETED" && seen[key] {
				c.Replays++
			}
			seen[key] = true
		case "delete":
			// Each of names is deleted once on purpose.
			if key := l.Resource + "/" + l.Name; lives[l.Name] {
				if deleted[key]++; deleted[key] > 1 {
					c.Flaps++
				}
			}
		}
	}
	return result, s.Err()
}
