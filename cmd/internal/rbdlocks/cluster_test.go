// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlocks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/cmd/internal/exit"
)

// fakeAPI answers with texts; an empty one is an error.
type fakeAPI map[string]string

func (f fakeAPI) Get(_ context.Context, path string, v any) error {
	text := f[strings.TrimPrefix(path, "/api/v1/")]
	if text == "" {
		return errors.New("GET " + path + ": 403 Forbidden")
	}
	return json.Unmarshal([]byte(text), v)
}

// releases are what API servers answer, with the fields of the types in their v1/types.go: up
// to 1.2 a node has no volumes in its status (1.3 has volumesInUse and volumesAttached), and
// an address may be a LegacyHostIP (until 1.7). In an answer of 1.2 the server has set pool,
// user and keyring; one that leaves them out means rbd.
var releases = map[string]struct {
	api  fakeAPI
	pods bool // only pods say who has it
}{
	"1.2": {fakeAPI{
		"nodes": `{"kind":"NodeList","apiVersion":"v1","metadata":{"selfLink":"/api/v1/nodes","resourceVersion":"9"},"items":[{"metadata":{"name":"n1","uid":"u","labels":{"kubernetes.io/hostname":"n1"}},
 "spec":{"externalID":"n1"},"status":{"capacity":{"cpu":"2"},"addresses":[{"type":"LegacyHostIP","address":"10.0.0.11"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":10250}},
 "nodeInfo":{"machineID":"m","kubeletVersion":"v1.2.0","kubeProxyVersion":"v1.2.0"},"images":[{"names":["x"],"sizeBytes":1}]}}]}`,
		"persistentvolumes": `{"kind":"PersistentVolumeList","apiVersion":"v1","items":[{"metadata":{"name":"pv"},"spec":{"capacity":{"storage":"1Gi"},
 "rbd":{"monitors":["10.0.0.1:6789","10.0.0.2:6789"],"image":"img","fsType":"ext4","pool":"rbd","user":"admin","keyring":"/etc/ceph/keyring","secretRef":null},
 "accessModes":["ReadWriteOnce"],"claimRef":{"kind":"PersistentVolumeClaim","namespace":"ns","name":"c","uid":"x"},"persistentVolumeReclaimPolicy":"Retain"},"status":{"phase":"Bound"}}]}`,
		"pods": `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"p","namespace":"ns"},"spec":{"nodeName":"n1","volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"c"}}],
 "containers":[{"name":"c","image":"x"}]},"status":{"phase":"Running"}}]}`,
	}, true},
	"1.5": {fakeAPI{
		"nodes": `{"items":[{"metadata":{"name":"n1"},"status":{"addresses":[{"type":"LegacyHostIP","address":"10.0.0.11"},{"type":"InternalIP","address":"10.0.0.11"},{"type":"Hostname","address":"N1"}],
 "nodeInfo":{"kubeletVersion":"v1.5.8","operatingSystem":"linux"},"volumesInUse":["kubernetes.io/nfs/x"]}}]}`,
		"persistentvolumes": `{"items":[{"metadata":{"name":"pv","annotations":{"pv.kubernetes.io/bound-by-controller":"yes"}},"spec":{"rbd":{"monitors":["10.0.0.1:6789","10.0.0.2:6789"],"image":"img","pool":"rbd","user":"admin",
 "keyring":"/etc/ceph/keyring","secretRef":{"name":"s"}},"claimRef":{"namespace":"ns","name":"c"}}}]}`,
		"pods": `{"items":[{"metadata":{"name":"p","namespace":"ns"},"spec":{"nodeName":"n1","volumes":[{"name":"t","secret":{"secretName":"x"}},{"name":"d","persistentVolumeClaim":{"claimName":"c"}}]},"status":{"phase":"Pending"}}]}`,
	}, true},
	"1.9": {fakeAPI{
		"nodes": `{"items":[{"metadata":{"name":"n1","annotations":{"volumes.kubernetes.io/controller-managed-attach-detach":"true"}},"spec":{"podCIDR":"10.1.0.0/24","taints":[{"key":"k","effect":"NoSchedule","timeAdded":null}]},
 "status":{"addresses":[{"type":"InternalIP","address":"10.0.0.11"},{"type":"Hostname","address":"n1"},{"type":"InternalDNS","address":"n1.x"}],"nodeInfo":{"kubeletVersion":"v1.9.11+holdfast.2"},
 "volumesInUse":["kubernetes.io/rbd/[10.0.0.1:6789 10.0.0.2:6789]:img"],"volumesAttached":[{"name":"kubernetes.io/rbd/[10.0.0.1:6789 10.0.0.2:6789]:img","devicePath":""}]}}]}`,
		"persistentvolumes": `{"items":[{"metadata":{"name":"pv","finalizers":["kubernetes.io/pv-protection"]},"spec":{"rbd":{"monitors":["10.0.0.1:6789","10.0.0.2:6789"],"image":"img","pool":"rbd","user":"admin",
 "keyring":"/etc/ceph/keyring","secretRef":{"name":"s","namespace":"kube-system"}},"claimRef":{"namespace":"ns","name":"c"},"storageClassName":"x","volumeMode":"Filesystem"}}]}`,
		"pods": `{"items":[]}`,
	}, false},
	"1.10 (names have the pool)": {fakeAPI{
		"nodes": `{"items":[{"metadata":{"name":"n1"},"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.11"},{"type":"Hostname","address":"n1"}],"nodeInfo":{"kubeletVersion":"v1.10.13"},
 "volumesAttached":[{"name":"kubernetes.io/rbd/rbd:img","devicePath":""}]}}]}`,
		"persistentvolumes": `{"items":[{"metadata":{"name":"pv"},"spec":{"rbd":{"monitors":["10.0.0.1:6789","10.0.0.2:6789"],"image":"img"}}}]}`,
		"pods":              `{"items":[]}`,
	}, false},
}

// An image that node n1 has open is in use by what each release's API says, and a lock of its
// host is its own.
func TestReleases(t *testing.T) {
	own := []Lock{{"kubelet_lock_magic_n1", "client.1", "10.0.0.11:0/1"}}
	for name, x := range releases {
		c, err := read(t.Context(), x.api)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(c.volumes) != 1 || c.volumes[0].name() != "rbd/img" || !slices.Equal(c.volumes[0].pvs, []string{"pv"}) || c.volumes[0].err != "" || c.nodes[0].minor < 2 {
			t.Errorf("%s: %+v, node %+v", name, c.volumes, c.nodes[0])
		}
		a := c.judge(c.volumes[0], own, []Watcher{{Address: "10.0.0.11:0/1", Client: "client.1"}})
		if a.Verdict != InUse || !slices.Equal(a.Nodes, []string{"n1"}) || (len(a.Pods) > 0) != x.pods {
			t.Errorf("%s: %+v", name, a)
		}
		if a := c.judge(c.volumes[0], nil, []Watcher{{Address: "10.0.0.12:0/1", Client: "client.1"}}); a.Verdict != LeakedMapping {
			t.Errorf("%s, a stranger: %+v", name, a)
		}
	}
}

// Kinds that cannot be read are named, and the rest is there; pods and PersistentVolumes
// are the sources of what to look at.
func TestReadsWhatItCan(t *testing.T) {
	for _, kind := range []string{"nodes", "pods", "persistentvolumes"} {
		api := fakeAPI{}
		for k, v := range releases["1.2"].api {
			api[k] = v
		}
		api["pods"] = `{"items":[{"metadata":{"name":"p","namespace":"ns"},"spec":{"nodeName":"n1","volumes":[{"name":"d","rbd":{"monitors":["m"],"image":"inline","pool":"p"}}]},"status":{"phase":"Running"}}]}`
		api[kind] = ""
		c, err := read(t.Context(), api)
		if err != nil || !slices.Equal(c.unread, []string{kind}) || len(c.errs) != 1 || !strings.Contains(c.errs[0].Error(), kind) || !c.blind() {
			t.Fatalf("%s: %+v, %v", kind, c, err)
		}
		if want := map[string]int{"nodes": 2, "pods": 1, "persistentvolumes": 1}[kind]; len(c.volumes) != want {
			t.Errorf("%s: %d volumes", kind, len(c.volumes))
		}
	}
	if _, err := read(t.Context(), fakeAPI{"nodes": `{"items":[]}`}); err == nil {
		t.Error("neither pods nor PersistentVolumes, and no error")
	}
}

// A released volume keeps its claim's name; the pod is the bound one's. Without a phase it is
// of both. Monitors in another order are the same Ceph.
func TestClaims(t *testing.T) {
	pv := func(image, phase, monitors string) string {
		return `{"metadata":{"name":"pv-` + image + `"},"spec":{"rbd":{"monitors":[` + monitors + `],"image":"` + image + `"},"claimRef":{"namespace":"ns","name":"c"}},"status":{"phase":"` + phase + `"}}`
	}
	bound, released, old := pv("bound", "Bound", `"m1","m2"`), pv("released", "Released", `"m1"`), pv("old", "Released", `"m1"`)
	for _, c := range []struct{ pvs, want string }{
		{bound + "," + released, "bound"}, {released + "," + bound, "bound"}, {released + "," + bound + "," + old, "bound"},
		{released + "," + old, "old released"}, {bound + "," + pv("bound", "Bound", `"m2","m1"`), "bound"},
	} {
		cl, err := read(t.Context(), fakeAPI{"nodes": `{"items":[{"metadata":{"name":"n1"},"status":{"volumesInUse":["kubernetes.io/rbd/[m2 m1]:bound"]}}]}`, "persistentvolumes": `{"items":[` + c.pvs + `]}`,
			"pods": `{"items":[{"metadata":{"name":"p","namespace":"ns"},"spec":{"nodeName":"n1","volumes":[{"persistentVolumeClaim":{"claimName":"c"}}]},"status":{"phase":"Running"}}]}`})
		if err != nil {
			t.Fatal(err)
		}
		var with []string
		for _, v := range cl.volumes {
			for range v.users {
				with = append(with, v.image)
			}
			if len(v.orders) > 0 && !cl.nodes[0].reports(v) {
				t.Errorf("the other order of the monitors is not looked for")
			}
		}
		if got := strings.Join(with, " "); got != c.want {
			t.Errorf("%s: the pod has %q, want %q", c.pvs, got, c.want)
		}
	}
}

// laterAPI has the pod when pods are read again.
type laterAPI struct {
	fakeAPI
	reads int
}

func (l *laterAPI) Get(ctx context.Context, path string, v any) error {
	if path == "/api/v1/pods" {
		if l.reads++; l.reads == 1 {
			return json.Unmarshal([]byte(`{"items":[]}`), v)
		}
	}
	return l.fakeAPI.Get(ctx, path, v)
}

// What the API said may be old when an image's turn comes: a finding is judged again.
func TestFindingsAreFresh(t *testing.T) {
	_, r := serve(t, http.StatusOK)
	for _, fresh := range []time.Duration{0, time.Hour} {
		r.limits.fresh = fresh
		api := &laterAPI{fakeAPI: fakeAPI{"nodes": nodes, "persistentvolumes": `{"items":[{"metadata":{"name":"a"},"spec":{"rbd":{"monitors":["10.0.0.1:6789"],"image":"leaked","pool":"rbd"}}}]}`,
			"pods": strings.Replace(pods, "Succeeded", "Running", 1)}}
		var out, errs strings.Builder
		if err := run(t.Context(), api, r, "rbd/leaked", "json", &out, &errs); (err == nil) != (fresh == 0) || strings.Contains(out.String(), string(InUse)) != (fresh == 0) {
			t.Errorf("%v: %v: %s", fresh, err, out.String())
		}
	}
}

// Findings come first: the exit status is 3 also where something could not be read, 1 without
// findings. The answers are printed all the same, and the error says what is missing.
func TestPartlyRead(t *testing.T) {
	_, r := serve(t, http.StatusOK)
	status := map[string]int{"nodes": exit.Found, "persistentvolumes": exit.Failed}
	for kind, want := range map[string]string{"nodes": "in-use", "persistentvolumes": ""} {
		api := fakeAPI{"nodes": nodes, "pods": pods, "persistentvolumes": `{"items":[{"metadata":{"name":"a"},"spec":{"rbd":{"monitors":["10.0.0.1:6789"],"image":"stale","pool":"rbd"}}}]}`}
		api[kind] = ""
		var out, errs strings.Builder
		err := run(t.Context(), api, r, "", "table", &out, &errs)
		if exit.Code(err) != status[kind] || !strings.Contains(err.Error(), kind) || !strings.Contains(errs.String(), "403 Forbidden") {
			t.Errorf("%s: %v: %s", kind, err, errs.String())
		}
		if !strings.Contains(out.String(), "rbd/double") || strings.Contains(out.String(), "rbd/stale") != (kind == "nodes") || kind == "nodes" && strings.Contains(out.String(), want) {
			t.Errorf("%s: %s", kind, out.String())
		}
	}
}

// rbd that never answers makes a row, and a name that looks like an option is none.
func TestRBDHangs(t *testing.T) {
	r := newCeph(filepath.Join(t.TempDir(), "rbd"))
	r.limits.question = 50 * time.Millisecond
	if err := os.WriteFile(r.program, []byte("#!/bin/sh\nsleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	a := threeNodes().answer(t.Context(), r, &volume{pool: "rbd", image: "img"})
	if a.Verdict != Unknown || !strings.Contains(a.Note, "no answer within 50ms") {
		t.Errorf("%+v", a)
	}
	r.limits.question = time.Minute
	if err := os.WriteFile(r.program, []byte("#!/bin/sh\necho \"$@\" >&2; exit 2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	a = threeNodes().answer(t.Context(), r, &volume{pool: "-c", image: "--conf"})
	if !strings.Contains(a.Note, "--pool=-c --image=--conf ") {
		t.Errorf("%+v", a)
	}
}

// Monitors that do not answer three times in a row are not asked again, others are.
func TestSilentMonitors(t *testing.T) {
	dir := t.TempDir()
	r := newCeph(filepath.Join(dir, "rbd"))
	r.limits.question, r.limits.silence, r.limits.progress = time.Minute, 100*time.Millisecond, 0
	script := "#!/bin/sh\ncd " + dir + "\necho >> calls\ncase \"$*\" in *10.0.0.9*) sleep 0.2; exit 1;; esac\n[ \"$1\" = lock ] && echo '[]' && exit\necho '{\"watchers\":[]}'\n"
	if err := os.WriteFile(r.program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	var items []string
	for i := range 9 {
		monitor := map[bool]string{true: "10.0.0.9", false: "10.0.0.1"}[i < 6]
		items = append(items, fmt.Sprintf(`{"metadata":{"name":"pv%d"},"spec":{"rbd":{"monitors":["%s:6789"],"image":"image%d","pool":"rbd"}}}`, i, monitor, i))
	}
	api := fakeAPI{"nodes": nodes, "pods": `{"items":[]}`, "persistentvolumes": `{"items":[` + strings.Join(items, ",") + `]}`}
	var out, errs strings.Builder
	err := run(t.Context(), api, r, "", "table", &out, &errs)
	if exit.Code(err) != exit.Failed || !strings.Contains(err.Error(), "6 of 9 images could not be read") {
		t.Error(err)
	}
	if n := strings.Count(out.String(), "not checked: for the last 3 images"); n != 3 || strings.Count(out.String(), "free") != 3 {
		t.Errorf("%d were not asked:\n%s", n, out.String())
	}
	calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
	if n := strings.Count(string(calls), "\n"); n != 3+2*3 {
		t.Errorf("rbd was asked %d times", n)
	}
	if !strings.Contains(errs.String(), "8 of 9 images were checked") {
		t.Error(errs.String())
	}
}

// Monitors that are down silence every pool, whatever their order in a volume; a pool that is
// down silences itself; an answer ends the silence, and a quick error is none.
func TestQuiet(t *testing.T) {
	r := &ceph{id: "u", limits: defaultLimits()}
	silence, silences := r.limits.silence, r.limits.silences
	image := func(pool string, monitors ...string) *volume { return &volume{pool: pool, monitors: monitors} }
	a, b, other := image("a", "m1", "m2"), image("b", "m2", "m1"), image("a", "m3")
	q := quiet{}
	for range silences {
		if q.silent(r, a) {
			t.Error("silent too early")
		}
		q.heard(r, a, false, silence)
		q.heard(r, a, false, silence/2)
	}
	if !q.silent(r, image("a", "m2", "m1")) || q.silent(r, b) || q.silent(r, other) {
		t.Errorf("after pool a: %v", q)
	}
	q.heard(r, b, false, silence)
	if !q.silent(r, b) || q.silent(r, image("c", "m1", "m2")) {
		t.Errorf("after one image of pool b: %v", q)
	}
	q = quiet{}
	for range silences {
		q.heard(r, a, false, silence)
	}
	q.heard(r, b, true, 0)
	if !q.silent(r, a) || q.silent(r, b) {
		t.Errorf("pool a is down, and b answers: %v", q)
	}
	q.heard(r, b, false, silence)
	if q.silent(r, b) {
		t.Errorf("one silence of a pool that answered is enough: %v", q)
	}
}

// Rows are printed also where the API server is away when a finding is to be judged again.
func TestRowsBeforeAFailure(t *testing.T) {
	_, r := serve(t, http.StatusOK)
	r.limits.fresh = 0
	api := fakeAPI{"nodes": nodes, "pods": `{"items":[]}`, "persistentvolumes": `{"items":[{"metadata":{"name":"a"},"spec":{"rbd":{"monitors":["10.0.0.1:6789"],"image":"free","pool":"rbd"}}},` +
		`{"metadata":{"name":"b"},"spec":{"rbd":{"monitors":["10.0.0.1:6789"],"image":"leaked","pool":"rbd"}}}]}`}
	var out, errs strings.Builder
	err := run(t.Context(), &failingAPI{fakeAPI: api, reads: 3}, r, "", "table", &out, &errs)
	if exit.Code(err) != exit.Failed || !strings.Contains(err.Error(), "the API server: ") || !strings.Contains(out.String(), "rbd/free") || strings.Contains(out.String(), "rbd/leaked") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// failingAPI answers as often as reads says.
type failingAPI struct {
	fakeAPI
	reads int
}

func (f *failingAPI) Get(ctx context.Context, path string, v any) error {
	if f.reads--; f.reads < 0 {
		return errors.New("gone")
	}
	return f.fakeAPI.Get(ctx, path, v)
}

// A kubelet up to 1.8 locks and then maps. An image with its lock and no watcher is looked at
// again, any other once; the locks are read before the watchers.
func TestLockedAndNotYetMapped(t *testing.T) {
	dir := t.TempDir()
	r := newCeph(filepath.Join(dir, "rbd"))
	for name, c := range map[string]struct {
		locks, first, second string // watchers of the first and of any later status
		want                 Verdict
		calls                string
	}{
		"it maps":           {`[{"id":"kubelet_lock_magic_node1","locker":"client.11","address":"10.0.0.11:0/8"}]`, `[]`, `[{"address":"10.0.0.11:0/1","client":1}]`, InUse, "lock status status "},
		"it does not":       {`[{"id":"kubelet_lock_magic_node1","locker":"client.11","address":"10.0.0.11:0/8"}]`, `[]`, `[]`, StaleLock, "lock status status "},
		"it has mapped":     {`[{"id":"kubelet_lock_magic_node1","locker":"client.11","address":"10.0.0.11:0/8"}]`, `[{"address":"10.0.0.11:0/1","client":1}]`, `[]`, InUse, "lock status "},
		"no lock":           {`[]`, `[]`, `[]`, Free, "lock status "},
		"another's lock":    {`[{"id":"backup","locker":"client.15","address":"10.0.0.50:0/8"}]`, `[]`, `[]`, ForeignLock, "lock status "},
		"then it is broken": {`[{"id":"kubelet_lock_magic_node1","locker":"client.11","address":"10.0.0.11:0/8"}]`, `[]`, `"x"`, Unknown, "lock status status "},
	} {
		_ = os.Remove(filepath.Join(dir, "calls"))
		script := `#!/bin/sh
cd ` + dir + `
printf '%s ' "$1" >> calls
[ "$1" = lock ] && echo '` + c.locks + `' && exit
[ "$(cat calls)" = "lock status " ] && echo '{"watchers":` + c.first + `}' && exit
echo '{"watchers":` + c.second + `}'
`
		if err := os.WriteFile(r.program, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		a := threeNodes().answer(t.Context(), r, &volume{pool: "rbd", image: "img", users: []user{writer1}})
		calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
		if a.Verdict != c.want || string(calls) != c.calls || len(a.Remedy) > 0 {
			t.Errorf("%s: %+v, want %s; rbd was asked %q, want %q", name, a, c.want, calls, c.calls)
		}
	}
}

// An interrupt ends the pause between the two looks, and nothing is said of the image.
func TestInterruptedPause(t *testing.T) {
	r := newCeph(filepath.Join(t.TempDir(), "rbd"))
	r.limits.mapping = time.Hour
	script := `#!/bin/sh
[ "$1" = lock ] && echo '[{"id":"kubelet_lock_magic_node1","locker":"client.11","address":"10.0.0.11:0/8"}]' && exit
echo '{"watchers":[]}'
`
	if err := os.WriteFile(r.program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	if a := threeNodes().answer(ctx, r, &volume{pool: "rbd", image: "img"}); a.Verdict != Unknown || len(a.Remedy) > 0 {
		t.Errorf("%+v", a)
	}
}
