// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package git_repo

import (
	"fmt"
	"math/rand"
	"os"
	"strings"
	"testing"
)

func TestRefusedField(t *testing.T) {
	for _, tc := range []struct{ repository, revision, directory, want string }{
		{"https://github.com/kubernetes/kubernetes.git", "2a30ce65", "src", ""},
		{"http://git.example.com:8080/a.git", "", "", ""},
		{"https://user:password@git.example.com/a.git?b=c", "", ".", ""},
		{"git://10.0.0.1/a.git", "master", ".", ""},
		{"ssh://git@git.example.com:22/~me/a.git", "v1.0", "a", ""},
		{"git+ssh://git.example.com/a", "", "", ""},
		{"ssh+git://git.example.com/a", "", "", ""},
		{"git@github.com:kubernetes/kubernetes.git", "origin/release-1.9", "./src/", ""},
		{"git.example.com:a/b", "HEAD~1", "", ""},
		{"[git.example.com:2222]:a.git", "", "", ""},
		{"git@[::1]:a.git", "", "", ""},
		{"https://[2001:db8::1]:8443/a.git", "", "", ""},
		{"file:/srv/a.git", "", "", ""}, // a host named "file"
		{"https://git.example.com/a.git", "", "a/b/.git", ""},
		{"https://git.example.com/a.git", "", "..data", ""},

		{"--upload-pack=touch /tmp/x;", "", "file:///nonexistent", "repository"},
		{"-c", "", "", "repository"},
		{"--config=core.sshCommand=touch /tmp/x", "", "ssh://a/b", "repository"},
		{"", "", "", "repository"},
		{"/srv/a.git", "", "", "repository"},
		{"/srv/a:b.git", "", "", "repository"},
		{"./a:b", "", "", "repository"},
		{"../../../../a", "", "", "repository"},
		{"a.git", "", "", "repository"},
		{":a", "", "", "repository"},
		{"file:///srv/a.git", "", "", "repository"},
		{"FILE:///srv/a.git", "", "", "repository"},
		{"file://localhost/srv/a.git", "", "", "repository"},
		{"ext::sh -c touch% /tmp/x", "", "", "repository"},
		{"fd::17/foo", "", "", "repository"},
		{"http::http://a/b", "", "", "repository"},
		{"::http://a/b", "", "", "repository"},
		{"ext://a/b", "", "", "repository"},
		{"ftp://a/b", "", "", "repository"},
		{"rsync://a/b", "", "", "repository"},
		{"HTTPS://git.example.com/a.git", "", "", "repository"}, // git has no such transport
		{"https:///a.git", "", "", "repository"},
		{"ssh://-oProxyCommand=x/a", "", "", "repository"},
		{"ssh://%2DoProxyCommand=x/a", "", "", "repository"},
		{"ssh://%2doProxyCommand=x@a/b", "", "", "repository"},
		{"ssh://%5b-oProxyCommand=x%5d/b", "", "", "repository"},
		{"ssh://[%2DoProxyCommand=x]/b", "", "", "repository"},
		{"ssh://%5B%2doProxyCommand=x]/b", "", "", "repository"},
		{"ssh://[-oProxyCommand=x]/a", "", "", "repository"},
		{"[-oProxyCommand=x]:a", "", "", "repository"},
		{"git://a%0ab/c\nd", "", "", "repository"},

		// ssh hands user and host to a shell where a ProxyCommand has %h (CVE-2023-51385).
		{"ssh://$(touch /tmp/x)/a", "", "", "repository"},
		{"ssh://`touch`/a", "", "", "repository"},
		{"ssh://a;touch/b", "", "", "repository"},
		{"ssh://a%3btouch/b", "", "", "repository"},
		{"ssh://a%3Btouch@b/c", "", "", "repository"},
		{"ssh://a%20b/c", "", "", "repository"},
		{"ssh://a?;touch/b", "", "", "repository"}, // neither "?" nor "#" ends git's host
		{"ssh://a#;touch/b", "", "", "repository"},
		{"ssh://a%25/b", "", "", "repository"},
		{"ssh://[a/b;touch]/c", "", "", "repository"}, // a separator in brackets does not either
		{"ssh://a/b@[;touch]/c", "", "", "repository"},
		{"ssh://a/b%40%5b;touch%5d/c", "", "", "repository"},
		{"ssh://%2fa;touch/b", "", "", "repository"},
		{"git+ssh://a|b/c", "", "", "repository"},
		{"ssh+git://a&b/c", "", "", "repository"},
		{"git://a$b/c", "", "", "repository"},
		{"git@a;touch:b", "", "", "repository"},
		{"$(touch)@a:b", "", "", "repository"},
		{"a b:c", "", "", "repository"},
		{"a%3bb:c", "", "", "repository"},
		{"[a:;touch]:c", "", "", "repository"},
		{"a:b@[;touch]:c", "", "", "repository"},
		{"h\u00f6st:a", "", "", "repository"},
		{"ssh://us%65r@git.example.com/a", "", "", ""},
		{"ssh://us.er_~1@git-1.example.com:22/a;b$c%3b", "", "", ""},
		{"https://us;er:pa$s%3bword@git.example.com/a", "", "", ""},

		// CVE-2020-5260, CVE-2021-40330.
		{"https://a%0ahost=b/c", "", "", "repository"},
		{"https://a/%0ahost=b", "", "", "repository"},
		{"https://a/b?c%0Ad", "", "", "repository"},
		{"git://a/%0d%0aHost=b", "", "", "repository"},
		{"git://a/b%0D", "", "", "repository"},
		{"git://a/b%00c", "", "", "repository"},
		{"ssh://a/b%1bc", "", "", "repository"},
		{"ssh://a/b%7f", "", "", "repository"},
		{"a:b%0ac", "", "", "repository"},
		{"https://a/b%", "", "", ""},
		{"https://a/b%0", "", "", ""},
		{"https://a/b%0gc%c3%bc", "", "", ""},

		{"https://a/b", "--orphan=x", "", "revision"},
		{"https://a/b", "-", "", "revision"},
		{"https://a/b", "", "--bare", "directory"},
		{"https://a/b", "master", "g/.git", "directory"},
		{"https://a/b", "master", `g\.git`, "directory"},
		{"https://a/b", "master", "./g/.git/.", "directory"},
	} {
		if got, rule := refusedField(tc.repository, tc.revision, tc.directory); got != tc.want || (got == "") != (rule == "") {
			t.Errorf("repository %q, revision %q, directory %q: refused %q (%s), want %q", tc.repository, tc.revision, tc.directory, got, rule, tc.want)
		}
	}
}

// seeds is how many inputs a fuzz test makes up: a million with HOLDFAST_EXHAUSTIVE=1.
func seeds() int {
	if os.Getenv("HOLDFAST_EXHAUSTIVE") != "" {
		return 1000000
	}
	return 10000
}

// TestRefusedRepositoryFuzz: what is allowed is neither a path nor an option nor a
// helper, judged by another reading of the same text than the rule's own.
func TestRefusedRepositoryFuzz(t *testing.T) {
	parts := []string{"http", "https", "ssh", "git", "file", "ext", ":", "::", "//", "/", "-", "@", "a", ".", "..", "[", "]", "%2d", "%5b", "%5d", "%40", "%2f", "%0a", ";", "%3b", "?", "~", " ", "\n", "--x=", "host"}
	r := rand.New(rand.NewSource(1))
	allowed := 0
	for i, all := 0, seeds(); i < all; i++ {
		s := ""
		for n := 1 + r.Intn(7); n > 0; n-- {
			s += parts[r.Intn(len(parts))]
		}
		if refusedRepository(s) != "" {
			continue
		}
		allowed++
		before := strings.SplitN(s, ":", 2)
		if len(before) != 2 || before[0] == "" || strings.ContainsAny(before[0], "/\n") || s[0] == '-' {
			t.Fatalf("%q is allowed", s)
		}
		if url := strings.SplitN(s, "://", 2); len(url) == 2 && !strings.ContainsAny(url[0], "/@[]: ~%=") && !repositorySchemes[url[0]] {
			t.Fatalf("%q is allowed", s)
		}
		if strings.Contains(s, "%0a") {
			t.Fatalf("%q is allowed", s)
		}
		if scheme := strings.SplitN(s, "://", 2)[0]; scheme == "ssh" || scheme == "git" {
			plain := strings.NewReplacer("%2d", "-", "%5b", "[", "%5d", "]", "%40", "@", "%2f", "/", "%3b", ";").Replace(s[len(scheme)+3:])
			if gitHost(plain, '/') == "" || strings.ContainsAny(gitHost(plain, '/'), "/; ?") {
				t.Fatalf("%q is allowed, its host is %q", s, gitHost(plain, '/'))
			}
		} else if scheme != "http" && scheme != "https" && strings.ContainsAny(gitHost(s, ':'), "/; ?%") {
			t.Fatalf("%q is allowed, its host is %q", s, gitHost(s, ':'))
		}
		if helper := strings.SplitN(s, "::", 2); len(helper) == 2 && !strings.ContainsAny(helper[0], "/@[]:% ~=") {
			t.Fatalf("%q is allowed", s)
		}
	}
	if allowed < 100 {
		t.Errorf("%d of %d were allowed: the test says nothing", allowed, seeds())
	}
	t.Logf("%d inputs, %d of them allowed", seeds(), allowed)
}

// gitHost walks through s as git's parse_connect_url does: the first "[" that begins the text or
// follows an "@" hides the separator up to its "]".
func gitHost(s string, separator byte) string {
	i := 0
	for j := range s {
		if open := strings.HasPrefix(s[j:], "@["); open || j == 0 && s[0] == '[' && !strings.Contains(s, "@[") {
			if n := strings.IndexByte(s[j:], ']'); n > 0 {
				i = j + n
			}
			break
		}
	}
	for ; i < len(s) && s[i] != separator; i++ {
	}
	return s[:i]
}

// TestAllowedRepositoryFuzz: a repository on another machine, in any form in which git can
// name it, is not refused.
func TestAllowedRepositoryFuzz(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	one := func(of ...string) string { return of[r.Intn(len(of))] }
	word := func(alphabet string) string {
		b := []byte{byte('a' + r.Intn(26))}
		for n := r.Intn(8); n > 0; n-- {
			b = append(b, alphabet[r.Intn(len(alphabet))])
		}
		return string(b)
	}
	for i, all := 0, seeds(); i < all; i++ {
		host := one(word("abc-019.")+".example.com", fmt.Sprintf("10.0.%d.%d", r.Intn(256), r.Intn(256)), "[2001:db8::"+word("abcdef019")[1:]+"1]")
		user := one("", "git@", word("abc._-9")+"@")
		path := ""
		for n := 1 + r.Intn(4); n > 0; n-- {
			path += "/" + one("", "~", ".", "-") + word("abc-._~ :@=+&,;()\u00fc019")
		}
		path += one("", ".git", "/")
		var s string
		switch r.Intn(3) {
		case 0: // [user@]host:path
			s = user + host + ":" + one(path, path[1:])
		case 1:
			s = one("http", "https") + "://" + one(user, "name:pa-ss:w%2fd@") + host + one("", ":8080") + path + one("", "?a=b", "#c")
		default:
			s = one("ssh", "git", "git+ssh", "ssh+git") + "://" + user + host + one("", ":2222") + path
		}
		if field, rule := refusedField(s, one("", "master", word("abc/-019"), "HEAD~1"), one("", ".", word("abc.-_"), "./"+word("abc")+"/")); field != "" {
			t.Fatalf("%q: %s is refused: %s", s, field, rule)
		}
	}
	t.Logf("%d inputs", seeds())
}
