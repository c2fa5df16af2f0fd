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

const about = `For each RBD image that a PersistentVolume or a pod names, print its locks, its
watchers, the nodes to which the API objects assign the image, and a verdict: free, in-use,
stale-lock, leaked-mapping, double-mount, foreign-lock or unknown. For each problem, print
the remedy. The command changes nothing and runs no remedy. It checks an image with a kubelet's
lock and no watcher twice, 2 s apart, because it is possible that a kubelet is
mounting the image.

The command reads nodes, pods and PersistentVolumes from the API server (1.2 to 1.9), and locks
and watchers with the program rbd. The Ceph user needs mon 'allow r' and osd 'allow r' on the
pools. Without --ceph-conf the command contacts the monitors that each volume names, but not
monitors that only pods name: a monitor receives a proof of the key, and the author of a pod
can name any host. The command prints the table at the end; with -o json it prints each image
as soon as it has checked it.

Exit status: 3 if there is a problem; otherwise 1 if the command could not read something (it
prints everything else); otherwise 0. It is 2 if the command line is wrong.`

const example = `  kubectl-holdfast rbd-locks --kubeconfig ~/.kube/config --id admin --keyring /etc/ceph/ceph.client.admin.keyring
  kubectl-holdfast rbd-locks --kubeconfig ~/.kube/config --image rbd/db-0 -o json`

// Command returns the command rbd-locks.
func Command() *cobra.Command { return command(defaultLimits()) }

func command(l limits) *cobra.Command {
	q := &request{ceph: ceph{program: "rbd", limits: l}}
	cmd := &cobra.Command{
		Use:     "rbd-locks [--kubeconfig FILE] [--id USER] [--keyring FILE]",
		Short:   "Find stale locks, leaked mappings and double mounts of RBD images",
		Long:    about,
		Example: example,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usagef("the command takes no arguments, but got %q", args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return q.run(cmd) },
	}
	cmd.Flags().StringVar(&q.kubeconfig, "kubeconfig", "", "the kubeconfig of the API server (default $KUBECONFIG, or ~/.kube/config)")
	cmd.Flags().StringVar(&q.context, "context", "", "the context in the kubeconfig (default: its current context)")
	cmd.Flags().StringVar(&q.ceph.conf, "ceph-conf", "", "Ceph's configuration")
	cmd.Flags().BoolVar(&q.ceph.anyMonitor, "ask-monitors-of-pods", false, "also contact monitors that only pods name")
	cmd.Flags().StringVar(&q.ceph.id, "id", "", "Ceph's user, without \"client.\"")
	cmd.Flags().StringVar(&q.ceph.keyring, "keyring", "", "the keyring with the key of this user")
	cmd.Flags().StringVar(&q.image, "image", "", "check only this image")
	output.Flag(cmd, &q.format, "one object for each image, each on a line")
	return cmd
}

// request is what the command line asks for.
type request struct {
	kubeconfig, context string
	image               string // POOL/IMAGE, empty: all
	format              output.Format
	ceph                ceph
}

func (q *request) run(cmd *cobra.Command) error {
	if q.kubeconfig == "" && cmd.Flags().Changed("kubeconfig") {
		return exit.Usagef("--kubeconfig is empty")
	}
	if pool, name, ok := strings.Cut(q.image, "/"); q.image != "" && (!ok || pool == "" || name == "") {
		return exit.Usagef("--image %q is not POOL/IMAGE", q.image)
	}
	file, err := kubeapi.File(q.kubeconfig)
	if err != nil {
		return exit.Failedf("%w", err)
	}
	a, err := kubeapi.Load(file, q.context)
	if err != nil {
		return exit.Failedf("--kubeconfig: %w", err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "the API server is %s\n", a.Where())
	return run(cmd.Context(), a, &q.ceph, q.image, q.format, cmd.OutOrStdout(), cmd.ErrOrStderr())
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
	volumes := s.c.named(image)
	p := &printer{format: format, out: out, w: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	// What was asked is printed also where the API server fails in the middle.
	defer p.w.Flush()
	p.head()
	if err := s.each(ctx, volumes, errs, p.print); err != nil {
		return err
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

// each looks at the images and gives their answers to take.
func (s *survey) each(ctx context.Context, volumes []*volume, progress io.Writer, take func(Answer) error) error {
	told := time.Now()
	for i, v := range volumes {
		if time.Since(told) > s.r.limits.progress {
			told = time.Now()
			fmt.Fprintf(progress, "%d of %d images were checked\n", i, len(volumes))
		}
		answer, err := s.look(ctx, v)
		if err == nil {
			err = take(answer)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// look judges one image, and counts it.
func (s *survey) look(ctx context.Context, v *volume) (Answer, error) {
	var answer Answer
	if v.err == "" && s.q.silent(s.r, v) {
		answer = s.c.unknown(s.c.of(v), fmt.Sprintf("not checked: for the last %d images of these monitors there was no answer in time", s.r.limits.silences))
	} else {
		began := time.Now()
		answer = s.c.answer(ctx, s.r, s.c.of(v))
		s.q.heard(s.r, v, answer.Verdict != Unknown, time.Since(began))
	}
	if finding(answer) && time.Since(s.readAt) > s.r.limits.fresh {
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
			return exit.Foundf("there are findings for %d of %d images, and %s", s.found, seen, missing)
		}
		return exit.Foundf("there are findings for %d of %d images", s.found, seen)
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
	enough := r.limits.silences
	return q[monitors] >= enough && q[pool] > 0 || q[pool] >= enough
}

func (q quiet) heard(r *ceph, v *volume, answered bool, took time.Duration) {
	monitors, pool := q.keys(r, v)
	switch {
	case answered:
		q[monitors], q[pool] = 0, 0
	case took >= r.limits.silence:
		q[monitors]++
		q[pool]++
	}
}

// answer asks for one image. What cannot be read is a row of its own.
func (c *cluster) answer(ctx context.Context, r *ceph, v *volume) Answer {
	if v.err != "" {
		return Answer{Image: v.name(), PVs: v.pvs, Verdict: Unknown, Note: v.err}
	}
	if m := c.stranger(v); m != "" && r.conf == "" && !r.anyMonitor {
		return c.unknown(v, fmt.Sprintf("not checked: only pods name the monitor %.100q; use --ceph-conf or --ask-monitors-of-pods", m))
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
		case <-time.After(r.limits.mapping):
		}
		watchers, err = r.watchers(ctx, v)
	}
	if err != nil {
		return c.unknown(v, err.Error())
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
