// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package auditrv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// unwrapper takes the lines of a program out of docker's log of its container, in
// which each is {"log":"…\n","stream":"stdout","time":…} and a long one is several.
type unwrapper struct {
	any bool
	// parts are, by the stream, what there is of a line that goes on.
	parts map[string][]byte
}

// line returns the line that is in line; false if it goes on.
func (u *unwrapper) line(line []byte) ([]byte, bool, error) {
	if !bytes.HasPrefix(line, []byte(`{"log":"`)) {
		return line, true, nil
	}
	var in struct{ Log, Stream string }
	if err := json.Unmarshal(line, &in); err != nil {
		return nil, false, fmt.Errorf("docker's log: %w", err)
	}
	u.any = true
	part := append(u.parts[in.Stream], in.Log...)
	if !strings.HasSuffix(in.Log, "\n") && len(part) <= maxLine {
		u.parts[in.Stream] = part
		return nil, false, nil
	}
	delete(u.parts, in.Stream)
	if len(part) > maxLine {
		return nil, false, fmt.Errorf("longer than %d bytes", maxLine)
	}
	part = bytes.TrimSpace(part)
	return part, len(part) > 0, nil
}

// open reports whether a line has begun and not ended.
func (u *unwrapper) open() bool { return len(u.parts) > 0 }
