// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// tokenPath is where a registry with private repositories gives tokens.
const tokenPath = "/token"

// Private has pulls of a repository, like "team/app", need a user that allow knows.
// The registry then wants a token for whatever it serves, as public ones do: anyone
// gets one, but that of a user alone opens the repository.
func (r *Registry) Private(repository string, allow func(user, password string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.private == nil {
		r.private, r.tokens = map[string]func(user, password string) bool{}, map[string]map[string]bool{}
	}
	r.private[repository] = allow
}

func (r *Registry) hasPrivate() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.private != nil
}

// giveToken answers a client that shows its user, if it has one, and names the
// repositories that it is about to pull.
func (r *Registry) giveToken(w http.ResponseWriter, q *http.Request) {
	opens := map[string]bool{}
	user, password, _ := q.BasicAuth()
	r.mu.Lock()
	for _, scope := range q.URL.Query()["scope"] {
		for _, one := range strings.Fields(scope) { // repository:NAME:ACTIONS
			if parts := strings.Split(one, ":"); len(parts) == 3 && parts[0] == "repository" {
				if allow := r.private[parts[1]]; allow != nil && allow(user, password) {
					opens[parts[1]] = true
				}
			}
		}
	}
	token := rand.Text()
	r.tokens[token] = opens
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "expires_in": 300})
}

// admits says whether a request may go on. If not, it has been answered: by where a
// token is to be had.
func (r *Registry) admits(w http.ResponseWriter, q *http.Request, repository string) bool {
	r.mu.Lock()
	token, _ := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
	opens, known := r.tokens[token]
	needs := r.private != nil
	ok := !needs || known && (r.private[repository] == nil || opens[repository])
	r.mu.Unlock()
	if ok {
		return true
	}
	challenge := fmt.Sprintf(`Bearer realm="http://%s%s",service=%q`, q.Host, tokenPath, q.Host)
	if repository != "" {
		challenge += fmt.Sprintf(`,scope="repository:%s:pull"`, repository)
	}
	w.Header().Set("WWW-Authenticate", challenge)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = w.Write([]byte(`{"errors":[{"code":"UNAUTHORIZED","message":"not without a token for it"}]}`))
	return false
}
