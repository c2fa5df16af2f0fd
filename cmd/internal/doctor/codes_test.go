// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/podtemplatehash"
)

func meta_(o object) object   { return o["metadata"].(object) }
func spec_(o object) object   { return o["spec"].(object) }
func status_(o object) object { return o["status"].(object) }

// nameOf is the name that a controller manager gives to what has this template.
func nameOf(t testing.TB, name, image string, count int) string {
	t.Helper()
	r, err := podtemplatehash.Find("1.9")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(template(image))
	if err != nil {
		t.Fatal(err)
	}
	read := object{}
	if err := kubeapi.Decode(b, &read); err != nil {
		t.Fatal(err)
	}
	h, err := r.Hash(read, count)
	if err != nil {
		t.Fatal(err)
	}
	return name + "-" + r.Suffix(h)
}

// unready makes a second pod of the Service, which is not ready.
func unready(f *fake, ready bool) object {
	p := fakePod("shop", "web-2", "node1", "10.1.0.2", ready)
	f.lists["pods"] = append(f.lists["pods"], p)
	return p
}

func set(v any, path ...string) func(object) {
	return func(o object) {
		for _, p := range path[:len(path)-1] {
			if o[p] == nil {
				o[p] = object{}
			}
			o = o[p].(object)
		}
		o[path[len(path)-1]] = v
	}
}

// Each code: what gives it, and what, much alike, does not.
func TestCodes(t *testing.T) {
	change := func(kind string, i int, v any, path ...string) func(*fake) {
		return func(f *fake) { set(v, path...)(f.lists[kind][i]) }
	}
	metric := func(line string) func(*fake) { return func(f *fake) { f.nodes["node1"].metrics += line + "\n" } }
	manager := func(line string) func(*fake) { return func(f *fake) { f.manager += line + "\n" } }
	argv := func(line string) func(*fake) { return func(f *fake) { f.nodes["node1"].argv = "kubelet " + line } }
	refuse := func(path string) func(*fake) { return func(f *fake) { f.raw[path] = "403 " + secret } }
	// A stuck Deployment: its own ReplicaSets have other templates.
	stuck := func(f *fake) { f.lists["replicasets"] = f.lists["replicasets"][1:] }
	blocked := func(image string, controlled bool) func(*fake) {
		return func(f *fake) {
			stuck(f)
			other := fakeWorkload("shop", "other", image)
			rs := replicaSet(other, nameOf(t, "web", "app:1", -1), image)
			if !controlled {
				delete(meta_(rs), "ownerReferences")
			}
			f.lists["replicasets"] = append(f.lists["replicasets"], rs)
		}
	}
	// A DaemonSet whose template has no revision, and something with the name that it would get.
	taken := func(image string, do ...func(object)) func(*fake) {
		return func(f *fake) {
			other := fakeWorkload("shop", "other", "x")
			r := revision(other, "DaemonSet", nameOf(t, "agent", "agent:1", -1), image, 1)
			for _, d := range do {
				d(r)
			}
			f.lists["controllerrevisions"][0] = r
		}
	}
	silent := func(since time.Duration) func(*fake) {
		return func(f *fake) {
			f.lists["nodes"] = append(f.lists["nodes"], fakeKubelet("node2", ours, "Unknown", since))
			f.nodes["node2"] = f.nodes["node1"] // the fake answers for it, so that nothing else is found
			for i := range 5 {
				p := fakePod("other", fmt.Sprintf("lost-%d", i), "node2", fmt.Sprintf("10.2.0.%d", i), true)
				f.lists["pods"] = append(f.lists["pods"], p)
			}
		}
	}
	both := func(do ...func(*fake)) func(*fake) {
		return func(f *fake) {
			for _, d := range do {
				d(f)
			}
		}
	}
	for _, c := range []struct {
		code string
		do   func(*fake)
		want string // "warn text", "" for none
	}{
		{"HF002", func(f *fake) { f.nodes["node1"].status = 403 }, "? command line could not be read: 403: the user needs the verb get on nodes/proxy"},
		{"HF002", func(f *fake) { f.nodes["node1"].status = 503 }, "? command line and metrics could not be read: 503: the API server cannot reach it"},
		{"HF002", func(f *fake) { f.nodes["node1"].metrics = "<html>" + secret }, "? its metrics could not be read: the answer has another format than expected"},
		{"HF002", argv(secret), "? its command line could not be read"},
		{"HF002", nil, ""},

		{"HF604", func(f *fake) { unready(f, true) }, "warn ready pods are not among its ready addresses: web-2"},
		{"HF604", func(f *fake) { unready(f, false) }, ""},
		{"HF604", func(f *fake) { unready(f, true)["status"].(object)["podIP"] = "" }, ""},
		{"HF604", func(f *fake) { set(ago(0), "metadata", "deletionTimestamp")(unready(f, true)) }, ""},
		{"HF604", func(f *fake) { set("Succeeded", "status", "phase")(unready(f, true)) }, ""},
		{"HF604", func(f *fake) { set("other", "metadata", "labels", "app")(unready(f, true)) }, ""},
		{"HF604", func(f *fake) { set("shop2", "metadata", "namespace")(unready(f, true)) }, ""},
		{"HF604", func(f *fake) { delete(spec_(unready(f, true)), "containers") }, ""}, // no port "http"
		{"HF604", both(change("services", 0, []any{object{"protocol": "TCP", "targetPort": 8080}}, "spec", "ports"), func(f *fake) { delete(spec_(unready(f, true)), "containers") }), "warn ready pods"},
		{"HF604", both(change("services", 0, []any{}, "spec", "ports"), func(f *fake) { unready(f, true) }), ""},
		{"HF604", both(change("services", 0, []any{}, "spec", "ports"), change("services", 0, "None", "spec", "clusterIP"), func(f *fake) { unready(f, true) }), "warn ready pods"},
		{"HF604", both(change("services", 0, nil, "spec", "selector"), func(f *fake) { unready(f, true) }), ""},
		{"HF604", both(change("endpoints", 0, "3 of 3", "metadata", "annotations", "holdfast/rules"), func(f *fake) { unready(f, true) }), ""},
		{"HF604", func(f *fake) { f.lists["endpoints"] = f.lists["endpoints"][1:] }, "warn ready pods"},
		{"HF604", func(f *fake) {
			for i := range 7 {
				p := unready(f, true)
				set(fmt.Sprintf("web-%d", i), "metadata", "name")(p)
				set(fmt.Sprintf("uid-%d", i), "metadata", "uid")(p)
			}
		}, "warn addresses: web-0, web-1, web-2 and 4 more"},
		{"HF604", func(f *fake) {
			f.lists["endpoints"][0] = fakeEndpoints("shop", "web", f.lists["pods"][0], unready(f, false))
		}, "warn gone or not ready: web-2"},
		{"HF604", func(f *fake) {
			f.lists["endpoints"][0] = fakeEndpoints("shop", "web", f.lists["pods"][0], fakePod("shop", "gone", "node1", "10.1.0.9", true))
		}, "warn gone or not ready: gone"},
		{"HF604", func(f *fake) {
			set(true, "spec", "publishNotReadyAddresses")(f.lists["services"][0])
			f.lists["endpoints"][0] = fakeEndpoints("shop", "web", f.lists["pods"][0], unready(f, false))
		}, ""},
		{"HF604", func(f *fake) {
			unready(f, true)
			f.second = func(f *fake) {
				f.lists["endpoints"][0] = fakeEndpoints("shop", "web", f.lists["pods"][0], f.lists["pods"][2])
			}
		}, ""},
		{"HF604", func(f *fake) {
			unready(f, true)
			f.second = func(f *fake) { f.raw["/api/v1/pods"] = "403 " + secret }
		}, "? seen once, and not checked again (pods: 403: the user needs the verb list on pods): ready pods"},
		{"HF604", refuse("/api/v1/endpoints"), "? not checked: endpoints: 403: the user needs the verb list on endpoints"},
		{"HF604", func(f *fake) { f.raw["/api/v1/pods"] = "<html>" + secret + "</html>" }, "? not the list that was expected"},
		{"HF604", func(f *fake) { f.raw["/api/v1/pods"] = `{"kind":"PodList","items":[{"metadata":{"name":"x"}}` }, "? only half of it"},

		{"HF605", func(f *fake) { f.version = "v1.9.2" }, "warn v1.9.2 sends deletions"},
		{"HF605", func(f *fake) { f.version = "v1.7.12" }, "warn "},
		{"HF605", func(f *fake) { f.version = "v1.8.7" }, "warn "},
		{"HF605", func(f *fake) { f.version = "v1.9.3" }, ""},
		{"HF605", func(f *fake) { f.version = "v1.8.8" }, ""},
		{"HF605", func(f *fake) { f.version = "v1.7.13" }, ""},
		{"HF605", func(f *fake) { f.version = "v1.6.0" }, ""},
		{"HF605", func(f *fake) { f.version = secret }, "? its version is not"},
		{"HF605", refuse("/version"), "? its release could not be read: 403"},

		{"HF611", stuck, "warn no ReplicaSet of its own with its template"},
		{"HF611", both(stuck, change("deployments", 0, 1, "status", "observedGeneration")), ""},
		{"HF611", both(stuck, change("deployments", 0, true, "spec", "paused")), ""},
		{"HF611", both(stuck, change("deployments", 0, ago(0), "metadata", "deletionTimestamp")), ""},
		{"HF611", blocked("app:1", true), "warn it uses replicaset " + nameOf(t, "web", "app:1", -1) + ", which deployment other controls"},
		{"HF611", blocked("app:1", false), "warn which nobody controls"},
		{"HF611", blocked("app:2", true), "warn is taken by another template"},
		{"HF611", both(blocked("app:1", false), change("replicasets", 0, ago(0), "metadata", "deletionTimestamp")), "warn which nobody controls"},
		{"HF611", both(blocked("app:1", false), func(f *fake) { set(ago(0), "metadata", "deletionTimestamp")(f.lists["replicasets"][1]) }), "warn is being deleted"},
		{"HF611", func(f *fake) {
			stuck(f)
			f.second = func(f *fake) {
				f.lists["replicasets"] = append(f.lists["replicasets"], replicaSet(f.lists["deployments"][0], "web-1", "app:1"))
			}
		}, ""},
		{"HF611", both(taken("agent:1"), func(f *fake) {}), "warn it uses controllerrevision " + nameOf(t, "agent", "agent:1", -1) + ", which daemonset other controls"},
		{"HF611", refuse("/apis/apps/v1/replicasets"), "? replicasets: 403"},
		{"HF611", nil, ""},

		{"HF613", taken("agent:2"), "STOP is taken by another template: its next sync crashes"},
		{"HF613", taken("agent:1"), ""},
		{"HF613", both(taken("agent:2"), func(f *fake) { set(1, "status", "collisionCount")(f.lists["daemonsets"][0]) }), ""},
		{"HF613", both(taken("agent:2"), func(f *fake) {
			f.lists["controllerrevisions"] = append(f.lists["controllerrevisions"], revision(f.lists["daemonsets"][0], "DaemonSet", "agent-x", "agent:1", 2))
		}), ""},
		{"HF613", both(taken("agent:2"), func(f *fake) { set(ago(0), "metadata", "deletionTimestamp")(f.lists["daemonsets"][0]) }), ""},
		{"HF613", both(taken("agent:2"), func(f *fake) { f.version = "v1.12.0" }), ""},
		{"HF613", func(f *fake) { f.version = "v1.11.0" }, "? doctor cannot compute the hashes of 1.11"},
		{"HF613", refuse("/apis/apps/v1/controllerrevisions"), "? controllerrevisions: 403"},
		{"HF613", nil, ""},

		{"HF614", change("statefulsets", 0, 1, "status", "collisionCount"), "warn collisionCount is not 0"},
		{"HF614", both(change("statefulsets", 0, 1, "status", "collisionCount"), change("statefulsets", 0, "OnDelete", "spec", "updateStrategy", "type")), ""},
		{"HF614", both(change("statefulsets", 0, 1, "status", "collisionCount"), change("statefulsets", 0, object{"partition": 1}, "spec", "updateStrategy", "rollingUpdate")), ""},
		{"HF614", both(change("statefulsets", 0, 1, "status", "collisionCount"), change("statefulsets", 0, object{"partition": 0}, "spec", "updateStrategy", "rollingUpdate")), "warn "},
		{"HF614", change("controllerrevisions", 2, 1, "revision"), "warn two revisions with the same number"},
		{"HF614", refuse("/apis/apps/v1/statefulsets"), "? statefulsets: 403"},
		{"HF614", nil, ""},

		{"HF615", silent(2 * time.Minute), "warn the node is Unknown, but pods on it are Ready: lost-0, lost-1, lost-2 and 2 more"},
		{"HF615", silent(30 * time.Second), ""},
		{"HF615", func(f *fake) {
			f.lists["pods"] = append(f.lists["pods"], fakePod("other", "lost", "node9", "10.2.0.1", true))
		}, "warn there is no such node, but pods on it are Ready: lost"},
		{"HF615", func(f *fake) {
			f.lists["pods"] = append(f.lists["pods"], fakePod("other", "lost", "node9", "10.2.0.1", false))
		}, ""},
		{"HF615", func(f *fake) {
			p := fakePod("other", "lost", "node9", "10.2.0.1", true)
			status_(p)["conditions"].([]any)[0].(object)["lastTransitionTime"] = ago(10 * time.Second)
			f.lists["pods"] = append(f.lists["pods"], p)
		}, ""},
		{"HF615", func(f *fake) { f.lists["endpoints"][1] = leaseOf("kube-controller-manager", 2*time.Minute) }, `warn its leader, "master1", has not renewed its lease since`},
		{"HF615", func(f *fake) {
			f.lists["endpoints"][1] = leaseOf("kube-controller-manager", 2*time.Minute)
			f.second = func(f *fake) { f.lists["endpoints"][1] = leaseOf("kube-controller-manager", 90*time.Second) }
		}, ""}, // a clock that is behind, and a leader that renews
		{"HF615", func(f *fake) { f.lists["endpoints"] = f.lists["endpoints"][:1] }, ""},

		{"HF621", change("persistentvolumes", 0, object{"image": secret}, "spec", "rbd"), "? there are RBD volumes, but you did not say how to connect to Ceph"},
		{"HF621", change("pods", 0, []any{object{"name": "x", "rbd": object{"image": secret}}}, "spec", "volumes"), "? there are RBD volumes"},
		{"HF621", refuse("/api/v1/persistentvolumes"), "? persistentvolumes: 403"},
		{"HF621", nil, ""},

		{"HF631", func(f *fake) { f.allowed = false }, "warn the user system:kube-controller-manager has no permission to get services"},
		{"HF631", func(f *fake) { f.allowed, f.account = false, true }, "warn the user " + accountUser},
		{"HF631", refuse("/apis/authorization.k8s.io/v1/subjectaccessreviews"), "? 403: the user needs the verb create on subjectaccessreviews"},
		{"HF631", func(f *fake) { f.raw["/apis/authorization.k8s.io/v1/subjectaccessreviews"] = "<html>" }, "? not the JSON"},
		{"HF631", func(f *fake) { f.account = true }, ""},

		{"HF641", func(f *fake) { f.lists["nodes"][0] = fakeKubelet("node1", "v1.10.1", "True", time.Hour) }, "warn its kubelet, 1.10, is newer than the API server, 1.9"},
		{"HF641", func(f *fake) { f.lists["nodes"][0] = fakeKubelet("node1", "v1.6.1", "True", time.Hour) }, "warn its kubelet, 1.6, is more than two"},
		{"HF641", func(f *fake) { f.lists["nodes"][0] = fakeKubelet("node1", "v1.7.1", "True", time.Hour) }, ""},
		{"HF641", func(f *fake) { f.lists["nodes"][0] = fakeKubelet("node1", secret, "True", time.Hour) }, "? release is not known"},
		{"HF641", func(f *fake) {
			f.lists["nodes"] = append(f.lists["nodes"], fakeKubelet("node2", "v1.9.11", "True", time.Hour))
			f.nodes["node2"] = f.nodes["node1"]
		}, "warn 2 releases run: v1.9.11 (1), " + ours + " (1)"},
		{"HF641", func(f *fake) { f.version = "v1.11.3" }, "warn the controller manager, 1.9, and the API server, 1.11, are too far apart"},
		{"HF641", func(f *fake) { f.version = "v1.10.3" }, ""},
		{"HF641", argv(closed + " --feature-gates=SubpathUnbindAfterStart=false,Secret" + secret + "=false"), "warn the feature gate SubpathUnbindAfterStart is off, so a fault of the stock binary is back: when a node goes back"},
		{"HF641", argv(closed + " --feature-gates=SubpathUnbindAfterStart=true"), ""},
		{"HF641", func(f *fake) {
			spec_(f.lists["pods"][1])["containers"].([]any)[0].(object)["command"] = []any{"/bin/sh", "-c", "kube-controller-manager --feature-gates=EndpointsStaleCacheCheck=false --x=" + secret}
		}, "warn the feature gate EndpointsStaleCacheCheck is off"},
		{"HF641", func(f *fake) { f.lists["pods"] = f.lists["pods"][:1] }, "? kube-system has no pod of the controller manager"},
		{"HF641", refuse("/api/v1/namespaces/kube-system/pods/kube-controller-manager-master1:10252/proxy/metrics"), "? 403: the user needs the verb get on pods/proxy"},
		{"HF641", func(f *fake) { f.manager = "x 1\n" }, "? its metrics do not contain its release"},

		{"HF651", metric("holdfast_subpath_rollback_failed_total 3"), "warn a subPath mount could not be removed"},
		{"HF652", metric("holdfast_predecessor_override_refused 1"), "warn is invalid"},
		{"HF653", metric("holdfast_predecessor_save_failed_total 1"), "warn could not be written"},
		{"HF654", metric("holdfast_checkpoint_compat_rewrite_failed_total 1e3"), "warn checkpoint"},
		{"HF655", metric("holdfast_rbd_detach_locks_kept_total 1"), "warn RBD lock"},
		{"HF656", metric(`holdfast_rbd_detach_unused_total{result="kept"} 1`), "warn stays mapped"},
		{"HF656", metric(`holdfast_rbd_detach_unused_total{result="taken"} 1`), ""},
		{"HF657", metric(`holdfast_unready_before_replace_waits_total{outcome="timeout"} 1`), "warn was killed"},
		{"HF657", metric(`holdfast_unready_before_replace_waits_total{outcome="timeout"} 0`), ""},
		{"HF658", manager(`holdfast_endpoints_live_service_check_checks_total{result="error"} 1`), "warn did not say"},
		{"HF658", manager(`holdfast_endpoints_live_service_check_checks_total{result="gone"} 1`), ""},
		{"HF659", manager("holdfast_dead_node_pods_retry_failed_total 2"), "warn could not be marked"},
		{"HF651", metric("holdfast_subpath_rollback_failed_total NaN\nholdfast_subpath_rollback_failed_total"), ""},
		{"HF652", nil, ""}, {"HF653", nil, ""}, {"HF654", nil, ""}, {"HF655", nil, ""}, {"HF659", nil, ""},

		{"HF661", argv("--v=2"), "warn may run commands"},
		{"HF661", argv("--anonymous-auth=false"), "warn --read-only-port"},
		{"HF661", argv("--authorization-mode=Webhook --read-only-port=0"), ""},
		{"HF661", argv("--anonymous_auth=false --read-only-port 0"), ""},
		{"HF661", argv("--config=/x"), "? its --config file"},
		{"HF661", argv(closed + " --authorization-mode=Webhook --config=/x"), ""},
	} {
		f := well()
		if c.do != nil {
			c.do(f)
		}
		out, errs, status := f.doctor(t, "-o", "json", "--fail-on", "warn")
		got := ""
		for _, v := range found(t, out, "finding") {
			if v["code"] == c.code {
				got += fmt.Sprintf("%s %s\n", v["level"], v["text"])
			}
		}
		level, text, _ := strings.Cut(c.want, " ")
		if c.want == "" && got != "" || c.want != "" && (!strings.HasPrefix(got, level) || !strings.Contains(got, text)) {
			t.Errorf("%s: got %q, want %q\n%s%s", c.code, got, c.want, out, errs)
		}
		if want := map[string]int{"STOP": 3, "warn": 3, "?": 1}[level]; want != 0 && status != want && status != 3 {
			t.Errorf("%s: status %d, want %d\n%s", c.code, status, want, out)
		}
	}
}

// Every code of doctor's is in TestCodes, or has a test of its own, and what it alerts on is on a page.
func TestAllCodes(t *testing.T) {
	text, err := os.ReadFile("codes_test.go")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../../patches/*/README.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, p := range pages {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	for _, c := range finding.Codes() {
		if !slices.Contains(c.By, "doctor") {
			continue
		}
		own := c.Code == "HF603" // TestWatch
		if n := strings.Count(string(text), `{"`+c.Code+`",`); n < 2 && !own {
			t.Errorf("%s has %d tests, want one that gives it and one that does not", c.Code, n)
		}
		if a := finding.AlertOf(c.Code); a != nil && !strings.Contains(all.String(), a.Metric) {
			t.Errorf("%s: no page of a fix names %s", c.Code, a.Metric)
		}
	}
}
