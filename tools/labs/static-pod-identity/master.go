// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpodidentity

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

// master is a static pod. All are on the node's network, with the ports that kubeadm gives them.
type master struct {
	name string
	// command is its container's; without one it is labpod, whose manifest comes from
	// --manifest-url.
	command []string
	port    int
	// health is a path that answers 200 as long as it works.
	health string
}

const (
	apiServerPort = 8080
	urlPort       = 18200
	// A leader ends when it cannot renew its lease for 10 s, as on a busy machine.
	alone = "--leader-elect=false"
	beat  = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"beat"},"data":{"n":"%d"}}`
)

var (
	manifestAddress = machine.IP + ":18201"
	manifestURL     = "http://" + manifestAddress + "/pod.yaml"
	apiServer       = fmt.Sprintf("--master=http://127.0.0.1:%d", apiServerPort)
	masters         = []master{
		{"etcd", []string{"etcd", "--data-dir=/var/lib/etcd", "--listen-client-urls=http://0.0.0.0:2379",
			"--advertise-client-urls=http://127.0.0.1:2379", "--unsafe-no-fsync"}, 2379, "/health"},
		{"kube-apiserver", []string{"kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--storage-backend=etcd3",
			"--service-cluster-ip-range=" + kube.ServiceCIDR, "--insecure-bind-address=0.0.0.0",
			fmt.Sprintf("--insecure-port=%d", apiServerPort), "--secure-port=0", "--cert-dir=/tmp"}, apiServerPort, "/healthz"},
		{"kube-controller-manager", []string{"kube-controller-manager", apiServer, alone}, 10252, "/healthz"},
		{"from-url", nil, urlPort, "/"},
		scheduler,
	}
	// scheduler is the one whose manifest is changed while the kubelet is away.
	scheduler = master{edited, []string{edited, apiServer, alone}, 10251, "/healthz"}
)

func image(component string) string { return "holdfast.test/" + component + ":v1" }

// images are of the programs that the static pods run.
func (l *lab) images(ctx context.Context) ([]node.Image, error) {
	var all []node.Image
	for _, m := range masters {
		if m.command == nil {
			continue
		}
		im := node.Image{Ref: image(m.name), Path: "/" + m.name}
		if m.name != "etcd" {
			im.Program = l.e.Stock(base, m.name).Path
		} else {
			im.Program = "/usr/bin/etcd"
			libraries, err := exec.CommandContext(ctx, "ldd", im.Program).Output()
			if err != nil {
				return nil, fmt.Errorf("ldd %s: %w", im.Program, err)
			}
			im.Files = map[string]string{}
			for _, file := range regexp.MustCompile(`/\S+`).FindAllString(string(libraries), -1) {
				im.Files[file] = file
			}
		}
		all = append(all, im)
	}
	return all, nil
}

// manifest is in the form of kubeadm's: the host's network and a folder of the host, requests, a
// liveness probe, a mark of a critical pod.
func (l *lab) manifest(m master, cpu string) ([]byte, error) {
	c := map[string]any{
		"name": m.name, "image": node.WebImage("v1"), "imagePullPolicy": string(corev1.PullIfNotPresent),
		"resources": map[string]any{"requests": map[string]string{"cpu": cpu}},
		"livenessProbe": map[string]any{"failureThreshold": 8, "initialDelaySeconds": 15, "timeoutSeconds": 15,
			"httpGet": map[string]any{"host": "127.0.0.1", "path": m.health, "port": m.port, "scheme": "HTTP"}},
		"volumeMounts": []any{map[string]any{"name": "data", "mountPath": "/var/lib/" + m.name}},
	}
	if m.command == nil {
		c["env"] = []any{map[string]string{"name": "LABPOD_LISTEN", "value": fmt.Sprintf(":%d", m.port)}}
	} else {
		c["image"], c["command"] = image(m.name), append([]string{"/" + m.command[0]}, m.command[1:]...)
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": m.name, "namespace": ns, "creationTimestamp": nil,
			"annotations": map[string]string{"scheduler.alpha.kubernetes.io/critical-pod": ""},
			"labels":      map[string]string{"component": m.name, "tier": "control-plane"}},
		"spec": map[string]any{
			"hostNetwork": true, "terminationGracePeriodSeconds": 2, "containers": []any{c},
			"volumes": []any{map[string]any{"name": "data", "hostPath": map[string]string{"path": filepath.Join(l.node.Dir, m.name)}}},
		},
		"status": map[string]any{},
	})
}

// write gives the kubelet the manifest of a static pod, in its folder or at manifestURL.
func (l *lab) write(m master, cpu string) error {
	text, err := l.manifest(m, cpu)
	if err != nil {
		return err
	}
	if m.command != nil {
		return l.node.WriteManifest(m.name, text)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fromURL = text
	return nil
}

// serve answers manifestURL until the lab ends. Until the node is there it is an error, which the
// kubelet takes for no news.
func (l *lab) serve() error {
	listener, err := net.Listen("tcp", manifestAddress)
	if err != nil {
		return err
	}
	l.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.fromURL == nil {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(l.fromURL)
	})}
	go func() { _ = l.server.Serve(listener) }()
	return nil
}

func (l *lab) create(ctx context.Context) error {
	for _, m := range masters {
		if err := l.write(m, "1m"); err != nil {
			return err
		}
	}
	if _, err := l.mirrors(ctx); err != nil {
		return err
	}
	l.loads = map[string]*load.Load{}
	for _, m := range masters {
		address := fmt.Sprintf("%s:%d", l.node.IP, m.port)
		if err := wait.Until(ctx, m.name+" answers", patience, func(ctx context.Context) (bool, error) {
			_, err := load.Get(ctx, "http://"+address+m.health)
			return err == nil, err
		}); err != nil {
			return err
		}
		l.loads[m.name] = load.Start(ctx, load.Config{Interval: 100 * time.Millisecond, Path: m.health, Workers: 1, Targets: func() []string { return []string{address} }})
	}
	var err error
	l.writer, err = startWriter(ctx, fmt.Sprintf("http://%s:%d/api/v1/namespaces/default/configmaps", l.node.IP, apiServerPort))
	return err
}

func (l *lab) stop() error {
	for _, one := range l.loads {
		one.Stop()
	}
	l.writer.stop()
	return l.server.Close()
}

// count is what was sent to the static pods.
type count struct {
	// Asked are requests to the pods, Written writes of an object through the API server and
	// etcd, Failed and Unwritten those of them that failed.
	Asked, Failed, Written, Unwritten int
	// Why is the first write's that failed.
	Why string
}

// count returns all that was sent so far, without requests to the pod besides.
func (l *lab) count(besides string) count {
	c := l.writer.count()
	for name, one := range l.loads {
		if r := one.Report(); name != besides {
			c.Asked, c.Failed = c.Asked+r.OK+r.Failed, c.Failed+r.Failed
		}
	}
	return c
}

func (c count) since(before count) count {
	return count{Asked: c.Asked - before.Asked, Failed: c.Failed - before.Failed,
		Written: c.Written - before.Written, Unwritten: c.Unwritten - before.Unwritten, Why: c.Why}
}

// writer changes an object every 100 ms, each time on a connection of its own.
type writer struct {
	cancel context.CancelFunc
	done   chan struct{}
	client *http.Client

	mu sync.Mutex
	c  count
}

func startWriter(ctx context.Context, url string) (*writer, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &writer{cancel: cancel, done: make(chan struct{}), client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	if err := w.send(ctx, http.MethodPost, url, 0); err != nil {
		cancel()
		return nil, err
	}
	go func() {
		defer close(w.done)
		for n := 1; ; n++ {
			err := w.send(ctx, http.MethodPut, url+"/beat", n)
			if ctx.Err() != nil {
				return
			}
			w.mu.Lock()
			w.c.Written++
			if err != nil {
				if w.c.Unwritten++; w.c.Why == "" {
					w.c.Why = err.Error()
				}
			}
			w.mu.Unlock()
			if wait.Pause(ctx, 100*time.Millisecond) != nil {
				return
			}
		}
	}()
	return w, nil
}

func (w *writer) send(ctx context.Context, method, url string, n int) error {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(fmt.Sprintf(beat, n)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %.200s", resp.Status, text)
	}
	return err
}

func (w *writer) count() count {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.c
}

func (w *writer) stop() {
	w.cancel()
	<-w.done
}
