// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package symptoms finds the page that explains what an operator sees: a message, an event, a
// metric or a code. The table is made of the repository's pages and fixes, and is compiled in,
// because the program runs without a checkout.
package symptoms

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"holdfast/cmd/internal/finding"
)

// Page is the page that is written from the table, from the root of the repository.
const Page = "docs/user/symptoms.md"

// Kind says what a symptom is.
type Kind string

// The kinds, in the order of the page.
const (
	Incident Kind = "incident" // what happens to a cluster
	Message  Kind = "message"  // in a log, an event's text or a status; "…" stands for any text
	Event    Kind = "event"    // an event's reason
	Metric   Kind = "metric"   // the name of one of Holdfast's metrics
	Code     Kind = "code"     // of a finding of this program
)

// Symptom is one row.
type Symptom struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"`
	// Means says what it tells, in a few words of Markdown.
	Means string `json:"means,omitempty"`
	// Page explains it, from the root of the repository.
	Page string `json:"page"`
}

//go:embed symptoms.json
var table []byte

// All are all symptoms, in the order of the page.
func All() ([]Symptom, error) {
	var out []Symptom
	if err := json.Unmarshal(table, &out); err != nil {
		return nil, fmt.Errorf("the table of symptoms that is compiled in cannot be read: %w", err)
	}
	for _, c := range finding.Codes() {
		out = append(out, Symptom{Kind: Code, Text: c.Code, Means: c.Title, Page: c.Page()})
	}
	return out, nil
}

// Find are the symptoms that a text has, such as a line of a log, or that have the text.
func Find(all []Symptom, text string) []Symptom {
	text = plain(text)
	if text == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(s Symptom) bool {
		return !has(text, strings.Split(plain(s.Text), "…")) && !strings.Contains(plain(s.Text), text) && !strings.Contains(plain(s.Means), text)
	})
}

// has says whether a text has all parts in their order.
func has(text string, parts []string) bool {
	for _, p := range parts {
		i := strings.Index(text, strings.TrimSpace(p))
		if i < 0 {
			return false
		}
		text = text[i+len(strings.TrimSpace(p)):]
	}
	return true
}

// plain is a text without what differs by chance: case, quotes and white space.
func plain(s string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("`", "", `"`, "", "'", "").Replace(strings.ToLower(s))), " ")
}

// headings are those of the page, with a sentence for the reader.
var headings = []struct {
	kind       Kind
	head, text string
	means      string // the head of the second column, "" for none
}{
	{Incident, "What happens", "Each fix prevents one incident. The page of the fix says who is affected and how to check.", ""},
	{Message, "Messages", "You find these messages in a log, in the text of an event or in a status. `…` stands for any text.", "means"},
	{Event, "Reasons of events", "`kubectl get events --all-namespaces` shows events with their reasons.", "means"},
	{Metric, "Metrics", "The kubelet and the controller manager serve these metrics on `/metrics`; `{…}` names the labels.\nThe label `enforced` is `false` while the fix's feature gate is off, otherwise `true`.", "counts or shows"},
	{Code, "Codes", "The commands of `kubectl holdfast` print one of these codes with each finding. *Target* means the\nkubelet that you want to swap to.", "means"},
}

// Markdown is the page of the symptoms. Links lead from its folder.
func Markdown(all []Symptom) string {
	var b strings.Builder
	b.WriteString("<!-- Written from patches/, cmd/internal/symptoms: go test ./internal/symptoms -update in cmd/ -->\n" +
		"# What do you see?\n\nFind your symptom, and follow the link. `kubectl holdfast explain TEXT` searches the same table:\npaste a log line, the reason of an event, the name of a metric or a code.\n")
	for _, h := range headings {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", h.head, h.text)
		if h.means == "" {
			b.WriteString("| you see | page |\n|---|---|\n")
		} else {
			fmt.Fprintf(&b, "| you see | %s | page |\n|---|---|---|\n", h.means)
		}
		for _, s := range all {
			if s.Kind != h.kind {
				continue
			}
			text, means := s.Text, s.Means+" | "
			if s.Kind != Incident {
				text = "`" + text + "`"
			}
			if h.means == "" {
				means = ""
			}
			fmt.Fprintf(&b, "| %s | %s[%s](%s) |\n", text, means, label(s), link(s.Page))
		}
	}
	return b.String()
}

// label is what a link to a symptom's page says: the fix, or the page's name.
func label(s Symptom) string {
	if s.Kind == Code {
		return s.Text
	}
	parts := strings.Split(strings.TrimSuffix(strings.TrimSuffix(s.Page, ".md"), "/README"), "/")
	if parts[0] == "patches" {
		return strings.Join(parts[1:], "-")
	}
	return parts[len(parts)-1]
}

// link leads from docs/user to a page.
func link(page string) string {
	if p, ok := strings.CutPrefix(page, "docs/user/"); ok {
		return p
	}
	if p, ok := strings.CutPrefix(page, "docs/"); ok {
		return "../" + p
	}
	return "../../" + page
}
