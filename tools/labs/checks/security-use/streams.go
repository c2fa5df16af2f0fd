// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package securityuse

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

const (
	execSize   = 32 * mib // bytes of one exec that is timed
	copySize   = 100 * 1000 * 1000
	attachSize = 1 * mib
)

// answers are the probes: what they ask the lab's server for. Status 200 but for the last.
var answers = []struct {
	name, query string
	size        int
}{
	{"1 B", "n=1", 1},
	{"10 KB", "n=10240", 10240},
	{"10 MB", "n=10485760", 10485760},
	{"1 MB in chunks", "n=1048576&chunked=true", 1048576},
}

const failing = "n=10485760&code=500"

// probed counts what a server has answered, by node and query.
type probed struct {
	lock sync.Mutex
	took map[string][]time.Duration
}

func (p *probed) of(node, query string) []time.Duration {
	p.lock.Lock()
	defer p.lock.Unlock()
	return slices.Clone(p.took[node+" "+query])
}

// serve answers /NODE?QUERY with so many bytes, and notes how long the kubelet took to
// read them: the last write returns when all but the socket's buffers is read.
func (p *probed) serve(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	n := 0
	if _, err := fmt.Sscan(r.FormValue("n"), &n); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.FormValue("chunked") == "" {
		w.Header().Set("Content-Length", fmt.Sprint(n))
	}
	if r.FormValue("code") != "" {
		w.WriteHeader(http.StatusInternalServerError)
	}
	block := bytes.Repeat([]byte("x"), 32<<10)
	for ; n > 0; n -= len(block) {
		if _, err := w.Write(block[:min(n, len(block))]); err != nil {
			return
		}
	}
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	key := strings.Trim(r.URL.Path, "/") + " " + r.URL.RawQuery
	p.took[key] = append(p.took[key], time.Since(began))
}

// probes: pods with long answers become ready, and one with status 500 does not.
func (l *lab) probes(ctx context.Context) error {
	p := &probed{took: map[string][]time.Duration{}}
	s := &http.Server{Handler: http.HandlerFunc(p.serve)}
	listener, err := net.Listen("tcp", machine.IP+":0")
	if err != nil {
		return err
	}
	go func() { _ = s.Serve(listener) }()
	l.e.OnStop("answers to probes", func(context.Context) error { return s.Close() })
	port := listener.Addr().(*net.TCPAddr).Port
	container := func(n *node.Node, i int, query string) corev1.Container {
		c := node.Web(fmt.Sprintf("c%d", i), "sleep")
		get := kube.HTTPGet("/"+n.Name+"?"+query, port)
		get.HTTPGet.Host = machine.IP
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: get, PeriodSeconds: 1, TimeoutSeconds: 10, SuccessThreshold: 3}
		return c
	}
	if err := l.create(ctx, "failing", false, func(n *node.Node) ([]corev1.Container, []corev1.Volume) {
		return []corev1.Container{container(n, 0, failing)}, nil
	}); err != nil {
		return err
	}
	if err := l.create(ctx, "probes", true, func(n *node.Node) (all []corev1.Container, _ []corev1.Volume) {
		for i, a := range answers {
			all = append(all, container(n, i, a.query))
		}
		return all, nil
	}); err != nil {
		return err
	}
	for _, n := range l.nodes {
		// The kubelet's own words for a status that is not one of success.
		const says = "HTTP probe failed with statuscode: 500"
		if err := wait.Until(ctx, "pod "+n.Name+"-failing has its event", time.Minute, func(context.Context) (bool, error) {
			got := strings.Join(l.messages(n.Name+"-failing"), "\n")
			if !strings.Contains(got, says) {
				return false, fmt.Errorf("events: %s", got)
			}
			return true, nil
		}); err != nil {
			return &failure{n.Name, err}
		}
	}
	want := 5 * rounds(l.e.Profile)
	for _, a := range answers {
		if err := wait.Until(ctx, fmt.Sprintf("%d answers of %s to each node", want, a.name), 2*time.Minute, func(context.Context) (bool, error) {
			s, o := len(p.of(stock, a.query)), len(p.of(ours, a.query))
			if s < want || o < want {
				return false, fmt.Errorf("%d and %d", s, o)
			}
			return true, nil
		}); err != nil {
			return err
		}
		if a.size < mib { // what fits into the socket's buffers is written at once
			continue
		}
		l.e.Record(timed{probeOf(a.name), p.of(stock, a.query), p.of(ours, a.query)})
	}
	return nil
}

// streams runs exec, cp, attach and port-forward on both nodes.
func (l *lab) streams(ctx context.Context) error {
	if err := l.create(ctx, "streams", true, func(*node.Node) ([]corev1.Container, []corev1.Volume) {
		main, echo := node.Web("main"), node.Web("echo")
		main.Image, echo.Image = image, image
		echo.Command, echo.Stdin, echo.StdinOnce = []string{"/bin/tar", "echo"}, true, true
		return []corev1.Container{main, echo}, nil
	}); err != nil {
		return err
	}
	took := timed{What: execOf}
	run := func(n *node.Node, do func() error) error {
		began := time.Now()
		if err := do(); err != nil {
			return &failure{n.Name, fmt.Errorf("%s: %w", took.What, err)}
		}
		took.add(n.Name, time.Since(began))
		return nil
	}
	for range rounds(l.e.Profile) {
		for _, n := range l.nodes {
			if err := run(n, func() error {
				var got counter
				if err := l.kubectl(ctx, nil, &got, "exec", n.Name+"-streams", "-c", "main", "--", "/bin/tar", "print", fmt.Sprint(execSize)); err != nil {
					return err
				}
				if got != execSize {
					return fmt.Errorf("%d bytes arrived, want %d", got, execSize)
				}
				return nil
			}); err != nil {
				return err
			}
		}
	}
	l.e.Record(took)
	for _, part := range []struct {
		name string
		do   func(context.Context, *node.Node) error
	}{{copyOf, l.copies}, {attachOf, l.attach}, {forwardOf, l.forward}} {
		took = timed{What: part.name}
		for _, n := range l.nodes {
			if err := run(n, func() error { return part.do(ctx, n) }); err != nil {
				return err
			}
		}
		l.e.Record(took)
	}
	return nil
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// random is a text of that many bytes, another for each seed.
func random(seed uint64, size int) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed)})
	b := make([]byte, size)
	_, _ = r.Read(b)
	return b
}

func (l *lab) copies(ctx context.Context, n *node.Node) error {
	up, down := l.e.Path(n.Name+"-up"), l.e.Path(n.Name+"-down")
	content := random(l.e.Seed, copySize)
	if err := os.WriteFile(up, content, 0o600); err != nil {
		return err
	}
	defer os.Remove(up)
	defer os.Remove(down)
	if err := l.kubectl(ctx, nil, io.Discard, "cp", up, n.Name+"-streams:/tmp/"+filepath.Base(up), "-c", "main"); err != nil {
		return err
	}
	if err := l.kubectl(ctx, nil, io.Discard, "cp", n.Name+"-streams:/tmp/"+filepath.Base(up), down, "-c", "main"); err != nil {
		return err
	}
	got, err := os.ReadFile(down)
	if err == nil && sha256.Sum256(got) != sha256.Sum256(content) {
		err = fmt.Errorf("%d bytes came back, but they are not the %d that were sent", len(got), len(content))
	}
	return err
}

func (l *lab) attach(ctx context.Context, n *node.Node) error {
	content := []byte(strings.Repeat("0123456789abcde\n", attachSize/16))
	var got bytes.Buffer
	if err := l.kubectl(ctx, bytes.NewReader(content), &got, "attach", n.Name+"-streams", "-c", "echo", "-i"); err != nil {
		return err
	}
	if !bytes.HasSuffix(got.Bytes(), content) {
		return fmt.Errorf("%d bytes came back, want the %d that were sent", got.Len(), len(content))
	}
	return nil
}

func (l *lab) forward(ctx context.Context, n *node.Node) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.e.Stock(l.base, "kubectl").Path, "--kubeconfig="+l.c.APIServer.AdminKubeconfig, "--namespace="+ns,
		"port-forward", n.Name+"-streams", ":8080")
	cmd.Env = append(os.Environ(), "HOME="+l.e.Path())
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		cancel()
		_ = cmd.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	address, _, ok := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ->")
	if err != nil || !ok {
		return errors.Join(fmt.Errorf("kubectl port-forward prints %q, and %s", line, &said), err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/bytes?n=%d", strings.TrimSpace(address), copySize), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	size, err := io.Copy(io.Discard, resp.Body)
	if err == nil && size != copySize {
		err = fmt.Errorf("%d bytes arrived, want %d", size, copySize)
	}
	return err
}
