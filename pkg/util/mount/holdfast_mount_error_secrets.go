// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"bytes"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

var (
	mountErrorsMasked = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_mount_error_secrets_masked_total",
		Help: "Errors of mount commands from which values of options were taken.",
	})
	mountErrorsWouldMask = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_mount_error_secrets_would_mask_total",
		Help: "Errors of mount commands from which values of options would have been taken if the feature gate MountErrorsWithoutSecrets were on.",
	})
)

func init() {
	prometheus.MustRegister(mountErrorsMasked, mountErrorsWouldMask)
}

// masked stands for a value.
const masked = "<masked>"

// plainOptions are the mount options whose values are shown: what an error is looked
// into for, and never a secret. All others are hidden, as the next storage's driver has
// another name for its password.
var plainOptions = words(`
	acdirmax acdirmin acregmax acregmin actimeo addr backup-volfile-servers backupuid cache clientaddr context
	data defcontext dir_mode dirmode file_mode filemode fmask fscache fsid fsname gid group_id hard intr iocharset
	lookupcache log-file log-level max_read minorversion mode mountaddr mountport mountproto mountvers name namlen
	nfsvers nr_inodes port proto retrans retry rootcontext rootmode rsize sec secretfile size snapdirname subvol subvolid timeo
	type uid umask user user_id username vers version wsize`)

// plainFlags are the words without a value that are shown. Another one can be the
// rest of a value with a comma in it.
var plainFlags = words(`
	_netdev acl async atime auto auto_unmount bg bind cifsacl defaults dev diratime dirsync discard exec fg forceuid forcegid hard
	intr lazytime loop lock mand mfsymlinks noac noacl noatime noauto nobrl noctime nodev nodiratime noexec nofail
	nointr nolock nomand noperm noresvport noserverino nosharecache nosuid nouser nouuid perm private rbind rdirplus
	relatime remount resvport ro rprivate rshared rslave rw serverino shared sharecache slave soft strictatime suid
	sync tcp udp user users`)

func words(list string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(list) {
		m[w] = true
	}
	return m
}

// maskOptions returns a comma-separated list of mount options without the values that
// may be secret, and these values. Order and number of the options stay.
func maskOptions(options string) (shown string, secrets []string) {
	parts := strings.Split(options, ",")
	for i, part := range parts {
		eq := strings.Index(part, "=")
		if eq < 0 {
			if part != "" && !plainFlags[part] {
				parts[i], secrets = masked, append(secrets, part)
			}
			continue
		}
		from := eq + 1
		if key := strings.TrimSpace(part[:eq]); key == "user" || key == "username" {
			// mount.cifs takes [DOMAIN/]USER[%PASSWORD].
			percent := strings.Index(part, "%")
			if percent < 0 {
				continue
			}
			from = percent + 1
		} else if plainOptions[key] {
			continue
		}
		if value := part[from:]; value != "" {
			parts[i], secrets = part[:from]+masked, append(secrets, value)
		}
	}
	return strings.Join(parts, ","), secrets
}

// maskArgs does that to what follows "-o" in the arguments of mount(8).
func maskArgs(args []string) (shown, secrets []string) {
	shown = append([]string{}, args...)
	for i := 1; i < len(shown); i++ {
		if args[i-1] == "-o" {
			var s []string
			shown[i], s = maskOptions(args[i])
			secrets = append(secrets, s...)
		}
	}
	return shown, secrets
}

// shortest is the length from which on a value is looked for in texts, in bytes: a
// shorter one would be found in every word.
const shortest = 4

// maskText replaces the secrets in what a program printed.
func maskText(text string, secrets []string) string {
	// The longest first: one may hold another.
	sorted := append([]string{}, secrets...)
	sort.Slice(sorted, func(i, j int) bool { return len(sorted[i]) > len(sorted[j]) })
	for _, s := range sorted {
		if len(s) >= shortest {
			text = strings.Replace(text, s, masked, -1)
		}
	}
	return text
}

// maskCommand is maskText for a text that can quote the command: there the short secrets
// are found too, with the options around them.
func maskCommand(text string, args, secrets []string) string {
	for i := 1; i < len(args); i++ {
		if args[i-1] == "-o" {
			shown, _ := maskOptions(args[i])
			text = strings.Replace(text, "-o "+args[i], "-o "+shown, -1)
		}
	}
	return maskText(text, secrets)
}

func withoutSecrets() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.MountErrorsWithoutSecrets)
}

// argsForLog returns the arguments of a mount command as they are shown. The command
// itself gets the others.
func argsForLog(args []string) []string {
	if !withoutSecrets() {
		return args
	}
	shown, _ := maskArgs(args)
	return shown
}

// optionsForLog is argsForLog for a list of mount options.
func optionsForLog(options []string) []string {
	if !withoutSecrets() {
		return options
	}
	shown := make([]string, len(options))
	for i := range options {
		shown[i], _ = maskOptions(options[i])
	}
	return shown
}

// outputForLog returns what a mount command printed as it is shown.
func outputForLog(args []string, output []byte) string {
	_, secrets := maskArgs(args)
	if len(secrets) == 0 || !withoutSecrets() {
		return string(output)
	}
	return maskCommand(string(output), args, secrets)
}

// errorForLog returns a mount command's error as it is shown: it may quote the command.
func errorForLog(args []string, err error) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); outputForLog(args, []byte(text)) != text {
		return errors.New(outputForLog(args, []byte(text)))
	}
	return err
}

// failureForLog returns a mount command's error and output as they are shown.
func failureForLog(err error, args []string, output []byte) (error, []byte) {
	_, secrets := maskArgs(args)
	if len(secrets) == 0 {
		return err, output
	}
	if !withoutSecrets() {
		mountErrorsWouldMask.Inc()
		return err, output
	}
	mountErrorsMasked.Inc()
	return errorForLog(args, err), []byte(outputForLog(args, output))
}

// mountFailure returns what log, error and event say about a mount command that
// failed: its error, its arguments and its output.
func mountFailure(err error, mountArgs []string, output []byte) (error, string, []byte) {
	err, output = failureForLog(err, mountArgs, output)
	return err, strings.Join(argsForLog(mountArgs), " "), output
}

// execMountFailure is mountFailure for a command that is shown with a list of options.
func execMountFailure(err error, options []string, output []byte) (error, []string, []byte) {
	err, output = failureForLog(err, []string{"-o", strings.Join(options, ",")}, output)
	return err, optionsForLog(options), output
}

// outputError is an error whose text was masked, and beside it what the command printed.
// Only UnmaskedText gives the output: whoever logs, wraps or sends the error has the text.
type outputError struct {
	error
	output string
}

// GoString keeps the output out of %#v.
func (e *outputError) GoString() string { return fmt.Sprintf("%#v", e.Error()) }

// withOutput adds the output of a mount command to the error that tells of it. Where
// nothing was masked it returns the error alone.
func withOutput(err error, output, shown []byte) error {
	if bytes.Equal(output, shown) {
		return err
	}
	return &outputError{error: err, output: string(output)}
}

// UnmaskedText returns the text of an error of Mount with all that the command printed,
// secrets too. It is for callers that look for a message of mount(8), which a masked
// value can be a part of, and must not be logged or put into an error.
func UnmaskedText(err error) string {
	if e, ok := err.(*outputError); ok {
		return e.Error() + e.output
	}
	return err.Error()
}
