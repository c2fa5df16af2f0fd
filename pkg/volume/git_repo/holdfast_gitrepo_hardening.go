// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package git_repo

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

var (
	gitRepoRefused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_gitrepo_hardening_refused_total",
		Help: "Tries to set up a gitRepo volume that were refused, by the field of the volume that was refused.",
	}, []string{"field"})
	gitRepoWouldRefuse = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_gitrepo_hardening_would_refuse_total",
		Help: "Tries to set up a gitRepo volume that would have been refused if the feature gate GitRepoVolumeHardening were on.",
	}, []string{"field"})
)

func init() {
	prometheus.MustRegister(gitRepoRefused, gitRepoWouldRefuse)
}

// checkSource says why the volume is not set up. It is asked before anything is
// written, and not for a volume that is set up already: a pod that runs goes on. The
// error is shown in the pod's events; it does not repeat the values, of which a
// repository may hold a password.
func (b *gitRepoVolumeMounter) checkSource() error {
	if !utilfeature.DefaultFeatureGate.Enabled(features.GitRepoVolumeDriver) {
		gitRepoRefused.WithLabelValues("driver").Inc()
		return fmt.Errorf("gitRepo volumes are switched off on this node (feature gate %s): clone in an init container into an emptyDir volume",
			features.GitRepoVolumeDriver)
	}
	field, rule := refusedField(b.source, b.revision, b.target)
	if field == "" {
		return nil
	}
	if !utilfeature.DefaultFeatureGate.Enabled(features.GitRepoVolumeHardening) {
		gitRepoWouldRefuse.WithLabelValues(field).Inc()
		return nil
	}
	gitRepoRefused.WithLabelValues(field).Inc()
	return fmt.Errorf("gitRepo.%s of volume %q is refused (feature gate %s): %s", field, b.volName, features.GitRepoVolumeHardening, rule)
}

// cloneArgs are the arguments of git up to and including the repository.
func (b *gitRepoVolumeMounter) cloneArgs() []string {
	if !utilfeature.DefaultFeatureGate.Enabled(features.GitRepoVolumeHardening) {
		return []string{"clone", b.source}
	}
	return []string{"clone", "--", b.source}
}

// refusedField is the field of a gitRepo volume that must not reach git, and the rule
// that it breaks; both empty if there is none.
func refusedField(repository, revision, directory string) (field, rule string) {
	if rule := refusedRepository(repository); rule != "" {
		return "repository", rule
	}
	// "git checkout" has no end of options: what follows "--" are paths.
	if strings.HasPrefix(revision, "-") {
		return "revision", "it must not begin with \"-\""
	}
	if strings.HasPrefix(directory, "-") {
		return "directory", "it must not begin with \"-\""
	}
	// With a revision git is started once more, in the first folder of the clone's
	// path. In "x/.git" the cloned files themselves are what it takes for the
	// repository, hooks included (CVE-2024-10220, kubernetes/kubernetes#124531).
	if revision != "" && strings.ContainsAny(filepath.Clean(directory), `/\`) {
		return "directory", "with a revision it must not contain a separator"
	}
	return "", ""
}

// repositorySchemes are the transports of git that read from another machine.
// "git+ssh" and "ssh+git" are old names of "ssh".
var repositorySchemes = map[string]bool{"http": true, "https": true, "ssh": true, "git": true, "git+ssh": true, "ssh+git": true}

const remoteOnly = "it must be a URL of the scheme http, https, ssh or git, or host:path"

// refusedRepository is the rule that a repository breaks, "" if none. It goes by
// git's own reading of the argument (connect.c url_is_local_not_ssh, transport.c
// transport_get, url.c is_url): a list of what is allowed, as an older or newer git
// knows other transports, "ext::COMMAND" among them.
func refusedRepository(repository string) string {
	if strings.HasPrefix(repository, "-") {
		return "it must not begin with \"-\""
	}
	if strings.IndexFunc(repository, unicode.IsControl) >= 0 {
		return "it must not contain control characters"
	}
	colon := strings.Index(repository, ":")
	if slash := strings.Index(repository, "/"); colon <= 0 || slash >= 0 && slash < colon {
		// A path of this node, CVE-2025-1767.
		return remoteOnly
	}
	scheme, rest := repository[:colon], repository[colon+1:]
	decoded := percentDecode(repository)
	if strings.IndexFunc(decoded, isASCIIControl) >= 0 {
		// git writes a decoded URL into lines that it sends to a server or to a program that
		// keeps passwords (CVE-2021-40330, CVE-2020-5260).
		return "it must not contain control characters, also written like %0a"
	}
	var host string
	var web bool
	switch {
	case !strings.HasPrefix(rest, "//"):
		if strings.HasPrefix(rest, ":") && strings.IndexFunc(scheme, notOfScheme) < 0 {
			// "helper::address" starts the program git-remote-helper.
			return remoteOnly
		}
		host = hostPart(repository, ":")
	case !repositorySchemes[scheme]:
		return remoteOnly
	case scheme == "http" || scheme == "https":
		// No program gets this host, and its user and password have any characters.
		web = true
		if host = rest[2:]; strings.IndexAny(host, "/?#") >= 0 {
			host = host[:strings.IndexAny(host, "/?#")]
		}
		host = percentDecode(host)
	default:
		host = hostPart(percentDecode(rest[2:]), "/")
	}
	if host == "" {
		return "its URL must have a host"
	}
	// git before 2.14 hands such a host to ssh as an option. It decodes a URL first, and
	// takes the brackets off.
	if strings.HasPrefix(strings.TrimLeft(host, "["), "-") {
		return "its host must not begin with \"-\""
	}
	// ssh before 9.6 hands user and host to a shell where its configuration has them in a
	// command (ProxyCommand with %h, CVE-2023-51385).
	if !web && strings.IndexFunc(host, notOfHost) >= 0 {
		return "its user and host must consist of letters, digits and ._~@:[]-"
	}
	return ""
}

// percentDecode decodes what follows "%" as two hexadecimal digits, as git does, once.
func percentDecode(s string) string {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				out, i = append(out, byte(v)), i+2
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

func isASCIIControl(r rune) bool { return r < ' ' || r == 0x7f }

// hostPart cuts "user@host:port" off what git looks for a host in: up to the separator of the
// path, which git looks for behind the brackets, and for these in the whole text (connect.c
// host_end).
func hostPart(s, separator string) string {
	bracket := strings.Index(s, "@[") + 1
	from := 0
	if strings.HasPrefix(s[bracket:], "[") && strings.Contains(s[bracket:], "]") {
		from = bracket + strings.Index(s[bracket:], "]")
	}
	if i := strings.Index(s[from:], separator); i >= 0 {
		return s[:from+i]
	}
	return s
}

// notOfHost: see the rule.
func notOfHost(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._~@:[]-", r))
}

// notOfScheme: letters, digits, "+", "-" and "." can be part of a transport's name.
func notOfScheme(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("+-.", r))
}
