// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rollingupdates

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/rbdlab"
)

func image(pod string) string { return "image-of-" + pod }

// told is an event of a pod db-1 between these seconds.
func told(uid, text string, first, last int64) waited {
	return waited{Pod: "db-1", UID: uid, Text: text, Count: 2, First: time.Unix(first, 0), Last: time.Unix(last, 0)}
}

// goodRBD is what a run records in which all is well.
func goodRBD() []any {
	var out []any
	lines := map[string][]string{}
	for _, p := range podNames() {
		out = append(out, claimed{p, image(p)}, held{Pod: p, Mapped: []string{"node1"}, Mounted: []string{"node1"}})
	}
	for _, x := range rollouts {
		o := rolled{By: x.by, Version: x.version, Node: x.node, Seconds: 60}
		for _, name := range podNames() {
			p := pod{Name: name, UID: name + " " + x.by, Node: x.node, Image: node.WebImage(x.version), Ready: true}
			if p.Node == "" {
				p.Node = "node1"
			}
			lines[name] = append(slices.Clone(lines[name]), o.line(p))
			p.Lines = lines[name]
			o.Pods = append(o.Pods, p)
			out = append(out, rbdlab.State{Image: image(name), When: x.by, Watchers: []string{"10.90.0.11:0/42"}, Mapped: []string{p.Node}, Mounts: []rbdlab.Mount{{Node: p.Node}}})
		}
		out = append(out, o)
	}
	for _, c := range rbdCommands() {
		out = append(out, ran{Name: c.name, Output: "x " + c.says})
	}
	for _, n := range []string{strategic, mergePatch, jsonPatch} {
		out = append(out, asked{n, 200, "{}"})
	}
	for _, p := range podNames() {
		out = append(out, rbdlab.State{Image: image(p), When: atEnd}, rbdlab.Contents{Image: image(p), When: atEnd, Files: map[string]string{startsFile: strings.Join(lines[p], "\n")}})
	}
	return append(out, watched{Looks: 1000, Longest: 1}, waits{[]waited{told("a", "Multi-Attach error for volume", 0, 90), told("b", "rbd image is locked by other nodes", 5, 10), told("c", "rbd image is locked by other nodes", 200, 205)}})
}

func TestJudgeRBD(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "rolling-updates-rbd")
	made := func(c judgetest.Change) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(labkit.Ours), Profile: string(labkit.Long)}, c.Of(goodRBD())...)
	}
	judgetest.Cut(t, l, made(nil))
	by := func(name string) func(rolled) bool { return func(o rolled) bool { return o.By == name } }
	pods := func(name string, f func(*pod)) judgetest.Change {
		return judgetest.Where(by(name), func(o *rolled) {
			o.Pods = slices.Clone(o.Pods)
			f(&o.Pods[1])
		})
	}
	state := func(when string, f func(*rbdlab.State)) judgetest.Change {
		return judgetest.Where(func(s rbdlab.State) bool { return s.When == when && s.Image == image("db-1") }, f)
	}
	content := func(f func(*rbdlab.Contents)) judgetest.Change {
		return judgetest.Where(func(c rbdlab.Contents) bool { return c.Image == image("db-2") }, f)
	}
	command := func(name string, f func(*ran)) judgetest.Change {
		return judgetest.Where(func(r ran) bool { return r.Name == name }, f)
	}
	holds := func(f func(*held)) judgetest.Change {
		return judgetest.Where(func(h held) bool { return h.Pod == "db-0" }, f)
	}
	judgetest.Judged(t, l, labkit.Failed, made, map[string]judgetest.Change{
		"undo: db-1 is not Ready":                     pods(undone, func(p *pod) { p.Ready = false }),
		"undo: db-1 has the image holdfast.test/web":  pods(undone, func(p *pod) { p.Image = node.WebImage("v1") }),
		"merge patch: db-1 is on node1, want node2":   pods(mergePatch, func(p *pod) { p.Node = "node1" }),
		"merge patch: db-1 serves the lines []":       pods(mergePatch, func(p *pod) { p.Lines = nil }),
		"strategic merge patch: the pods are [db-0 d": judgetest.Where(by(strategic), func(o *rolled) { o.Pods = o.Pods[:2] }),
		// An empty volume has the pod's own line only.
		`JSON patch: db-1 has the lines ["v1 db-1 JSON patch node1"]`:  pods(jsonPatch, func(p *pod) { p.Lines = p.Lines[len(p.Lines)-1:] }),
		"create --record: db-1 has the lines":                          pods(create, func(p *pod) { p.Lines = append([]string{"of another"}, p.Lines...) }),
		"JSON patch: the image of db-1 on node1 is mapped on [node1 n": state(jsonPatch, func(s *rbdlab.State) { s.Mapped = []string{"node1", "node2"} }),
		"is mapped on [node1], mounted for writing on []":              state(jsonPatch, func(s *rbdlab.State) { s.Mounts = nil }),
		"watched by [a b]":                                            state(jsonPatch, func(s *rbdlab.State) { s.Watchers = []string{"a", "b"} }),
		"locked by [{a":                                               state(jsonPatch, func(s *rbdlab.State) { s.Locks = []rbdlab.Lock{{ID: "a"}} }),
		"is not free at the end":                                      state(atEnd, func(s *rbdlab.State) { s.Watchers = []string{"a"} }),
		"image of db-0 is mapped on [node1 node2]":                    holds(func(h *held) { h.Mapped = []string{"node1", "node2"} }),
		"mounted on [node1 node2] at once":                            holds(func(h *held) { h.Mounted = []string{"node1", "node2"} }),
		"image of db-2 is not clean: exit":                            content(func(c *rbdlab.Contents) { c.Fsck = "exit status 4" }),
		`image of db-2 has the lines ""`:                              content(func(c *rbdlab.Contents) { c.Files = nil }),
		"kubectl scale ends with status 1":                            command(scaled, func(r *ran) { r.Exit = 1 }),
		"kubectl merge patch: rollout status ends with status -1":     command(mergePatch+": "+status, func(r *ran) { r.Exit = -1 }),
		`kubectl apply --record ends with status 0, want 0 and "conf`: command(applied, func(r *ran) { r.Output = "unchanged" }),
		"the JSON patch answers 500":                                  judgetest.Where(func(a asked) bool { return a.Name == jsonPatch }, func(a *asked) { a.Code = 500 }),
		"db-1 was reported for 31s: rbd image is locked":              judgetest.As(waits{[]waited{told("a", "rbd image is locked by other nodes", 5, 36)}}),
		"db-1 was reported for 31s: rbd image y is still being used":  judgetest.As(waits{[]waited{told("a", "rbd image x is still being used", 31, 31), told("a", "rbd image y is still being used", 0, 0)}}),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, made, map[string]judgetest.Change{
		"the mounts were not read all the time: {Looks:9 Longest:16": judgetest.As(watched{Looks: 9, Longest: 16}),
		"Failed:no table":                  judgetest.As(watched{Looks: 9, Failed: "no table"}),
		"the mounts of db-0":               holds(func(h *held) { h.Mapped, h.Mounted = nil, nil }),
		"the outcome of rollout undo --to": judgetest.Where(by(undoneTo), func(o *rolled) { o.Version = "v2" }),
		"the outcome of merge patch":       judgetest.Without(by(mergePatch)),
	})
}

func TestWatch(t *testing.T) {
	one, two := []string{"node1"}, []string{"node1", "node2"}
	// looks are what each look at db-0 sees; the other pods' images are on no node.
	watching := func(looks ...held) *watch {
		ctx, end := context.WithCancel(context.Background())
		w := &watch{end: end, done: make(chan struct{})}
		go func() {
			defer close(w.done)
			w.run(ctx, func(pod string) (held, error) {
				if pod != "db-0" {
					return held{}, nil
				}
				if len(looks) == 0 {
					return held{}, errors.New("no more")
				}
				h := looks[0]
				looks = looks[1:]
				return h, nil
			})
		}()
		<-w.done
		end()
		return w
	}
	most := func(w *watch) int {
		n := 0
		for _, h := range w.held {
			n = max(n, h.most())
		}
		return n
	}
	if w := watching(held{Mapped: one, Mounted: one}, held{Mapped: two, Mounted: two}, held{Mapped: two, Mounted: two}); most(w) != 2 || w.how.Failed != "db-0: no more" {
		t.Errorf("%+v", w)
	}
	// What only one of two looks has seen on both nodes was never on both at once.
	if w := watching(held{Mapped: two, Mounted: two}, held{Mapped: []string{"node2"}}); most(w) != 1 {
		t.Errorf("%+v", w)
	}
	w := watching(held{Mapped: one}, held{Mapped: one}, held{Mapped: one, Mounted: one})
	if got := slices.DeleteFunc(w.held, func(h held) bool { return h.Pod != "" && h.Pod != "db-0" }); w.how.Looks != 3 || most(w) != 1 || len(got) != 4 {
		t.Errorf("%+v", w) // two changes of db-0, and that the others have none
	}
}

func TestImagePatch(t *testing.T) {
	o := &kube.Object{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "web", "image": "old", "tty": true}}}}}}}
	for name, want := range map[string]string{
		strategic:  `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"new"}]}}}}`,
		mergePatch: `{"spec":{"template":{"spec":{"containers":[{"image":"new","name":"web","tty":true}]}}}}`,
		jsonPatch:  `[{"op":"test","path":"/spec/template/spec/containers/0/name","value":"web"},{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"new"}]`,
	} {
		kind, body, err := imagePatch(name, o, "new")
		if err != nil || body != want || kind != "application/"+strings.ReplaceAll(strings.TrimSuffix(strings.ToLower(name), " patch"), " ", "-")+"-patch+json" {
			t.Errorf("%s: %s %s (%v)", name, kind, body, err)
		}
	}
	if kube.Slice(o, "spec", "template", "spec", "containers")[0].(map[string]any)["image"] != "old" {
		t.Error("the object was changed")
	}
	if _, _, err := imagePatch("x", o, "new"); err == nil {
		t.Error("an unknown patch")
	}
}
