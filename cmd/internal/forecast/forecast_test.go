// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/kubeapi"
)

// An answer that cannot be read is asked for once more, and one question of a node only.
func TestAsksAgain(t *testing.T) {
	n := newNode("node1", "v1.7.0")
	n.add(t, "web-0", "1.7", newContainer("app"))
	n.once = map[string]string{"stats/container": `{"/": {"spec`}
	if out, errs, status := newCluster(n).forecast(t, "--node", "node1", "--to", "holdfast"); status != 0 || !strings.Contains(out, "1 kept") {
		t.Errorf("%d %s%s", status, out, errs)
	}
	n.once = map[string]string{"stats/container": "half", "stats/summary": "half"}
	if out, errs, status := newCluster(n).forecast(t, "--node", "node1", "--to", "holdfast"); status != 1 || !strings.Contains(out, "stats/summary") || strings.Contains(out, "stats/container") {
		t.Errorf("two: %d %s%s", status, out, errs)
	}
}

// A node on which all is well has no finding, and every container is kept.
func TestNothingFound(t *testing.T) {
	n := newNode("node1", "v1.7.0")
	n.add(t, "web-0", "1.7", probe(newContainer("app")), newContainer("side"))
	out, errs, status := newCluster(n).forecast(t, "--node", "node1", "--to", "holdfast")
	want := "NODE   KUBELET  TO        PODS  KEPT  NEW  ?\nnode1  v1.7.0   Holdfast  1     2     0    0\n\n1 node, 2 kept, 0 new, 0 not known: nothing found\n"
	if out != want || status != 0 {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
	out, _, _ = newCluster(n).forecast(t, "--node", "node1", "--to", "holdfast", "-o", "json")
	for _, c := range lines(t, out, "container") {
		if c["answer"] != "kept" || c["back"] != "kept" || c["recordedBy"] != "1.7" || c["estimate"] != nil {
			t.Errorf("%v", c)
		}
	}
	if n := len(lines(t, out, "container")); n != 2 {
		t.Errorf("%d containers", n)
	}
}

func TestSelect(t *testing.T) {
	a, b := newNode("a", "v1.9.0"), newNode("b", "v1.9.0")
	for args, want := range map[string]string{"--node a": "a", "--node b,a": "a b", "-l name=b": "b", "--all": "a b"} {
		out, errs, status := newCluster(a, b).forecast(t, append(strings.Fields(args), "--to", "1.9", "-o", "json")...)
		var got []string
		for _, n := range lines(t, out, "node") {
			got = append(got, fmt.Sprint(n["node"]))
		}
		if strings.Join(got, " ") != want || status != 0 {
			t.Errorf("%s: %q, status %d\n%s", args, got, status, errs)
		}
	}
	for args, want := range map[string]int{
		"--node none --to 1.9": exit.Failed, "-l name=x --to 1.9": exit.Failed, "--to 1.9": exit.Usage, "--all": exit.Usage, "--all --node a --to 1.9": exit.Usage,
		"--all --to 1.6": exit.Usage, "--all --to x": exit.Usage, "--all --to 1.10": exit.Usage, "x --all --to 1.9": exit.Usage, "--all --to 1.9 -o xml": exit.Usage, "--all --to 1.9 --fail-on ok": exit.Usage,
	} {
		if out, errs, status := newCluster(a, b).forecast(t, strings.Fields(args)...); status != want && !(want == exit.Usage && strings.Contains(errs, "invalid argument")) {
			t.Errorf("%s: status %d\n%s%s", args, status, out, errs)
		}
	}
	// Nodes that answer alike are one row.
	out, _, _ := newCluster(a, b).forecast(t, "--all", "--to", "1.9")
	if !strings.Contains(out, "a and 1 more") {
		t.Errorf("not grouped:\n%s", out)
	}
	a.refuse["metrics"], a.refuse["stats/summary"] = 500, 500
	if out, _, _ = newCluster(a, b).forecast(t, "--all", "--to", "1.9"); strings.Contains(out, "more") {
		t.Errorf("a node with a ? is grouped:\n%s", out)
	}
}

func TestKubeconfigFromEnvironment(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("KUBECONFIG", "")
	if _, errs, status := execute(t, "--all", "--to", "1.9"); status != exit.Failed || !strings.Contains(errs, ".kube/config") {
		t.Errorf("status %d: %s", status, errs)
	}
	t.Setenv("KUBECONFIG", "/none:"+dir+"/k")
	if err := os.WriteFile(dir+"/k", []byte("current-context: x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, status := execute(t, "--all", "--to", "1.9"); status != exit.Failed || !strings.Contains(errs, dir+"/k") {
		t.Errorf("status %d: %s", status, errs)
	}
}

// 110 pods, and no more requests than promised.
func TestNumbers(t *testing.T) {
	var nodes []*fakeNode
	for i := range 30 {
		nodes = append(nodes, newNode(fmt.Sprintf("node%02d", i), "v1.9.11+holdfast.2"))
	}
	for i := range 110 {
		nodes[0].add(t, fmt.Sprintf("web-%d", i), "1.7", probe(newContainer("app")), newContainer("side"))
	}
	c := newCluster(nodes...)
	// Processor time, with the server's: a loaded machine makes the clock's longer.
	start, wall := cpu(t), time.Now()
	out, errs, status := c.forecast(t, "--node", "node00", "--to", "1.7.16")
	if took := cpu(t) - start; took > 2*time.Second || status != 0 || !strings.Contains(out, "220 kept") {
		t.Errorf("status %d after %s\n%s%s", status, took, out, errs)
	} else {
		t.Logf("110 pods: %s, %s of the processor", time.Since(wall), took)
	}
	c = newCluster(nodes...)
	if out, errs, status := c.forecast(t, "--all", "--to", "1.7.16"); status != 0 || !strings.Contains(errs, "20 of 30 nodes") {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
	if c.most > kubeapi.InFlight {
		t.Errorf("%d requests at the same time", c.most)
	}
	for name, n := range c.requests {
		if name != "" && n > 6 || n > len(nodes)+6 {
			t.Errorf("%d requests for %q", n, name)
		}
	}
}

// The example on the page is what the command prints.
func TestPage(t *testing.T) {
	n := newNode("node1", "v1.7.0")
	proxy := newContainer("proxy")
	proxy["securityContext"] = object{"allowPrivilegeEscalation": false}
	n.add(t, "web-0", "1.7", newContainer("app"), proxy)
	n.add(t, "web-1", "1.7", newContainer("app"))
	out, errs, status := newCluster(n).forecast(t, "--node", "node1", "--to", "holdfast")
	if status != 0 {
		t.Errorf("status %d: %s", status, errs)
	}
	page, err := os.ReadFile("../../../docs/user/kubectl-holdfast.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "$ kubectl holdfast forecast --node node1 --to holdfast\n" + out + "```\n"; !strings.Contains(string(page), want) {
		t.Errorf("docs/user/kubectl-holdfast.md has not:\n%s", want)
	}
}

// cpu is the processor time of this process.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// 500 nodes with 25,000 pods, which takes too long for every run: HOLDFAST_EXHAUSTIVE=1.
func TestManyNodes(t *testing.T) {
	if os.Getenv("HOLDFAST_EXHAUSTIVE") == "" {
		t.Skip("HOLDFAST_EXHAUSTIVE is not set")
	}
	c := newCluster()
	for i := range 500 {
		n := newNode(fmt.Sprintf("node%03d", i), "v1.7.0")
		for p := range 50 {
			n.add(t, fmt.Sprintf("web-%d", p), "1.7", probe(newContainer("app")))
		}
		c.nodes = append(c.nodes, n)
	}
	s := httptest.NewServer(c)
	defer s.Close()
	// In a process of its own, so that what is counted is the program's.
	cmd := exec.Command(os.Args[0], "--all", "--to", "holdfast", "--kubeconfig", kubeconfig(t, s.URL))
	cmd.Env = append(os.Environ(), "FORECAST_CHILD=1")
	start := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(start)
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() // see TestNumbers
	if err != nil || !strings.Contains(string(out), "25000 kept") || used > 3*time.Minute {
		t.Fatalf("%v after %s, %s of the processor\n%s", err, took, used, out)
	}
	// Not ru_maxrss: it begins with this process's.
	_, peak, _ := strings.Cut(string(out), "VmHWM:")
	memory := 0
	if _, err := fmt.Sscan(peak, &memory); err != nil {
		t.Fatal(err)
	}
	memory >>= 10
	if c.most > kubeapi.InFlight || memory > 300 {
		t.Errorf("%d requests at the same time, %d MiB", c.most, memory)
	}
	for name, n := range c.requests {
		if name != "" && n > 5 || n > len(c.nodes)+6 { // and one for its pods
			t.Errorf("%d requests for %q", n, name)
		}
	}
	t.Logf("500 nodes, 25,000 pods: %s, %s of the processor, %d MiB, %d requests in flight", took, used, memory, c.most)
}

// TestMain is the program that TestManyNodes measures.
func TestMain(m *testing.M) {
	if os.Getenv("FORECAST_CHILD") == "" {
		os.Exit(m.Run())
	}
	cmd := Command()
	cmd.SetArgs(os.Args[1:])
	err := cmd.ExecuteContext(context.Background())
	status, _ := os.ReadFile("/proc/self/status")
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	fmt.Println("VmHWM:" + peak) // KiB
	os.Exit(exit.Code(err))
}

// The page has all that the table has, without a script, an outside link or a name that is read as HTML.
func TestHTML(t *testing.T) {
	const bad = "<script>alert(1)</script>"
	n, m := newNode("node1", "v1.7.0"), newNode("node2", "v1.7.0")
	c := newContainer(bad)
	c["securityContext"] = object{"allowPrivilegeEscalation": false}
	p := n.add(t, "web", "1.7", c)
	p["metadata"].(object)["name"] = bad
	spec(p)["nodeSelector"] = object{bad: secret}
	n.labels[secret] = secret
	out, errs, status := newCluster(n, m).forecast(t, "--all", "--to", "holdfast", "-o", "html")
	if status != 0 || !strings.HasPrefix(out, "<!DOCTYPE html>") || !strings.HasSuffix(out, "</html>\n") {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
	for _, wanted := range []string{"HF201", "HF206", "&lt;script&gt;alert(1)&lt;/script&gt;", "<td>node1</td>", "<td>node1, node2</td>", "1 new"} {
		if !strings.Contains(out, wanted) {
			t.Errorf("the page has no %s\n%s", wanted, out)
		}
	}
	for _, never := range []string{"<script", "http:", "https:", "src=", "href=", "url(", "@import"} {
		if strings.Contains(out, never) {
			t.Errorf("the page has %s\n%s", never, out)
		}
	}
}
