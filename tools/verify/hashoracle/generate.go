// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashoracle

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"
)

// Container is a generated container.
type Container struct {
	JSON []byte
	// Oldest is the oldest of the generations 6 to 9 (1.6 to 1.9) that knows
	// every field which the JSON sets, as the generator knows it, not as the
	// code under test finds out.
	Oldest int
}

// Generate returns the container with the given number of the series that the
// seed stands for.
func Generate(seed int64, number int) Container {
	g := &generator{r: rand.New(rand.NewPCG(uint64(seed), uint64(number))), oldest: 6, newest: 9}
	// Every generation gets its share of containers that it can express.
	if g.r.IntN(2) == 0 {
		g.newest = 6 + g.r.IntN(3)
	}
	g.density = []int{2, 5, 10, 10, 20, 20, 30, 40, 60, 95}[g.r.IntN(10)]
	g.container()
	return Container{JSON: g.out, Oldest: g.oldest}
}

type generator struct {
	r              *rand.Rand
	out            []byte
	density        int
	oldest, newest int
	comma          []bool
}

// texts are what users write, and what looks like the dump that is hashed.
var texts = []string{
	"", "a", "app", "registry.example.com/app:v1.2.3", "/data", "/bin/sh", "-c", "File", "TCP", "HTTP", "Always", "metadata.name", "limits.cpu",
	"ä€𝄞", "a\x00b", "line\nbreak\ttab", "\"quoted\" \\ back", "%#v %d %!s(MISSING)", "<nil>", "<shown>", " ", "  ", "{", "}", "] ", "[a b]", "map[cpu:1]",
	" VolumeDevices:([]v1.VolumeDevice)<nil>", " VolumeDevices:([]v1.VolumeDevice)[]", " MountPropagation:(*v1.MountPropagationMode)<nil>",
	" AllowPrivilegeEscalation:(*bool)<nil>", " Host:(string)", " Host:(string)}", "(*v1.Probe)<nil>", "(v1.Container){Name:(string)a",
	"x VolumeDevices:([]v1.VolumeDevice)<nil> LivenessProbe:(*v1.Probe)<nil>", "true", "0", "8080", "Container", "volumeDevices",
}

var suffixes = []string{"", "", "", "m", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Mi", "Gi", "Ti", "Pi", "Ei", "n", "u", "e0", "e3", "E3", "e-3", "e9", "E18", "e-9", "e2", "e30", "e-30"}

func (g *generator) some() bool { return g.r.IntN(100) < g.density }

func (g *generator) raw(s string) { g.out = append(g.out, s...) }

func (g *generator) text() {
	s := texts[g.r.IntN(len(texts))]
	if g.r.IntN(8) == 0 {
		s += texts[g.r.IntN(len(texts))] + strconv.Itoa(g.r.IntN(1000))
	}
	b, _ := json.Marshal(s)
	g.out = append(g.out, b...)
	if g.r.IntN(50) == 0 {
		// An escape that no Go string has.
		g.out = append(g.out[:len(g.out)-1], `\ud800\u0041"`...)
	}
}

func (g *generator) integer() {
	g.raw([]string{"0", "1", "-1", "8080", "65535", "2147483647", "-2147483648", "30"}[g.r.IntN(8)])
}

func (g *generator) boolean() { g.raw([]string{"true", "false"}[g.r.IntN(2)]) }

// object writes {…}; fields writes the fields with field.
func (g *generator) object(fields func()) {
	g.raw("{")
	g.comma = append(g.comma, false)
	fields()
	if g.r.IntN(40) == 0 {
		g.name("notAField")
		g.text()
	}
	g.comma = g.comma[:len(g.comma)-1]
	g.raw("}")
}

func (g *generator) name(name string) {
	if g.comma[len(g.comma)-1] {
		g.raw(",")
	}
	g.comma[len(g.comma)-1] = true
	g.raw(`"` + name + `":`)
}

// field writes an optional field, now and then as null.
func (g *generator) field(name string, value func()) {
	if !g.some() {
		return
	}
	g.name(name)
	if g.r.IntN(25) == 0 {
		g.raw("null")
		return
	}
	value()
}

// newer writes an optional field that a generation added. It is set whenever
// it is there.
func (g *generator) newer(generation int, name string, value func()) {
	if generation > g.newest || !g.some() {
		return
	}
	g.name(name)
	value()
	g.oldest = max(g.oldest, generation)
}

// list writes a list of none to three elements, now and then with a null.
func (g *generator) list(element func()) func() {
	return func() {
		g.raw("[")
		for i, n := 0, g.r.IntN(4); i < n; i++ {
			if i > 0 {
				g.raw(",")
			}
			if g.r.IntN(40) == 0 {
				g.raw("null")
			} else {
				element()
			}
		}
		g.raw("]")
	}
}

func (g *generator) structs(fields func()) func() {
	return g.list(func() { g.object(fields) })
}

func (g *generator) struct1(fields func()) func() {
	return func() { g.object(fields) }
}

// quantity writes one in any notation that the API takes: odd digits, signs,
// points, exponents, and numbers without quotes.
func (g *generator) quantity() {
	digits := func(max int) string {
		b := make([]byte, g.r.IntN(max)+1)
		for i := range b {
			b[i] = '0' + byte(g.r.IntN(10))
		}
		return string(b)
	}
	if g.r.IntN(8) == 0 {
		g.raw([]string{"0", "1", "2", "0.5", "1.5", "1e3", "100", "1073741824", "-1", "0.1"}[g.r.IntN(10)])
		return
	}
	s := []string{"", "", "", "+", "-"}[g.r.IntN(5)]
	size := []int{2, 4, 19, 25}[g.r.IntN(4)]
	switch g.r.IntN(6) {
	case 0:
		s += digits(size) + "." + digits(4)
	case 1:
		s += "." + digits(size)
	case 2:
		s += "0." + digits(2)
	case 3:
		s += "0"
	default:
		s += digits(size)
	}
	g.raw(`"` + s + suffixes[g.r.IntN(len(suffixes))] + `"`)
}

func (g *generator) resources() {
	g.raw("{")
	names := []string{"cpu", "memory", "nvidia.com/gpu", "", "a b:(c)", "ephemeral-storage"}
	for i, n := 0, g.r.IntN(4); i < n; i++ {
		if i > 0 {
			g.raw(",")
		}
		b, _ := json.Marshal(names[(i*2+g.r.IntN(2))%len(names)])
		g.out = append(append(g.out, b...), ':')
		g.quantity()
	}
	g.raw("}")
}

func (g *generator) port() {
	if g.r.IntN(2) == 0 {
		g.integer()
	} else {
		g.text()
	}
}

func (g *generator) handler() {
	g.field("exec", g.struct1(func() { g.field("command", g.list(g.text)) }))
	g.field("httpGet", g.struct1(func() {
		g.field("path", g.text)
		g.field("port", g.port)
		g.field("host", g.text)
		g.field("scheme", g.text)
		g.field("httpHeaders", g.structs(func() {
			g.field("name", g.text)
			g.field("value", g.text)
		}))
	}))
	g.field("tcpSocket", g.struct1(func() {
		g.field("port", g.port)
		if g.r.IntN(4) == 0 {
			g.name("host")
			g.raw(`""`)
			return
		}
		g.newer(7, "host", func() { g.raw([]string{`"h"`, `"127.0.0.1"`, `" "`, `"}"`}[g.r.IntN(4)]) })
	}))
}

func (g *generator) probe() {
	g.handler()
	for _, f := range []string{"initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"} {
		g.field(f, g.integer)
	}
}

func (g *generator) container() {
	g.object(func() {
		g.field("name", g.text)
		g.field("image", g.text)
		g.field("command", g.list(g.text))
		g.field("args", g.list(g.text))
		g.field("workingDir", g.text)
		g.field("ports", g.structs(func() {
			g.field("name", g.text)
			g.field("hostPort", g.integer)
			g.field("containerPort", g.integer)
			g.field("protocol", g.text)
			g.field("hostIP", g.text)
		}))
		g.field("envFrom", g.structs(func() {
			g.field("prefix", g.text)
			for _, f := range []string{"configMapRef", "secretRef"} {
				g.field(f, g.struct1(func() {
					g.field("name", g.text)
					g.field("optional", g.boolean)
				}))
			}
		}))
		g.field("env", g.structs(func() {
			g.field("name", g.text)
			g.field("value", g.text)
			g.field("valueFrom", g.struct1(func() {
				g.field("fieldRef", g.struct1(func() {
					g.field("apiVersion", g.text)
					g.field("fieldPath", g.text)
				}))
				g.field("resourceFieldRef", g.struct1(func() {
					g.field("containerName", g.text)
					g.field("resource", g.text)
					g.field("divisor", g.quantity)
				}))
				for _, f := range []string{"configMapKeyRef", "secretKeyRef"} {
					g.field(f, g.struct1(func() {
						g.field("name", g.text)
						g.field("key", g.text)
						g.field("optional", g.boolean)
					}))
				}
			}))
		}))
		g.field("resources", g.struct1(func() {
			g.field("limits", g.resources)
			g.field("requests", g.resources)
		}))
		g.field("volumeMounts", g.structs(func() {
			g.field("name", g.text)
			g.field("readOnly", g.boolean)
			g.field("mountPath", g.text)
			g.field("subPath", g.text)
			g.newer(8, "mountPropagation", func() { g.raw([]string{`"HostToContainer"`, `"Bidirectional"`, `""`, `"<nil>"`}[g.r.IntN(4)]) })
		}))
		if g.r.IntN(10) == 0 {
			// Empty, but there: says nothing to any generation.
			g.name("volumeDevices")
			g.raw("[]")
		} else {
			g.newer(9, "volumeDevices", func() {
				g.raw([]string{`[{}]`, `[{"name":"d","devicePath":"/dev/x"}]`, `[{"name":"a"},{"devicePath":""}]`}[g.r.IntN(3)])
			})
		}
		g.field("livenessProbe", g.struct1(g.probe))
		g.field("readinessProbe", g.struct1(g.probe))
		g.field("lifecycle", g.struct1(func() {
			g.field("postStart", g.struct1(g.handler))
			g.field("preStop", g.struct1(g.handler))
		}))
		g.field("terminationMessagePath", g.text)
		g.field("terminationMessagePolicy", g.text)
		g.field("imagePullPolicy", g.text)
		g.field("securityContext", g.struct1(func() {
			g.field("capabilities", g.struct1(func() {
				g.field("add", g.list(g.text))
				g.field("drop", g.list(g.text))
			}))
			g.field("privileged", g.boolean)
			g.field("seLinuxOptions", g.struct1(func() {
				for _, f := range []string{"user", "role", "type", "level"} {
					g.field(f, g.text)
				}
			}))
			g.field("runAsUser", func() { g.raw([]string{"0", "1000", "-1", "9223372036854775807"}[g.r.IntN(4)]) })
			g.field("runAsNonRoot", g.boolean)
			g.field("readOnlyRootFilesystem", g.boolean)
			g.newer(8, "allowPrivilegeEscalation", g.boolean)
		}))
		g.field("stdin", g.boolean)
		g.field("stdinOnce", g.boolean)
		g.field("tty", g.boolean)
	})
}
