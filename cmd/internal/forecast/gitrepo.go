// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"regexp"
	"strings"
)

var (
	gitURL = regexp.MustCompile(`^(?:https?|ssh|git|git\+ssh|ssh\+git)://[^/-][^/]*`)
	gitSCP = regexp.MustCompile(`^(?:[A-Za-z0-9._~-]+@)?[A-Za-z0-9._~][A-Za-z0-9._~-]*:`)
)

// refusedGitRepo names the field of a gitRepo volume that Holdfast refuses, "" if it takes all. The
// rules are those of patches/gitrepo-hardening/README.md, without what is rare in user and host.
func refusedGitRepo(repository, revision, directory string) string {
	lower := strings.ToLower(repository)
	switch {
	case strings.HasPrefix(repository, "-"), strings.Contains(lower, "%0"), strings.Contains(lower, "%1"), strings.ContainsFunc(repository, func(r rune) bool { return r < ' ' || r == 127 }):
		return "repository"
	case strings.Contains(repository, "://") && (!gitURL.MatchString(lower) || strings.Contains(lower, "://%2d")):
		return "repository"
	case !strings.Contains(repository, "://") && (!gitSCP.MatchString(repository) || strings.Contains(repository, "::")):
		return "repository"
	case strings.HasPrefix(revision, "-"):
		return "revision"
	case strings.HasPrefix(directory, "-"), revision != "" && strings.Contains(directory, "/"):
		return "directory"
	}
	return ""
}
