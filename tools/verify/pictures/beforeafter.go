// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package pictures

import (
	"fmt"
	"math"

	"holdfast/tools/build/base"
	"holdfast/tools/record/outcomes"
)

// count is something that a lab counts, and that should be nought.
type count struct {
	lab, number string // as in the record
	text        string // for people
}

// counts are the rows of the picture, from top to bottom. One that the record does not have yet,
// because its lab counts it only since the last full run, is left out until the next one.
var counts = []count{
	{"node-upgrade", "containers recreated", "containers recreated, kubelet 1.7 to 1.9 in place"},
	{"node-upgrade", "requests failed", "requests that failed during that upgrade"},
	{"checkpoint-compat", "checkpoints that the kubelet under test refused", "sandboxes whose host ports an upgrade loses"},
	{"admission-across-restart", "pods that ran and are lost", "running pods failed by a kubelet start"},
	{"hash-collision-stable-order", "replacements of the pod", "times a StatefulSet replaced an unchanged pod"},
	{"hash-collision-forced-conflicts", "revisions of one template", "revisions that a StatefulSet made of one template"},
	{"security", "gitrepo-hardening: pods that reached the node", "pods with a gitRepo volume that reached the node"},
	{"security", "subpath-symlink-race: binds outside of the volume", "subPath mounts outside of their volume"},
	{"security", "volume-plugin-panic: panics within 20 s", "panics in 20 s that stop other pods' volumes"},
	{"security", "metrics-method-label: new series of the kubelet", "metric series that a stranger added"},
	{"security", "log-credentials: tokens in the log", "tokens in the logs"},
	{"security", "iscsi-chap-secrets: passwords in the log", "storage passwords in the log"},
}

// pair is what a lab counted with stock and with ours.
type pair struct {
	count
	stock, ours float64
}

// pairs are the counts that the record has of both.
func pairs(record *outcomes.Record, counts []count) []pair {
	var out []pair
	for _, c := range counts {
		stock, ok := number(record, c, base.Stock)
		ours, ok2 := number(record, c, base.Ours)
		if ok && ok2 {
			out = append(out, pair{c, stock, ours})
		}
	}
	return out
}

func number(record *outcomes.Record, c count, v base.Variant) (float64, bool) {
	o := record.Find(c.lab, v)
	if o == nil {
		return 0, false
	}
	for _, n := range o.Numbers {
		if n.Name == c.number {
			return n.Value, true
		}
	}
	return 0, false
}

// BeforeAfter draws two dots a row: what a lab counted with stock and with ours. The scale is
// logarithmic, of 1 + the count, so that 0 has a place.
func BeforeAfter(record *outcomes.Record) (string, error) {
	rows := pairs(record, counts)
	if len(rows) == 0 {
		return "", fmt.Errorf("%s has no number of any row of the picture: run %s", outcomes.File, outcomes.Command)
	}
	const (
		left, right = 420, 900
		top, step   = 84, 34
		most        = 1000
	)
	x := func(v float64) int {
		return left + int(math.Round(math.Log10(1+v)/math.Log10(1+most)*(right-left)))
	}
	height := top + step*len(rows) + 8
	c := newCanvas(960, height, "Dots for what each lab counted, with upstream 1.9.11 and with Holdfast")
	c.add(`<text x="14" y="26" font-size="16" font-weight="600">What the labs counted: <tspan fill="%s">upstream 1.9.11</tspan> and <tspan fill="%s">Holdfast</tspan></text>`, stockColour, holdfastColour)
	for _, v := range []float64{0, 1, 10, 100, 1000} {
		c.line(x(v), top-24, x(v), height-12, faintColour, 1)
		c.text(x(v), top-30, "middle", fmt.Sprintf(`font-size="12" fill="%s"`, lineColour), fmt.Sprintf("%g", v))
	}
	for i, r := range rows {
		if r.stock < 0 || r.ours < 0 || r.stock > most || r.ours >= r.stock {
			return "", fmt.Errorf("%s, %s: %g with stock and %g with ours is not a row of the picture, which shows what becomes less, from 0 to %d", r.lab, r.number, r.stock, r.ours, most)
		}
		y := top + step*i
		c.text(left-32, y+5, "end", "", r.text)
		c.line(x(r.ours), y, x(r.stock), y, "#c7cdd8", 3)
		for _, d := range []struct {
			v              float64
			colour, anchor string
			shift          int
		}{{r.stock, stockColour, "start", 13}, {r.ours, holdfastColour, "end", -11}} {
			c.add(`<circle cx="%d" cy="%d" r="7" fill="%s"/>`, x(d.v), y, d.colour)
			c.text(x(d.v)+d.shift, y+5, d.anchor, fmt.Sprintf(`fill="%s" font-weight="600"`, d.colour), fmt.Sprintf("%g", d.v))
		}
	}
	return c.end(), nil
}
