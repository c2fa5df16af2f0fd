// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kcm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/output"
)

// lease is what the leader writes into an annotation of its Endpoints.
type lease struct{ HolderIdentity, RenewTime string }

const (
	leaseOf         = "/api/v1/namespaces/kube-system/endpoints/kube-controller-manager"
	leaseAnnotation = "control-plane.alpha.kubernetes.io/leader"
)

func readLease(ctx context.Context, a kubeapi.Asker) (lease, error) {
	var l lease
	b, err := a.Ask(ctx, http.MethodGet, leaseOf, "", maxAnswer, askTimeout)
	if err != nil {
		return l, err
	}
	var e struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := kubeapi.Decode(b, &e); err != nil {
		return l, err
	}
	said := e.Metadata.Annotations[leaseAnnotation]
	if said == "" {
		return l, errors.New("the Endpoints kube-system/kube-controller-manager name no leader: if --leader-elect=false is set, there is none")
	}
	err = kubeapi.Decode([]byte(said), &l)
	return l, err
}

func (l lease) print(w io.Writer, format output.Format) error {
	holder, renewed := finding.Clean(l.HolderIdentity), finding.Clean(l.RenewTime)
	if format == output.JSON {
		return output.Line(w, object{"version": finding.Version, "kind": "lease", "holder": holder, "renewTime": renewed})
	}
	_, err := fmt.Fprintf(w, "%s renewed %s\n", holder, renewed)
	return err
}

// wait prints the lease whenever it changed, until its holder has renewed it twice: that one leads.
// With another, the holder that is seen first does not count.
func wait(ctx context.Context, a kubeapi.Asker, poll, timeout time.Duration, another bool, out io.Writer, format output.Format) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var first, last lease
	var why error
	renewed := -1 // what is there first may be old
	for {
		l, err := readLease(ctx, a)
		if ctx.Err() == nil {
			why = err
		}
		if err == nil && l != last {
			if renewed++; l.HolderIdentity != last.HolderIdentity {
				renewed = 0
			}
			if last = l; first.HolderIdentity == "" {
				first = l
			}
			if err := l.print(out, format); err != nil {
				return err
			}
			if renewed >= 2 && (!another || l.HolderIdentity != first.HolderIdentity) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			if why != nil {
				return exit.Failedf("the lease: %w", why)
			}
			if errors.Is(ctx.Err(), context.Canceled) {
				return exit.Failedf("interrupted")
			}
			if another && renewed >= 2 {
				return exit.Failedf("%s still leads after %s: was its manifest changed?", finding.Clean(last.HolderIdentity), timeout)
			}
			return exit.Failedf("nobody renewed the lease twice in %s: check the controller managers' logs", timeout)
		case <-time.After(poll):
		}
	}
}
