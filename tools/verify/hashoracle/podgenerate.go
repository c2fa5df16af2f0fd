// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashoracle

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
)

// GeneratePod returns the manifest of a static pod with the given number of the series that
// the seed stands for, and the oldest of the releases 7 to 9 that knows every field which it
// sets. Most are pods that a kubelet runs.
func GeneratePod(seed int64, number int) Container {
	g := &podGenerator{generator: generator{r: rand.New(rand.NewPCG(uint64(seed), uint64(number))), oldest: 7, newest: 9}}
	if g.r.IntN(2) == 0 {
		g.newest = 7 + g.r.IntN(2)
	}
	g.density = []int{2, 5, 10, 20, 20, 30, 40, 60}[g.r.IntN(8)]
	g.pod()
	// The decoders of the releases read half of a surrogate pair in different ways.
	return Container{JSON: bytes.ReplaceAll(g.out, []byte(`\ud800`), []byte("x")), Oldest: g.oldest}
}

// podGenerator is a generator of pods.
type podGenerator struct {
	generator
	names   int
	volumes []string
}

// unique is a name that is used once.
func (g *podGenerator) unique(prefix string) string {
	g.names++
	return fmt.Sprintf("%s-%d", prefix, g.names)
}

func (g *podGenerator) pick(values ...string) string { return values[g.r.IntN(len(values))] }

// set writes a field; one writes an optional one with one of some JSON values.
func (g *podGenerator) set(name, value string) { g.name(name); g.raw(value) }

func (g *podGenerator) one(name string, values ...string) {
	if g.some() {
		g.set(name, g.pick(values...))
	}
}

// maybe writes an optional object.
func (g *podGenerator) maybe(name string, fields func()) {
	if g.some() {
		g.must(name, fields)
	}
}

func (g *podGenerator) must(name string, fields func()) {
	g.name(name)
	g.object(fields)
}

// many writes a list of at least n objects.
func (g *podGenerator) many(name string, n int, fields func()) {
	g.name(name)
	g.raw("[")
	for i, to := 0, n+g.r.IntN(3); i < to; i++ {
		if i > 0 {
			g.raw(",")
		}
		g.object(fields)
	}
	g.raw("]")
}

func (g *podGenerator) anyText(name string) {
	if g.some() {
		g.name(name)
		for at := len(g.out); ; g.out = g.out[:at] {
			g.text()
			if !strings.Contains(string(g.out[at:]), `\u0000`) {
				return
			}
		}
	}
}

func (g *podGenerator) stringMap(name string, keys ...string) {
	if !g.some() {
		return
	}
	g.must(name, func() {
		for _, k := range keys {
			g.one(k, `""`, `"a"`, `"b"`)
		}
	})
}

func (g *podGenerator) pod() {
	g.object(func() {
		g.set("apiVersion", `"v1"`)
		g.set("kind", `"Pod"`)
		g.must("metadata", func() {
			g.set("name", g.pick(`"etcd"`, `"kube-apiserver"`, `"a"`))
			g.one("namespace", `"kube-system"`, `"default"`, `""`)
			g.one("creationTimestamp", "null")
			g.stringMap("labels", "component", "tier")
			if g.some() {
				g.must("annotations", func() {
					g.one("scheduler.alpha.kubernetes.io/critical-pod", `""`)
					g.anyText("example.com/text")
				})
			}
			g.one("generateName", `"x-"`)
			g.one("generation", "3")
			g.one("resourceVersion", `"12"`)
			g.one("selfLink", `"/x"`)
			g.one("clusterName", `"c"`)
			g.one("deletionGracePeriodSeconds", "30")
			g.one("finalizers", "[]", `["example.com/f"]`)
			if g.some() {
				g.many("ownerReferences", 1, func() {
					g.set("apiVersion", `"v1"`)
					g.set("kind", `"Node"`)
					g.set("name", `"n"`)
					g.set("uid", `"u-`+g.unique("o")+`"`)
				})
			}
		})
		g.must("spec", g.spec)
		if g.some() {
			g.must("status", func() {
				g.one("phase", `"Running"`)
				g.anyText("message")
			})
		}
	})
}

func (g *podGenerator) spec() {
	if g.some() {
		g.many("volumes", 1, g.volume)
	}
	g.many("containers", 1, func() { g.container("c") })
	if g.some() {
		g.many("initContainers", 1, func() { g.container("init") })
	}
	g.one("restartPolicy", `"Always"`, `"Never"`, `"OnFailure"`)
	g.one("terminationGracePeriodSeconds", "0", "30")
	g.one("activeDeadlineSeconds", "100")
	g.one("dnsPolicy", `"ClusterFirst"`, `"Default"`, `"ClusterFirstWithHostNet"`)
	g.stringMap("nodeSelector", "zone", "disk")
	g.one("automountServiceAccountToken", "true", "false")
	g.one("nodeName", `"n"`)
	host := g.r.IntN(2) == 0
	if host {
		g.set("hostNetwork", "true")
	}
	g.one("hostPID", "true", "false")
	g.one("hostIPC", "true", "false")
	g.maybe("securityContext", func() {
		g.one("runAsUser", "0", "1000")
		g.one("runAsNonRoot", "true", "false")
		g.one("fsGroup", "0", "5")
		g.one("supplementalGroups", "[]", "[1,2]")
		g.seLinux()
	})
	if g.some() {
		g.many("imagePullSecrets", 0, func() { g.set("name", `"secret"`) })
	}
	g.one("hostname", `"h"`)
	g.one("subdomain", `"s"`)
	if g.some() {
		g.affinity()
	}
	g.one("schedulerName", `"default-scheduler"`, `"mine"`)
	if g.some() {
		g.many("tolerations", 0, func() {
			g.set("key", `"`+g.unique("k")+`"`)
			g.set("operator", `"Exists"`)
			if g.some() {
				g.set("effect", `"NoExecute"`)
				g.one("tolerationSeconds", "0", "300")
			}
		})
	}
	if !host && g.some() {
		g.many("hostAliases", 0, func() {
			g.set("ip", `"10.0.0.1"`)
			g.one("hostnames", `["a.example"]`, `[]`)
		})
	}
	g.newer(8, "priorityClassName", func() { g.raw(`"high"`) })
	g.newer(8, "priority", func() { g.raw(g.pick("0", "1000")) })
	g.newer(9, "dnsConfig", func() {
		g.object(func() {
			g.one("nameservers", `["10.0.0.10"]`, "[]")
			g.one("searches", `["example.com"]`)
			g.one("options", `[{"name":"ndots","value":"2"},{"name":"x"}]`)
		})
	})
}

func (g *podGenerator) seLinux() {
	g.maybe("seLinuxOptions", func() {
		for _, f := range []string{"user", "role", "type", "level"} {
			g.one(f, `"x"`, `""`)
		}
	})
}

func (g *podGenerator) affinity() {
	selector := func() {
		g.one("matchLabels", `{"a":"b"}`, "{}")
		g.one("matchExpressions", `[{"key":"a","operator":"In","values":["x"]},{"key":"b","operator":"Exists"}]`, "[]")
	}
	nodeTerm := func() {
		g.set("matchExpressions", `[{"key":"a","operator":"In","values":["x","y"]},{"key":"n","operator":"Gt","values":["1"]}]`)
	}
	podTerm := func() {
		g.must("labelSelector", selector)
		g.one("namespaces", `["a"]`, "[]")
		g.set("topologyKey", `"kubernetes.io/hostname"`)
	}
	pods := func() {
		if g.some() {
			g.many("requiredDuringSchedulingIgnoredDuringExecution", 1, podTerm)
		}
		if g.some() {
			g.many("preferredDuringSchedulingIgnoredDuringExecution", 1, func() {
				g.set("weight", "5")
				g.must("podAffinityTerm", podTerm)
			})
		}
	}
	g.must("affinity", func() {
		g.maybe("nodeAffinity", func() {
			g.maybe("requiredDuringSchedulingIgnoredDuringExecution", func() { g.many("nodeSelectorTerms", 1, nodeTerm) })
			if g.some() {
				g.many("preferredDuringSchedulingIgnoredDuringExecution", 1, func() {
					g.set("weight", "1")
					g.must("preference", nodeTerm)
				})
			}
		})
		g.maybe("podAffinity", pods)
		g.maybe("podAntiAffinity", pods)
	})
}

func (g *podGenerator) handlerOf() {
	switch g.r.IntN(3) {
	case 0:
		g.set("exec", `{"command":["true","-x"]}`)
	case 1:
		g.must("httpGet", func() {
			g.set("port", g.pick("8080", `"web"`, "443"))
			g.one("path", `"/healthz"`, `""`)
			g.one("host", `"127.0.0.1"`)
			g.one("scheme", `"HTTP"`, `"HTTPS"`)
			g.one("httpHeaders", `[{"name":"X-A","value":"b"}]`, "[]")
		})
	case 2:
		g.must("tcpSocket", func() { g.set("port", "2379"); g.one("host", `"127.0.0.1"`) })
	}
}

func (g *podGenerator) container(prefix string) {
	g.set("name", `"`+g.unique(prefix)+`"`)
	g.set("image", g.pick(`"gcr.io/google_containers/etcd-amd64:3.0.17"`, `"busybox"`, `"busybox:latest"`))
	g.one("command", `["kube-apiserver","--v=2"]`, "[]", "null")
	if g.some() {
		g.name("args")
		g.raw("[")
		g.raw(g.pick(`"a b"`, `"<nil>"`, `""`, `" VolumeDevices:([]api.VolumeDevice)<nil>"`, `"(core.Pod){"`, `"%d"`))
		g.raw("]")
	}
	g.one("workingDir", `"/w"`, `""`)
	if g.some() {
		g.many("ports", 0, func() {
			port := fmt.Sprint(1000 + g.r.IntN(60000))
			g.set("name", `"p`+fmt.Sprint(g.r.IntN(1e6))+`"`)
			g.set("containerPort", port)
			if g.some() {
				g.set("hostPort", port)
			}
			g.one("protocol", `"TCP"`, `"UDP"`)
			g.one("hostIP", `"127.0.0.1"`)
		})
	}
	g.one("envFrom", `[{"prefix":"A_","configMapRef":{"name":"c"}},{"secretRef":{"name":"s","optional":true}}]`, "[]")
	if g.some() {
		g.many("env", 0, func() {
			g.set("name", `"E_`+g.pick("A", "B", "C")+`"`)
			switch g.r.IntN(6) {
			case 0:
				g.set("valueFrom", `{"fieldRef":{"fieldPath":"`+g.pick("metadata.name", "status.podIP", "spec.nodeName")+`"}}`)
			case 1:
				g.set("valueFrom", `{"resourceFieldRef":{"resource":"limits.memory","divisor":"1Mi"}}`)
			case 2:
				g.set("valueFrom", `{"configMapKeyRef":{"name":"c","key":"k","optional":false}}`)
			case 3:
				g.set("valueFrom", `{"secretKeyRef":{"name":"s","key":"k"}}`)
			default:
				g.anyText("value")
			}
		})
	}
	if g.some() {
		limits := g.r.IntN(3)
		g.must("resources", func() {
			if limits != 0 {
				g.must("limits", func() { g.one("cpu", `"3"`, `"7Ei"`, "4"); g.one("memory", `"8Ei"`, `"12345678901234567890"`) })
			}
			if limits != 1 {
				g.must("requests", func() {
					g.one("cpu", `"250m"`, `"1"`, "0.5", `"0.1m"`, `"1.50"`)
					g.one("memory", `"100Mi"`, `"1e3"`, `"2k"`, `"0"`)
				})
			}
		})
	}
	var mounts []string
	for _, v := range g.volumes {
		if g.r.IntN(2) == 0 {
			mounts = append(mounts, v)
		}
	}
	if len(mounts) > 0 {
		g.name("volumeMounts")
		g.raw("[")
		for i, v := range mounts {
			if i > 0 {
				g.raw(",")
			}
			g.object(func() {
				g.set("name", `"`+v+`"`)
				g.set("mountPath", `"/m/`+v+`"`)
				g.one("readOnly", "true", "false")
				g.one("subPath", `"s/t"`, `""`)
				g.newer(8, "mountPropagation", func() { g.raw(`"HostToContainer"`) })
			})
		}
		g.raw("]")
	}
	g.newer(9, "volumeDevices", func() { g.raw(`[{"name":"d","devicePath":"/dev/x"}]`) })
	probe := func() {
		g.handlerOf()
		for _, f := range []string{"initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold"} {
			g.one(f, "15", "8", "1")
		}
	}
	if prefix == "c" {
		g.maybe("livenessProbe", probe)
		g.maybe("readinessProbe", probe)
		g.maybe("lifecycle", func() {
			g.maybe("postStart", g.handlerOf)
			g.maybe("preStop", g.handlerOf)
		})
	}
	g.one("terminationMessagePath", `"/dev/x"`)
	g.one("terminationMessagePolicy", `"File"`, `"FallbackToLogsOnError"`)
	g.one("imagePullPolicy", `"Always"`, `"IfNotPresent"`, `"Never"`)
	g.maybe("securityContext", func() {
		g.maybe("capabilities", func() { g.one("add", `["NET_ADMIN"]`, "[]"); g.one("drop", `["ALL"]`) })
		g.one("runAsUser", "0", "1000")
		g.one("runAsNonRoot", "true", "false")
		g.one("readOnlyRootFilesystem", "true", "false")
		g.seLinux()
		g.newer(8, "allowPrivilegeEscalation", g.boolean)
	})
	g.one("stdin", "true", "false")
	g.one("tty", "true", "false")
}
