// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package pictures

import "fmt"

// box is a program, or a machine, of the picture of a cluster.
type box struct {
	x, y, w, h int
	name, note string
	ours       int // 0 upstream's, 1 Holdfast's, 2 Holdfast's if wanted
	machine    bool
}

// Cluster draws where Holdfast's programs run in a cluster.
func Cluster() string {
	boxes := []box{
		{x: 20, y: 50, w: 250, h: 300, name: "your desk", machine: true},
		{x: 310, y: 50, w: 330, h: 300, name: "each master", machine: true},
		{x: 680, y: 50, w: 260, h: 300, name: "each node", machine: true},
		{x: 40, y: 90, w: 210, h: 64, name: "kubectl-holdfast", note: "forecast, rbd-locks, …", ours: 1},
		{x: 330, y: 90, w: 290, h: 64, name: "kube-controller-manager", note: "in the place of upstream's", ours: 1},
		{x: 330, y: 170, w: 290, h: 64, name: "kube-apiserver", note: "upstream's, or Holdfast's", ours: 2},
		{x: 330, y: 250, w: 136, h: 64, name: "etcd", note: "unchanged"},
		{x: 484, y: 250, w: 136, h: 64, name: "endpoints-rules", note: "a webhook", ours: 2},
		{x: 700, y: 90, w: 220, h: 64, name: "kubectl-holdfast", note: "node check, swap, back", ours: 1},
		{x: 700, y: 170, w: 220, h: 64, name: "kubelet", note: "in the place of upstream's", ours: 1},
		{x: 700, y: 250, w: 220, h: 64, name: "docker and your pods", note: "unchanged"},
	}
	c := newCanvas(960, 410, "Holdfast's programs: kubectl-holdfast on your desk and on each node, the controller manager on each master, the kubelet on each node; the API server and the webhook endpoints-rules are optional; etcd and docker are unchanged")
	c.text(20, 28, "start", `font-size="16" font-weight="600"`, "Where Holdfast runs in a cluster")
	for _, b := range boxes {
		fill, stroke, dash := "#fff", lineColour, ""
		switch {
		case b.machine:
			fill, stroke = "#f6f7f9", faintColour
		case b.ours > 0:
			fill, stroke = "#e9f5ee", holdfastColour
		}
		if b.ours == 2 {
			dash = ` stroke-dasharray="6 4"`
		}
		c.add(`<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="%s" stroke="%s" stroke-width="1.5"%s/>`, b.x, b.y, b.w, b.h, fill, stroke, dash)
		if b.machine {
			c.text(b.x+12, b.y+24, "start", fmt.Sprintf(`fill="%s"`, lineColour), b.name)
			continue
		}
		c.text(b.x+b.w/2, b.y+28, "middle", `font-weight="600"`, b.name)
		c.text(b.x+b.w/2, b.y+48, "middle", fmt.Sprintf(`font-size="12" fill="%s"`, lineColour), b.note)
	}
	// Everybody talks to the API server.
	for _, l := range [][4]int{{250, 130, 330, 190}, {475, 154, 475, 170}, {620, 202, 700, 202}, {398, 234, 398, 250}, {552, 234, 552, 250}, {810, 234, 810, 250}} {
		c.line(l[0], l[1], l[2], l[3], lineColour, 2)
	}
	c.text(20, 382, "start", "", "Green: Holdfast's. Dashed: optional. White: as it was. Lines: who talks to whom.")
	return c.end()
}
