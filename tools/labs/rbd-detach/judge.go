// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbddetach

import (
	"fmt"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labs/internal/rbdlab"
)

// When an image was looked at.
const (
	before = "its pod has it"
	after  = "its pod is gone"
)

// triggered says that what a row is about has happened, and what shows that.
type triggered struct{ Row, By string }

var oracle = labkit.Oracle{
	Text: []string{
		fmt.Sprintf("within %v rbd status names no watcher of the image, and the node no longer has it mapped", bound),
		"the filesystem of a released image is clean for e2fsck -fn and has its data; volumesInUse then names no volume without monitors and image",
	},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	seen, contents, proven := rbdlab.States(h), rbdlab.ContentsOf(h), map[string]bool{}
	for _, t := range history.Of[triggered](h) {
		proven[t.Row] = true
	}
	res := labkit.Outcome{}
	var held, freed, wrong, missing []string
	for _, x := range rowsOf(labkit.Profile(h.Profile)) {
		was, had := seen[rbdlab.At{Image: x.image, When: before}]
		s, ended := seen[rbdlab.At{Image: x.image, When: after}]
		switch {
		case !ended || !proven[x.image]:
			missing = append(missing, x.image+": the row did not complete")
			continue
		case (!x.late || x.unlocked) && (!had || len(was.Watchers) != 1) || x.unlocked && !was.Locked(rbdlab.LegacyLock("old")):
			missing = append(missing, fmt.Sprintf("%s: before the trigger, the image's watchers were %v and its locks %v", x.image, was.Watchers, was.Locks))
			continue
		case x.unlocked && !s.Held() && len(s.Locks) > 0:
			held = append(held, fmt.Sprintf("%s still locked after %v: %v", x.image, bound, s.Locks))
			continue
		case s.Held():
			held = append(held, fmt.Sprintf("%s still watched or mapped after %v", x.image, bound))
			res.Facts = append(res.Facts, fmt.Sprintf("%s: after %v watched by %v, mapped on %v", x.image, bound, s.Watchers, s.Mapped))
			continue
		}
		c, ok := contents[rbdlab.At{Image: x.image, When: after}]
		if !ok {
			missing = append(missing, x.image+": the contents of the image were not read")
			continue
		}
		if lost := c.Lost(nil); lost != "" {
			wrong = append(wrong, lost)
		}
		if foreign := s.Foreign(); foreign != "" {
			wrong = append(wrong, x.image+": "+foreign)
		}
		freed = append(freed, x.image)
		res.Measure(x.image+" until free", s.Seconds, "s")
		res.Facts = append(res.Facts, fmt.Sprintf("%s: free after %.1f s", x.image, s.Seconds))
	}
	return rbdlab.Ending{Lost: held, Fine: freed, Wrong: wrong, Missing: missing, EachLosesAll: true, Absent: strings.Join(freed, ", ") + " released, clean and with their data"}.Answer(h, res)
}
