// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registry serves container images in the machine, as a registry does on
// the network, so that a node's dockerd pulls them. It knows as much of the registry
// API, version 2, as a pull needs, and has no TLS: dockerd has to be told
// (DockerArgs), and the node where the names of the registries lead (Hosts).
package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Media types of the image manifest, version 2, schema 2.
const (
	typeManifest = "application/vnd.docker.distribution.manifest.v2+json"
	typeConfig   = "application/vnd.docker.container.image.v1+json"
	typeLayer    = "application/vnd.docker.image.rootfs.diff.tar.gzip"
)

// Image is one image with its names.
type Image struct {
	// Refs are its names as a pod has them, like "k8s.gcr.io/pause-amd64:3.0".
	Refs []string
	// Layers are applied in this order. One that images share is kept once.
	Layers          []*Layer
	Entrypoint, Cmd []string
	// Env is "NAME=value".
	Env              []string
	User, WorkingDir string
}

// Registry is a registry with its images. Its zero value is empty and usable.
type Registry struct {
	mu        sync.Mutex
	blobs     map[string]blob                             // by digest: configurations, layers, manifests
	manifests map[string]string                           // "repository:tag" or "repository@digest" -> digest
	pulled    map[string]int                              // "repository:tag" -> manifests that were fetched
	private   map[string]func(user, password string) bool // by repository
	tokens    map[string]map[string]bool                  // token -> private repositories that it opens
}

type blob struct {
	kind string
	data []byte
}

// descriptor is a blob in a manifest.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Size      int    `json:"size"`
	Digest    string `json:"digest"`
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// name is the repository, without its host, and the tag of a reference. Without a
// host it is one of the default registry, whose repositories of one word are below
// library/.
func name(ref string) (repository, tag string, err error) {
	repository, tag = ref, "latest"
	if i := strings.LastIndex(ref, ":"); i > strings.LastIndex(ref, "/") {
		repository, tag = ref[:i], ref[i+1:]
	}
	host, rest, ok := strings.Cut(repository, "/")
	switch {
	case ok && strings.ContainsAny(host, ".:"):
		repository = rest
	case !ok:
		repository = "library/" + repository
	}
	if repository == "" || tag == "" || strings.Contains(ref, "@") {
		return "", "", fmt.Errorf("registry: image %q: want host/repository:tag", ref)
	}
	return repository, tag, nil
}

// Add has the registry serve an image.
func (r *Registry) Add(im Image) error {
	if len(im.Refs) == 0 || len(im.Layers) == 0 {
		return errors.New("registry: an image without a name or a layer")
	}
	type rootfs struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	fs := rootfs{Type: "layers"}
	var layers []descriptor
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.blobs == nil {
		r.blobs, r.manifests, r.pulled = map[string]blob{}, map[string]string{}, map[string]int{}
	}
	put := func(kind string, b []byte) descriptor {
		d := descriptor{kind, len(b), digest(b)}
		r.blobs[d.Digest] = blob{kind, b}
		return d
	}
	for _, l := range im.Layers {
		diff, packed, err := l.pack()
		if err != nil {
			return fmt.Errorf("registry: image %s: %w", im.Refs[0], err)
		}
		fs.DiffIDs = append(fs.DiffIDs, diff)
		layers = append(layers, put(typeLayer, packed))
	}
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "created": time.Unix(0, 0).UTC(), "rootfs": fs,
		"config": map[string]any{"Entrypoint": im.Entrypoint, "Cmd": im.Cmd, "Env": im.Env, "User": im.User, "WorkingDir": im.WorkingDir},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeManifest, "config": put(typeConfig, config), "layers": layers})
	if err != nil {
		return err
	}
	d := put(typeManifest, manifest)
	for _, ref := range im.Refs {
		repository, tag, err := name(ref)
		if err != nil {
			return err
		}
		r.manifests[repository+":"+tag], r.manifests[repository+"@"+d.Digest] = d.Digest, d.Digest
	}
	return nil
}

// Pulled are the images that were asked for, by "repository:tag", and how often.
// Nodes ask again under policy Always.
func (r *Registry) Pulled() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]int{}
	for k, n := range r.pulled {
		out[k] = n
	}
	return out
}

// Listen serves on addr, like "10.90.0.1:80", until stop is called.
func (r *Registry) Listen(addr string) (stop func() error, err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	s := &http.Server{Handler: r, ReadHeaderTimeout: 30 * time.Second}
	go func() { _ = s.Serve(l) }()
	return s.Close, nil
}

// ServeHTTP answers GET and HEAD of /v2/, manifests and blobs.
func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method != http.MethodGet && q.Method != http.MethodHead {
		http.Error(w, "this registry only serves pulls", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	path, ok := strings.CutPrefix(q.URL.Path, "/v2/")
	switch {
	case q.URL.Path == tokenPath && r.hasPrivate():
		r.giveToken(w, q)
		return
	case !ok:
		http.NotFound(w, q)
		return
	case !r.admits(w, q, repositoryOf(path)):
		return
	}
	if path == "" {
		_, _ = w.Write([]byte("{}"))
		return
	}
	b, d, ok := r.find(path, q.Method == http.MethodGet)
	if !ok {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"errors":[{"code":"MANIFEST_UNKNOWN","message":"not in this registry"}]}`))
		return
	}
	w.Header().Set("Content-Type", b.kind)
	w.Header().Set("Content-Length", fmt.Sprint(len(b.data)))
	w.Header().Set("Docker-Content-Digest", d)
	if q.Method == http.MethodGet {
		_, _ = w.Write(b.data)
	}
}

// repositoryOf is the repository that a path below /v2/ is in, or "".
func repositoryOf(path string) string {
	parts := strings.Split(path, "/")
	if len(parts) < 3 {
		return ""
	}
	return strings.Join(parts[:len(parts)-2], "/")
}

// find looks up REPOSITORY/manifests/TAG-OR-DIGEST or REPOSITORY/blobs/DIGEST.
func (r *Registry) find(path string, get bool) (b blob, digest string, ok bool) {
	parts := strings.Split(path, "/")
	repository := repositoryOf(path)
	if repository == "" {
		return blob{}, "", false
	}
	kind, ref := parts[len(parts)-2], parts[len(parts)-1]
	r.mu.Lock()
	defer r.mu.Unlock()
	switch kind {
	case "blobs":
		b, ok = r.blobs[ref]
		return b, ref, ok
	case "manifests":
		if strings.HasPrefix(ref, "sha256:") {
			digest, ok = r.manifests[repository+"@"+ref]
			return r.blobs[digest], digest, ok
		}
		key := repository + ":" + ref
		if digest, ok = r.manifests[key]; ok && get {
			r.pulled[key]++
		}
		return r.blobs[digest], digest, ok
	}
	return blob{}, "", false
}

// Names lists what is served, "repository:tag", sorted.
func (r *Registry) Names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for k := range r.manifests {
		if !strings.Contains(k, "@") {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// DockerArgs are dockerd's flags for pulls of images of these hosts, and of those
// without a host, from a registry that listens on ip, port 80.
func DockerArgs(ip string, hosts ...string) []string {
	args := []string{"--registry-mirror=http://" + ip}
	for _, h := range hosts {
		args = append(args, "--insecure-registry="+h)
	}
	return args
}

// Hosts is the line of /etc/hosts that leads these names to ip.
func Hosts(ip string, hosts ...string) string { return ip + " " + strings.Join(hosts, " ") }
