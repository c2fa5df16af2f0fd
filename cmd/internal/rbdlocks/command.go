// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbdlocks is the command rbd-locks: what the locks and watchers of a cluster's RBD
// images mean.
package rbdlocks

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/output"
)

// Command returns the command rbd-locks.
func Command() *cobra.Command {
	var kubeconfig, kubeContext, image string
	var format output.Format
	r := &ceph{program: "rbd"}
	cmd := &cobra.Command{
		Use:   "rbd-locks [--kubeconfig FILE] [--id USER] [--keyring FILE]",
		Short: "What the locks and watchers of RBD images mean",
		Long: `For each RBD image that a PersistentVolume or a pod names, print its locks, its
watchers, the nodes that should have it, and a verdict: free, in-use, stale-lock,
leaked-mapping, double-mount, foreign-lock or unknown. For a finding, print the
remedy. Nothing is changed and no remedy is run. An image with a kubelet's lock and no
watcher is looked at twice, 2 s apart: the kubelet may be mounting it.

Nodes, pods and PersistentVolumes are read from the API server (1.2 to 1.9), locks and
watchers by the program rbd. The Ceph user needs mon 'allow r' and osd 'allow r' on
the pools. Without --ceph-conf the monitors are those of each volume, and one that no
PersistentVolume names is not asked: a pod's author would choose who gets the key's
proof. The table is printed at the end, -o json prints each image at once.

Exit status: 3, there are findings; else 1, something could not be read, and the rest
is printed; else 0. 2 is wrong usage.`,
		Example: `  kubectl-holdfast rbd-locks --kubeconfig ~/.kube/config --id admin --keyring /etc/ceph/ceph.client.admin.keyring
  kubectl-holdfast rbd-locks --kubeconfig ~/.kube/config --image rbd/db-0 -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usagef("it takes no arguments, and got %q", args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kubeconfig == "" && cmd.Flags().Changed("kubeconfig") {
				return exit.Usagef("--kubeconfig is empty")
			}
			if pool, name, ok := strings.Cut(image, "/"); image != "" && (!ok || pool == "" || name == "") {
				return exit.Usagef("--image %q is not POOL/IMAGE", image)
			}
			file, err := kubeapi.File(kubeconfig)
			if err != nil {
				return exit.Failedf("%w", err)
			}
			a, err := kubeapi.Load(file, kubeContext)
			if err != nil {
				return exit.Failedf("--kubeconfig: %w", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "the API server is %s\n", a.Where())
			return run(cmd.Context(), a, r, image, format, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server (default $KUBECONFIG, or ~/.kube/config)")
	cmd.Flags().StringVar(&kubeContext, "context", "", "the kubeconfig's context (default its current one)")
	cmd.Flags().StringVar(&r.conf, "ceph-conf", "", "Ceph's configuration")
	cmd.Flags().BoolVar(&r.anyMonitor, "ask-monitors-of-pods", false, "ask monitors too that only pods name")
	cmd.Flags().StringVar(&r.id, "id", "", "Ceph's user, without \"client.\"")
	cmd.Flags().StringVar(&r.keyring, "keyring", "", "the keyring with its key")
	cmd.Flags().StringVar(&image, "image", "", "this image only")
	output.Flag(cmd, &format, "one object for each image, one a line")
	return cmd
}

func run(ctx context.Context, a api, r *ceph, image string, format output.Format, out, errs io.Writer) error {
	if ctx == nil {
		ctx = context.Background()
	}
	s := &survey{a: a, r: r, q: quiet{}}
	if err := s.read(ctx); err != nil {
		return err
	}
	for _, err := range s.c.errs {
		fmt.Fprintf(errs, "the API server: %v\n", err)
	}
	for _, w := range s.c.warnings() {
		fmt.Fprintf(errs, "warning: %s\n", w)
	}
	var volumes []*volume
	for _, v := range s.c.volumes {
		if image == "" || v.name() == image {
			volumes = append(volumes, v)
		}
	}
	p := printer{format: format, out: out, w: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	// What was asked is printed also where the API server fails in the middle.
	defer p.w.Flush()
	p.head()
	told := time.Now()
	for i, v := range volumes {
		if time.Since(told) > progress {
			told = time.Now()
			fmt.Fprintf(errs, "%d of %d images were looked at\n", i, len(volumes))
		}
		answer, err := s.look(ctx, v)
		if err == nil {
			err = p.print(answer)
		}
		if err != nil {
			return err
		}
	}
	if err := p.foot(); err != nil {
		return err
	}
	return s.result(image, len(volumes))
}

// survey is one run of the command: what it asks, what the API server said and when, and what came
// of it.
type survey struct {
	a             api
	r             *ceph
	c             *cluster
	readAt        time.Time
	q             quiet
	unread, found int // images
}

func (s *survey) read(ctx context.Context) error {
	c, err := read(ctx, s.a)
	if err != nil {
		return exit.Failedf("the API server: %w", err)
	}
	s.c, s.readAt = c, time.Now()
	return nil
}

// look judges one image, and counts it.
func (s *survey) look(ctx context.Context, v *volume) (Answer, error) {
	var answer Answer
	if v.err == "" && s.q.silent(s.r, v) {
		answer = s.c.judge(s.c.of(v), nil, nil)
		answer.Verdict, answer.Remedy = Unknown, nil
		answer.Note = fmt.Sprintf("not asked: the last %d images of these monitors had no answer in time", silences)
	} else {
		began := time.Now()
		answer = s.c.answer(ctx, s.r, s.c.of(v))
		s.q.heard(s.r, v, answer.Verdict != Unknown, time.Since(began))
	}
	if finding(answer) && time.Since(s.readAt) > fresh {
		// Pods may have come and gone since.
		if err := s.read(ctx); err != nil {
			return answer, err
		}
		answer = s.c.answer(ctx, s.r, s.c.of(v))
	}
	switch {
	case answer.Verdict == Unknown:
		s.unread++
	case finding(answer):
		s.found++
	}
	return answer, nil
}

// result is the command's, after seen images; image is the one that was asked for, or empty.
func (s *survey) result(image string, seen int) error {
	switch {
	case image != "" && seen == 0:
		return exit.Failedf("no PersistentVolume and no pod names the image %s", image)
	case s.found > 0:
		// Findings come first; what is missing is told with them.
		if missing := s.missing(seen); missing != "" {
			return exit.Foundf("%d of %d images need a look, and %s", s.found, seen, missing)
		}
		return exit.Foundf("%d of %d images need a look", s.found, seen)
	}
	if missing := s.missing(seen); missing != "" {
		return exit.Failedf("%s", missing)
	}
	return nil
}

// printer writes answers as they come, and the remedies of a table behind them.
type printer struct {
	format   output.Format
	out      io.Writer
	w        *tabwriter.Writer
	remedies []string
}

func (p *printer) head() {
	if p.format == output.Table {
		fmt.Fprintln(p.w, "IMAGE\tVERDICT\tLOCKS\tWATCHERS\tNODES\tNOTE")
	}
}

func (p *printer) print(a Answer) error {
	for _, r := range a.Remedy {
		p.remedies = append(p.remedies, plain(r))
	}
	if p.format == output.JSON {
		return output.Line(p.out, a)
	}
	fmt.Fprintf(p.w, "%s\t%s\t%s\t%s\t%s\t%s\n", plain(a.Image), a.Verdict, plain(locksText(a.Locks)), plain(watchersText(a.Watchers)), strings.Join(a.Nodes, ","), plain(a.Note))
	return nil
}

func (p *printer) foot() error {
	if err := p.w.Flush(); err != nil {
		return err
	}
	if p.format == output.Table && len(p.remedies) > 0 {
		fmt.Fprintf(p.out, "\nNothing was changed. Remedies:\n  %s\n", strings.Join(p.remedies, "\n  "))
	}
	return nil
}

func finding(a Answer) bool {
	return a.Verdict != Unknown && a.Verdict != Free && a.Verdict != InUse
}

// fresh is how old what the API said may be for a finding: thousands of images take long.
var fresh = 10 * time.Second

// silence is how long a question without an answer takes at least, silences how many in a
// row are enough for a Ceph: a thousand images of monitors that are down would take a day.
// progress is how often the number of images is told.
var (
	silence, progress = 25 * time.Second, 30 * time.Second
	silences          = 3
)

// quiet counts images in a row without an answer in time: by their Ceph, and by their Ceph and
// pool. Monitors that are down silence every pool. A pool whose OSDs are down silences itself
// only, so one image of each other pool is asked.
type quiet map[string]int

func (q quiet) keys(r *ceph, v *volume) (monitors, pool string) {
	monitors = strings.Join(r.options(&volume{monitors: sorted(v.monitors)}), " ")
	return monitors, monitors + " --pool=" + v.pool
}

func (q quiet) silent(r *ceph, v *volume) bool {
	monitors, pool := q.keys(r, v)
	return q[monitors] >= silences && q[pool] > 0 || q[pool] >= silences
}

func (q quiet) heard(r *ceph, v *volume, answered bool, took time.Duration) {
	monitors, pool := q.keys(r, v)
	switch {
	case answered:
		q[monitors], q[pool] = 0, 0
	case took >= silence:
		q[monitors]++
		q[pool]++
	}
}

// mapTime is what a kubelet that holds a lock gets to map the image.
var mapTime = 2 * time.Second

// answer asks for one image. What cannot be read is a row of its own.
func (c *cluster) answer(ctx context.Context, r *ceph, v *volume) Answer {
	if v.err != "" {
		return Answer{Image: v.name(), PVs: v.pvs, Verdict: Unknown, Note: v.err}
	}
	if m := c.stranger(v); m != "" && r.conf == "" && !r.anyMonitor {
		a := c.judge(v, nil, nil)
		a.Verdict, a.Remedy = Unknown, nil
		a.Note = fmt.Sprintf("not asked: only pods name the monitor %.100q; --ceph-conf or --ask-monitors-of-pods asks", m)
		return a
	}
	// Locks first: a kubelet up to 1.8 locks and then maps, so a lock that is read after the
	// watchers may be of one that came between. One without a watcher gets time to map.
	locks, err := r.locks(ctx, v)
	var watchers []Watcher
	if err == nil {
		watchers, err = r.watchers(ctx, v)
	}
	if err == nil && len(watchers) == 0 && slices.ContainsFunc(locks, isOld) {
		select {
		case <-ctx.Done():
		case <-time.After(mapTime):
		}
		watchers, err = r.watchers(ctx, v)
	}
	if err != nil {
		a := c.judge(v, nil, nil)
		a.Verdict, a.Note, a.Remedy = Unknown, err.Error(), nil
		return a
	}
	return c.judge(v, locks, watchers, r.options(v)...)
}

func locksText(locks []Lock) string {
	var out []string
	for _, l := range locks {
		out = append(out, fmt.Sprintf("%s (%s, %s)", l.ID, l.Locker, l.Address))
	}
	return dash(strings.Join(out, "; "))
}

func watchersText(watchers []Watcher) string {
	var out []string
	for _, w := range watchers {
		name := w.Node
		if name == "" {
			name = "no node"
		}
		out = append(out, fmt.Sprintf("%s (%s)", w.Address, name))
	}
	return dash(strings.Join(out, "; "))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// missing says what could not be read, "" if all was.
func (s *survey) missing(seen int) string {
	switch {
	case len(s.c.unread) > 0:
		return strings.Join(s.c.unread, ", ") + " could not be read"
	case s.unread > 0:
		return fmt.Sprintf("%d of %d images could not be read", s.unread, seen)
	}
	return ""
}
