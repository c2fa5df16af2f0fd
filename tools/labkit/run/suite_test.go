// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"strings"
	"testing"

	"holdfast/tools/labkit"
)

// made is what a lab with three variants answered.
func made(stock, ours, off labkit.Verdict) []labkit.Outcome {
	return []labkit.Outcome{
		{Variant: labkit.Stock, Expected: labkit.Reproduced, Verdict: stock},
		{Variant: labkit.Ours, Expected: labkit.Absent, Verdict: ours},
		{Variant: labkit.GateOff, Expected: labkit.Reproduced, Verdict: off},
	}
}

func TestAgain(t *testing.T) {
	verdicts := map[rune]labkit.Verdict{'r': labkit.Reproduced, 'a': labkit.Absent, 'i': labkit.Inconclusive}
	for _, c := range []struct {
		verdicts, want string // of stock, ours and ours with its gates off: r, a or i
	}{
		{"rar", "[]"}, {"iar", "[stock]"}, {"rai", "[ours-gate-off]"}, {"iii", "[stock ours ours-gate-off]"},
		{"aar", "[]"}, {"iaa", "[]"}, {"rri", "[]"}, // a wrong answer stands
	} {
		of := []rune(c.verdicts)
		if got := fmt.Sprint(again(made(verdicts[of[0]], verdicts[of[1]], verdicts[of[2]]))); got != c.want {
			t.Errorf("%s: again %s, want %s", c.verdicts, got, c.want)
		}
	}
	if got := again(nil); got != nil {
		t.Errorf("a lab that never ran: again %v", got)
	}
}

func TestReplace(t *testing.T) {
	first := made(labkit.Reproduced, labkit.Inconclusive, labkit.Inconclusive)
	second := []labkit.Outcome{{Variant: labkit.GateOff, Verdict: labkit.Reproduced}, {Variant: labkit.Ours, Verdict: labkit.Absent}, {Variant: "ours -fix", Verdict: labkit.Reproduced}}
	var got []string
	for _, o := range replace(first, second) {
		got = append(got, fmt.Sprintf("%s %s", o.Variant, o.Verdict))
	}
	if want := "[stock reproduced ours absent ours-gate-off reproduced ours -fix reproduced]"; fmt.Sprint(got) != want {
		t.Errorf("replace gives %v, want %s", got, want)
	}
	again := repeated(first, second)
	if b := again[2].Before; len(b) != 1 || !strings.HasPrefix(b[0], "inconclusive: ") {
		t.Errorf("the first answer is %q", b)
	}
	if b := repeated(again, []labkit.Outcome{{Variant: labkit.GateOff, Verdict: labkit.Inconclusive}})[2].Before; len(b) != 2 || !strings.HasPrefix(b[1], "reproduced: ") {
		t.Errorf("the first answers are %q", b)
	}
	if len(again[0].Before)+len(again[3].Before)+len(second[0].Before) > 0 {
		t.Errorf("%+v, %+v", again, second)
	}
	if first[1].Verdict != labkit.Inconclusive {
		t.Error("replace changed what it was given")
	}
}
