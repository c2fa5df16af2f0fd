// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/cmd/internal/exit"
)

// again gives the containers of a pod other IDs, as if they were recreated.
func (n *fakeNode) again(pod string) {
	for name, c := range n.cgroups {
		if strings.Contains(name, "-"+pod+"/0") {
			delete(n.cgroups, name)
			n.cgroups[strings.Replace(name, "/0", "/f", 1)] = c
		}
	}
}

func verify(t *testing.T, c *fakeCluster, plan string, args ...string) (out, errs string, status int) {
	t.Helper()
	s := httptest.NewServer(c)
	defer s.Close()
	file := filepath.Join(t.TempDir(), "plan")
	if err := os.WriteFile(file, []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := VerifyCommand()
	var stdout, stderr bytes.Buffer
	cmd.SetArgs(append(args, "--plan", file, "--kubeconfig", kubeconfig(t, s.URL)))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.Execute()
	if err != nil {
		fmt.Fprintln(&stderr, err)
	}
	if strings.Contains(stdout.String()+stderr.String(), secret) {
		t.Errorf("it shows a secret:\n%s%s", &stdout, &stderr)
	}
	return stdout.String(), stderr.String(), exit.Code(err)
}

func TestVerify(t *testing.T) {
	make := func() (*fakeNode, *fakeCluster) {
		n := newNode("node1", "v1.7.0")
		privileged := newContainer("proxy")
		privileged["securityContext"] = object{"allowPrivilegeEscalation": false}
		n.add(t, "kept", "1.7", newContainer("app"))
		n.add(t, "new", "1.7", privileged)
		n.add(t, "gone", "1.7", newContainer("app"))
		return n, newCluster(n)
	}
	_, c := make()
	plan, errs, _ := c.forecast(t, "--all", "--to", "holdfast", "-o", "json")
	if strings.Contains(plan, secret) || strings.Count(plan, "containerID") != 3 {
		t.Fatalf("the plan:\n%s%s", plan, errs)
	}
	for _, tc := range []struct {
		name, says, code string
		status           int
		do               func(n *fakeNode)
	}{
		{"as forecast", "1 kept, 1 recreated, 1 gone, 0 not compared: nothing found", "", exit.OK, func(n *fakeNode) { n.again("new") }},
		{"a kept one recreated", "node1: default/kept app", "HF601", exit.Found, func(n *fakeNode) { n.again("new"); n.again("kept") }},
		{"a kept one does not run", "HF601", "HF601", exit.Found, func(n *fakeNode) {
			n.again("new")
			for name := range n.cgroups {
				if strings.Contains(name, "-kept/") {
					delete(n.cgroups, name)
				}
			}
		}},
		{"a new one kept", "node1: default/new proxy", "HF602", exit.OK, func(*fakeNode) {}},
		{"not asked", "stats/container", "HF002", exit.Failed, func(n *fakeNode) { n.refuse["stats/container"] = 403 }},
	} {
		n, c := make()
		n.pods = n.pods[:2]
		for name := range n.cgroups {
			if strings.Contains(name, "-gone") {
				delete(n.cgroups, name)
			}
		}
		tc.do(n)
		n.version = "v1.9.11+holdfast.2"
		out, errs, status := verify(t, c, plan, "-o", "wide")
		if status != tc.status || !strings.Contains(out, tc.says) || tc.code != "" && !strings.Contains(out, tc.code) || tc.code == "" && strings.Contains(out, "HF") {
			t.Errorf("%s: status %d\n%s%s", tc.name, status, out, errs)
		}
	}
	for _, bad := range []string{"", "x", `{"version":2,"kind":"container"}`, `{"version":1,"kind":"sum"}`, plan[:len(plan)/2], `{"version":1,"kind":"container","node":"` + strings.Repeat("x", maxLine) + `"}`} {
		if out, errs, status := verify(t, c, bad); status != exit.Failed {
			t.Errorf("%.40q: status %d\n%s%s", bad, status, out, errs)
		}
	}
}
