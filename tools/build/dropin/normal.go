// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"regexp"
	"strings"
)

// replaced are what differs between two runs of one build, with the words in its
// place. The order matters: what is longer goes first.
var replaced = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`v1\.(?:9\.11|12\.10)(\+holdfast[0-9A-Za-z.-]*)?(-[0-9]+-g[0-9a-f]+)?(-dirty)?`), "VERSION"},
	{regexp.MustCompile(`/tmp/holdfast-dropin-[0-9a-z.-]+`), "SOCKET"},
	{regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?( ?(Z|[+-][0-9]{2}:?[0-9]{2}( [A-Z]+)?))?( m=[+-][0-9.]+)?`), "TIME"},
	{regexp.MustCompile(`\bm=[+-][0-9.]+`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "ID"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "HASH"},
	{regexp.MustCompile(`\b[0-9]{1,3}(\.[0-9]{1,3}){3}(/[0-9]{1,2})?\b`), "IP"},
	{regexp.MustCompile(`\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b`), "MAC"},
	{regexp.MustCompile(`\bveth[0-9a-f]+\b`), "VETH"},
	{regexp.MustCompile(`0x[0-9a-f]+|0xc[0-9a-f]{9}`), "POINTER"},
	{regexp.MustCompile(`\b[0-9a-f]{12}\b`), "ID"},
	// Names that controllers make up: a hash and five letters, or either.
	{regexp.MustCompile(`-[0-9]{7,10}-[b-df-hj-np-tv-z0-9]{5}\b`), "-HASH-RANDOM"},
	{regexp.MustCompile(`-[0-9]{7,10}\b`), "-HASH"},
	{regexp.MustCompile(`\b(token|daemon|once|every|node1|twice)-[b-df-hj-np-tv-z0-9]{5}\b`), "$1-RANDOM"},
	{regexp.MustCompile(`\b([a-z0-9.-]+)\.[0-9a-f]{16}\b`), "$1.RANDOM"}, // an event
}

// Normal is text without what differs between two runs of one build.
func Normal(text string) string {
	for _, r := range replaced {
		text = r.re.ReplaceAllString(text, r.with)
	}
	return text
}

var (
	glogHeader = regexp.MustCompile(`^([IWEF])[0-9]{4} [0-9:.]+ +[0-9]+ ([^ :]+):[0-9]+\] `)
	dumped     = regexp.MustCompile(`[{\[(&].*`)
	quoted     = regexp.MustCompile(`\\?"[^"]*"|'[^']*'|` + "`[^`]*`")
	number     = regexp.MustCompile(`[-+]?\b[0-9][0-9.]*(ns|us|µs|ms|s|m|h|[KMG]i?)?\b`)
	hexID      = regexp.MustCompile(`\b[0-9a-f]{5,}\b`)
)

// maxForm is how much of a line of the log is its form.
const maxForm = 100

// LogForm is the form of a line of the log: its severity, file (without the line's
// number, which every patch moves) and text without numbers, quotations and dumped
// objects. It is "" for a line without glog's header, as those of a dump are.
func LogForm(line string) string {
	m := glogHeader.FindStringSubmatch(line)
	if m == nil {
		return ""
	}
	text := Normal(strings.TrimPrefix(line, m[0]))
	text = quoted.ReplaceAllString(text, "Q")
	text = dumped.ReplaceAllString(text, "…")
	text = number.ReplaceAllString(text, "N")
	text = hexID.ReplaceAllString(text, "HEX")
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > maxForm {
		text = string(r[:maxForm])
	}
	return m[1] + " " + m[2] + ": " + text
}
