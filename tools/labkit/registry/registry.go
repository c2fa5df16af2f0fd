// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registry serves container images in the machine, as a registry does on
// the network, so that a node's dockerd pulls them. It has no TLS: dockerd has to be told
// (DockerArgs), and the node where the names of the registries lead (Hosts).
package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
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

// Registry is a registry with its images. Use New.
type Registry struct {
	blobs  registry.BlobHandler
	images http.Handler

	mu      sync.Mutex
	names   int
	private map[string]func(user, password string) bool // by repository
	tokens  map[string]map[string]bool                  // token -> private repositories that it opens
}

// New is an empty registry.
func New() *Registry {
	r := &Registry{blobs: registry.NewInMemoryBlobHandler()}
	r.images = registry.New(registry.WithBlobHandler(r.blobs), registry.Logger(log.New(io.Discard, "", 0)))
	return r
}

// Add has the registry serve an image. Its names are looked up without their host; one without a
// host is of the default registry, whose repositories of one word are below library/.
func (r *Registry) Add(im Image) error {
	if len(im.Refs) == 0 || len(im.Layers) == 0 {
		return errors.New("registry: an image without a name or a layer")
	}
	if err := r.add(im); err != nil {
		return fmt.Errorf("registry: image %s: %w", im.Refs[0], err)
	}
	return nil
}

func (r *Registry) add(im Image) error {
	made, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{Architecture: "amd64", OS: "linux", Created: v1.Time{Time: time.Unix(0, 0).UTC()}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Entrypoint: im.Entrypoint, Cmd: im.Cmd, Env: im.Env, User: im.User, WorkingDir: im.WorkingDir}})
	if err != nil {
		return err
	}
	for _, l := range im.Layers {
		packed, err := l.pack()
		if err != nil {
			return err
		}
		if made, err = mutate.AppendLayers(made, packed); err != nil {
			return err
		}
		digest, err := packed.Digest()
		if err != nil {
			return err
		}
		data, err := packed.Compressed()
		if err != nil {
			return err
		}
		if err := r.put(digest, data); err != nil {
			return err
		}
	}
	config, err := made.RawConfigFile()
	if err != nil {
		return err
	}
	digest, err := made.ConfigName()
	if err != nil {
		return err
	}
	if err := r.put(digest, io.NopCloser(bytes.NewReader(config))); err != nil {
		return err
	}
	manifest, err := made.RawManifest()
	if err != nil {
		return err
	}
	kind, err := made.MediaType()
	if err != nil {
		return err
	}
	for _, ref := range im.Refs {
		tag, err := name.NewTag(ref)
		if err != nil {
			return err
		}
		q, err := http.NewRequest(http.MethodPut, "/v2/"+tag.RepositoryStr()+"/manifests/"+tag.TagStr(), bytes.NewReader(manifest))
		if err != nil {
			return err
		}
		q.Header.Set("Content-Type", string(kind))
		a := &answer{header: http.Header{}}
		if r.images.ServeHTTP(a, q); a.code != http.StatusCreated {
			return fmt.Errorf("its manifest: status %d", a.code)
		}
		r.mu.Lock()
		r.names++
		r.mu.Unlock()
	}
	return nil
}

func (r *Registry) put(digest v1.Hash, data io.ReadCloser) error {
	return r.blobs.(registry.BlobPutHandler).Put(context.Background(), "", digest, data)
}

// answer keeps the status of an answer.
type answer struct {
	header http.Header
	code   int
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(b []byte) (int, error) { return len(b), nil }

// Names is how many names of images are served.
func (r *Registry) Names() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.names
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

// ServeHTTP answers GET and HEAD of what a client may have.
func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0") // so that dockerd tries no version 1
	switch {
	case q.Method != http.MethodGet && q.Method != http.MethodHead:
		http.Error(w, "this registry only serves pulls", http.StatusMethodNotAllowed)
	case q.URL.Path == tokenPath && r.hasPrivate():
		r.giveToken(w, q)
	case r.admits(w, q, repositoryOf(q.URL.Path)):
		r.images.ServeHTTP(w, q)
	}
}

// repositoryOf is the repository that a path below /v2/ is in, or "".
func repositoryOf(path string) string {
	parts := strings.Split(strings.TrimPrefix(path, "/v2/"), "/")
	if len(parts) < 3 {
		return ""
	}
	return strings.Join(parts[:len(parts)-2], "/")
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
