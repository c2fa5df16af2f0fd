// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	labmetrics "holdfast/tools/labkit/metrics"
	"holdfast/tools/labkit/process"
)

func glogLinksLab(base string) labkit.Lab {
	return labkit.Lab{
		Name:    "glog-no-follow",
		Folder:  "security",
		Summary: "a link in the log folder makes a process empty any file",
		Needs:   []labkit.Binary{labkit.BinaryUnderTest(base, "kube-controller-manager")},
		Test:    []labkit.Variant{labkit.Ours},
		Steps: func(e *labkit.Env) []labkit.Step {
			g := &logLinks{e: e, base: base}
			return []labkit.Step{
				{Text: "start the controller manager under test with its logs in a folder that everyone may write to, learn the log's name, and stop it", Do: g.learn},
				{Text: fmt.Sprintf("as user nobody, create links to a file that only root may write, under the log names of the next %v and the next %d process IDs", linksFor, linkPids), Do: g.plant},
				{Text: "start the controller manager again; check its log, the file behind the links and its counter", Do: g.look},
				{Text: "check that the controller manager runs", Always: true, Do: func(context.Context) error { return process.AllAlive(g.manager) }},
			}
		},
		Oracle: labkit.Oracle{
			Text:  []string{"the file behind the links was emptied and contains the log; absent: a link had the log's name, a new log file replaced it, the file behind the links has not changed, and the counter has increased"},
			Judge: judgeLogLinks,
		},
	}
}

// The links cover what a busy machine needs from planting to the first line of the log.
const (
	linksFor = time.Minute
	linkPids = 120
	nobody   = 65534
)

const notYours = "only root writes this\n"

// logLinks is a controller manager without a cluster: it waits for its leader's lock.
type logLinks struct {
	e           *labkit.Env
	base        string
	dir, victim string
	manager     *process.Proc
	url, prefix string
	planted     map[string]bool
}

// followed is what became of the links.
type followed struct {
	Log       string // name of the process's log
	Planted   bool   // a link was there before it
	Own       bool   // it is a regular file that begins as a log
	InVictim  bool   // the file behind the links begins as a log
	Untouched bool   // that file is as it was
	Counted   float64
}

func (g *logLinks) learn(ctx context.Context) error {
	g.dir, g.victim = filepath.Join(g.e.Dir, "logs"), filepath.Join(g.e.Dir, "of-root")
	port, err := g.e.Port(10252)
	if err != nil {
		return err
	}
	g.url = fmt.Sprintf("http://127.0.0.1:%d", port)
	if err := os.Mkdir(g.dir, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(g.dir, 0o777); err != nil { // past the umask
		return err
	}
	log, err := g.start(ctx)
	if err != nil {
		return err
	}
	// program.host.user.log.INFO.date-time.pid
	const severity = ".log.INFO."
	i := strings.Index(log, severity)
	if i < 0 {
		return fmt.Errorf("the log is %q, want …%s…", log, severity)
	}
	g.prefix = log[:i+len(severity)]
	return g.manager.Stop()
}

// start starts the controller manager and returns the name of its log.
func (g *logLinks) start(ctx context.Context) (string, error) {
	p := g.e.UnderTest(g.base, "kube-controller-manager")
	var err error
	g.manager, err = g.e.Start(ctx, process.Process{
		Name: "kube-controller-manager",
		Path: p.Path,
		Args: append([]string{"--master=http://127.0.0.1:1", "--address=127.0.0.1", "--port=" + g.url[strings.LastIndex(g.url, ":")+1:],
			"--logtostderr=false", "--log-dir=" + g.dir}, p.GateArgs()...),
		HealthURL: g.url + "/healthz",
	})
	if err != nil {
		return "", err
	}
	// glog points to its newest log.
	log, err := os.Readlink(filepath.Join(g.dir, "kube-controller-manager.INFO"))
	if err == nil && !strings.HasSuffix(log, fmt.Sprintf(".%d", g.manager.PID())) {
		err = fmt.Errorf("the newest log is %s, the process is %d", log, g.manager.PID())
	}
	return log, err
}

func (g *logLinks) plant(context.Context) error {
	if err := os.WriteFile(g.victim, []byte(notYours), 0o600); err != nil {
		return err
	}
	g.planted = map[string]bool{}
	now := time.Now()
	for t := now; t.Before(now.Add(linksFor)); t = t.Add(time.Second) {
		for pid := g.manager.PID() + 1; pid <= g.manager.PID()+linkPids; pid++ {
			name := fmt.Sprintf("%s%s.%d", g.prefix, t.Format("20060102-150405"), pid)
			link := filepath.Join(g.dir, name)
			if err := os.Symlink(g.victim, link); err != nil {
				return err
			}
			if err := os.Lchown(link, nobody, nobody); err != nil {
				return err
			}
			g.planted[name] = true
		}
	}
	return nil
}

func (g *logLinks) look(ctx context.Context) error {
	log, err := g.start(ctx)
	if err != nil {
		return err
	}
	o := followed{Log: log, Planted: g.planted[log]}
	if o.Own, err = beginsAsLog(filepath.Join(g.dir, log)); err != nil {
		return err
	}
	if o.InVictim, err = beginsAsLog(g.victim); err != nil {
		return err
	}
	b, err := os.ReadFile(g.victim)
	if err != nil {
		return err
	}
	o.Untouched = string(b) == notYours
	page, err := labmetrics.Get(ctx, g.url+"/metrics")
	if err != nil {
		return err
	}
	o.Counted, _ = page.Sum("holdfast_glog_no_follow_replaced_total")
	g.e.Record(o)
	return nil
}

// beginsAsLog says whether a file is a regular one with glog's first line.
func beginsAsLog(file string) (bool, error) {
	if fi, err := os.Lstat(file); err != nil || !fi.Mode().IsRegular() {
		return false, err
	}
	b, err := os.ReadFile(file)
	return strings.HasPrefix(string(b), "Log file created at: "), err
}

func judgeLogLinks(h *history.History) labkit.Outcome {
	o := history.One[followed](h)
	switch {
	case !o.Planted:
		return labkit.InconclusiveBecause("no link had the name of the log %s", o.Log)
	case o.InVictim:
		return labkit.ReproducedBecause("the process followed the link %s, emptied root's file and writes its log into it", o.Log)
	case !o.Untouched || !o.Own:
		return labkit.InconclusiveBecause("root's file has not changed: %t; %s is a new log file: %t", o.Untouched, o.Log, o.Own)
	case o.Counted < 1:
		return labkit.InconclusiveBecause("the link was replaced, but not counted")
	}
	return labkit.AbsentBecause("the link %s was replaced by a log, and root's file has not changed", o.Log)
}
