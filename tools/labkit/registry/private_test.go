// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"testing"
)

// TestPrivate does what dockerd does with a registry that wants tokens.
func TestPrivate(t *testing.T) {
	r := New()
	layer := NewLayer(File{Path: "/etc/motd", Content: []byte("hello\n")})
	if err := r.Add(Image{Refs: []string{"gcr.io/open/app:1", "gcr.io/team/app:1"}, Layers: []*Layer{layer}}); err != nil {
		t.Fatal(err)
	}
	r.Private("team/app", func(user, password string) bool { return user == "carol" && password == "secret" })
	s := httptest.NewServer(r)
	defer s.Close()
	ask := func(url, token string) *http.Response {
		q, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	// The ping says where tokens are.
	resp := ask(s.URL+"/v2/", "")
	realm := regexp.MustCompile(`^Bearer realm="([^"]+)"`).FindStringSubmatch(resp.Header.Get("WWW-Authenticate"))
	if resp.StatusCode != 401 || realm == nil || resp.Header.Get("Docker-Distribution-Api-Version") != "registry/2.0" {
		t.Fatalf("%s, %q", resp.Status, resp.Header.Get("WWW-Authenticate"))
	}
	token := func(user, password, repository string) string {
		q, err := http.NewRequest(http.MethodGet, realm[1]+"?scope="+url.QueryEscape("repository:"+repository+":pull"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			q.SetBasicAuth(user, password)
		}
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var got struct{ Token string }
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.Token == "" {
			t.Fatalf("%s: token %q, %v", resp.Status, got.Token, err)
		}
		return got.Token
	}
	for what, c := range map[string]struct {
		token, repository string
		want              int
	}{
		"no token":                   {"", "open/app", 401},
		"made-up token":              {"x", "open/app", 401},
		"anyone":                     {token("", "", "open/app"), "open/app", 200},
		"anyone, private":            {token("", "", "team/app"), "team/app", 401},
		"user":                       {token("carol", "secret", "team/app"), "team/app", 200},
		"wrong password":             {token("carol", "guess", "team/app"), "team/app", 401},
		"user with token for other":  {token("carol", "secret", "open/app"), "team/app", 401},
		"user with token of private": {token("carol", "secret", "team/app"), "open/app", 200},
	} {
		if resp := ask(s.URL+"/v2/"+c.repository+"/manifests/1", c.token); resp.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", what, resp.Status, c.want)
		}
	}
	// Blobs are named by digest, but are in a repository too.
	d := layerDigest(t, layer)
	if resp := ask(s.URL+"/v2/team/app/blobs/"+d, token("", "", "team/app")); resp.StatusCode != 401 {
		t.Errorf("a layer of the private repository for anyone: %s", resp.Status)
	}
	if resp := ask(s.URL+"/v2/team/app/blobs/"+d, token("carol", "secret", "team/app")); resp.StatusCode != 200 {
		t.Errorf("a layer of the private repository for its user: %s", resp.Status)
	}
}

func layerDigest(t *testing.T, l *Layer) string {
	t.Helper()
	packed, err := l.pack()
	if err != nil {
		t.Fatal(err)
	}
	d, err := packed.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// TestOpen: a registry without a private repository has no tokens.
func TestOpen(t *testing.T) {
	s := httptest.NewServer(New())
	defer s.Close()
	if code, _ := get(t, s.URL+"/v2/"); code != 200 {
		t.Error("ping: ", code)
	}
	if code, _ := get(t, s.URL+tokenPath); code != 404 {
		t.Error("token: ", code)
	}
}
