// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Labpod is the one program in the labs' container images.
//
//	/pause                    wait for a signal, reap (the pod sandbox)
//	/labpod serve             a web server, see below
//	/labpod sleep [DURATION]  wait, for ever by default, and exit 0
//	/labpod exit CODE         exit with CODE
//	/labpod probe URL|FILE    exec probe: 0 if the URL answers 200 or the file exists
//	/labpod write FILE TEXT   write a file
//	/labpod fill FILE BYTES   append so many zeroes to a file, then wait for ever
//	/labpod print BYTES       print so many bytes
//	/labpod echo              copy standard input to standard output
//	/labpod forward FROM TO   pass TCP connections on, from one address to the other
//	/labpod guestbook         the web page of the guestbook example
//
// serve listens on LABPOD_LISTEN (default ":8080", a comma-separated list) and
// answers
//
//	/            "VERSION HOSTNAME\n" (LABPOD_VERSION)
//	/ready       200 or 503; not ready before LABPOD_READY_AFTER (default 0s)
//	/live        200 or 503
//	/slow?d=2s   200 after that time
//	/set?ready=false&live=false   change the answers
//	/exit?code=3 exit
//	/bytes?n=10&chunked=true&code=500   so many bytes, with their number or in chunks
//	/starts      the file LABPOD_STARTS, to which each start has added a line before it
//	             served: "VERSION LABPOD_ID\n", written through to the disk
//
// As /bin/tar it is what kubectl cp runs in a container, too: "tar cf - FILE" and
// "tar xf - [-C DIR]", for one file.
//
// LABPOD_READY_FILE, if set, exists exactly while /ready answers 200, for exec
// probes. LABPOD_EXIT_AFTER and LABPOD_EXIT_CODE end the process by itself.
// On SIGTERM it goes on serving for LABPOD_TERM_DELAY (default 0s), then ends
// open requests and exits 0.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if filepath.Base(os.Args[0]) == "pause" {
		pause()
		return
	}
	run := command
	if filepath.Base(os.Args[0]) == "tar" && isTar(os.Args[1:]) {
		run = tarCommand
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "labpod:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	if len(args) == 0 {
		return errors.New("want serve, sleep, exit, probe, write, fill, print, echo, forward or guestbook")
	}
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	switch args[0] {
	case "serve":
		return serve()
	case "guestbook":
		return guestbook()
	case "sleep":
		return sleep(arg(1))
	case "exit":
		code, err := strconv.Atoi(arg(1))
		if err != nil {
			return fmt.Errorf("exit %q: want a number", arg(1))
		}
		os.Exit(code)
	case "probe":
		return probe(arg(1))
	case "write":
		return os.WriteFile(arg(1), []byte(arg(2)+"\n"), 0o644)
	case "fill":
		// FILE BYTES: appends zeroes to a file, then sleeps.
		n, err := strconv.Atoi(arg(2))
		if err != nil {
			return fmt.Errorf("fill %q: want a number", arg(2))
		}
		if err := fill(arg(1), n); err != nil {
			return err
		}
		return sleep("")
	case "echo":
		_, err := io.Copy(os.Stdout, os.Stdin)
		return err
	case "forward":
		return forward(arg(1), arg(2))
	case "print":
		n, err := strconv.Atoi(arg(1))
		if err != nil {
			return fmt.Errorf("print %q: want a number", arg(1))
		}
		for line := []byte(strings.Repeat("x", 1023) + "\n"); n > 0 && err == nil; n -= len(line) {
			_, err = os.Stdout.Write(line[:min(n, len(line))])
		}
		return err
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// fill appends n zeroes to a file.
func fill(name string, n int) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	chunk := make([]byte, 1<<20)
	for ; n > 0 && err == nil; n -= len(chunk) {
		_, err = f.Write(chunk[:min(n, len(chunk))])
	}
	return errors.Join(err, f.Close())
}

// addLine adds a line to a file and has it on the disk.
func addLine(name, line string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}

// pause is process 1 of a pod that may share its PID namespace.
func pause() {
	sigs := make(chan os.Signal, 8)
	signal.Notify(sigs, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range sigs {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

func sleep(d string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	var end <-chan time.Time
	if d != "" {
		t, err := time.ParseDuration(d)
		if err != nil {
			return err
		}
		end = time.After(t)
	}
	select {
	case <-stop:
	case <-end:
	}
	return nil
}

func probe(what string) error {
	if !strings.HasPrefix(what, "http://") {
		_, err := os.Stat(what)
		return err
	}
	c := &http.Client{Timeout: 5 * time.Second}
	resp, err := c.Get(what)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", what, resp.Status)
	}
	return nil
}

func duration(name string) (time.Duration, error) {
	v := os.Getenv(name)
	if v == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

func serve() error {
	readyAfter, err1 := duration("LABPOD_READY_AFTER")
	exitAfter, err2 := duration("LABPOD_EXIT_AFTER")
	termDelay, err3 := duration("LABPOD_TERM_DELAY")
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	exitCode, _ := strconv.Atoi(os.Getenv("LABPOD_EXIT_CODE"))
	version := os.Getenv("LABPOD_VERSION")
	host, _ := os.Hostname()
	starts := os.Getenv("LABPOD_STARTS")
	if starts != "" {
		if err := addLine(starts, version+" "+os.Getenv("LABPOD_ID")); err != nil {
			return err
		}
	}

	var ready, live atomic.Bool
	live.Store(true)
	readyFile := os.Getenv("LABPOD_READY_FILE")
	setReady := func(v bool) {
		ready.Store(v)
		if readyFile == "" {
			return
		}
		if v {
			_ = os.WriteFile(readyFile, nil, 0o644)
		} else {
			_ = os.Remove(readyFile)
		}
	}
	if readyAfter == 0 {
		setReady(true)
	} else {
		time.AfterFunc(readyAfter, func() { setReady(true) })
	}
	if exitAfter > 0 {
		time.AfterFunc(exitAfter, func() { os.Exit(exitCode) })
	}
	status := func(b *atomic.Bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if !b.Load() {
				http.Error(w, "no", http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "yes")
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, version, host) })
	mux.HandleFunc("/ready", status(&ready))
	mux.HandleFunc("/live", status(&live))
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.FormValue("d"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		time.Sleep(d)
		fmt.Fprintln(w, version, host)
	})
	mux.HandleFunc("/set", func(w http.ResponseWriter, r *http.Request) {
		if v := r.FormValue("ready"); v != "" {
			setReady(v == "true")
		}
		if v := r.FormValue("live"); v != "" {
			live.Store(v == "true")
		}
	})
	mux.HandleFunc("/bytes", bytesOf)
	mux.HandleFunc("/starts", func(w http.ResponseWriter, r *http.Request) {
		b, err := os.ReadFile(starts)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(b)
	})
	mux.HandleFunc("/exit", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.FormValue("code"))
		time.AfterFunc(50*time.Millisecond, func() { os.Exit(code) })
	})

	listen := os.Getenv("LABPOD_LISTEN")
	if listen == "" {
		listen = ":8080"
	}
	failed := make(chan error)
	var servers []*http.Server
	for _, addr := range strings.Split(listen, ",") {
		s := &http.Server{Addr: addr, Handler: mux}
		servers = append(servers, s)
		go func() { failed <- s.ListenAndServe() }()
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case err := <-failed:
		return err
	case <-stop:
	}
	time.Sleep(termDelay)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, s := range servers {
		_ = s.Shutdown(ctx)
	}
	return nil
}
