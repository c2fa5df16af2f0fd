// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlocks

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// api is what the command asks for JSON.
type api interface {
	Get(ctx context.Context, path string, v any) error
}

// The fields of the API, of 1.2 to 1.9, that the command reads.
type (
	rbdSource struct {
		Monitors []string
		Image    string
		Pool     *string
		ReadOnly bool
	}
	volumeName struct{ Name string }
	nodeObject struct {
		Metadata struct{ Name string }
		Status   struct {
			Addresses       []struct{ Type, Address string }
			VolumesInUse    []string
			VolumesAttached []volumeName
			NodeInfo        struct{ KubeletVersion string }
			Conditions      []struct{ Type, Status string }
		}
	}
	podObject struct {
		Metadata struct{ Namespace, Name string }
		Spec     struct {
			NodeName string
			Volumes  []struct {
				RBD                   *rbdSource
				PersistentVolumeClaim *struct {
					ClaimName string
					ReadOnly  bool
				}
			}
		}
		Status struct{ Phase string }
	}
	pvObject struct {
		Metadata struct{ Name string }
		Spec     struct {
			RBD      *rbdSource
			ClaimRef *struct{ Namespace, Name string }
		}
		Status struct{ Phase string }
	}
)

// node is one of the cluster's.
type node struct {
	name, host string
	ips        []string
	minor      int // of the kubelet's release, 1.minor; -1 if it does not say
	ready      bool
	// reported are volumesInUse and volumesAttached.
	reported []string
}

// user is a pod that is to have a volume.
type user struct {
	pod, node string
	readOnly  bool
	running   bool
	// ended: it is to have the volume no more, but its kubelet may not have unmounted it.
	ended bool
}

// volume is an image that the API names.
type volume struct {
	pool, image string
	monitors    []string
	orders      [][]string // of the monitors, in its sources: part of the name in a node's status
	pvs         []string
	users       []user
	err         string // why it cannot be asked for
}

// cluster is what the API says.
type cluster struct {
	nodes   []*node
	volumes []*volume
	// known are the monitors of PersistentVolumes, which only an administrator makes.
	known map[string]bool
	// unread are the kinds of objects that could not be read, errs says why.
	unread []string
	errs   []error
}

// blind says that something is not known, and so not who should have an image: a pod may
// have it by a claim, too.
func (c *cluster) blind() bool { return len(c.unread) > 0 }

// read reads what it can; without PersistentVolumes and pods there is nothing to look at.
func read(ctx context.Context, a api) (*cluster, error) {
	var nodes struct{ Items []nodeObject }
	var pods struct{ Items []podObject }
	var pvs struct{ Items []pvObject }
	c := &cluster{known: map[string]bool{}}
	for _, k := range []struct {
		name string
		into any
	}{{"nodes", &nodes}, {"pods", &pods}, {"persistentvolumes", &pvs}} {
		if err := a.Get(ctx, "/api/v1/"+k.name, k.into); err != nil {
			c.unread, c.errs = append(c.unread, k.name), append(c.errs, err)
		}
	}
	if slices.Contains(c.unread, "pods") && slices.Contains(c.unread, "persistentvolumes") {
		return nil, c.errs[len(c.errs)-1]
	}
	for _, o := range nodes.Items {
		c.nodes = append(c.nodes, o.node())
	}
	c.use(pods.Items, c.claim(pvs.Items))
	sort.Slice(c.volumes, func(i, j int) bool { return c.volumes[i].name() < c.volumes[j].name() })
	return c, nil
}

func (o *nodeObject) node() *node {
	n := &node{name: o.Metadata.Name, host: strings.ToLower(o.Metadata.Name), minor: minorOf(o.Status.NodeInfo.KubeletVersion), reported: o.Status.VolumesInUse}
	for _, d := range o.Status.Conditions {
		n.ready = n.ready || d.Type == "Ready" && d.Status == "True"
	}
	for _, v := range o.Status.VolumesAttached {
		n.reported = append(n.reported, v.Name)
	}
	for _, a := range o.Status.Addresses {
		switch a.Type {
		case "Hostname":
			n.host = strings.ToLower(a.Address)
		case "InternalIP", "LegacyHostIP":
			n.ips = append(n.ips, a.Address)
		}
	}
	return n
}

// claim adds the volumes of PersistentVolumes, and returns those of each claim by
// "namespace/name".
func (c *cluster) claim(pvs []pvObject) map[string][]*volume {
	claims, bound := map[string][]*volume{}, map[string]bool{}
	for _, o := range pvs {
		if o.Spec.RBD == nil {
			continue
		}
		v := c.volume(o.Spec.RBD)
		v.pvs = append(v.pvs, o.Metadata.Name)
		for _, m := range v.monitors {
			c.known[m] = true
		}
		if r := o.Spec.ClaimRef; r != nil {
			// A released volume keeps its reference, also when a claim of that name is bound to
			// another.
			claim, is := r.Namespace+"/"+r.Name, o.Status.Phase == "Bound"
			switch {
			case is && !bound[claim]:
				claims[claim], bound[claim] = []*volume{v}, true
			case is == bound[claim] && !slices.Contains(claims[claim], v):
				claims[claim] = append(claims[claim], v)
			}
		}
	}
	return claims
}

// use adds pods to the volumes that they are to have, by themselves or by their claims.
func (c *cluster) use(pods []podObject, claims map[string][]*volume) {
	for _, o := range pods {
		if o.Spec.NodeName == "" {
			continue
		}
		for _, pv := range o.Spec.Volumes {
			u := user{pod: o.Metadata.Namespace + "/" + o.Metadata.Name, node: o.Spec.NodeName, running: o.Status.Phase == "Running",
				ended: o.Status.Phase == "Succeeded" || o.Status.Phase == "Failed"}
			if pv.RBD != nil {
				u.readOnly = pv.RBD.ReadOnly
				v := c.volume(pv.RBD)
				v.users = append(v.users, u)
			} else if r := pv.PersistentVolumeClaim; r != nil {
				u.readOnly = r.ReadOnly
				for _, v := range claims[o.Metadata.Namespace+"/"+r.ClaimName] {
					v.users = append(v.users, u)
				}
			}
		}
	}
}

// named are the volumes of this POOL/IMAGE, all if it is empty.
func (c *cluster) named(image string) []*volume {
	var out []*volume
	for _, v := range c.volumes {
		if image == "" || v.name() == image {
			out = append(out, v)
		}
	}
	return out
}

func (v *volume) name() string { return v.pool + "/" + v.image }

func (v *volume) is(pool, image string, monitors []string) bool {
	return v.pool == pool && v.image == image && slices.Equal(sorted(v.monitors), sorted(monitors))
}

// volume is the one of a source; sources of one image behind the same monitors are one.
func (c *cluster) volume(s *rbdSource) *volume {
	pool := "rbd" // the API server's default
	if s.Pool != nil {
		pool = *s.Pool
	}
	for _, v := range c.volumes {
		if v.is(pool, s.Image, s.Monitors) {
			v.orders = append(v.orders, s.Monitors)
			return v
		}
	}
	v := &volume{pool: pool, image: s.Image, monitors: s.Monitors}
	if pool == "" || s.Image == "" {
		v.err = "the volume names no pool or no image"
	}
	c.volumes = append(c.volumes, v)
	return v
}

// of is the volume that was v when the API was read before. It is nobody's if it has gone.
func (c *cluster) of(v *volume) *volume {
	for _, n := range c.volumes {
		if n.is(v.pool, v.image, v.monitors) {
			return n
		}
	}
	return &volume{pool: v.pool, image: v.image, monitors: v.monitors, orders: v.orders, err: v.err}
}

// stranger is a monitor of v that no PersistentVolume names, "" if there is none. Whoever may
// make a pod can write one into it, and it would be asked with the operator's key.
func (c *cluster) stranger(v *volume) string {
	for _, m := range v.monitors {
		if !c.known[m] {
			return m
		}
	}
	return ""
}

func sorted(words []string) []string {
	words = slices.Clone(words)
	slices.Sort(words)
	return words
}

func minorOf(version string) int {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) < 2 || parts[0] != "1" {
		return -1
	}
	m, err := strconv.Atoi(parts[1])
	if err != nil {
		return -1
	}
	return m
}

// reports says whether the node has the volume in its status, by the name of 1.9 (monitors
// and image) or of 1.10 (pool and image).
func (n *node) reports(v *volume) bool {
	for _, monitors := range append(v.orders, v.monitors) {
		if slices.Contains(n.reported, fmt.Sprintf("kubernetes.io/rbd/%v:%s", monitors, v.image)) {
			return true
		}
	}
	return slices.Contains(n.reported, "kubernetes.io/rbd/"+v.pool+":"+v.image)
}

// twin says who is to have a volume of the same pool and image behind other monitors, "" if
// nobody: they may be other names of the same Ceph.
func (c *cluster) twin(v *volume) string {
	for _, o := range c.volumes {
		if o.name() != v.name() || o.is(v.pool, v.image, v.monitors) {
			continue
		}
		by := ""
		for _, n := range c.nodes {
			if n.reports(o) {
				by = n.name + " reports it"
			}
		}
		for _, u := range o.users {
			if u.ended {
				continue
			}
			by = fmt.Sprintf("%s on %s", u.pod, u.node)
		}
		if by != "" {
			return fmt.Sprintf("an image of this name behind the monitors %s is in use (%s): if both are the same Ceph, it is this image", strings.Join(o.monitors, ","), by)
		}
	}
	return ""
}

// warnings are of host names that a kubelet up to 1.8 takes for its own in a lock, and of
// images that Kubernetes cannot tell apart. A host that is an IP is an override, and the name
// in its locks is not known.
func (c *cluster) warnings() []string {
	var out []string
	for _, n := range c.nodes {
		for _, o := range c.nodes {
			if n.minor >= 0 && n.minor <= 8 && o != n && net.ParseIP(n.host) == nil && net.ParseIP(o.host) == nil && o.host != n.host && strings.HasPrefix(o.host, n.host) {
				out = append(out, fmt.Sprintf("the kubelet 1.%d on %s treats locks of %s as its own and mounts the image, because it compares host names by prefix", n.minor, n.host, o.host))
			}
		}
	}
	for i, v := range c.volumes {
		for _, o := range c.volumes[i+1:] {
			if v.image == o.image && v.pool != o.pool && slices.Equal(v.monitors, o.monitors) {
				out = append(out, fmt.Sprintf("%s and %s are one volume for Kubernetes up to 1.9, because its volume names do not contain the pool", plain(v.name()), plain(o.name())))
			}
		}
	}
	sort.Strings(out)
	return out
}
