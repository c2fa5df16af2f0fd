// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit/wait"
)

// Docker talks to one dockerd's API. The docker command is not needed.
type Docker struct {
	http *http.Client
}

// NewDocker is a client of the dockerd that listens on socket.
func NewDocker(socket string) *Docker {
	return &Docker{&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true, // dockerd may be another one next time
	}}}
}

// Container is one container of dockerd's list.
type Container struct {
	ID      string `json:"Id"`
	Names   []string
	Image   string
	ImageID string
	State   string // running, exited, …
	Status  string
	Created int64 // Unix seconds
	Labels  map[string]string
}

// Labels that dockershim puts on containers and sandboxes.
const (
	LabelType      = "io.kubernetes.docker.type" // "podsandbox" or "container"
	LabelPod       = "io.kubernetes.pod.name"
	LabelNamespace = "io.kubernetes.pod.namespace"
	LabelContainer = "io.kubernetes.container.name" // "POD" for a sandbox
	// LabelHash is the hash of the container's spec, an annotation in the
	// kubelet and a label in docker.
	LabelHash = "annotation.io.kubernetes.container.hash"
)

// Call sends a request and decodes a JSON answer into out unless out is nil.
func (d *Docker) Call(ctx context.Context, method, path string, contentType string, body io.Reader, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, body)
	if err != nil {
		return err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 && resp.StatusCode != http.StatusNotModified {
		return &DockerError{resp.StatusCode, method + " " + path, strings.TrimSpace(string(b))}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

// DockerError is an answer of 300 or above.
type DockerError struct {
	Status        int
	Request, Body string
}

func (e *DockerError) Error() string {
	return fmt.Sprintf("docker: %s: status %d: %s", e.Request, e.Status, e.Body)
}

// Ping is nil if dockerd answers.
func (d *Docker) Ping(ctx context.Context) error {
	return d.Call(ctx, http.MethodGet, "/_ping", "", nil, nil)
}

// Containers lists containers, also those that have exited if all is set.
func (d *Docker) Containers(ctx context.Context, all bool) ([]Container, error) {
	var cs []Container
	return cs, d.Call(ctx, http.MethodGet, fmt.Sprintf("/containers/json?all=%t", all), "", nil, &cs)
}

// PodContainers lists one pod's containers without its sandbox, newest first.
func (d *Docker) PodContainers(ctx context.Context, ns, pod string, all bool) ([]Container, error) {
	cs, err := d.Containers(ctx, all)
	var out []Container
	for _, c := range cs {
		if c.Labels[LabelNamespace] == ns && c.Labels[LabelPod] == pod && c.Labels[LabelType] == "container" {
			out = append(out, c)
		}
	}
	return out, err
}

// Inspect is docker inspect of a container.
func (d *Docker) Inspect(ctx context.Context, id string) (map[string]any, error) {
	m := map[string]any{}
	return m, d.Call(ctx, http.MethodGet, "/containers/"+id+"/json", "", nil, &m)
}

// RemoveAll kills and removes every container, and says which are left.
func (d *Docker) RemoveAll(ctx context.Context) error {
	cs, err := d.Containers(ctx, true)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range cs {
		err := d.Call(ctx, http.MethodDelete, "/containers/"+c.ID+"?force=1&v=1", "", nil, nil)
		var de *DockerError
		if errors.As(err, &de) && (de.Status == http.StatusNotFound || de.Status == http.StatusConflict) {
			err = nil // gone, or going
		}
		errs = append(errs, err)
	}
	errs = append(errs, wait.Until(ctx, "all containers removed", 20*time.Second, func(ctx context.Context) (bool, error) {
		left, err := d.Containers(ctx, true)
		return len(left) == 0, err
	}))
	return errors.Join(errs...)
}

// Image is a container image made of one static program, and what it needs.
type Image struct {
	// Ref is repository:tag. The kubelet's pod infrastructure image is
	// PauseImage; others are named holdfast.test/….
	Ref string
	// Program is a static binary on this machine; Path its place in the image.
	Program, Path string
	// Files are others in the image, all executable: where they are, and a file on this machine.
	Files map[string]string
	// Args follow Path in the entry point.
	Args []string
	// Env is "NAME=value".
	Env []string
}

// PauseImage is what every lab's kubelet uses for the sandbox.
const PauseImage = "k8s.gcr.io/pause-amd64:3.0"

// WebImage is labpod's web server. tag is answered in its body, so that
// web:v1 and web:v2 can be told apart; see tools/cmd/labpod.
func WebImage(tag string) string { return "holdfast.test/web:" + tag }

// Import makes the image in dockerd. Importing the same content and
// configuration twice makes two image IDs.
func (d *Docker) Import(ctx context.Context, im Image) error {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, dir := range []string{"tmp/", "etc/", "dev/", "proc/", "sys/"} {
		if err := tw.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o1777}); err != nil {
			return err
		}
	}
	files := map[string]string{im.Path: im.Program}
	maps.Copy(files, im.Files)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		b, err := os.ReadFile(files[path])
		if err != nil {
			return err
		}
		if err := tw.WriteHeader(&tar.Header{Name: strings.TrimPrefix(path, "/"), Mode: 0o755, Size: int64(len(b))}); err != nil {
			return err
		}
		if _, err := tw.Write(b); err != nil {
			return err
		}
	}
	if err := tw.Close(); err != nil {
		return err
	}
	entry, err := json.Marshal(append([]string{im.Path}, im.Args...))
	if err != nil {
		return err
	}
	repo, tag := im.Ref, "latest"
	if i := strings.LastIndex(im.Ref, ":"); i > strings.LastIndex(im.Ref, "/") {
		repo, tag = im.Ref[:i], im.Ref[i+1:]
	}
	q := url.Values{"fromSrc": {"-"}, "repo": {repo}, "tag": {tag}, "changes": {"ENTRYPOINT " + string(entry)}}
	for _, e := range im.Env {
		q.Add("changes", "ENV "+e)
	}
	if err := d.Call(ctx, http.MethodPost, "/images/create?"+q.Encode(), "application/x-tar", &buf, nil); err != nil {
		return fmt.Errorf("import %s: %w", im.Ref, err)
	}
	return nil
}

// dump writes the list and the inspection of every container.
func (d *Docker) dump(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cs, err := d.Containers(ctx, true)
	if err != nil {
		return err
	}
	all := []any{}
	for _, c := range cs {
		if m, err := d.Inspect(ctx, c.ID); err == nil {
			all = append(all, m)
		}
	}
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}
