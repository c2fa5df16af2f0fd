// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"context"
	"net"
	"net/url"
	"time"

	"holdfast/tools/labkit/machine"
)

// wayAddress is where the program's own way to the API server begins. Reviews come by another.
const wayAddress = "127.0.0.1:9947"

// deafEnds is when the program must have ended that hears of no pod any more: it waits 30 s, looks
// every 10 s, and asks for 10 s.
const deafEnds = 60 * time.Second

// ownWay has the program reach the API server by a connection that the lab can cut.
func (l *faults) ownWay(ctx context.Context) error {
	server, err := url.Parse(l.c.APIServer.URL)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", wayAddress)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go machine.Forward(listener, "tcp", server.Host)
	pki, err := l.e.GetPKI()
	if err != nil {
		return err
	}
	conf, err := pki.Kubeconfig("endpoints-rules-way", "https://"+wayAddress, account)
	if err != nil {
		return err
	}
	l.program.spec = l.program.process("endpoints-rules", binary(l.e), conf)
	return nil
}

// deaf: the program's watches bring nothing, and the API server goes on to ask it.
func (l *faults) deaf(ctx context.Context) error {
	return l.row(ctx, deafRow, func(ctx context.Context, o *fault) error {
		was := l.kubelet.current()
		if err := packets(ctx, "-A", wayAddress); err != nil {
			return err
		}
		if err := o.end(ctx, was, deafEnds); err != nil {
			return err
		}
		if err := packets(ctx, "-D", wayAddress); err != nil {
			return err
		}
		return l.recovered(ctx, o)
	})
}

// packets has those from and to an address of loopback dropped ("-A"), or not any more ("-D").
func packets(ctx context.Context, what, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	for _, side := range []string{"--dport", "--sport"} {
		if err := machine.Run(ctx, "iptables", "-w", what, "INPUT", "-i", "lo", "-p", "tcp", side, port, "-j", "DROP"); err != nil {
			return err
		}
	}
	return nil
}
