// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"holdfast/webhook/internal/exit"
	"holdfast/webhook/internal/rules"
	"holdfast/webhook/rulesets"
)

// kinds19 are the kinds that 1.9 serves in these versions.
var kinds19 = map[string]string{"Namespace": "v1", "ServiceAccount": "v1", "ConfigMap": "v1", "Secret": "v1", "Service": "v1",
	"ClusterRole": "rbac.authorization.k8s.io/v1", "ClusterRoleBinding": "rbac.authorization.k8s.io/v1", "Role": "rbac.authorization.k8s.io/v1", "RoleBinding": "rbac.authorization.k8s.io/v1",
	"DaemonSet": "apps/v1", "Deployment": "apps/v1", "MutatingWebhookConfiguration": "admissionregistration.k8s.io/v1beta1", "NetworkPolicy": "networking.k8s.io/v1"}

func TestMake(t *testing.T) {
	for _, form := range []string{DaemonSet, Deployment} {
		for _, set := range rulesets.Names() {
			text, _ := rulesets.Text(set)
			files, err := Make(Options{Form: form, Namespace: "er", Image: "i:1", Port: 9943, Rules: text, Days: 30}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			data := map[string]string{}
			var rulesText, bundle string
			for name, file := range files {
				if name == "kustomization.yaml" {
					for other := range files {
						if other != name && !strings.Contains(string(file), "- "+other+"\n") {
							t.Errorf("kustomization.yaml lacks %s", other)
						}
					}
					continue
				}
				for doc := range strings.SplitSeq(string(file), "\n---\n") {
					var o struct {
						APIVersion, Kind string
						Data             map[string]string
						Webhooks         []struct {
							FailurePolicy     string
							NamespaceSelector struct{ MatchLabels map[string]string }
							ClientConfig      struct {
								CABundle, URL string
								Service       *struct{ Name, Namespace, Path string }
							}
						}
					}
					if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
						t.Fatalf("%s: %v\n%s", name, err, doc)
					}
					if kinds19[o.Kind] != o.APIVersion {
						t.Errorf("%s: %s of %s is not of 1.9", name, o.Kind, o.APIVersion)
					}
					switch o.Kind {
					case "Secret":
						data = o.Data
					case "ConfigMap":
						rulesText = o.Data["rules.yaml"]
					case "MutatingWebhookConfiguration":
						h := o.Webhooks[0]
						bundle = h.ClientConfig.CABundle
						if h.FailurePolicy != "Ignore" || h.NamespaceSelector.MatchLabels["holdfast/endpoints-rules"] != "enabled" || (form == DaemonSet) != (h.ClientConfig.URL == "https://127.0.0.1:9943/mutate") || (form == Deployment) != (h.ClientConfig.Service != nil) {
							t.Errorf("%s: %+v", form, h)
						}
					}
				}
			}
			if s, err := rules.Parse("r", []byte(rulesText)); err != nil || len(s.Rules) == 0 {
				t.Errorf("%s: %v\n%s", set, err, rulesText)
			}
			pem := func(k string) []byte {
				raw, err := base64.StdEncoding.DecodeString(data[k])
				if err != nil {
					t.Fatal(err)
				}
				return raw
			}
			pair, err := tls.X509KeyPair(pem("tls.crt"), pem("tls.key"))
			if err != nil {
				t.Fatal(err)
			}
			ca, _ := base64.StdEncoding.DecodeString(bundle)
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(ca)
			name := "127.0.0.1"
			if form == Deployment {
				name = "endpoints-rules.er.svc"
			}
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: name}); err != nil || string(ca) != string(pem("ca.crt")) {
				t.Errorf("%s: %v", form, err)
			}
		}
	}
}

// TestApart: the replicas of a Deployment are kept apart where the nodes allow it.
func TestApart(t *testing.T) {
	for _, form := range []string{DaemonSet, Deployment} {
		files, err := Make(Options{Form: form, Namespace: "er", Image: "i:1", Port: 9943, Rules: []byte("rules: []"), Days: 30}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(files["50-program.yaml"]), "\n---\n")
		var o struct {
			Spec struct {
				Template struct {
					Metadata struct{ Labels map[string]string }
					Spec     struct {
						HostNetwork bool
						Affinity    struct {
							PodAntiAffinity struct {
								Preferred []struct {
									PodAffinityTerm struct {
										LabelSelector struct{ MatchLabels map[string]string }
										TopologyKey   string
									}
								} `json:"preferredDuringSchedulingIgnoredDuringExecution"`
							}
						}
					}
				}
			}
		}
		if err := yaml.UnmarshalStrict([]byte(first), &map[string]any{}); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(first), &o); err != nil {
			t.Fatal(err)
		}
		terms := o.Spec.Template.Spec.Affinity.PodAntiAffinity.Preferred
		if form == DaemonSet {
			if len(terms) != 0 || !o.Spec.Template.Spec.HostNetwork {
				t.Errorf("%s: %+v", form, o)
			}
			continue
		}
		if len(terms) != 1 || o.Spec.Template.Spec.HostNetwork {
			t.Fatalf("%s: %+v", form, o)
		}
		term := terms[0].PodAffinityTerm
		if term.TopologyKey != "kubernetes.io/hostname" || !maps.Equal(term.LabelSelector.MatchLabels, o.Spec.Template.Metadata.Labels) {
			t.Errorf("%s: %+v", form, term)
		}
	}
}

// TestHang: what liveness and the end of the pod take together is less than the 15 s for which
// a program that hangs may hold up Endpoints. A process that is stopped does not see SIGTERM,
// so the kubelet waits for the whole grace period.
func TestHang(t *testing.T) {
	for _, form := range []string{DaemonSet, Deployment} {
		files, err := Make(Options{Form: form, Namespace: "er", Image: "i:1", Port: 9943, Rules: []byte("rules: []"), Days: 30}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(files["50-program.yaml"]), "\n---\n")
		var o struct {
			Spec struct {
				Template struct {
					Spec struct {
						TerminationGracePeriodSeconds *int
						Containers                    []struct {
							Name          string
							LivenessProbe *struct{ InitialDelaySeconds, PeriodSeconds, TimeoutSeconds, FailureThreshold int }
						}
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(first), &o); err != nil {
			t.Fatal(err)
		}
		pod, grace := o.Spec.Template.Spec, 30
		if pod.TerminationGracePeriodSeconds != nil {
			grace = *pod.TerminationGracePeriodSeconds
		}
		p := pod.Containers[0].LivenessProbe
		if pod.Containers[0].Name != "endpoints-rules" || p == nil {
			t.Fatalf("%s: %+v", form, pod)
		}
		// The program hangs right after a probe, or right after its start: then the first one
		// comes up to a period after the delay.
		if took := p.InitialDelaySeconds + p.FailureThreshold*p.PeriodSeconds + p.TimeoutSeconds + grace; took > 12 {
			t.Errorf("%s: a program that hangs is gone after %d s, want 12 at most: the rest of 15 is for the kubelet and the API server", form, took)
		}
	}
}

func TestWrongOptions(t *testing.T) {
	good := Options{Form: DaemonSet, Namespace: "er", Image: "i", Port: 1, Days: 1}
	for name, change := range map[string]func(*Options){
		"form": func(o *Options) { o.Form = "pod" }, "kube-system": func(o *Options) { o.Namespace = "kube-system" }, "namespace": func(o *Options) { o.Namespace = "A b" },
		"client CA": func(o *Options) { o.ClientCA = []byte("x") }, "names alone": func(o *Options) { o.ClientNames = "a" }, "policy of a DaemonSet": func(o *Options) { o.AllowFrom = []string{"10.0.0.0/8"} },
		"no network": func(o *Options) { o.Form, o.AllowFrom = Deployment, []string{"10.0.0.1"} },
		"image":      func(o *Options) { o.Image = "" }, "quotes": func(o *Options) { o.Image = "a\"b" }, "port": func(o *Options) { o.Port = 0 }, "days": func(o *Options) { o.Days = 0 },
	} {
		o := good
		change(&o)
		if _, err := Make(o, time.Now()); exit.Code(err) != exit.Usage {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Make(good, time.Now()); err != nil {
		t.Error(err)
	}
}

// TestClients: who may post reviews is in the objects only where it was asked for.
func TestClients(t *testing.T) {
	ca, _, err := issue(nil, nil, 1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{DaemonSet, Deployment} {
		o := Options{Form: form, Namespace: "er", Image: "i:1", Port: 9943, Rules: []byte("rules: []"), Days: 30}
		all := func() map[string]string {
			files, err := Make(o, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			out := map[string]string{}
			for name, text := range files {
				out[name] = string(text)
			}
			return out
		}
		files := all()
		if _, ok := files["45-networkpolicy.yaml"]; ok || strings.Contains(files["kustomization.yaml"], "networkpolicy") || strings.Contains(files["40-certificate.yaml"]+files["50-program.yaml"], "client-") {
			t.Errorf("%s: nothing was asked for: %v", form, files)
		}
		o.ClientCA, o.ClientNames = ca, "front-proxy-client,b"
		if form == Deployment {
			o.AllowFrom = []string{"10.0.0.0/24", "10.1.0.0/24"}
		}
		files = all()
		var secret struct{ Data map[string][]byte }
		if err := yaml.Unmarshal([]byte(files["40-certificate.yaml"]), &secret); err != nil || string(secret.Data["client-ca.crt"]) != string(ca) {
			t.Errorf("%s: %v: %s", form, err, files["40-certificate.yaml"])
		}
		first, _, _ := strings.Cut(files["50-program.yaml"], "\n---\n")
		var program struct {
			Spec struct {
				Template struct {
					Spec struct{ Containers []struct{ Args []string } }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(first), &program); err != nil {
			t.Fatal(err)
		}
		args := program.Spec.Template.Spec.Containers[0].Args
		if !slices.Contains(args, "--client-ca-file=/tls/client-ca.crt") || !slices.Contains(args, "--client-allowed-names=front-proxy-client,b") {
			t.Errorf("%s: %q", form, args)
		}
		if form == DaemonSet {
			continue
		}
		var policy struct {
			Kind string
			Spec struct {
				Ingress []struct {
					From []struct{ IPBlock struct{ CIDR string } }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(files["45-networkpolicy.yaml"]), &policy); err != nil || policy.Kind != "NetworkPolicy" || len(policy.Spec.Ingress) != 1 ||
			len(policy.Spec.Ingress[0].From) != 2 || policy.Spec.Ingress[0].From[1].IPBlock.CIDR != "10.1.0.0/24" {
			t.Errorf("%v: %s", err, files["45-networkpolicy.yaml"])
		}
	}
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "er")
	files := map[string][]byte{"a.yaml": []byte("kind: Secret\n"), "b.yaml": []byte("x\n")}
	if err := Write(dir, files); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "a.yaml")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if err := Write(dir, files); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a second time: %v", err)
	}
}
