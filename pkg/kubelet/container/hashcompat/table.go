// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/api/core/v1"
)

// Generation names the releases whose container hash covers the same fields.
// A larger Generation is a newer one.
type Generation uint8

const (
	// Gen16 is 1.6, the first with fnv32a (1.5 and older used adler32 over
	// other fields and are out of reach).
	Gen16 Generation = iota
	// Gen17 is 1.7.
	Gen17
	// Gen18 is 1.8.
	Gen18
	// Gen19 is 1.9. Up to 1.13 its hash is also that of containers without a
	// securityContext.
	Gen19
	// Native, the generation of this release, and those between are in native.go.

	generations = int(Native) + 1
)

// OldestWritten is the oldest generation that Oldest returns. 1.6 hashes are
// accepted but never written: a 1.6 hash of a container with a tcpSocket
// action is not the 1.7 hash, and 1.7 is the oldest release that a node is
// rolled back to.
const OldestWritten = Gen17

// String returns the first release of the generation, for example "1.7".
func (g Generation) String() string {
	if int(g) < generations {
		return fmt.Sprintf("1.%d", g.Minor())
	}
	return fmt.Sprintf("Generation(%d)", uint8(g))
}

// Minor returns the first minor release of the generation, 7 for 1.7.
func (g Generation) Minor() int {
	return firstMinors[g]
}

// Of returns the generation of release 1.minor, or the nearest of those from
// OldestWritten to Native.
func Of(minor int) Generation {
	for g := Native; g > OldestWritten; g-- {
		if g.Minor() <= minor {
			return g
		}
	}
	return OldestWritten
}

// Generations returns all generations, newest first.
func Generations() []Generation {
	all := make([]Generation, 0, generations)
	for g := generations - 1; g >= 0; g-- {
		all = append(all, Generation(g))
	}
	return all
}

// table lists every struct that a v1.Container can hold, by the name that
// go-spew prints, with its fields in order as "Name type". A field that a
// generation added has "@" and that generation after it; all others are in
// every generation. It was derived by comparing the types of releases 1.6.1,
// 1.7.0, 1.8.15, 1.9.11, 1.11.10 and 1.12.10. Between the last three only
// v1.SecurityContext differs.
//
// The table is explicit so that a field which a later API adds cannot slip
// into, or out of, an older generation's hash: Drift compares it with the
// types, and without agreement no older generation is ever accepted.
var table = map[string]string{
	"v1.Container": `
		Name string
		Image string
		Command []string
		Args []string
		WorkingDir string
		Ports []v1.ContainerPort
		EnvFrom []v1.EnvFromSource
		Env []v1.EnvVar
		Resources v1.ResourceRequirements
		VolumeMounts []v1.VolumeMount
		VolumeDevices []v1.VolumeDevice @1.9
		LivenessProbe *v1.Probe
		ReadinessProbe *v1.Probe
		Lifecycle *v1.Lifecycle
		TerminationMessagePath string
		TerminationMessagePolicy v1.TerminationMessagePolicy
		ImagePullPolicy v1.PullPolicy
		SecurityContext *v1.SecurityContext
		Stdin bool
		StdinOnce bool
		TTY bool`,
	"v1.ContainerPort": `
		Name string
		HostPort int32
		ContainerPort int32
		Protocol v1.Protocol
		HostIP string`,
	"v1.EnvFromSource": `
		Prefix string
		ConfigMapRef *v1.ConfigMapEnvSource
		SecretRef *v1.SecretEnvSource`,
	"v1.ConfigMapEnvSource": `
		LocalObjectReference v1.LocalObjectReference
		Optional *bool`,
	"v1.SecretEnvSource": `
		LocalObjectReference v1.LocalObjectReference
		Optional *bool`,
	"v1.LocalObjectReference": `
		Name string`,
	"v1.EnvVar": `
		Name string
		Value string
		ValueFrom *v1.EnvVarSource`,
	"v1.EnvVarSource": `
		FieldRef *v1.ObjectFieldSelector
		ResourceFieldRef *v1.ResourceFieldSelector
		ConfigMapKeyRef *v1.ConfigMapKeySelector
		SecretKeyRef *v1.SecretKeySelector`,
	"v1.ObjectFieldSelector": `
		APIVersion string
		FieldPath string`,
	"v1.ResourceFieldSelector": `
		ContainerName string
		Resource string
		Divisor resource.Quantity`,
	"v1.ConfigMapKeySelector": `
		LocalObjectReference v1.LocalObjectReference
		Key string
		Optional *bool`,
	"v1.SecretKeySelector": `
		LocalObjectReference v1.LocalObjectReference
		Key string
		Optional *bool`,
	"v1.ResourceRequirements": `
		Limits v1.ResourceList
		Requests v1.ResourceList`,
	"v1.VolumeMount": `
		Name string
		ReadOnly bool
		MountPath string
		SubPath string
		MountPropagation *v1.MountPropagationMode @1.8`,
	"v1.VolumeDevice": `
		Name string
		DevicePath string`,
	"v1.Probe": `
		Handler v1.Handler
		InitialDelaySeconds int32
		TimeoutSeconds int32
		PeriodSeconds int32
		SuccessThreshold int32
		FailureThreshold int32`,
	"v1.Handler": `
		Exec *v1.ExecAction
		HTTPGet *v1.HTTPGetAction
		TCPSocket *v1.TCPSocketAction`,
	"v1.ExecAction": `
		Command []string`,
	"v1.HTTPGetAction": `
		Path string
		Port intstr.IntOrString
		Host string
		Scheme v1.URIScheme
		HTTPHeaders []v1.HTTPHeader`,
	"v1.HTTPHeader": `
		Name string
		Value string`,
	"v1.TCPSocketAction": `
		Port intstr.IntOrString
		Host string @1.7`,
	"v1.Lifecycle": `
		PostStart *v1.Handler
		PreStop *v1.Handler`,
	"v1.SecurityContext": securityContext,
	"v1.Capabilities": `
		Add []v1.Capability
		Drop []v1.Capability`,
	"v1.SELinuxOptions": `
		User string
		Role string
		Type string
		Level string`,
	"intstr.IntOrString": `
		Type intstr.Type
		IntVal int32
		StrVal string`,
	"resource.Quantity": `
		i resource.int64Amount
		d resource.infDecAmount
		s string
		Format resource.Format`,
	"resource.int64Amount": `
		value int64
		scale resource.Scale`,
	"resource.infDecAmount": `
		Dec *inf.Dec`,
	"inf.Dec": `
		unscaled big.Int
		scale inf.Scale`,
	"big.Int": `
		neg bool
		abs big.nat`,
}

// wordType is what a big.nat is a slice of. Its kind is not the same in every Go, see
// bigNat; with another one than uint the native hash would be another, and Drift
// says so.
const wordType = "big.Word"

// timeType is printed by a rule of its own, see dump.time. No container has one.
const timeType = "time.Time"

// tableField is one parsed line of a table.
type tableField struct {
	name, typ string
	since     Generation
	// pointer is the first generation in which the field is a pointer, in a table of a
	// Release ("*1.8"). In those before it is the value itself.
	pointer Generation
	// unset, if not nil, is a text that says the same as no pointer to a text, because a
	// release defaults the field to it (a quoted word in the line).
	unset *string
}

func tableFields(table map[string]string, typeName string) ([]tableField, bool) {
	text, ok := table[typeName]
	if !ok {
		return nil, false
	}
	var fields []tableField
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		words := strings.Fields(line)
		f := tableField{name: words[0], typ: words[1]}
		for _, word := range words[2:] {
			for _, g := range Generations() {
				switch word {
				case "@" + g.String():
					f.since = g
				case "*" + g.String():
					f.pointer = g
				}
			}
			if text, err := strconv.Unquote(word); err == nil {
				f.unset = &text
			}
		}
		fields = append(fields, f)
	}
	return fields, true
}

// Drift returns one line for every difference between the table and the Go
// types that a v1.Container of this build can hold, and for every type that
// the package cannot print as go-spew does. It is empty in a correct build.
func Drift() []string {
	return drift(reflect.TypeOf(v1.Container{}), table)
}

func drift(root reflect.Type, table map[string]string) []string {
	var found []string
	seen := map[reflect.Type]bool{}
	listed := map[string]bool{}
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		if seen[t] {
			return
		}
		seen[t] = true
		switch t.Kind() {
		case reflect.Uint:
		case reflect.Bool, reflect.String,
			reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
			reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			if t.String() == wordType {
				found = append(found, fmt.Sprintf("%s: %s is a %s, not a uint", path, wordType, t.Kind()))
			}
		case reflect.Slice:
			if k := t.Elem().Kind(); k == reflect.Ptr {
				found = append(found, fmt.Sprintf("%s: a slice of pointers is not supported", path))
			}
			walk(t.Elem(), path+"[]")
		case reflect.Map:
			if t.Key().Kind() != reflect.String || t.Elem().Kind() == reflect.Ptr {
				found = append(found, fmt.Sprintf("%s: %s is not supported", path, t))
			}
			walk(t.Elem(), path+"{}")
		case reflect.Ptr:
			if t.Elem().Kind() == reflect.Ptr {
				found = append(found, fmt.Sprintf("%s: a pointer to a pointer is not supported", path))
			}
			if t.Elem().Size() == 0 {
				// All of them are equal, which go-spew takes for a cycle.
				found = append(found, fmt.Sprintf("%s: a pointer to nothing is not supported", path))
			}
			walk(t.Elem(), path)
		case reflect.Struct:
			name := t.String()
			if name == timeType {
				return
			}
			fields, ok := tableFields(table, name)
			if !ok {
				found = append(found, fmt.Sprintf("%s: the table does not list struct %s", path, name))
				return
			}
			if listed[name] {
				found = append(found, fmt.Sprintf("%s: two types print as %s", path, name))
			}
			listed[name] = true
			for i := 0; i < t.NumField() || i < len(fields); i++ {
				switch {
				case i >= t.NumField():
					found = append(found, fmt.Sprintf("%s: %s has no field %s", path, name, fields[i].name))
					continue
				case i >= len(fields):
					found = append(found, fmt.Sprintf("%s: the table does not list %s.%s", path, name, t.Field(i).Name))
				case t.Field(i).Name != fields[i].name:
					found = append(found, fmt.Sprintf("%s: field %d of %s is %s, the table lists %s", path, i, name, t.Field(i).Name, fields[i].name))
				case t.Field(i).Type.String() != fields[i].typ:
					found = append(found, fmt.Sprintf("%s: %s.%s is a %s, the table lists %s", path, name, fields[i].name, t.Field(i).Type, fields[i].typ))
				case i == 0 && fields[i].since != Gen16:
					// The dump puts a space before every field but the first.
					found = append(found, fmt.Sprintf("%s: a generation cannot lack the first field of %s", path, name))
				}
				walk(t.Field(i).Type, path+"."+t.Field(i).Name)
			}
		default:
			found = append(found, fmt.Sprintf("%s: kind %s is not supported", path, t.Kind()))
		}
	}
	walk(root, root.Name())
	return found
}
