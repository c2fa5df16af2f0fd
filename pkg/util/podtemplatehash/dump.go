// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplatehash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"time"
)

// Template returns the pod template in data, which is JSON: an object with a
// template in its spec (a Deployment, ReplicaSet, DaemonSet, …), or a
// PodTemplateSpec itself.
func Template(data []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var o map[string]any
	if err := dec.Decode(&o); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	spec, ok := o["spec"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("spec: missing, or not an object")
	}
	if t, ok := spec["template"].(map[string]any); ok {
		return t, nil
	}
	if _, ok := spec["containers"].([]any); ok {
		return o, nil
	}
	return nil, fmt.Errorf("spec: has neither template nor containers; give a Deployment or a pod template")
}

// Missing lists the fields that an API server of r always fills in and that
// template lacks, as paths. If there are any, the hash is not the controller's.
func (r *Release) Missing(template map[string]any) []string {
	var missing []string
	want := func(o map[string]any, path string, names ...string) {
		for _, n := range names {
			if _, ok := o[n]; !ok {
				missing = append(missing, path+"."+n)
			}
		}
	}
	spec, _ := template["spec"].(map[string]any)
	want(spec, "spec", "restartPolicy", "terminationGracePeriodSeconds", "dnsPolicy", "securityContext")
	if !r.internal {
		want(spec, "spec", "schedulerName")
	}
	for _, list := range []string{"initContainers", "containers"} {
		items, _ := spec[list].([]any)
		for i, item := range items {
			c, _ := item.(map[string]any)
			path := fmt.Sprintf("spec.%s[%d]", list, i)
			want(c, path, "terminationMessagePath", "imagePullPolicy", "resources")
			if !r.internal {
				want(c, path, "terminationMessagePolicy")
			}
		}
	}
	return missing
}

// Dump is the text that r's controllers hash for template.
func (r *Release) Dump(template map[string]any) ([]byte, error) {
	s, err := r.types()
	if err != nil {
		return nil, err
	}
	if r.internal {
		if err := r.initContainers(template); err != nil {
			return nil, err
		}
		template = toInternal(template)
	}
	p := &printer{r: r, types: s.Types}
	if err := p.value(s.Root, template, "", true); err != nil {
		return nil, fmt.Errorf("Kubernetes %s: %w", r.Name, err)
	}
	return p.Bytes(), nil
}

// initContainers refuses what 1.3 to 1.5 turn into fields of the internal type.
func (r *Release) initContainers(template map[string]any) error {
	metadata, _ := template["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	for _, a := range []string{"pod.alpha.kubernetes.io/init-containers", "pod.beta.kubernetes.io/init-containers"} {
		if _, ok := annotations[a]; ok && r.Name != "1.2" {
			return fmt.Errorf("Kubernetes %s: metadata.annotations: %s becomes a field there, and how it is dumped is not known", r.Name, a)
		}
	}
	return nil
}

// toInternal does what the conversion of a v1 pod spec of 1.2 to 1.5 to the internal
// type does beyond copying fields of the same name.
func toInternal(template map[string]any) map[string]any {
	t := clone(template)
	spec, ok := t["spec"].(map[string]any)
	if !ok {
		return t
	}
	spec = clone(spec)
	t["spec"] = spec
	sc, _ := spec["securityContext"].(map[string]any)
	sc = clone(sc)
	for _, f := range []string{"hostNetwork", "hostPID", "hostIPC"} {
		if v, ok := spec[f]; ok {
			sc[f] = v
		}
	}
	spec["securityContext"] = sc
	if name, _ := spec["serviceAccountName"].(string); name == "" && spec["serviceAccount"] != nil {
		spec["serviceAccountName"] = spec["serviceAccount"]
	}
	return t
}

func clone(m map[string]any) map[string]any {
	c := make(map[string]any, len(m)+1)
	for k, v := range m {
		c[k] = v
	}
	return c
}

// printer writes what go-spew's %#v writes with SortKeys, SpewKeys and
// DisableMethods.
type printer struct {
	bytes.Buffer
	r     *Release
	types map[string]typeInfo
}

// value prints v, the JSON of a value of that type; nil is the zero value.
// path is where it stands in the template, for errors. Types are printed in
// parentheses before a value, except before elements of slices and maps and
// before what a pointer points to.
func (p *printer) value(typ string, v any, path string, showType bool) error {
	t, ok := p.types[typ]
	if !ok {
		return fmt.Errorf("%s: no table for type %s", path, typ)
	}
	if showType {
		p.WriteString("(" + typ + ")")
	}
	wrong := func() error {
		return fmt.Errorf("%s: a value of type %s cannot be %s", path, typ, jsonText(v))
	}
	switch t.Kind {
	case "leaf":
		return p.leaf(typ, v, path)
	case "ptr":
		if v == nil {
			p.WriteString("<nil>")
			return nil
		}
		return p.value(t.Elem, v, path, false)
	case "string":
		s, ok := v.(string)
		if !ok && v != nil {
			return wrong()
		}
		p.WriteString(s)
	case "bool":
		b, ok := v.(bool)
		if !ok && v != nil {
			return wrong()
		}
		fmt.Fprint(p, b)
	case "int", "int32", "int64":
		n, ok := v.(json.Number)
		if !ok && v != nil {
			return wrong()
		}
		i := int64(0)
		if v != nil {
			var err error
			if i, err = n.Int64(); err != nil {
				return wrong()
			}
		}
		p.WriteString(strconv.FormatInt(i, 10))
	case "slice":
		if v == nil {
			p.WriteString("<nil>")
			return nil
		}
		items, ok := v.([]any)
		if !ok {
			return wrong()
		}
		p.WriteByte('[')
		for i, item := range items {
			if i > 0 {
				p.WriteByte(' ')
			}
			if err := p.value(t.Elem, item, fmt.Sprintf("%s[%d]", path, i), false); err != nil {
				return err
			}
		}
		p.WriteByte(']')
	case "map":
		if v == nil {
			p.WriteString("<nil>")
			return nil
		}
		m, ok := v.(map[string]any)
		if !ok {
			return wrong()
		}
		keys := make([]string, 0, len(m))
		for k := range m {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		p.WriteString("map[")
		for i, k := range keys {
			if i > 0 {
				p.WriteByte(' ')
			}
			p.WriteString(k + ":")
			if err := p.value(t.Elem, m[k], path+"."+k, false); err != nil {
				return err
			}
		}
		p.WriteByte(']')
	case "struct":
		m, ok := v.(map[string]any)
		if !ok && v != nil {
			return wrong()
		}
		p.WriteByte('{')
		for i, f := range t.Fields {
			if i > 0 {
				p.WriteByte(' ')
			}
			p.WriteString(f.Name + ":")
			var err error
			if f.JSON == "" {
				err = p.value(f.Type, v, path, true)
			} else {
				at := f.JSON
				if path != "" {
					at = path + "." + f.JSON
				}
				err = p.value(f.Type, m[f.JSON], at, true)
			}
			if err != nil {
				return err
			}
		}
		p.WriteByte('}')
	default:
		return fmt.Errorf("%s: no rule for kind %s of type %s", path, t.Kind, typ)
	}
	return nil
}

func jsonText(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// leaf prints the types that do not come out of a table.
func (p *printer) leaf(typ string, v any, path string) error {
	switch typ {
	case "intstr.IntOrString":
		switch v := v.(type) {
		case nil:
			p.WriteString("{Type:(intstr.Type)0 IntVal:(int32)0 StrVal:(string)}")
		case string:
			p.WriteString("{Type:(intstr.Type)1 IntVal:(int32)0 StrVal:(string)" + v + "}")
		case json.Number:
			if _, err := strconv.ParseInt(v.String(), 10, 32); err != nil {
				return fmt.Errorf("%s: %s is not a port", path, v)
			}
			p.WriteString("{Type:(intstr.Type)0 IntVal:(int32)" + v.String() + " StrVal:(string)}")
		default:
			return fmt.Errorf("%s: neither a number nor a string: %s", path, jsonText(v))
		}
		return nil
	case "resource.Quantity":
		s := ""
		switch v := v.(type) {
		case nil:
		case string:
			s = v
		case json.Number:
			s = v.String()
		default:
			return fmt.Errorf("%s: not a quantity: %s", path, jsonText(v))
		}
		text, err := p.r.quantity(s, v == nil)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		p.WriteString(text)
		return nil
	default: // unversioned.Time, v1.Time
		text, err := p.r.time(v)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		p.WriteString("{Time:(time.Time)" + text + "}")
		return nil
	}
}

// utc is a time.Location of Go 1.4 to 1.8 that was loaded from a machine's UTC.
const utc = "(*time.Location){name:(string)Local zone:([]time.zone)[{name:(string)UTC offset:(int)0 isDST:(bool)false}]" +
	" tx:([]time.zoneTrans)[{when:(int64)-9223372036854775808 index:(uint8)0 isstd:(bool)false isutc:(bool)false}]" +
	" cacheStart:(int64)-9223372036854775808 cacheEnd:(int64)9223372036854775807" +
	" cacheZone:(*time.zone){name:(string)UTC offset:(int)0 isDST:(bool)false}}"

// time is the dump of a time.Time.
func (r *Release) time(v any) (string, error) {
	if v == nil {
		if r.goTime == secNsecLoc {
			return "{sec:(int64)0 nsec:(int32)0 loc:(*time.Location)<nil>}", nil
		}
		return "{wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}", nil
	}
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("not a time: %s", jsonText(v))
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return "", err
	}
	if r.Name != "1.2" {
		return "", fmt.Errorf("a time is set (%s), and the hash then holds the controller's time zone, which is known for 1.2 only; remove it from the template if it was copied from a live object", s)
	}
	return fmt.Sprintf("{sec:(int64)%d nsec:(int32)0 loc:%s}", t.Unix()-time.Time{}.Unix(), utc), nil
}
