// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"holdfast/cmd/internal/exit"
)

var update = flag.Bool("update", false, "write the golden files")

// print runs the command and returns its status and what it prints.
func print(args ...string) (int, string) {
	cmd := Command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	err := cmd.Execute()
	if err != nil {
		return exit.Code(err), err.Error()
	}
	return 0, out.String()
}

// TestGolden: what is printed changes only on purpose. Each document is one object.
func TestGolden(t *testing.T) {
	for file, args := range map[string][]string{
		"original.yaml": {"manifests", "--image", "registry.example/fleet:2"},
		"all-flags.yaml": {"manifests", "--image", "registry.example:5000/team/fleet@sha256:0123", "--namespace", "kubelets", "--target", "holdfast-2.post.g0123abc", "--attempt", "3",
			"--min-ready", "1m", "--node-selector", "node-role.kubernetes.io/master=", "--node-selector", "a=true", "--keep-in", "/opt/holdfast", "--unit", "kubelet-2.service", "--settle", "90s", "--fail-on", "STOP"},
	} {
		status, got := print(args...)
		if status != 0 {
			t.Fatalf("%s: %d %s", file, status, got)
		}
		file = "testdata/" + file
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || string(want) != got {
			t.Errorf("%s: %v, or it differs: go test ./internal/fleet -update", file, err)
		}
		kinds := ""
		for doc := range strings.SplitSeq(got, "\n---\n") {
			var o struct {
				APIVersion, Kind string
				Metadata         struct{ Name, Namespace string }
				Spec             struct {
					Template struct {
						Spec struct {
							NodeSelector map[string]string
							Containers   []struct {
								Env []struct{ Name, Value string }
							}
						}
					}
				}
			}
			if err := yaml.UnmarshalStrict([]byte(doc), &map[string]any{}); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			kinds += o.Kind + " "
			if o.Kind == "ConfigMap" && strings.Contains(doc, "\ndata:") {
				t.Errorf("%s: kubectl apply would take the lock from its holder", file)
			}
			if n := o.Spec.Template.Spec.NodeSelector; o.Kind == "DaemonSet" && file == "testdata/all-flags.yaml" && (len(n) != 2 || n["a"] != "true") {
				t.Errorf("%s: nodeSelector %v", file, n)
			}
		}
		if want := "Namespace ServiceAccount ConfigMap Role RoleBinding ClusterRole ClusterRoleBinding PodSecurityPolicy DaemonSet "; kinds != want {
			t.Errorf("%s: %s, want %s", file, kinds, want)
		}
	}
}

// TestUndo: an undo goes to a revision that names its kubelet, so each target is a template of its
// own, as is each attempt.
func TestUndo(t *testing.T) {
	seen := map[string]bool{}
	for _, args := range [][]string{{}, {"--target", "holdfast-2"}, {"--target", "holdfast-2", "--attempt", "2"}, {"--target", "holdfast-3"}} {
		_, out := print(append([]string{"manifests", "--image", "r/x:1"}, args...)...)
		_, template, _ := strings.Cut(out, "\n  template:")
		if seen[template] {
			t.Errorf("%v: the same template as another", args)
		}
		seen[template] = true
	}
}

// TestUsage: a value that cannot be is refused before anything is printed, with its flag and what
// to do.
func TestUsage(t *testing.T) {
	for _, c := range [][]string{
		{"--image", "--target", "original"}, {"--image", "--image", ""}, {"--image", "--image", "x y"}, {"--image", "--image", "a:b\nc: d"}, {"--image", "--image", "-x"},
		{"--image", "--image", strings.Repeat("x", 600)},
		{"--target", "--target", "holdfast"}, {"--target", "--target", "v1.9.11+holdfast.2"}, {"--target", "--target", "holdfast-"}, {"--target", "--target", "keep"},
		{"--target", "--target", "holdfast-2\n"}, {"--target", "--target", "holdfast-" + strings.Repeat("2", 100)},
		{"--attempt", "--attempt", "0"}, {"--attempt", "--attempt", "-1"},
		{"--namespace", "--namespace", "A"}, {"--namespace", "--namespace", ""}, {"--namespace", "--namespace", strings.Repeat("n", 64)},
		{"--min-ready", "--min-ready", "1500ms"}, {"--min-ready", "--min-ready", "-1s"},
		{"--node-selector", "--node-selector", "x"}, {"--node-selector", "--node-selector", "x=y: z"}, {"--node-selector", "--node-selector", "/a=b"},
		{"--keep-in", "--keep-in", "usr/lib"}, {"--keep-in", "--keep-in", "/a b"}, {"--keep-in", "--keep-in", "/a/../b"}, {"--keep-in", "--keep-in", "/a%n"},
		{"--unit", "--unit", "a/b.service"}, {"--unit", "--unit", "-x"},
		{"--settle", "--settle", "soon"}, {"--settle", "--settle", "-1s"}, {"--settle", "--settle", "2h"},
		{"only flags", "x"},
	} {
		args := []string{"manifests"}
		if c[0] != "--image" {
			args = append(args, "--image", "r/x:1")
		}
		status, out := print(append(args, c[1:]...)...)
		if status != exit.Usage || !strings.Contains(out, c[0]) || !regexp.MustCompile(`: (use|an image|the command takes only)`).MatchString(out) {
			t.Errorf("%q: status %d: %s", c[1:], status, out)
		}
	}
	if status, out := print("roll"); status != exit.Usage || !strings.Contains(out, "use manifests or agent") {
		t.Errorf("%d %s", status, out)
	}
	t.Setenv("ATTEMPT", "x")
	if status, out := print("agent"); status != exit.Usage || !strings.Contains(out, "ATTEMPT") {
		t.Errorf("agent: %d %s", status, out)
	}
	t.Setenv("ATTEMPT", "1")
	t.Setenv("TARGET", "keep")
	if status, out := print("agent"); status != exit.Usage || !strings.Contains(out, "keep") {
		t.Errorf("agent: %d %s", status, out)
	}
	t.Setenv("TARGET", "original")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if status, out := print("agent"); status != 1 || !strings.Contains(out, "run the command in a pod") {
		t.Errorf("agent: %d %s", status, out)
	}
}
