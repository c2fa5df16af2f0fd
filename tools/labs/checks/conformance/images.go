// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/registry"
)

// packages have the programs of the images that are not made of upstream's source.
var packages = []string{"busybox-static", "curl", "netcat-openbsd", "bind9-dnsutils", "nginx", "redis-server"}

// imageHosts are the registries that the specs name.
var imageHosts = []string{"gcr.io", "k8s.gcr.io"}

// program is one of upstream's test images: a program at a path, and its entry point.
type program struct {
	image, binary, path string
	shell               bool // its image has one too
	command             bool // no entry point: the pods name the command
}

var programs = []program{
	{image: "mounttest", binary: "e2e-mounttest", path: "/mounttest"},
	{image: "entrypoint-tester", binary: "e2e-entrypoint-tester", path: "/ep"},
	{image: "liveness", binary: "e2e-liveness", path: "/server", command: true},
	{image: "nettest", binary: "e2e-nettest", path: "/nettest"},
	{image: "netexec", binary: "e2e-netexec", path: "/netexec", shell: true},
	{image: "serve-hostname", binary: "e2e-serve-hostname", path: "/serve_hostname", shell: true},
	{image: "test-webserver", binary: "e2e-test-webserver", path: "/test-webserver"},
	{image: "porter", binary: "e2e-porter", path: "/porter"},
}

const (
	e2eImages    = "gcr.io/kubernetes-e2e-test-images/"
	googleImages = "gcr.io/google-containers/"
)

// maker makes images of what is on this computer.
type maker struct {
	e    *labkit.Env
	r    *registry.Registry
	err  error
	base *registry.Layer // folders and users
	busy *registry.Layer // busybox and links to it
}

// add remembers the first error.
func (m *maker) add(im registry.Image) {
	if m.err == nil {
		im.Layers = append([]*registry.Layer{m.base}, im.Layers...)
		m.err = m.r.Add(im)
	}
}

// programs is a layer of programs of this computer and their libraries.
func (m *maker) programs(ctx context.Context, more []registry.File, names ...string) *registry.Layer {
	var paths []string
	for _, n := range names {
		p, err := exec.LookPath(n)
		if err != nil && m.err == nil {
			m.err = err
		}
		paths = append(paths, p)
	}
	if m.err != nil {
		return nil
	}
	files, err := registry.Programs(ctx, paths...)
	if err != nil {
		m.err = err
	}
	return registry.NewLayer(append(files, more...)...)
}

// tree is a file of upstream's below test/images.
func (m *maker) tree(file string) string {
	return filepath.Join(m.e.Root, "_output", "src", base, "stock", "test", "images", filepath.FromSlash(file))
}

// images fills r with what the specs run.
func images(ctx context.Context, e *labkit.Env, r *registry.Registry) error {
	m := &maker{e: e, r: r}
	m.base = registry.NewLayer(
		registry.File{Path: "/tmp/", Mode: 0o777 | fs.ModeSticky}, registry.File{Path: "/dev/"}, registry.File{Path: "/proc/"}, registry.File{Path: "/sys/"},
		registry.File{Path: "/etc/passwd", Content: []byte("root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		registry.File{Path: "/etc/group", Content: []byte("root:x:0:\nnogroup:x:65534:\n")},
		registry.File{Path: "/etc/nsswitch.conf", Content: []byte("passwd: files\ngroup: files\nhosts: files dns\n")})
	if err := m.busybox(ctx); err != nil {
		return err
	}
	m.upstreams()
	m.debians(ctx)
	pause := node.ToolPath(e.Root, "labpod")
	m.add(registry.Image{Refs: []string{googleImages + "pause-amd64:3.0", "gcr.io/google_containers/pause-amd64:3.0", node.PauseImage},
		Layers: []*registry.Layer{registry.NewLayer(registry.File{Path: "/pause", From: pause, Mode: 0o755})}, Entrypoint: []string{"/pause"}})
	m.add(registry.Image{Refs: []string{"gcr.io/google-samples/gb-frontend-amd64:v5"},
		Layers: []*registry.Layer{registry.NewLayer(registry.File{Path: "/labpod", From: pause, Mode: 0o755})}, Entrypoint: []string{"/labpod", "guestbook"}})
	return m.err
}

func (m *maker) busybox(ctx context.Context) error {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	list, err := exec.CommandContext(ctx, path, "--list").Output()
	if err != nil {
		return fmt.Errorf("%s --list: %w", path, err)
	}
	files := []registry.File{{Path: "/bin/busybox", From: path, Mode: 0o755}, {Path: "/bin/sh", Link: "/bin/busybox"}}
	for _, applet := range strings.Fields(string(list)) {
		if applet != "busybox" {
			files = append(files, registry.File{Path: "/bin/" + applet, Link: "/bin/busybox"})
		}
	}
	m.busy = registry.NewLayer(files...)
	m.add(registry.Image{Refs: []string{"busybox", "alpine:3.1", "gcr.io/google_containers/alpine-with-bash:1.0", "gcr.io/" + privateImage + ":3.1"},
		Layers: []*registry.Layer{m.busy}, Cmd: []string{"sh"}})
	return m.err
}

// upstreams are the images of upstream's own programs.
func (m *maker) upstreams() {
	for _, p := range programs {
		files := []registry.File{{Path: p.path, From: m.e.Stock(base, p.binary).Path, Mode: 0o755}}
		im := registry.Image{Refs: []string{e2eImages + p.image + "-amd64:1.0"}, Entrypoint: []string{p.path}}
		switch p.image {
		case "entrypoint-tester": // tells its own name
			files = append(files, registry.File{Path: "/ep-2", From: files[0].From, Mode: 0o755})
			im.Cmd = []string{"default", "arguments"}
		case "netexec":
			files = append(files, registry.File{Path: "/uploads/"})
		case "porter":
			for _, f := range []string{"localhost.crt", "localhost.key"} {
				files = append(files, registry.File{Path: "/" + f, From: m.tree("porter/" + f)})
			}
		}
		if p.command {
			im.Entrypoint = nil
		}
		if p.shell {
			im.Layers = append(im.Layers, m.busy)
		}
		im.Layers = append(im.Layers, registry.NewLayer(files...))
		m.add(im)
		switch p.image {
		case "mounttest":
			im.Refs, im.User = []string{e2eImages + "mounttest-user-amd64:1.0"}, "1001"
			m.add(im)
		case "test-webserver":
			for _, name := range []string{"kitten", "nautilus"} {
				data := registry.NewLayer(registry.File{Path: "/data.json", From: m.tree(name + "/html/data.json"), Mode: 0o644},
					registry.File{Path: "/" + name + ".jpg", From: m.tree(name + "/html/" + name + ".jpg"), Mode: 0o644})
				of := im
				of.Refs, of.Layers = []string{e2eImages + name + "-amd64:1.0"}, append(append([]*registry.Layer(nil), im.Layers...), data)
				m.add(of)
			}
		}
	}
}

// The shell of busybox prefers its own applets to programs on PATH, so that
// hostexec, whose timeout and nc are other programs, has dash.
const timeoutWrapper = `#!/bin/dash
# busybox of that time had "timeout -t SECONDS COMMAND".
if [ "$1" = -t ]; then shift; fi
exec /usr/bin/timeout "$@"
`

// Redis 7 says only "Ready to accept connections"; a spec looks for what 3.2 said.
const redisStart = `redis-server %s --protected-mode no 2>&1 | while read -r line; do
  echo "$line"
  case "$line" in
  *"Ready to accept connections"*) echo "The server is now ready to accept connections on port 6379";;
  esac
done &
trap "exit 0" TERM INT
wait
`

const nginxConf = `user nobody nogroup;
worker_processes 1;
error_log /dev/stderr;
pid /tmp/nginx.pid;
events { worker_connections 256; }
http {
  access_log /dev/stdout;
  default_type text/html;
  client_body_temp_path /tmp/body; proxy_temp_path /tmp/proxy; fastcgi_temp_path /tmp/fcgi; uwsgi_temp_path /tmp/uwsgi; scgi_temp_path /tmp/scgi;
  server { listen 80; root /usr/share/nginx/html; index index.html; }
}
`

// debians are the images of Debian's programs.
func (m *maker) debians(ctx context.Context) {
	host := m.programs(ctx, []registry.File{
		{Path: "/bin/sh", Link: "/usr/bin/dash"}, {Path: "/bin/dash", Link: "/usr/bin/dash"}, {Path: "/bin/nc", Link: "/usr/bin/nc.openbsd"}, {Path: "/bin/ip", Link: "/usr/bin/ip"},
		{Path: "/bin/timeout", Content: []byte(timeoutWrapper), Mode: 0o755},
	}, "/usr/bin/dash", "/usr/bin/curl", "/usr/bin/nc.openbsd", "/usr/bin/ip", "/usr/bin/timeout")
	dns := m.programs(ctx, nil, "/usr/bin/dig", "/usr/bin/getent")
	nginx := m.programs(ctx, []registry.File{
		{Path: "/etc/nginx/nginx.conf", Content: []byte(nginxConf)},
		{Path: "/usr/share/nginx/html/index.html", Content: []byte("<html><title>Welcome to nginx!</title></html>\n")},
		{Path: "/var/log/nginx/"}, {Path: "/var/lib/nginx/"},
	}, "/usr/sbin/nginx")
	redis := m.programs(ctx, []registry.File{{Path: "/etc/redis.conf", From: m.tree("redis/redis.conf"), Mode: 0o644}, {Path: "/data/"}}, "/usr/bin/redis-server")
	if m.err != nil {
		return
	}
	m.add(registry.Image{Refs: []string{e2eImages + "hostexec-amd64:1.1"}, Layers: []*registry.Layer{m.busy, host},
		Cmd: []string{"/bin/sh", "-c", "while true; do sleep 86400; done"}, Env: []string{"PATH=/bin:/usr/bin:/usr/sbin"}})
	m.add(registry.Image{Refs: []string{e2eImages + "dnsutils-amd64:1.0", e2eImages + "jessie-dnsutils-amd64:1.0"}, Layers: []*registry.Layer{m.busy, dns}})
	m.add(registry.Image{Refs: []string{googleImages + "nginx-slim-amd64:0.20", googleImages + "nginx-slim-amd64:0.21"}, Layers: []*registry.Layer{m.busy, nginx},
		Cmd: []string{"/usr/sbin/nginx", "-g", "daemon off;"}})
	m.add(registry.Image{Refs: []string{e2eImages + "redis-amd64:1.0"}, Layers: []*registry.Layer{m.busy, redis},
		Cmd: []string{"/bin/sh", "-c", fmt.Sprintf(redisStart, "/etc/redis.conf")}})
	m.add(registry.Image{Refs: []string{"gcr.io/google-samples/gb-redisslave-amd64:v2"}, Layers: []*registry.Layer{m.busy, redis},
		Cmd: []string{"/bin/sh", "-c", fmt.Sprintf(redisStart, "/etc/redis.conf --replicaof redis-master 6379")}})
}
