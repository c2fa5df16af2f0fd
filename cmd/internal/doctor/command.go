// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/rbdlocks"
)

type options struct {
	kubeconfig, context string
	user, manager       string
	watch, between      time.Duration
	rbac                bool
	ceph                rbdlocks.Ceph
	format              finding.Format
	failOn              finding.FailOn
}

const about = `Search a cluster, through the API server, for signs of the incidents that Holdfast prevents,
for damage that a stock controller manager or kubelet would do when it next runs, and for
problems that Holdfast's metrics report. doctor changes nothing. Each finding has a code: see
docs/user/codes.md.

doctor reads lists of objects from the API server, the kubelets through its node proxy, and the
controller manager through its pod proxy. If the lists show signs that are normal for a moment
(HF604, HF611, HF613, HF615), doctor reads the lists again after 30 s, and reports only signs
that are still there. With --watch, doctor follows the Endpoints of all Services for the given
time (HF603). doctor checks RBD images only if you give Ceph's user or configuration (HF621).

A row with ? shows what doctor could not find out. --rbac prints the roles that doctor needs.

Without --kubeconfig, doctor reads the first file of $KUBECONFIG, or ~/.kube/config.

Exit status: 3 if a finding is at or above the level of --fail-on; otherwise 1 if doctor could
not check everything; otherwise 0. It is 2 if the command line is wrong.`

const example = `  kubectl-holdfast doctor
  kubectl-holdfast doctor --fail-on warn -o json
  kubectl-holdfast doctor --watch 10m
  kubectl-holdfast doctor --rbac | kubectl create -f -`

// maxWatch bounds --watch: what is followed stays in memory.
const maxWatch = 24 * time.Hour

// Command returns the command doctor.
func Command() *cobra.Command { return command(&options{between: betweenLooks}) }

func command(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Check a cluster for signs of the incidents, and for damage that a stock binary would do",
		Long:    about,
		Example: example,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usagef("the command takes no arguments, but got %q", args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	cmd.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "the kubeconfig of the API server (default $KUBECONFIG, or ~/.kube/config)")
	cmd.Flags().StringVar(&o.context, "context", "", "the context in the kubeconfig (default: its current context)")
	cmd.Flags().DurationVar(&o.watch, "watch", 0, "follow the Endpoints of all Services for this time, at most 24h")
	cmd.Flags().StringVar(&o.manager, "controller-manager", "", "URL of the controller manager (default: its pods in kube-system)")
	cmd.Flags().StringVar(&o.user, "controller-manager-user", "", "the controller manager's user, whose permission HF631 checks")
	cmd.Flags().StringVar(&o.ceph.Conf, "ceph-conf", "", "Ceph's configuration, as for rbd-locks")
	cmd.Flags().StringVar(&o.ceph.ID, "id", "", "Ceph's user, without \"client.\"")
	cmd.Flags().StringVar(&o.ceph.Keyring, "keyring", "", "the keyring with the key of this user")
	cmd.Flags().BoolVar(&o.rbac, "rbac", false, "print the roles that doctor needs, and send no request")
	finding.Flags(cmd, &o.format, &o.failOn)
	return cmd
}

func (o *options) check() error {
	if o.watch < 0 || o.watch > maxWatch {
		return exit.Usagef("--watch is %s: use a time up to %s", o.watch, maxWatch)
	}
	if o.manager != "" {
		if u, err := url.Parse(o.manager); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return exit.Usagef("--controller-manager is no URL like http://127.0.0.1:10252")
		}
	}
	return checkUser(o.user)
}

func (o *options) run(cmd *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.rbac {
		_, err := fmt.Fprint(cmd.OutOrStdout(), RBAC)
		return err
	}
	a, err := kubeapi.Connect(o.kubeconfig, o.context, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return o.look(ctx, a, cmd.OutOrStdout(), cmd.ErrOrStderr())
}
