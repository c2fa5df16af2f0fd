// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pictures draws the pictures of the pages, as SVG, from data of the repository. Rule: the
// committed file is what the data give (TestPictures; with -update it writes the files).
package pictures

import (
	"errors"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"

	"holdfast/tools/record/outcomes"
)

// Dir has the pictures, below the repository's root.
const Dir = "docs/pictures"

// All has each picture by its file's name in Dir, from the record and from pages below root.
func All(root string, record *outcomes.Record) (map[string]string, error) {
	before, err := BeforeAfter(record)
	cost, err2 := Cost(root)
	swap, err3 := Swap(root)
	kills, err4 := Kills(root)
	services, err5 := endpoints.svg(root)
	pods, err6 := inPlace.svg(root)
	return map[string]string{
		"before-after.svg": before, "cluster.svg": Cluster(), "build.svg": Build(),
		"cost.svg": cost, "swap.svg": swap, "kills.svg": kills, "endpoints.svg": services,
		"in-place.svg": pods,
	}, errors.Join(err, err2, err3, err4, err5, err6)
}

// Write writes the pictures below the repository's root.
func Write(root string, record *outcomes.Record) error {
	all, err := All(root, record)
	if err != nil {
		return err
	}
	for name, picture := range all {
		if err := os.WriteFile(filepath.Join(root, Dir, name), []byte(picture), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// The colours of all pictures. Each carries a text too, so none is told by its colour alone.
const (
	stockColour    = "#9b1c1c"
	holdfastColour = "#1c6b3c"
	textColour     = "#1f2733"
	faintColour    = "#e4e8ee"
	lineColour     = "#6b7686"
)

// canvas collects the elements of a picture.
type canvas struct{ strings.Builder }

// newCanvas begins a picture of a size in pixels. label says in a sentence what it shows, for those
// who do not see it.
func newCanvas(width, height int, label string) *canvas {
	c := &canvas{}
	c.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s" font-family="system-ui,sans-serif" font-size="14" fill="%s">`,
		width, height, html.EscapeString(label), textColour)
	c.add(`<rect width="100%%" height="100%%" fill="#fff"/>`)
	return c
}

// add appends one element as a line.
func (c *canvas) add(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

// line draws a straight line.
func (c *canvas) line(x1, y1, x2, y2 int, colour string, width int) {
	c.add(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="%d"/>`, x1, y1, x2, y2, colour, width)
}

// text writes at a place; anchor is start, middle or end, style further attributes.
func (c *canvas) text(x, y int, anchor, style, text string) {
	if style != "" {
		style = " " + style
	}
	c.add(`<text x="%d" y="%d" text-anchor="%s"%s>%s</text>`, x, y, anchor, style, html.EscapeString(text))
}

// end is the picture.
func (c *canvas) end() string {
	c.WriteString("</svg>\n")
	return c.String()
}
