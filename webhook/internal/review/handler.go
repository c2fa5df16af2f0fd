// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// Limits of one request. What is beyond them is allowed unchanged: stored
// Endpoints are put right afterwards.
const (
	// Deadline is well below the 30 s that 1.9 waits; every second here stops one
	// of its five endpoint workers.
	Deadline = time.Second
	// MaxBody is enough for 25,000 addresses with the old object.
	MaxBody = 16 << 20
	// InFlight is how many bodies are read or judged at a time: 256 MiB of bodies at most.
	InFlight = 16
	// grow is what is allocated at most for the length that a client announces. Beyond
	// it, memory is taken as bytes arrive.
	grow = 1 << 20
	// head is how much is read of a body that gets no slot: the review's uid is in it.
	head = 4096
)

// Outcomes of a request, as the metric's label has them.
const (
	Patched   = "patched"
	Unchanged = "unchanged"
	Skipped   = "skipped"
	TooLate   = "too_late"
	TooLarge  = "too_large"
	TooMany   = "too_many"
	Bad       = "bad_request"
	NoPatch   = "unpatchable"
	Panicked  = "panic"
	// NoClientCertificate is for package serve, which refuses before a body is read.
	NoClientCertificate = "no_client_certificate"
)

// Handler answers AdmissionReviews over HTTP. Nothing it does waits for an API server.
type Handler struct {
	Judge Judge
	Log   *slog.Logger
	// Observe is told the outcome of each request, how long it took, and what was decided.
	Observe func(outcome string, took time.Duration, res Result)
	// Deadline, MaxBody and InFlight are the limits; 0 takes the constants.
	Deadline time.Duration
	MaxBody  int64
	slots    chan struct{}
}

// NewHandler makes a Handler with the limits of the constants.
func NewHandler(j Judge, log *slog.Logger, observe func(string, time.Duration, Result)) *Handler {
	return &Handler{Judge: j, Log: log, Observe: observe, Deadline: Deadline, MaxBody: MaxBody, slots: make(chan struct{}, InFlight)}
}

// header finds uid and version of a review that is not read as a whole.
var (
	uidRE     = regexp.MustCompile(`"uid"\s*:\s*"([0-9a-zA-Z-]{1,64})"`)
	versionRE = regexp.MustCompile(`"apiVersion"\s*:\s*"(admission\.k8s\.io/v1(?:beta1)?)"`)
)

func peek(body string) (version, uid string) {
	body, version = body[:min(len(body), head)], V1beta1
	if m := versionRE.FindStringSubmatch(body); m != nil {
		version = m[1]
	}
	if m := uidRE.FindStringSubmatch(body); m != nil {
		uid = m[1]
	}
	return version, uid
}

// answer is what one request comes to.
type answer struct {
	status  int
	body    []byte
	outcome string
	res     Result
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	ctx, cancel := context.WithDeadline(r.Context(), start.Add(h.Deadline))
	defer cancel()
	a := h.serve(ctx, w, r, start)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
	h.Observe(a.outcome, time.Since(start), a.res)
}

func (h *Handler) serve(ctx context.Context, w http.ResponseWriter, r *http.Request, start time.Time) answer {
	if r.Method != http.MethodPost {
		return answer{http.StatusMethodNotAllowed, []byte("an AdmissionReview is posted here\n"), Bad, Result{}}
	}
	// A body that comes slowly must not hold its slot longer than the rest.
	_ = http.NewResponseController(w).SetReadDeadline(start.Add(h.Deadline))
	var body string
	unchanged := func(outcome string) answer {
		version, uid := peek(body)
		return answer{http.StatusOK, Answer(version, uid, nil), outcome, Result{}}
	}
	// The slot comes before the body: what is read takes memory.
	select {
	case h.slots <- struct{}{}:
	default:
		h.Log.Warn("request allowed unchanged: too many at a time", "limit", cap(h.slots))
		body, _ = read(io.LimitReader(r.Body, head), head)
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, h.MaxBody)) // the connection stays in use
		return unchanged(TooMany)
	}
	held := true
	defer func() {
		if held {
			<-h.slots
		}
	}()
	var err error
	body, err = read(io.LimitReader(r.Body, h.MaxBody+1), r.ContentLength)
	switch {
	case int64(len(body)) > h.MaxBody:
		h.Log.Warn("request allowed unchanged: too large", "bytes", r.ContentLength, "limit", h.MaxBody)
		return unchanged(TooLarge)
	case err != nil:
		h.Log.Warn("request allowed unchanged: its body did not come in time", "error", err.Error())
		return unchanged(TooLate)
	}
	done := make(chan answer, 1)
	held = false
	go func() { // it keeps the slot until it ends, also after the deadline
		defer func() { <-h.slots }()
		defer func() {
			if p := recover(); p != nil {
				h.Log.Error("request allowed unchanged: panic", "panic", p)
				done <- unchanged(Panicked)
			}
		}()
		done <- h.judge(body)
	}()
	if a, ok := inTime(ctx, done); ok {
		return a
	}
	h.Log.Warn("request allowed unchanged: it took too long", "deadline", h.Deadline.String())
	return unchanged(TooLate)
}

// inTime waits for an answer until ctx ends. One that is there when ctx has ended is too
// late as well: the API server may have gone on without it. A refusal (status 400) is
// never too late.
func inTime(ctx context.Context, done <-chan answer) (answer, bool) {
	select {
	case a := <-done:
		return a, ctx.Err() == nil || a.status != http.StatusOK
	case <-ctx.Done():
		return answer{}, false
	}
}

// read is the text of r. announced is the length that the client says it has; -1: none.
func read(r io.Reader, announced int64) (string, error) {
	var b strings.Builder
	b.Grow(int(min(max(announced, 0), grow)))
	_, err := io.Copy(&b, r)
	return b.String(), err
}

func (h *Handler) judge(body string) answer {
	review, err := Parse(body)
	if err != nil {
		return answer{http.StatusBadRequest, []byte(err.Error() + "\n"), Bad, Result{}}
	}
	req := &review.Request
	res, err := Do(req, h.Judge)
	a := answer{http.StatusOK, Answer(review.APIVersion, req.UID, res.Patch), Unchanged, res}
	log := h.Log.With("namespace", req.Namespace, "endpoints", req.Name, "uid", req.UID)
	switch {
	case err != nil:
		log.Warn("request allowed unchanged: the object cannot be read", "error", err.Error())
		a.outcome = Bad
	case res.Unpatchable != nil:
		log.Error("request allowed unchanged: the patch would not do what it is to", "error", res.Unpatchable.Error())
		a.outcome = NoPatch
	case res.Skipped != "":
		log.Debug("request skipped", "why", res.Skipped)
		a.outcome = Skipped
	case res.Patch != nil:
		a.outcome = Patched
	}
	if !log.Enabled(context.Background(), slog.LevelDebug) {
		return a
	}
	for _, m := range res.Moves {
		log.Debug("address placed", "pod", m.Pod, "ip", m.IP, "from", m.From, "to", m.To, "rule", m.Rule)
	}
	return a
}
