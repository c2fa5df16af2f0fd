// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kcm is the commands kcm check, kcm manifest and kcm wait: the swap of a controller manager
// that runs as a static pod. See docs/user/install.md.
package kcm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/atomicfile"
	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/output"
)

type options struct {
	binary              string
	back, dryRun        bool
	kubeconfig, context string
	format              finding.Format
	failOn              finding.FailOn
	timeout             time.Duration
	lease               output.Format // of wait
	another             bool
}

// Command is the command kcm.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kcm",
		Short: "Check and swap the controller manager of this master",
		Long: `For a kube-controller-manager that runs as a static pod: check whether a swap would
succeed, write the manifest, and wait until a controller manager leads. Swap the standby
masters first and the leader last.`,
		Example: `  cd /etc/kubernetes/manifests
  kubectl-holdfast kcm check kube-controller-manager.yaml --binary /opt/holdfast/kube-controller-manager
  kubectl-holdfast kcm wait`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usagef("unknown command %q: use check, manifest or wait", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(checkCommand(), manifestCommand(), waitCommand())
	return cmd
}

func (o *options) connection(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "the kubeconfig of the API server (default $KUBECONFIG, or ~/.kube/config)")
	cmd.Flags().StringVar(&o.context, "context", "", "the context in the kubeconfig (default: its current context)")
}

// swapped are the arguments of check and manifest.
func (o *options) swapped(cmd *cobra.Command) {
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return exit.Usagef("give one FILE: the manifest of the controller manager, such as /etc/kubernetes/manifests/kube-controller-manager.yaml")
		}
		if !filepath.IsAbs(o.binary) || filepath.Clean(o.binary) != o.binary {
			return exit.Usagef("--binary is %q: give the full path of the file on this master", o.binary)
		}
		return nil
	}
	cmd.Flags().StringVar(&o.binary, "binary", "", "full path of Holdfast's controller manager on this master")
	cmd.Flags().BoolVar(&o.back, "back", false, "go back to the controller manager in the image")
	finding.Flags(cmd, &o.format, &o.failOn)
}

func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
}

func checkCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "check FILE --binary PATH [--back]",
		Short: "Check whether a swap of the controller manager would succeed; change nothing",
		Long: `Check the manifest FILE and the controller manager PATH on this master. Ask the API server
whether the controller manager has the permission to get Services. List the StatefulSets and
Deployments whose pods the new controller manager would replace. Check whether Holdfast accepts
the API server's certificate. kcm check changes nothing. docs/user/codes.md explains the codes.`,
		Example: `  export KUBECONFIG=/etc/kubernetes/admin.conf
  kubectl-holdfast kcm check kube-controller-manager.yaml --binary /opt/holdfast/kube-controller-manager`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd)
			defer stop()
			b, _, err := readManifest(args[0])
			if err != nil {
				return exit.Failedf("%w", err)
			}
			p, err := parse(args[0], b)
			if err != nil {
				return o.print(cmd, []finding.Finding{manifestFinding(err)}, "")
			}
			a, err := kubeapi.Connect(o.kubeconfig, o.context, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			found, minor := binaryFindings(ctx, p, o.binary, o.back)
			return o.print(cmd, append(found, apiFindings(ctx, a, p, minor, o.back)...), filepath.Base(args[0]))
		},
	}
	o.swapped(cmd)
	o.connection(cmd)
	return cmd
}

func manifestFinding(err error) finding.Finding {
	return finding.Of("HF521", "manifest", err.Error(), "edit it by hand, in a copy outside of the manifests folder")
}

func (o *options) print(cmd *cobra.Command, found []finding.Finding, sum string) error {
	if err := finding.Write(cmd.OutOrStdout(), found, o.failOn, o.format, sum); err != nil {
		return err
	}
	return finding.Err(found, o.failOn)
}

func manifestCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "manifest FILE --binary PATH [--back]",
		Short: "Change the static pod's manifest so that it runs Holdfast's controller manager, or go back",
		Long: `Change the manifest FILE so that PATH is mounted over the controller manager in the image. If the
container's command is "hyperkube controller-manager", replace it by the path of the mount. With
--back, undo both changes. kcm manifest prints the lines that change. If it finds a STOP, it
writes nothing.

kcm manifest writes the new manifest beside the folder of FILE and then moves it into that
folder, so the kubelet never reads a partly written file. The new manifest has no comments, so
kcm manifest saves the manifest from before the first swap beside the folder, under FILE's name
with the suffix .before-holdfast.`,
		Example: `  kubectl-holdfast kcm manifest kube-controller-manager.yaml --binary /opt/holdfast/kube-controller-manager --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			return o.manifest(cmd, file)
		},
	}
	o.swapped(cmd)
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "print what would change, and write nothing")
	return cmd
}

const untouched = "nothing was written"

func (o *options) manifest(cmd *cobra.Command, file string) error {
	ctx, stop := interruptible(cmd)
	defer stop()
	before, s, err := readManifest(file)
	if err != nil {
		return exit.Failedf("%w", err)
	}
	p, err := parse(file, before)
	if err != nil {
		return o.print(cmd, []finding.Finding{manifestFinding(err)}, untouched)
	}
	first := len(p.mounted(o.binary)) == 0
	if o.back && first {
		return o.print(cmd, nil, untouched+", the manifest does not mount "+o.binary)
	}
	found, _ := binaryFindings(ctx, p, o.binary, o.back)
	from, err := p.yaml()
	if err == nil && len(found) == 0 {
		if o.back {
			p.back(o.binary)
		} else if wrong := p.swap(o.binary); wrong != nil {
			found = append(found, manifestFinding(wrong))
		}
	}
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return o.print(cmd, found, untouched)
	}
	to, err := p.yaml()
	if err != nil {
		return err
	}
	changed := diff(string(from), string(to))
	if len(changed) == 0 {
		return o.print(cmd, nil, untouched+", the manifest is already as wanted")
	}
	if o.format != finding.JSON {
		for _, l := range changed {
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), l[:1]+finding.Clean(l[1:])); err != nil {
				return err
			}
		}
	}
	if o.dryRun {
		return o.print(cmd, nil, untouched+", a dry run")
	}
	if err := write(file, before, to, s, first && !o.back); err != nil {
		return exit.Failedf("%w", err)
	}
	return o.print(cmd, nil, "written, and the kubelet restarts the pod")
}

// write replaces the manifest by a rename from the folder above, which the kubelet does not read. keep:
// the text before is kept there.
func write(file string, before, after []byte, s os.FileInfo, keep bool) error {
	above := filepath.Dir(filepath.Dir(file))
	name := filepath.Base(file)
	if keep {
		if err := atomicfile.Write(filepath.Join(above, name+".before-holdfast"), before, 0o600); err != nil {
			return err
		}
	}
	part := filepath.Join(above, "."+name+".part")
	err := atomicfile.Replace(part, file, s.Mode().Perm(), func(f *os.File) error {
		if own, ok := s.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
			if err := f.Chown(int(own.Uid), int(own.Gid)); err != nil {
				return err
			}
		}
		_, err := f.Write(after)
		return err
	})
	if errors.Is(err, syscall.EXDEV) {
		return fmt.Errorf("%s is on another file system than %s, so it cannot be replaced in one step: write a copy in that folder, with a name that begins with a dot, and rename the copy", file, above)
	}
	return err
}

func waitCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "Wait until a controller manager leads",
		Long: `Print the holder of the controller managers' lease and the time of its last renewal, until
one holder has renewed the lease twice. After a swap this takes 15 to 20 s if no other master
leads.

Right after kcm manifest the old controller manager still runs. If it is the leader, it still
renews the lease: use --another, so that kcm wait does not count these renewals.`,
		Example: `  kubectl-holdfast kcm wait --another --timeout 1m`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usagef("%q: the command takes only flags", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.timeout <= 0 {
				return exit.Usagef("--timeout is %s: give a time such as 2m", o.timeout)
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			a, err := kubeapi.Connect(o.kubeconfig, o.context, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return wait(ctx, a, time.Second, o.timeout, o.another, cmd.OutOrStdout(), o.lease)
		},
	}
	o.connection(cmd)
	output.Flag(cmd, &o.lease, "a line for each renewal: version, kind, holder, renewTime")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long to wait")
	cmd.Flags().BoolVar(&o.another, "another", false, "wait for a holder other than the first one seen")
	return cmd
}
