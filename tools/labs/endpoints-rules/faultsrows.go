// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

// hangs is longer than kube-apiserver waits for a webhook.
const hangs = 40 * time.Second

// control has a webhook that hangs when it has taken a request: with SIGSTOP a new connection
// gets no further than the TLS handshake, which kube-apiserver gives 10 s only.
func (l *faults) control(ctx context.Context) error {
	_, ended, err := l.startFront(hangs)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := l.clientConfig(ctx, "url", "https://"+frontAddress+"/mutate"); err != nil {
		return err
	}
	o := fault{Row: controlRow}
	// kube-apiserver learns of it within seconds.
	for len(o.Calls) < 20 && (fault{Calls: o.Calls}).slowest().Took < felt {
		o.Calls = append(o.Calls, l.call(ctx, probe))
		if err := wait.Pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	select {
	case <-l.c.ControllerManager.Done():
	case <-time.After(90 * time.Second): // that it does not end is for the oracle
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	o.Served = l.load.since(begin)
	l.e.Record(o)
	return nil
}

func (l *faults) stopped(ctx context.Context) error {
	return l.row(ctx, stoppedRow, func(ctx context.Context, o *fault) error {
		if err := wait.Until(ctx, "the liveness probe has run once", time.Minute, func(context.Context) (bool, error) {
			return l.kubelet.asked(), nil
		}); err != nil {
			return err
		}
		was := l.kubelet.current()
		if err := was.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		called := make(chan call, 1)
		go func() { called <- l.call(ctx, probe) }()
		defer func() { o.Calls = append(o.Calls, <-called) }()
		if err := o.end(ctx, was, time.Minute); err != nil {
			return err
		}
		return l.recovered(ctx, o)
	})
}

// end waits until the program has ended, and kills it after within, so that the rows after it can
// be told.
func (o *fault) end(ctx context.Context, was *process.Proc, within time.Duration) error {
	begin := time.Now()
	select {
	case <-was.Done():
		o.EndedAfter = time.Since(begin)
	case <-time.After(within):
		return was.Kill()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// recovered waits until the program answers and the API server asks it again.
func (l *faults) recovered(ctx context.Context, o *fault) error {
	begin := time.Now()
	if err := l.healthy(ctx); err != nil {
		return err
	}
	// A breaker that had counted some failures does not trip any more, one that has tripped
	// needs some answers.
	if _, err := l.program.webhooks(ctx, 1, back); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return nil // FilledAfter stays 0
	}
	o.FilledAfter = max(time.Since(begin), time.Millisecond)
	if err := l.program.called(ctx, probe); err != nil {
		return err
	}
	return l.settled(ctx)
}

// healthy waits until the program is ready.
func (l *rig) healthy(ctx context.Context) error {
	return wait.Until(ctx, "endpoints-rules is ready", time.Minute, func(ctx context.Context) (bool, error) {
		page, err := l.program.metrics(ctx)
		if err != nil {
			return false, err
		}
		synced, _ := page.Sum("endpoints_rules_synced")
		return synced == 1, nil
	})
}

func (l *faults) dropped(ctx context.Context) error {
	return l.row(ctx, droppedRow, func(ctx context.Context, o *fault) error {
		if err := packets(ctx, "-A", address); err != nil {
			return err
		}
		calls := make(chan call, 2)
		go func() { calls <- l.call(ctx, probe) }()
		go func() { calls <- l.call(ctx, probe2) }()
		o.EmptyAfter, _ = l.program.webhooks(ctx, 0, tripped) // that it is not is for the oracle
		o.Calls = append(o.Calls, <-calls, <-calls)
		if err := packets(ctx, "-D", address); err != nil {
			return err
		}
		return l.recovered(ctx, o)
	})
}

func (l *faults) killed(ctx context.Context) error {
	return l.row(ctx, killedRow, func(ctx context.Context, o *fault) error {
		was := l.kubelet.current()
		begin := time.Now()
		if err := was.Kill(); err != nil {
			return err
		}
		o.EndedAfter = time.Since(begin)
		for range 10 {
			o.Calls = append(o.Calls, l.call(ctx, probe))
			if err := wait.Pause(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
		return l.recovered(ctx, o)
	})
}

// certificate: a kubelet does not look at the certificate of what it probes, so liveness
// does not help.
func (l *faults) certificate(ctx context.Context) error {
	foreign, err := newAuthority()
	if err != nil {
		return err
	}
	keep := map[string][]byte{}
	for _, n := range []string{"tls.crt", "tls.key"} {
		if keep[n], err = os.ReadFile(l.program.file(n)); err != nil {
			return err
		}
	}
	return l.row(ctx, certificateRow, func(ctx context.Context, o *fault) error {
		if err := foreign.issue(l.program.file("tls.crt"), l.program.file("tls.key"), 1); err != nil {
			return err
		}
		if err := l.kubelet.restart(ctx); err != nil {
			return err
		}
		if err := wait.Until(ctx, "endpoints-rules serves the foreign certificate", time.Minute, func(ctx context.Context) (bool, error) {
			_, err := l.program.metrics(ctx)
			if err != nil && strings.Contains(err.Error(), "certificate signed by unknown authority") {
				return true, nil
			}
			return false, err
		}); err != nil {
			return err
		}
		for range 5 {
			o.Calls = append(o.Calls, l.call(ctx, probe))
		}
		o.EmptyAfter, _ = l.program.webhooks(ctx, 0, tripped)
		for n, text := range keep {
			if err := os.WriteFile(l.program.file(n), text, 0o600); err != nil {
				return err
			}
		}
		return l.recovered(ctx, o)
	})
}

func (l *faults) rule(ctx context.Context) error {
	return l.row(ctx, ruleRow, func(ctx context.Context, o *fault) error {
		good, err := l.rulesText(ctx)
		if err != nil {
			return err
		}
		_, list, ok := strings.Cut(good, "rules:\n")
		if !ok {
			return fmt.Errorf("the rule set has no line %q", "rules:")
		}
		// The pods have no such annotation, and "" is no number.
		if err := l.setRules(ctx, "rules:\n- name: fails\n  when: int(pod.annotations[\"lab/number\"]) > 1\n  then: drop\n"+list); err != nil {
			return err
		}
		if err := l.metric(ctx, "endpoints_rules_rules_failed_total", 1); err != nil {
			if ctx.Err() != nil {
				return err
			}
			o.Wrong = err.Error()
		}
		for range 5 {
			o.Calls = append(o.Calls, l.call(ctx, probe))
		}
		return l.setRules(ctx, good)
	})
}

// metric waits until a counter of the program is at least that.
func (l *faults) metric(ctx context.Context, name string, least float64) error {
	return wait.Until(ctx, fmt.Sprintf("%s is %v", name, least), 10*time.Second, func(ctx context.Context) (bool, error) {
		page, err := l.program.metrics(ctx)
		if err != nil {
			return false, err
		}
		if n, _ := page.Sum(name); n < least {
			return false, fmt.Errorf("it is %v", n)
		}
		return true, nil
	})
}

func (l *faults) rulesText(ctx context.Context) (string, error) {
	o, err := l.c.Client.Get(ctx, kube.ConfigMaps, "endpoints-rules", "endpoints-rules")
	if err != nil {
		return "", err
	}
	text := kube.String(o, "data", "rules.yaml")
	if text == "" {
		return "", errors.New("the ConfigMap has no rules.yaml")
	}
	return text, nil
}

func (l *faults) setRules(ctx context.Context, text string) error {
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"rules.yaml": text}})
	if err != nil {
		return err
	}
	_, err = l.c.Client.PatchMerge(ctx, kube.ConfigMaps, "endpoints-rules", "endpoints-rules", string(patch))
	return err
}

// large: addresses that belong to no pod, and those of the targets.
func (l *faults) large(ctx context.Context) error {
	return l.row(ctx, largeRow, func(ctx context.Context, o *fault) error {
		for _, n := range sizes {
			for range 3 {
				c := l.callWith(ctx, largeName(n), n)
				if c.Err == "" {
					c.RightAfter = l.right(ctx, largeName(n), n)
				}
				o.Calls = append(o.Calls, c)
			}
			if err := l.c.Client.Delete(ctx, kube.Services, ns, largeName(n)); err != nil {
				return err
			}
		}
		return nil
	})
}
