// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	// announced is how many headers the frame announces. A stock kubelet takes about 60
	// bytes for each.
	announced = 3_000_000
	// spdyBound is what a kubelet may grow by.
	spdyBound = 60 * mib
)

var spdy = row{
	fix:     "spdy-frame-limits",
	summary: "a user who may exec into a pod fills the node's memory with a frame of 34 bytes",
	needs:   func(base string) []labkit.Binary { return []labkit.Binary{labkit.StockBinary(base, "kubectl")} },
	starts:  "create a pod",
	does:    fmt.Sprintf("send data through kubectl exec and compare what comes back, before and after an exec through the API server with one SYN_STREAM that announces %d headers", announced),
	oracle:  fmt.Sprintf("the kubelet's peak of resident memory (VmHWM) grows by more than %d MiB; absent: the kubelet has counted the frame", spdyBound/mib),
	start: func(ctx context.Context, l *lab) error {
		return l.pods(ctx, pod("spdy", func(c *corev1.Container) { c.Command = []string{"/labpod", "sleep"} }))
	},
	look:  lookSpdy,
	judge: judgeSpdy,
}

// frame is the kubelet's peak of resident memory in bytes before the frame and after it.
type frame struct {
	From, To int
	Counted  float64
}

// echoed is data that came back through kubectl exec as it was sent.
type echoed struct {
	Bytes int
	Took  time.Duration
}

func lookSpdy(ctx context.Context, l *lab) error {
	if err := l.waitReady(ctx, "spdy", patience); err != nil {
		return err
	}
	size := 10 * mib
	if l.e.Profile == labkit.Long {
		size = 100 * mib
	}
	if err := l.echo(ctx, size); err != nil {
		return fmt.Errorf("a legitimate exec: %w", err)
	}
	from, err := l.peak(true)
	if err != nil {
		return err
	}
	to := from
	if err := l.announce(ctx, func(ctx context.Context) (bool, error) {
		var err error
		if to, err = l.peak(false); err != nil || to-from > spdyBound {
			return err == nil, err
		}
		n, err := kubeletlab.Metric(ctx, l.node, "holdfast_spdy_frame_limits_refused_total")
		return err == nil && n > 0, err
	}); err != nil {
		return err
	}
	if err := l.echo(ctx, mib); err != nil {
		return fmt.Errorf("an exec afterwards: %w", err)
	}
	counted, err := l.counted(ctx, "holdfast_spdy_frame_limits_refused_total")
	if err == nil {
		l.e.Record(frame{from, to, counted})
	}
	return err
}

func judgeSpdy(h *history.History) finding {
	o, echoes := history.One[frame](h), history.Of[echoed](h)
	if len(echoes) != 2 || o.From == 0 {
		return cannotTell("%d legitimate execs, want 2; the kubelet's peak was %d bytes", len(echoes), o.From)
	}
	grew := o.To - o.From
	f := finding{happened: grew > spdyBound, saw: fmt.Sprintf("the kubelet's peak grew by %d MiB for a frame that announces %d headers", grew/mib, announced)}
	for _, e := range echoes {
		f.saw += fmt.Sprintf("; %d MiB through exec and back in %.1f s", e.Bytes/mib, e.Took.Seconds())
	}
	return f.counting(h, "holdfast_spdy_frame_limits_refused_total", o.Counted, 1).
		measure("the kubelet's peak grew by", float64(grew)/mib, "MiB")
}

// echo sends size bytes through kubectl exec to a program that sends them back.
func (l *lab) echo(ctx context.Context, size int) error {
	data := bytes.Repeat([]byte("0123456789abcde\n"), size/16)
	cmd := exec.CommandContext(ctx, l.e.Stock(l.base, "kubectl").Path, "--kubeconfig="+l.c.APIServer.AdminKubeconfig, "--namespace="+ns,
		"exec", "-i", "spdy", "--", "/labpod", "echo")
	cmd.Env = append(os.Environ(), "HOME="+l.e.Path("")) // for its cache
	cmd.Stdin = bytes.NewReader(data)
	var errs strings.Builder
	cmd.Stderr = &errs
	begin := time.Now()
	got, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("kubectl exec: %w: %s", err, errs.String())
	}
	if !bytes.Equal(got, data) {
		return fmt.Errorf("%d bytes were sent through kubectl exec; %d came back, or they differ", len(data), len(got))
	}
	l.e.Record(echoed{size, time.Since(begin)})
	return nil
}

// announce opens an exec through the API server and sends the frame. It returns when read
// says that the kubelet has read it; the connection itself stays, as the API server keeps it.
func (l *lab) announce(ctx context.Context, read func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	api, err := url.Parse(l.c.APIServer.URL)
	if err != nil {
		return err
	}
	config := l.c.APIServer.TLS.Clone()
	config.NextProtos = []string{"http/1.1"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", api.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(conn, "POST /api/v1/namespaces/%s/pods/spdy/exec?command=/labpod&command=sleep&container=main&stdin=true&stdout=true HTTP/1.1\r\nHost: %s\r\n"+
		"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n", ns, api.Host); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("exec answers %s: %s", resp.Status, b)
	}
	var headers, frame bytes.Buffer
	z := zlib.NewWriter(&headers)
	if err := binary.Write(z, binary.BigEndian, uint32(announced)); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	for _, field := range []any{
		uint32(0x80030001),                        // control frame, version 3, SYN_STREAM
		uint32(0x01000000 | (10 + headers.Len())), // FIN, length
		uint32(1), uint32(0), uint16(0), // stream, its parent, priority and slot
	} {
		if err := binary.Write(&frame, binary.BigEndian, field); err != nil {
			return err
		}
	}
	frame.Write(headers.Bytes())
	if _, err := conn.Write(frame.Bytes()); err != nil {
		return err
	}
	l.e.Step("sent a frame of %d bytes", frame.Len())
	return wait.Until(ctx, "the kubelet has read the frame", patience, func(ctx context.Context) (bool, error) {
		return read(ctx)
	})
}
