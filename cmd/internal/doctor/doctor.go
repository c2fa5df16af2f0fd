// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctor is the command doctor: it looks through the API server for the signs of the
// incidents that Holdfast ends, and changes nothing.
package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/output"
	"holdfast/cmd/internal/rbdlocks"
)

const (
	// betweenLooks is what makes a sign a finding: it is there twice, this long apart.
	betweenLooks = 30 * time.Second
	// maxFindings is how many findings of one code are shown. Who makes objects decides how many
	// there are.
	maxFindings = 200
)

// look asks everything and prints it. It is nil, or an error with the status. After an interrupt it
// prints what is known.
func (o *options) look(ctx context.Context, a *kubeapi.Client, out, progress io.Writer) error {
	first := &cluster{}
	var found []finding.Finding
	if err := first.readVersion(ctx, a); err != nil {
		var status *kubeapi.StatusError
		var refused *tls.CertificateVerificationError
		switch {
		case errors.As(err, &refused):
			return exit.Failedf("the API server's certificate is refused: %s; kubectl holdfast forecast says more (HF104)", why(err, "get", "/version"))
		case !errors.As(err, &status) || status.Code == http.StatusUnauthorized:
			return exit.Failedf("the API server: %s", why(err, "get", "/version"))
		}
		found = append(found, finding.Of("HF605", "API server", "its release could not be read: "+why(err, "get", "/version"), "").At(finding.Unknown))
	} else if !first.serverKnown {
		found = append(found, finding.Of("HF605", "API server", "its version is not a Kubernetes release", "").At(finding.Unknown))
	}
	flapping := make(chan []finding.Finding, 1)
	if o.watch > 0 {
		go func() { flapping <- follow(ctx, a, o.watch) }()
	}
	first.readKinds(ctx, a)
	signs := first.signs()
	found = append(found, first.unknown()...)
	found = append(found, first.affected()...)
	found = append(found, first.statefulSets()...)
	found = append(found, first.mayGet(ctx, a, o.user)...)
	managers, more := askManagers(ctx, a, first, o.manager)
	found = append(append(found, more...), first.skew(managers)...)
	kubelets, more, err := askNodes(ctx, a, first.nodes, progress)
	if err != nil {
		return err
	}
	found = append(found, more...)
	found = append(found, o.volumes(ctx, a, first, progress)...)
	found = append(found, o.again(ctx, a, first, signs, progress)...)
	if o.watch > 0 {
		found = append(found, <-flapping...)
	}
	if o.format == finding.JSON {
		for _, c := range slices.Concat(managers, kubelets) {
			if err := output.Line(out, c); err != nil {
				return err
			}
		}
	}
	found = bounded(found)
	if err := finding.Write(out, found, o.failOn, o.format, first.sum(kubelets, managers, o.format)); err != nil {
		return err
	}
	return finding.Err(found, o.failOn)
}

// unknown are the codes that could not be looked at.
func (c *cluster) unknown() []finding.Finding {
	var out []finding.Finding
	for _, code := range []string{"HF604", "HF611", "HF613", "HF614", "HF615"} {
		if w := c.lacks(needs[code]...); w != "" {
			out = append(out, finding.Of(code, "-", "not checked: "+w, "").At(finding.Unknown))
		}
	}
	if c.serverKnown && (c.server.minor == 10 || c.server.minor == 11) {
		out = append(out, finding.Of("HF613", "-", fmt.Sprintf("not checked: doctor cannot compute the hashes of 1.%d", c.server.minor), "").At(finding.Unknown))
	}
	return out
}

// again looks once more where there are signs, and returns those that are there still.
func (o *options) again(ctx context.Context, a *kubeapi.Client, first *cluster, signs []sign, progress io.Writer) []finding.Finding {
	if len(signs) == 0 {
		return nil
	}
	wait := time.Until(first.read.Add(o.between))
	if wait > time.Second {
		fmt.Fprintf(progress, "%d signs: checking again in %s\n", len(signs), wait.Round(time.Second))
	}
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
	var kinds []string
	second := &cluster{server: first.server, serverKnown: first.serverKnown, stuck: map[string]bool{}}
	for _, s := range signs {
		kinds = append(kinds, needs[s.code]...)
		if s.stuck != "" && len(second.stuck) < maxFindings {
			second.stuck[s.stuck] = true
		}
	}
	if ctx.Err() == nil {
		second.readKinds(ctx, a, kinds...)
	}
	now := map[string]sign{} // by code and id
	if ctx.Err() == nil {
		for _, s := range second.signs() {
			now[s.code+s.id] = s
		}
	}
	var still, once []sign
	missing := map[string]string{}
	for _, s := range signs {
		w := second.lacks(needs[s.code]...)
		if ctx.Err() != nil {
			w = "interrupted"
		}
		again, ok := now[s.code+s.id]
		switch {
		case w != "":
			missing[s.code], once = w, append(once, s)
		case ok:
			still = append(still, again)
		}
	}
	out := findings(still)
	for _, f := range findings(once) {
		f.Text = "seen once, and not checked again (" + missing[f.Code] + "): " + f.Text
		out = append(out, f.At(finding.Unknown))
	}
	return out
}

// volumes are the findings of rbd-locks, if the cluster has RBD volumes.
func (o *options) volumes(ctx context.Context, a *kubeapi.Client, c *cluster, progress io.Writer) []finding.Finding {
	unknown := func(object, text, remedy string) finding.Finding {
		return finding.Of("HF621", object, text, remedy).At(finding.Unknown)
	}
	if o.ceph == (rbdlocks.Ceph{}) {
		switch w := c.lacks("pods", "persistentvolumes"); {
		case w != "":
			return []finding.Finding{unknown("-", "not checked: "+w, "")}
		case c.rbd > 0:
			return []finding.Finding{unknown("-", "there are RBD volumes, but you did not say how to connect to Ceph", "give --keyring and --id, or --ceph-conf")}
		}
		return nil
	}
	var out []finding.Finding
	answers, err := rbdlocks.Look(ctx, a, o.ceph, progress)
	if err != nil {
		out = append(out, unknown("-", "not everything could be read: "+why(err, "list", "nodes, pods and persistentvolumes"), ""))
	}
	for _, x := range answers {
		image := "image " + clip(x.Image)
		switch {
		case x.Verdict == rbdlocks.Unknown:
			out = append(out, unknown(image, "not known: "+clip(x.Note), "run kubectl holdfast rbd-locks"))
		case x.Found():
			out = append(out, finding.Of("HF621", image, fmt.Sprintf("%s: %s", x.Verdict, clip(x.Note)), "run kubectl holdfast rbd-locks for the remedy"))
		}
	}
	return out
}

// clip bounds a text that a pod's author has in hand.
func clip(s string) string {
	if len(s) > 200 {
		return s[:197] + "..."
	}
	return s
}

// bounded are the findings with at most maxFindings of one code, and how many more there are.
func bounded(found []finding.Finding) []finding.Finding {
	var out []finding.Finding
	counts, more := map[string]int{}, map[string]finding.Finding{}
	for _, f := range found {
		if counts[f.Code]++; counts[f.Code] <= maxFindings {
			f.Object = clip(f.Object)
			out = append(out, f)
		} else if worst, ok := more[f.Code]; !ok || finding.Worse(f.Level, worst.Level) {
			more[f.Code] = f
		}
	}
	for code, f := range more {
		f.Object, f.Remedy, f.Text = "-", "", fmt.Sprintf("%d more findings of this code are not shown", counts[code]-maxFindings)
		out = append(out, f)
	}
	return out
}

// sum is what was looked at, in a few words.
func (c *cluster) sum(kubelets, managers []component, format finding.Format) string {
	releases := map[string]int{}
	for _, k := range kubelets {
		releases[k.Release]++
	}
	nodes := "nodes"
	if len(kubelets) == 1 {
		nodes = "node"
	}
	out := fmt.Sprintf("API %s, %d %s", c.server.text, len(kubelets), nodes)
	if len(releases) == 1 {
		out += " " + kubelets[0].Release
	}
	if format == finding.Wide && len(managers) > 0 {
		out += ", controller manager " + managers[0].Release
	}
	return out
}
