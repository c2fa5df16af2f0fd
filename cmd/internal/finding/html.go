// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"html/template"
	"io"
)

// Rows is a table of a page.
type Rows struct {
	Head []string
	Rows [][]string
}

// page is one file without scripts, and without anything that is read from elsewhere.
var page = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Title}}</title>
<style>body{font:14px sans-serif;margin:2em}table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #999;padding:.3em .6em;text-align:left;vertical-align:top}</style>
</head><body>
<h1>{{.Title}}</h1>
<p><b>{{.Sum}}</b></p>
{{- range .Tables}}
<table>
<tr>{{range .Head}}<th>{{.}}</th>{{end}}</tr>
{{- range .Rows}}
<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{- end}}
</table>
{{- end}}
</body></html>
`))

// WriteHTML prints a page: the sum as Write has it, the tables, and the findings, worst first and each
// by itself.
func WriteHTML(w io.Writer, title string, tables []Rows, findings []Finding, sum string) error {
	found := Rows{Head: []string{"Level", "Code", "Object", "What was found", "What to do"}}
	sorted := append([]Finding(nil), findings...)
	Sort(sorted)
	for _, f := range sorted {
		found.Rows = append(found.Rows, []string{string(f.Level), f.Code, Clean(f.Object), Clean(f.Text), Clean(f.Remedy)})
	}
	for _, t := range tables {
		for _, r := range t.Rows {
			for i := range r {
				r[i] = Clean(r[i])
			}
		}
	}
	return page.Execute(w, struct {
		Title, Sum string
		Tables     []Rows
	}{title, sum + ": " + Sum(findings), append(tables, found)})
}
