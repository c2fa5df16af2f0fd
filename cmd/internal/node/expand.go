// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// specifiers replaces what begins with %. Few make sense in a kubelet's unit; with another one
// the unit is not understood.
func specifiers(w, unitName string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(w); i++ {
		if w[i] != '%' {
			b.WriteByte(w[i])
			continue
		}
		i++
		switch {
		case i == len(w):
			b.WriteByte('%')
		case w[i] == '%':
			b.WriteByte('%')
		case w[i] == 'H':
			name, err := os.Hostname()
			if err != nil {
				return "", err
			}
			b.WriteString(name)
		case w[i] == 'n':
			b.WriteString(fullName(unitName))
		case w[i] == 'N' || w[i] == 'p':
			b.WriteString(strings.TrimSuffix(unitName, ".service"))
		default:
			return "", fmt.Errorf("the unit %s uses %%%c, which this program does not expand", unitName, w[i])
		}
	}
	return b.String(), nil
}

func fullName(unit string) string {
	if strings.Contains(unit, ".") {
		return unit
	}
	return unit + ".service"
}

// split splits a line into words as systemd does: at spaces, with both quotes and the escapes
// of C.
func split(s string) ([]string, error) {
	var words []string
	var word []byte
	in, quote := false, byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && i+1 < len(s):
			i++
			in = true
			if at := strings.IndexByte(`abfnrtvs\"'`, s[i]); at >= 0 {
				word = append(word, "\a\b\f\n\r\t\v \\\"'"[at])
			} else if n, err := strconv.ParseUint(s[i+1:min(i+3, len(s))], 16, 8); s[i] == 'x' && err == nil {
				word = append(word, byte(n))
				i += 2
			} else {
				return nil, fmt.Errorf("it has the escape \\%c", s[i])
			}
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word = append(word, c)
		case c == '"' || c == '\'':
			quote, in = c, true
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			if in {
				words, word, in = append(words, string(word)), nil, false
			}
		default:
			word, in = append(word, c), true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote is not closed")
	}
	if in {
		words = append(words, string(word))
	}
	return words, nil
}

// expand replaces variables as systemd does: "$A" as a word of its own becomes words, "${A}"
// anywhere becomes its value, "$$" is "$".
func expand(words []string, env map[string]string) []string {
	out := []string{}
	for _, w := range words {
		if len(w) > 1 && w[0] == '$' && isName(w[1:]) {
			value := env[w[1:]]
			parts, err := split(value)
			if err != nil {
				parts = strings.Fields(value)
			}
			out = append(out, parts...)
			continue
		}
		var b strings.Builder
		for i := 0; i < len(w); i++ {
			if w[i] == '$' && i+1 < len(w) {
				if w[i+1] == '$' {
					b.WriteByte('$')
					i++
					continue
				}
				if end := strings.IndexByte(w[i:], '}'); w[i+1] == '{' && end > 0 && isName(w[i+2:i+end]) {
					b.WriteString(env[w[i+2:i+end]])
					i += end
					continue
				}
			}
			b.WriteByte(w[i])
		}
		out = append(out, b.String())
	}
	return out
}

func isName(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '_' && (c < '0' || c > '9' || i == 0) && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return s != ""
}

// envFile adds the assignments of an environment file, as load_env_file of systemd reads them.
func envFile(env map[string]string, text string) {
	for i := 0; i < len(text); {
		// Blank space, then a comment or a name.
		if strings.IndexByte(" \t\r\n", text[i]) >= 0 {
			i++
			continue
		}
		end := strings.IndexByte(text[i:], '\n')
		if end < 0 {
			end = len(text) - i
		}
		eq := strings.IndexByte(text[i:i+end], '=')
		if text[i] == '#' || text[i] == ';' || eq < 0 {
			i += end
			continue
		}
		key := strings.TrimSpace(text[i : i+eq])
		i += eq + 1
		var value []byte
		keep := 0 // so much of value is not trimmed
		quote, start := byte(0), true
	value:
		for ; i < len(text); i++ {
			c := text[i]
			switch {
			case quote != 0 && c == quote:
				quote, start, keep = 0, true, len(value)
			case c == '\\' && quote != '\'':
				if i++; i == len(text) {
					break value
				}
				if quote == '"' && strings.IndexByte("\"\\`$\n", text[i]) < 0 {
					value = append(value, '\\')
				}
				if text[i] != '\n' {
					value = append(value, text[i])
					keep = len(value)
				}
				start = false
			case quote != 0:
				value = append(value, c)
			case c == '\n' || c == '\r':
				break value
			case start && (c == '"' || c == '\''):
				quote = c
			case start && (c == ' ' || c == '\t'):
			default:
				value, start = append(value, c), false
			}
		}
		n := len(value)
		for n > keep && (value[n-1] == ' ' || value[n-1] == '\t') {
			n--
		}
		if isName(key) {
			env[key] = string(value[:n])
		}
	}
}
