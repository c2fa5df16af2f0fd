// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/finding"
)

// oldNode is a 1.7.0 node with a pod, a master's static pod and a probe.
func oldNode(t testing.TB) *fakeNode {
	n := newNode("node1", "v1.7.0")
	n.add(t, "web-0", "1.7", newContainer("app"))
	return n
}

func probe(c object) object {
	c["readinessProbe"] = object{"httpGet": object{"path": "/", "port": 80, "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3}
	return c
}

func subPath(c object) object {
	m := c["volumeMounts"].([]any)[0].(object)
	m["subPath"] = "data"
	return c
}

func spec(p object) object { return p["spec"].(object) }

func address(p object) object {
	return object{"ip": "10.0.0.1", "nodeName": "node1", "targetRef": object{"kind": "Pod", "uid": p["metadata"].(object)["uid"]}}
}

func service(addresses ...object) object {
	var list []any
	for _, a := range addresses {
		list = append(list, a)
	}
	return object{"metadata": object{"name": "web", "namespace": "default"}, "subsets": []any{object{"addresses": list}}}
}

// Each code: what gives it, and what, much alike, does not.
func TestCodes(t *testing.T) {
	type cluster = *fakeCluster
	one := func(n *fakeNode) cluster { return newCluster(n) }
	with := func(version string, do func(n *fakeNode)) func(t *testing.T) cluster {
		return func(t *testing.T) cluster {
			n := newNode("node1", version)
			do(n)
			return one(n)
		}
	}
	pod := func(version, hash string, c func() object, do func(n *fakeNode, p object)) func(t *testing.T) cluster {
		return func(t *testing.T) cluster {
			n := newNode("node1", version)
			p := n.add(t, "web-0", hash, c())
			if do != nil {
				do(n, p)
			}
			return one(n)
		}
	}
	app := func() object { return newContainer("app") }
	privileged := func() object {
		c := newContainer("app")
		c["securityContext"] = object{"allowPrivilegeEscalation": false}
		return c
	}
	const ours = "v1.9.11+holdfast.2"
	set := func(argv ...string) func(*fakeNode) {
		return func(n *fakeNode) { n.argv = append([]string{"/usr/bin/kubelet"}, argv...) }
	}
	// The API server does not tell its pods.
	noPods := func(version string) func(t *testing.T) cluster {
		return func(t *testing.T) cluster {
			n := newNode("node1", version)
			n.add(t, "web-0", version[1:4], app())
			c := one(n)
			c.extra["/api/v1/pods"] = "403"
			return c
		}
	}
	// A pod with a volume.
	volumeOf := func(v object) func(*fakeNode, object) {
		v["name"] = "v"
		return func(_ *fakeNode, p object) { spec(p)["volumes"] = []any{v} }
	}
	// A pod whose claim is bound to an RBD image, and that claim's namespace.
	claimed := func(namespace string) func(t *testing.T) cluster {
		return func(t *testing.T) cluster {
			c := pod("v1.7.0", "1.7", app, volumeOf(object{"persistentVolumeClaim": object{"claimName": "x"}}))(t)
			c.volumes = []object{{"spec": object{"rbd": object{"image": secret}, "claimRef": object{"namespace": namespace, "name": "x"}}}}
			return c
		}
	}
	cases := []struct {
		code, to string
		cluster  func(t *testing.T) cluster
		want     string // "STOP text", "" for none
	}{
		{"HF002", "holdfast", with("v1.7.0", func(n *fakeNode) { n.refuse["stats/container"] = 403 }), "? 403: the user needs the verb create on nodes/proxy"},
		{"HF002", "holdfast", with("v1.7.0", func(n *fakeNode) { n.refuse["debug/pprof/cmdline"] = 404 }), "? --enable-debugging-handlers=false"},
		{"HF002", "holdfast", with("v1.7.0", func(n *fakeNode) { n.refuse["pods"] = 503 }), "? cannot reach the kubelet"},
		{"HF002", "holdfast", with("v1.7.0", func(n *fakeNode) { n.raw["stats/summary"] = "<html>" + secret }), "? not the JSON"},
		{"HF002", "holdfast", with("v1.7.0", func(n *fakeNode) { n.raw["pods"] = `{"kind":"PodList","items":[{"metadata":{"name":"` }), "? not the JSON"},
		{"HF002", "holdfast", with("v1.7.0", func(n *fakeNode) { n.version = "nightly" }), "? version is not a Kubernetes version"},
		{"HF002", "holdfast", with("v1.7.0", func(n *fakeNode) {}), ""},

		// A kubelet 1.7.0 in the first second of its run.
		{"HF002", "holdfast", with("v1.7.0", func(n *fakeNode) { n.refuse["stats/container"] = 500 }), "? recorded hashes (stats/container): 500: the kubelet"},
		{"HF002", "holdfast", noPods("v1.7.0"), "? 403: the user needs the verb list on pods"},

		{"HF003", "back", with("v1.7.0", func(n *fakeNode) {}), "? nothing to go back to"},
		{"HF003", "back", with(ours, func(n *fakeNode) {
			n.metrics = "holdfast_predecessor_info{release=\"none\",source=\"none\"} 1\n"
		}), "? Holdfast replaced no kubelet"},
		{"HF003", "back", with(ours, func(n *fakeNode) {
			n.metrics = "holdfast_predecessor_info{release=\"1.6.1\",source=\"api\"} 1\n"
		}), "? the flags of 1.6.1 are not known"},
		{"HF003", "back", with(ours, func(n *fakeNode) {}), ""},

		{"HF101", "1.9", with("v1.7.0", set("--api-servers=http://"+secret, "--kubeconfig=x", "--require-kubeconfig")), "STOP 1.9.11 refuses --api-servers"},
		{"HF101", "holdfast", with("v1.7.0", set("--kubeconfig=x", "--feature_gates", "AffinityInAnnotations=true")), "STOP Holdfast refuses feature gate AffinityInAnnotations"},
		{"HF101", "1.7.16", with("v1.9.11", set("--kubeconfig=x", "--require-kubeconfig", "--fail-swap-on=false")), "STOP 1.7.16 refuses --fail-swap-on (as 1.7.0)"},
		{"HF101", "back", with(ours, set("--kubeconfig=x", "--require-kubeconfig", "--feature-gates=RBDLegacyLock=true")), "STOP 1.7.16 refuses feature gate RBDLegacyLock"},
		{"HF101", "1.9", with("v1.7.0", set("--kubeconfig=x", "--require-kubeconfig", "--X_"+secret+"=1", "--feature-gates="+secret+"=true")), "STOP 2 more"},
		{"HF101", "holdfast", with(ours, set("--kubeconfig=x", "--feature-gates=RBDLegacyLock=true", "--cloud-config", "--no-flag")), ""},

		{"HF102", "holdfast", with("v1.7.0", set("--api-servers=http://a")), "STOP would run standalone"},
		{"HF102", "1.7", with("v1.9.11", set("--kubeconfig=x")), "STOP would run standalone"},
		{"HF102", "holdfast", with("v1.7.0", set("--require-kubeconfig")), ""},
		{"HF102", "1.8", with("v1.9.11", set("--kubeconfig", "x")), ""},

		{"HF103", "holdfast", func(t *testing.T) cluster {
			c := one(newNode("node1", "v1.7.0"))
			c.version = "v1.8.15"
			return c
		}, "STOP newer than the API server, 1.8"},
		{"HF103", "1.7", func(t *testing.T) cluster {
			c := one(newNode("node1", "v1.9.0"))
			c.version = "v1.10.1-gke.2"
			return c
		}, "STOP more than two"},
		{"HF103", "1.7", with("v1.8.0", func(n *fakeNode) {}), ""},

		{"HF105", "1.9", with("v1.7.0", func(n *fakeNode) { n.imagefs["availableBytes"] = 14e9 }), "STOP imagefs.available is 14.0%, the threshold is 15%: every pod"},
		{"HF105", "holdfast", with("v1.7.0", func(n *fakeNode) { n.imagefs["availableBytes"] = 14e9 }), "warn Holdfast keeps the pods"},
		{"HF105", "holdfast", pod("v1.7.0", "", app, func(n *fakeNode, p object) {
			static(p)
			n.imagefs["availableBytes"] = 14e9
		}), "warn Holdfast keeps the pods"},
		{"HF105", "holdfast", pod("v1.7.0", "", app, func(n *fakeNode, p object) {
			static(p)
			n.imagefs["availableBytes"] = 14e9
			n.argv = append(n.argv, "--feature-gates=StaticPodIdentity=false")
		}), "STOP Holdfast refuses the node's static pods"},
		{"HF105", "holdfast", with("v1.9.11", func(n *fakeNode) {
			n.imagefs["availableBytes"] = 14e9
			n.argv = append(n.argv, "--feature-gates=AdmissionAcrossRestart=false")
		}), "STOP every pod"},
		{"HF105", "1.8", with("v1.7.0", func(n *fakeNode) { n.imagefs["availableBytes"] = 14e9 }), ""},
		{"HF105", "1.9", with("v1.7.0", func(n *fakeNode) {
			n.imagefs["availableBytes"] = 14e9
			n.argv = append(n.argv, "--eviction-hard=memory.available<100Mi,nodefs.available<10%")
		}), ""},
		{"HF105", "1.9", with("v1.7.0", func(n *fakeNode) { n.imagefs["availableBytes"] = 15.1e9 }), ""},
		{"HF105", "1.7", with("v1.7.0", func(n *fakeNode) { n.fs["inodesFree"] = 1e5 }), "STOP nodefs.inodesFree"},
		{"HF105", "1.9", with("v1.9.11", func(n *fakeNode) { n.memory = 50e6 }), "STOP every pod without requests"},
		{"HF105", "back", with(ours, func(n *fakeNode) {
			n.conditions = append(n.conditions, object{"type": "DiskPressure", "status": "True"})
		}), "STOP the Node has the condition DiskPressure"},

		{"HF201", "1.9", pod("v1.7.0", "1.7", app, nil), "new its hash is that of a 1.7 kubelet, and 1.9"},
		{"HF201", "1.9", pod("v1.9.0", "1.9", app, nil), ""},
		{"HF201", "1.8", pod("v1.7.0", "1.7", app, nil), "new 1.8 hashes the fields of its own release"},
		{"HF201", "holdfast", pod("v1.7.0", "1.7", app, nil), ""},
		{"HF201", "holdfast", pod("v1.8.0", "1.8", privileged, nil), ""},
		{"HF201", "holdfast", pod("v1.7.0", "1.7", privileged, nil), "new does not support securityContext.allowPrivilegeEscalation"},
		{"HF201", "holdfast", pod("v1.7.0", "1.7", app, func(n *fakeNode, p object) {
			n.argv = append(n.argv, "--feature-gates=ContainerHashCompat=false")
		}), "new ContainerHashCompat is off"},
		{"HF201", "holdfast", pod("v1.9.0", "1.9", app, func(n *fakeNode, p object) {
			spec(p)["containers"].([]any)[0].(object)["image"] = "registry/app:2"
		}), "new the image was registry/app:1 and is now registry/app:2"},
		{"HF201", "holdfast", pod("v1.9.0", "1.9", app, func(n *fakeNode, p object) {
			spec(p)["containers"].([]any)[0].(object)["tty"] = true
		}), "new the spec has changed since"},
		{"HF201", "1.9", pod("v1.7.0", "1.7", app, func(n *fakeNode, p object) { n.refuse["stats/container"] = 404 }), "new (estimate: the node returned no hashes)"},
		{"HF201", "holdfast", pod("v1.7.0", "1.7", app, func(n *fakeNode, p object) { n.refuse["pods"] = 503 }), ""},
		{"HF201", "1.9", pod("v1.7.0", "1.7", app, func(n *fakeNode, p object) { n.refuse["pods"] = 503 }), "new (estimate"},
		{"HF201", "1.9", pod("v1.7.0", "1.7", app, func(n *fakeNode, p object) { p["status"].(object)["phase"] = "Failed" }), ""},

		{"HF202", "back", pod(ours, "1.9", app, nil), "new when you go back: its hash is that of a 1.9 kubelet, and 1.7"},
		{"HF202", "back", pod(ours, "1.7", app, nil), ""},
		{"HF202", "holdfast", pod("v1.7.0", "1.7", app, nil), ""},
		{"HF202", "holdfast", pod("v1.7.0", "1.7", privileged, nil), "new if you later go back to 1.7.0: its hash is that of a 1.8 kubelet"},
		{"HF202", "1.9", pod("v1.7.0", "1.7", app, nil), ""},

		{"HF203", "holdfast", pod("v1.7.0", "1.7", app, func(n *fakeNode, p object) { static(p) }), ""},
		{"HF203", "holdfast", pod("v1.8.0", "1.8", app, func(n *fakeNode, p object) { static(p) }), ""},
		{"HF203", "holdfast", pod("v1.7.0", "", app, func(n *fakeNode, p object) {
			static(p)
			n.argv = append(n.argv, "--feature-gates=StaticPodIdentity=false")
		}), "new static pod restarts: its UID is"},
		{"HF203", "holdfast", pod("v1.6.1", "", app, func(n *fakeNode, p object) { static(p) }), "new static pod restarts: its UID is"},
		{"HF203", "1.9", pod("v1.8.0", "", func() object { return newContainer("kube-apiserver") }, func(n *fakeNode, p object) { static(p) }), "new static pod restarts: it is kube-apiserver"},
		{"HF203", "back", pod(ours, "", app, func(n *fakeNode, p object) { static(p) }), "new static pod restarts, unless its UID is that of 1.7: its UID is"},
		{"HF203", "1.9", pod(ours, "1.9", app, func(n *fakeNode, p object) { static(p) }), "new static pod restarts, unless its UID is that of 1.9: its UID is"},
		{"HF203", "holdfast", pod(ours, "1.9", app, func(n *fakeNode, p object) { static(p) }), ""},
		{"HF203", "1.9", pod(ours, "1.9", app, func(n *fakeNode, p object) {
			static(p)
			n.metrics = "holdfast_predecessor_info{release=\"1.9.11\",source=\"api\"} 1\n"
		}), ""},
		{"HF203", "holdfast", pod("v1.9.0", "1.9", app, func(n *fakeNode, p object) { static(p) }), ""},
		{"HF203", "1.9", pod("v1.7.0", "1.7", app, func(n *fakeNode, p object) {
			p["metadata"].(object)["annotations"] = object{"kubernetes.io/config.source": "file"}
		}), ""},

		{"HF204", "holdfast", pod("v1.7.14", "1.7", func() object { return subPath(app()) }, func(n *fakeNode, p object) {
			spec(p)["volumes"] = []any{object{"name": "token", "persistentVolumeClaim": object{"claimName": "x"}}}
		}), "STOP drain"},
		{"HF204", "holdfast", pod("v1.7.16", "1.7", func() object { return subPath(app()) }, func(n *fakeNode, p object) {
			spec(p)["volumes"] = []any{object{"name": "token", "persistentVolumeClaim": object{"claimName": "x"}}}
		}), ""},
		{"HF204", "holdfast", pod("v1.7.14", "1.7", func() object { return subPath(app()) }, nil), ""},

		{"HF205", "1.9.3", pod("v1.9.11", "1.9", func() object { return subPath(app()) }, nil), "STOP 1.9.3 deletes the files"},
		{"HF205", "1.7.13", pod(ours, "1.9", func() object { return subPath(app()) }, nil), "warn busy"},
		{"HF205", "1.7", pod(ours, "1.9", func() object { return subPath(app()) }, func(n *fakeNode, p object) {
			n.argv = append(n.argv, "--feature-gates=SubpathUnbindAfterStart=false")
		}), "STOP 1.7.0 deletes"},
		{"HF205", "1.8.9", pod("v1.9.11", "1.9", func() object { return subPath(app()) }, nil), ""},
		{"HF205", "1.7", pod("v1.8.0", "1.8", func() object { return subPath(app()) }, nil), ""},
		{"HF205", "1.7", pod("v1.9.11", "1.9", app, nil), ""},

		{"HF206", "1.9", pod("v1.9.0", "1.9", app, func(n *fakeNode, p object) { spec(p)["nodeSelector"] = object{"disk": "hdd"} }), "STOP its nodeSelector disk"},
		{"HF206", "holdfast", pod("v1.9.0", "1.9", app, func(n *fakeNode, p object) { spec(p)["nodeSelector"] = object{"disk": "hdd"} }), "warn Holdfast keeps the pod"},
		{"HF206", "back", pod(ours, "1.9", app, func(n *fakeNode, p object) { spec(p)["affinity"] = required("cpus", "Gt", "8") }), "STOP required node affinity"},
		{"HF206", "1.9", pod("v1.9.0", "1.9", app, func(n *fakeNode, p object) { spec(p)["affinity"] = required("cpus", "Gt", "7") }), ""},
		{"HF206", "1.9", pod("v1.9.0", "1.9", app, func(n *fakeNode, p object) { spec(p)["nodeSelector"] = object{"disk": "ssd"} }), ""},
		{"HF206", "1.9", pod("v1.9.0", "1.9", app, func(n *fakeNode, p object) { spec(p)["affinity"] = required("none", "DoesNotExist") }), ""},
		{"HF206", "1.9", pod("v1.9.0", "1.9", app, func(n *fakeNode, p object) { spec(p)["affinity"] = required("disk", "NotIn", "ssd") }), "STOP affinity"},

		{"HF207", "holdfast", noPods("v1.7.0"), "? a 1.7 kubelet leaves out fields that it does not support"},
		{"HF207", "holdfast", noPods("v1.9.0"), ""},
		{"HF207", "holdfast", pod("v1.7.0", "", app, nil), "? the node did not return its hash"},
		{"HF207", "back", pod(ours, "1.9", app, func(n *fakeNode, p object) { n.refuse["stats/container"] = 403 }), "? Holdfast records the hashes of several"},
		{"HF207", "1.9", pod("v1.7.0", "1.7", app, nil), ""},
		{"HF207", "1.9", pod("v1.7.0", "", app, func(n *fakeNode, p object) { p["status"].(object)["containerStatuses"] = []any{} }), ""},

		{"HF301", "holdfast", pod("v1.7.0", "1.7", app, func(n *fakeNode, p object) {
			spec(p)["volumes"] = []any{object{"name": "g", "gitRepo": object{"repository": "/srv/" + secret}}}
		}), "warn the repository of its gitRepo volume"},
		{"HF301", "holdfast", pod("v1.7.0", "1.7", app, func(n *fakeNode, p object) {
			spec(p)["volumes"] = []any{object{"name": "g", "gitRepo": object{"repository": "https://host/x.git", "revision": "v1", "directory": "."}}}
		}), ""},
		{"HF301", "1.9", pod("v1.7.0", "1.7", func() object { return ported(app()) }, nil), "warn host ports"},
		{"HF301", "holdfast", pod("v1.7.0", "1.7", func() object { return ported(app()) }, nil), ""},
		{"HF301", "1.9", pod("v1.8.0", "1.8", func() object { return ported(app()) }, nil), ""},

		{"HF302", "holdfast", pod("v1.8.15", "1.8", app, volumeOf(object{"rbd": object{"image": secret}})), "warn RBDLegacyLock"},
		{"HF302", "1.9", pod("v1.7.0", "1.7", app, volumeOf(object{"rbd": object{}})), "warn replace all kubelets"},
		{"HF302", "holdfast", pod("v1.9.0", "1.9", app, volumeOf(object{"rbd": object{}})), ""},
		{"HF302", "1.8", pod("v1.7.0", "1.7", app, volumeOf(object{"glusterfs": object{}})), "warn GlusterFS"},
		{"HF302", "holdfast", pod("v1.8.0", "1.8", app, volumeOf(object{"glusterfs": object{}})), ""},
		{"HF302", "holdfast", pod("v1.9.0", "1.9", app, volumeOf(object{"flexVolume": object{"driver": secret}})), "warn FlexVolume"},
		{"HF302", "holdfast", claimed("default"), "warn RBDLegacyLock"},
		{"HF302", "holdfast", claimed("other"), ""},
		{"HF002", "holdfast", func(t *testing.T) cluster {
			c := claimed("default")(t)
			c.extra["/api/v1/persistentvolumes"] = "403"
			return c
		}, "? the user needs the verb list on persistentvolumes"},

		{"HF401", "1.9", func(t *testing.T) cluster {
			n := newNode("node1", "v1.9.0")
			c := newCluster(n)
			c.endpoints = []object{service(address(n.add(t, "web-0", "1.9", probe(app()))))}
			return c
		}, "warn for at most 11s"},
		{"HF401", "1.9", func(t *testing.T) cluster {
			n := oldNode(t)
			c := newCluster(n)
			c.endpoints = []object{service(address(n.pods[0]))}
			return c
		}, "warn until its new containers are ready"},
		{"HF401", "holdfast", func(t *testing.T) cluster {
			n := newNode("node1", "v1.9.0")
			c := newCluster(n)
			c.endpoints = []object{service(address(n.add(t, "web-0", "1.9", probe(app()))))}
			return c
		}, ""},
		{"HF401", "1.9", func(t *testing.T) cluster {
			n, m := newNode("node1", "v1.9.0"), newNode("node2", "v1.9.0")
			c := newCluster(n, m)
			c.endpoints = []object{service(address(n.add(t, "web-0", "1.9", probe(app()))), address(m.add(t, "web-1", "1.9", probe(app()))))}
			return c
		}, ""},
	}
	gives, not := map[string]bool{"HF104": true}, map[string]bool{"HF104": true} // TestCertificate
	for i, c := range cases {
		t.Run(fmt.Sprintf("%02d %s %s", i, c.code, c.to), func(t *testing.T) {
			cluster := c.cluster(t)
			out, errs, status := cluster.forecast(t, "--all", "--to", c.to, "-o", "json")
			level, part, _ := strings.Cut(c.want, " ")
			var of []string
			hit := false
			for _, f := range lines(t, out, "finding") {
				if f["code"] == c.code {
					text := fmt.Sprint(f["text"])
					of = append(of, fmt.Sprint(f["level"], " ", text, " ", f["remedy"]))
					hit = hit || f["level"] == level && strings.Contains(text+fmt.Sprint(f["remedy"]), part)
				}
			}
			if c.want == "" && of != nil || c.want != "" && !hit {
				t.Errorf("want %q, got %q\n%s%s", c.want, of, out, errs)
			}
			if level == "STOP" && status != exit.Found || level == "?" && status == exit.OK {
				t.Errorf("status %d with %s", status, level)
			}
			// What -o json shows, the table shows; and it fits.
			for _, format := range []string{"table", "wide"} {
				text, _, same := cluster.forecast(t, "--all", "--to", c.to, "-o", format)
				if same != status || strings.Contains(text, c.code) != (of != nil) {
					t.Errorf("-o %s: status %d and not %d, or the code is not as in JSON:\n%s", format, same, status, text)
				}
				for l := range strings.SplitSeq(text, "\n") {
					if len(l) > map[string]int{"table": 80, "wide": 160}[format] {
						t.Errorf("-o %s: too wide: %s", format, l)
					}
				}
			}
		})
		gives[c.code], not[c.code] = gives[c.code] || c.want != "", not[c.code] || c.want == ""
	}
	for _, c := range finding.Codes() {
		if slices.Contains(c.By, "forecast") && !(gives[c.Code] && not[c.Code]) {
			t.Errorf("%s has no case that gives it and one that does not", c.Code)
		}
	}
}

func required(key, operator string, values ...string) object {
	return object{"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{"nodeSelectorTerms": []any{
		object{"matchExpressions": []any{object{"key": key, "operator": operator, "values": values}}}}}}}
}

func ported(c object) object {
	c["ports"] = []any{object{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}}
	return c
}

// A pod that the kubelet's start fails loses its containers, whatever their hashes are.
func TestFailedPodIsNew(t *testing.T) {
	misfit := func(_ *fakeNode, p object) { spec(p)["nodeSelector"] = object{"disk": "hdd"} }
	full := func(n *fakeNode, _ object) { n.imagefs["availableBytes"] = 14e9 }
	for name, c := range map[string]struct {
		do       func(*fakeNode, object)
		to, want string
	}{
		"fits":                   {func(*fakeNode, object) {}, "1.9", "kept"},
		"misfit":                 {misfit, "1.9", "new"},
		"misfit, Holdfast":       {misfit, "holdfast", "kept"},
		"full disk":              {full, "1.9", "new"},
		"full disk, Holdfast":    {full, "holdfast", "kept"},
		"little memory, has QoS": {func(n *fakeNode, _ object) { n.memory = 50e6 }, "1.9", "kept"},
	} {
		n := newNode("node1", "v1.9.11")
		c.do(n, n.add(t, "web-0", "1.9", newContainer("app")))
		out, _, _ := newCluster(n).forecast(t, "--all", "--to", c.to, "-o", "json")
		rows := lines(t, out, "container")
		if len(rows) != 1 || rows[0]["answer"] != c.want || (c.want == "new") != (rows[0]["why"] == "the kubelet's start fails the pod") {
			t.Errorf("%s: %v", name, rows)
		}
	}
}
