// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package pictures

import "fmt"

// Build draws how a release's module becomes a binary.
func Build() string {
	c := newCanvas(960, 330, "Upstream's module, checked by its checksum, the overlay and the patches of the fixes become a source tree; today's Go and the pinned libraries of 2017 and 2018 make the binaries of it; labs run them beside upstream's")
	c.text(20, 28, "start", `font-size="16" font-weight="600"`, "How a release becomes a binary")
	boxes := []struct {
		x, y, w    int
		name, note string
		ours       bool
	}{
		{20, 60, 250, "upstream's module", "v1.9.11, checked by its checksum", false},
		{20, 140, 250, "overlay", "pkg/, staging/: files of Holdfast", true},
		{20, 220, 250, "patches", "patches/FIX/v1.9.11/: hooks, in order", true},
		{350, 140, 240, "source tree", "_output/src/v1.9.11/ours", true},
		{350, 220, 240, "libraries of 2017–18", "pinned in go.mod, by checksum", false},
		{690, 140, 250, "kubelet, controller manager", "_output/bin/v1.9.11/ours", true},
		{690, 220, 250, "labs", "beside upstream's, built the same way", true},
	}
	const h = 56
	for _, b := range boxes {
		fill, stroke := "#fff", lineColour
		if b.ours {
			fill, stroke = "#e9f5ee", holdfastColour
		}
		c.add(`<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="%s" stroke="%s" stroke-width="1.5"/>`, b.x, b.y, b.w, h, fill, stroke)
		c.text(b.x+b.w/2, b.y+24, "middle", `font-weight="600"`, b.name)
		c.text(b.x+b.w/2, b.y+43, "middle", fmt.Sprintf(`font-size="12" fill="%s"`, lineColour), b.note)
	}
	for _, l := range [][4]int{{270, 88, 350, 160}, {270, 168, 350, 168}, {270, 248, 350, 176}, {590, 168, 690, 168}, {590, 248, 690, 176}, {815, 196, 815, 220}} {
		c.line(l[0], l[1], l[2], l[3], lineColour, 2)
	}
	c.text(352, 130, "start", `font-size="12"`, "make source")
	c.text(640, 158, "middle", `font-size="12"`, "today's Go")
	c.text(20, 312, "start", "", "Green: Holdfast's. White: upstream's. A patch that does not apply exactly stops the build.")
	return c.end()
}
