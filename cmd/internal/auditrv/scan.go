// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package auditrv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// errCut is a value that ends before it is complete.
var errCut = errors.New("the JSON ends in the middle")

// fields calls f for each field of the JSON object b with its undecoded key and
// value. It checks the object's own syntax and that brackets and quotes are closed,
// and nothing more of the values: most of a log are values that nobody asks for, and
// decoding them is what would take the time.
func fields(b []byte, f func(key, value []byte)) error {
	i := space(b, 0)
	if i == len(b) || b[i] != '{' {
		return errors.New("not a JSON object")
	}
	i = space(b, i+1)
	if i < len(b) && b[i] == '}' {
		return end(b, i+1)
	}
	for {
		if i == len(b) {
			return errCut
		}
		if b[i] != '"' {
			return fmt.Errorf("byte %d: %q where a field's name is expected", i+1, b[i])
		}
		j, err := skip(b, i)
		if err != nil {
			return err
		}
		key := b[i+1 : j-1]
		if i = space(b, j); i == len(b) {
			return errCut
		}
		if b[i] != ':' {
			return fmt.Errorf("byte %d: %q where a colon is expected", i+1, b[i])
		}
		i = space(b, i+1)
		if j, err = skip(b, i); err != nil {
			return err
		}
		f(key, b[i:j])
		if i = space(b, j); i == len(b) {
			return errCut
		}
		switch b[i] {
		case '}':
			return end(b, i+1)
		case ',':
			i = space(b, i+1)
		default:
			return fmt.Errorf("byte %d: %q where a comma or the end of the object is expected", i+1, b[i])
		}
	}
}

func end(b []byte, i int) error {
	if i = space(b, i); i < len(b) {
		return fmt.Errorf("byte %d: %q after the end of the object", i+1, b[i])
	}
	return nil
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skip returns the index after the value that begins at i.
func skip(b []byte, i int) (int, error) {
	if i == len(b) {
		return 0, errCut
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				j, err := skipString(b, i)
				if err != nil {
					return 0, err
				}
				i = j
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1, nil
				}
			}
			i++
		}
		return 0, errCut
	}
	j := i
	for j < len(b) && b[j] != ',' && b[j] != '}' && b[j] != ']' && b[j] > ' ' {
		j++
	}
	if !json.Valid(b[i:j]) {
		return 0, fmt.Errorf("byte %d: %.20q is not a JSON value", i+1, b[i:j])
	}
	return j, nil
}

func skipString(b []byte, i int) (int, error) {
	for i++; ; i++ {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return 0, errCut
		}
		i += j
		n := 0 // backslashes before the quote
		for b[i-1-n] == '\\' {
			n++
		}
		if n%2 == 0 {
			return i + 1, nil
		}
	}
}

// text decodes a JSON string; "" for any other value.
func text(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}
