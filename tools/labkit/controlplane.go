// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"strings"
	"time"
)

// Addresses of a lab's machine. They exist in its network namespace only.
const (
	MachineIP      = "10.90.0.1"
	machineNet     = "10.90.0.0/24"
	ServiceCIDR    = "10.96.0.0/12"
	serviceFirstIP = "10.96.0.1"
	dnsIP          = "10.96.0.10"
)

// EtcdConfig starts Debian's etcd.
type EtcdConfig struct {
	// Name names the log and data directory; default "etcd".
	Name string
	// V2 serves the v2 API too, for Kubernetes before 1.6.
	V2        bool
	ExtraArgs []string
}

// Etcd is a running etcd; URL is its client address.
type Etcd struct {
	*Proc
	URL     string
	DataDir string
}

// StartEtcd starts a single-member etcd on loopback.
func (e *Env) StartEtcd(ctx context.Context, c EtcdConfig) (*Etcd, error) {
	if c.Name == "" {
		c.Name = "etcd"
	}
	client, err := e.port(2379)
	if err != nil {
		return nil, err
	}
	peer, err := e.port(2380)
	if err != nil {
		return nil, err
	}
	url, peerURL := fmt.Sprintf("http://127.0.0.1:%d", client), fmt.Sprintf("http://127.0.0.1:%d", peer)
	et := &Etcd{URL: url, DataDir: e.Path(c.Name + ".data")}
	args := []string{"--name=lab", "--data-dir=" + et.DataDir,
		"--listen-client-urls=" + url, "--advertise-client-urls=" + url,
		"--listen-peer-urls=" + peerURL, "--initial-advertise-peer-urls=" + peerURL, "--initial-cluster=lab=" + peerURL,
		// A lab's data need not survive a power cut, and fsync of other
		// programs on the machine must not make a lease run out.
		"--unsafe-no-fsync"}
	if c.V2 {
		args = append(args, "--enable-v2=true")
	}
	et.Proc, err = e.Start(ctx, Process{Name: c.Name, Path: "/usr/bin/etcd", Args: append(args, c.ExtraArgs...), HealthURL: url + "/health"})
	return et, err
}

// APIServerConfig starts a kube-apiserver of any release from 1.7 (with TLS,
// Node and RBAC authorisation and kubeadm's admission list of that release) or
// 1.2 (insecure loopback port only).
type APIServerConfig struct {
	Program Program
	// Name names the log; default "kube-apiserver".
	Name string
	// Admission overrides the admission list.
	Admission []string
	// Audit writes <name>-audit.log: JSON at level Metadata from 1.8 on, the
	// legacy text lines before.
	Audit bool
	// ExtraArgs come last and so override the kit's.
	ExtraArgs []string
}

// APIServer is a running kube-apiserver.
type APIServer struct {
	*Proc
	Config APIServerConfig
	// URL is https://10.90.0.1:6443, or http://127.0.0.1:8080 for 1.2.
	URL string
	// AuditLog is the audit log's path, or "".
	AuditLog string
	// AdminKubeconfig is a kubeconfig of a member of system:masters ("" for 1.2).
	AdminKubeconfig string
	// TLS is the admin's client configuration (nil for 1.2).
	TLS *tls.Config
}

// admission is kubeadm's list for that minor release, plus the two webhook
// plug-ins from 1.9 on (kubeadm 1.9 itself leaves them out), less Initializers:
// its alpha API is off, so all it does is to delay every create of the first
// seconds by 4 s.
func admission(minor int) []string {
	l := []string{"NamespaceLifecycle", "LimitRanger", "ServiceAccount", "DefaultStorageClass", "DefaultTolerationSeconds", "NodeRestriction"}
	switch {
	case minor >= 9:
		return append(l, "MutatingAdmissionWebhook", "ValidatingAdmissionWebhook", "ResourceQuota")
	case minor >= 7:
		return append(l, "PersistentVolumeLabel", "ResourceQuota")
	default:
		return []string{"NamespaceLifecycle", "LimitRanger", "ServiceAccount", "ResourceQuota"}
	}
}

// StartAPIServer starts a kube-apiserver on et.
func (e *Env) StartAPIServer(ctx context.Context, et *Etcd, c APIServerConfig) (*APIServer, error) {
	if c.Name == "" {
		c.Name = "kube-apiserver"
	}
	if c.Admission == nil {
		c.Admission = admission(c.Program.minor())
	}
	pki, err := e.GetPKI()
	if err != nil {
		return nil, err
	}
	a := &APIServer{Config: c}
	args := []string{
		"--etcd-servers=" + et.URL,
		"--service-cluster-ip-range=" + ServiceCIDR,
		"--service-account-key-file=" + pki.SAPubFile,
		"--admission-control=" + strings.Join(c.Admission, ","),
		"--allow-privileged=true",
		"--advertise-address=" + MachineIP, // a loopback address makes the kubernetes Service's Endpoints invalid
		"--logtostderr=true", "--v=2",
	}
	if c.Program.minor() < 7 {
		port, err := e.port(8080)
		if err != nil {
			return nil, err
		}
		secure, err := e.port(6443)
		if err != nil {
			return nil, err
		}
		a.URL = fmt.Sprintf("http://127.0.0.1:%d", port)
		args = append(args, "--insecure-bind-address=127.0.0.1", fmt.Sprintf("--insecure-port=%d", port),
			"--bind-address="+MachineIP, fmt.Sprintf("--secure-port=%d", secure), "--cert-dir="+e.Path("pki", c.Name))
	} else {
		port, err := e.port(6443)
		if err != nil {
			return nil, err
		}
		a.URL = fmt.Sprintf("https://%s:%d", MachineIP, port)
		serving, err := pki.Issue("apiserver", "kube-apiserver", nil, "kubernetes", "kubernetes.default",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost", serviceFirstIP, MachineIP, "127.0.0.1")
		if err != nil {
			return nil, err
		}
		kubelet, err := pki.Issue("apiserver-kubelet-client", "kube-apiserver-kubelet-client", []string{"system:masters"})
		if err != nil {
			return nil, err
		}
		proxy, err := pki.Issue("front-proxy-client", "front-proxy-client", nil)
		if err != nil {
			return nil, err
		}
		if a.AdminKubeconfig, err = pki.Kubeconfig("admin-"+c.Name, a.URL, "kubernetes-admin", "system:masters"); err != nil {
			return nil, err
		}
		admin, err := pki.Issue("admin-"+c.Name, "kubernetes-admin", []string{"system:masters"})
		if err != nil {
			return nil, err
		}
		if a.TLS, err = pki.TLS(admin); err != nil {
			return nil, err
		}
		args = append(args, "--storage-backend=etcd3",
			"--bind-address=0.0.0.0", fmt.Sprintf("--secure-port=%d", port), "--insecure-port=0",
			"--tls-cert-file="+serving.CertFile, "--tls-private-key-file="+serving.KeyFile, "--client-ca-file="+pki.CAFile,
			"--kubelet-client-certificate="+kubelet.CertFile, "--kubelet-client-key="+kubelet.KeyFile,
			"--kubelet-certificate-authority="+pki.CAFile, "--kubelet-preferred-address-types=InternalIP,Hostname",
			"--requestheader-client-ca-file="+pki.CAFile, "--requestheader-allowed-names=front-proxy-client",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User",
			"--proxy-client-cert-file="+proxy.CertFile, "--proxy-client-key-file="+proxy.KeyFile,
			"--authorization-mode=Node,RBAC")
	}
	if c.Audit {
		a.AuditLog = e.Path(c.Name + "-audit.log")
		args = append(args, "--audit-log-path="+a.AuditLog)
		if c.Program.minor() >= 8 {
			policy := e.Path(c.Name + "-audit-policy.yaml")
			if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules:\n- level: Metadata\n"), 0o644); err != nil {
				return nil, err
			}
			args = append(args, "--audit-policy-file="+policy, "--audit-log-format=json")
		}
	}
	args = append(args, c.Program.GateArgs()...)
	a.Proc, err = e.Start(ctx, Process{Name: c.Name, Path: c.Program.Path, Args: append(args, c.ExtraArgs...),
		HealthURL: a.URL + "/healthz", HealthTLS: a.TLS, StartTimeout: 2 * time.Minute, StopTimeout: 20 * time.Second})
	return a, err
}

// ControllerManagerConfig starts a kube-controller-manager.
type ControllerManagerConfig struct {
	Program Program
	// Name names the log; default "kube-controller-manager".
	Name string
	// ExtraArgs come last and so override the kit's.
	ExtraArgs []string
	Env       []string
}

// ControllerManager is a running kube-controller-manager. URL serves /healthz
// and /metrics on loopback.
type ControllerManager struct {
	*Proc
	URL string
}

// StartControllerManager starts one with leader election and, from 1.7 on,
// its own certificate and a service account per controller.
func (e *Env) StartControllerManager(ctx context.Context, a *APIServer, c ControllerManagerConfig) (*ControllerManager, error) {
	if c.Name == "" {
		c.Name = "kube-controller-manager"
	}
	pki, err := e.GetPKI()
	if err != nil {
		return nil, err
	}
	port, err := e.port(10252)
	if err != nil {
		return nil, err
	}
	m := &ControllerManager{URL: fmt.Sprintf("http://127.0.0.1:%d", port)}
	args := []string{"--address=127.0.0.1", fmt.Sprintf("--port=%d", port), "--leader-elect=true",
		"--service-account-private-key-file=" + pki.SAKeyFile, "--root-ca-file=" + pki.CAFile, "--logtostderr=true", "--v=2"}
	if c.Program.minor() < 7 {
		args = append(args, "--master="+a.URL)
	} else {
		conf, err := pki.Kubeconfig(c.Name, a.URL, "system:kube-controller-manager")
		if err != nil {
			return nil, err
		}
		args = append(args, "--kubeconfig="+conf, "--use-service-account-credentials=true", "--controllers=*,bootstrapsigner,tokencleaner",
			"--cluster-signing-cert-file="+pki.CAFile, "--cluster-signing-key-file="+pki.CAKeyFile)
	}
	args = append(args, c.Program.GateArgs()...)
	m.Proc, err = e.Start(ctx, Process{Name: c.Name, Path: c.Program.Path, Args: append(args, c.ExtraArgs...), Env: c.Env, HealthURL: m.URL + "/healthz"})
	return m, err
}

// SchedulerConfig starts a kube-scheduler.
type SchedulerConfig struct {
	Program   Program
	Name      string
	ExtraArgs []string
}

// StartScheduler starts a kube-scheduler.
func (e *Env) StartScheduler(ctx context.Context, a *APIServer, c SchedulerConfig) (*Proc, error) {
	if c.Name == "" {
		c.Name = "kube-scheduler"
	}
	port, err := e.port(10251)
	if err != nil {
		return nil, err
	}
	args := []string{"--address=127.0.0.1", fmt.Sprintf("--port=%d", port), "--leader-elect=true", "--logtostderr=true", "--v=2"}
	if c.Program.minor() < 7 {
		args = append(args, "--master="+a.URL)
	} else {
		pki, err := e.GetPKI()
		if err != nil {
			return nil, err
		}
		conf, err := pki.Kubeconfig(c.Name, a.URL, "system:kube-scheduler")
		if err != nil {
			return nil, err
		}
		args = append(args, "--kubeconfig="+conf)
	}
	args = append(args, c.Program.GateArgs()...)
	return e.Start(ctx, Process{Name: c.Name, Path: c.Program.Path, Args: append(args, c.ExtraArgs...), HealthURL: fmt.Sprintf("http://127.0.0.1:%d/healthz", port)})
}

// ClusterConfig says what StartCluster starts; nil parts are left out.
type ClusterConfig struct {
	Etcd              EtcdConfig
	APIServer         *APIServerConfig // required
	ControllerManager *ControllerManagerConfig
	Scheduler         *SchedulerConfig
	Nodes             []NodeConfig
}

// Cluster is what StartCluster started.
type Cluster struct {
	Etcd              *Etcd
	APIServer         *APIServer
	ControllerManager *ControllerManager
	Scheduler         *Proc
	Nodes             []*Node
	// Client is the admin's.
	Client *Client
}

// StartCluster starts the parts in order, each healthy before the next, and
// waits until the nodes are Ready and the default service account exists (if
// there is a controller manager to make it).
func (e *Env) StartCluster(ctx context.Context, cc ClusterConfig) (*Cluster, error) {
	if cc.APIServer == nil {
		return nil, fmt.Errorf("ClusterConfig.APIServer is missing")
	}
	c := &Cluster{}
	var err error
	e.Step("start etcd")
	if c.Etcd, err = e.StartEtcd(ctx, cc.Etcd); err != nil {
		return nil, err
	}
	e.Step("start kube-apiserver %s (%s)", cc.APIServer.Program.Base, cc.APIServer.Program.Variant)
	if c.APIServer, err = e.StartAPIServer(ctx, c.Etcd, *cc.APIServer); err != nil {
		return nil, err
	}
	if c.Client, err = NewClient(c.APIServer); err != nil {
		return nil, err
	}
	e.OnDump(c.Client.DumpAll)
	if cc.ControllerManager != nil {
		e.Step("start kube-controller-manager %s (%s)", cc.ControllerManager.Program.Base, cc.ControllerManager.Program.Variant)
		if c.ControllerManager, err = e.StartControllerManager(ctx, c.APIServer, *cc.ControllerManager); err != nil {
			return nil, err
		}
	}
	if cc.Scheduler != nil {
		e.Step("start kube-scheduler %s (%s)", cc.Scheduler.Program.Base, cc.Scheduler.Program.Variant)
		if c.Scheduler, err = e.StartScheduler(ctx, c.APIServer, *cc.Scheduler); err != nil {
			return nil, err
		}
	}
	for _, nc := range cc.Nodes {
		e.Step("start node %s: dockerd and kubelet %s (%s)", nc.Name, nc.Kubelet.Base, nc.Kubelet.Variant)
		n, err := e.StartNode(ctx, c.APIServer, nc)
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	for _, n := range c.Nodes {
		if n.Kubelet == nil {
			continue
		}
		if err := c.WaitNodeReady(ctx, n.Name, 60*time.Second); err != nil {
			return nil, err
		}
	}
	if c.ControllerManager != nil {
		// The ServiceAccount admission plug-in refuses pods before that.
		if _, err := c.Client.WaitFor(ctx, ServiceAccounts, "default", "default", 60*time.Second, "with a token", func(o *Object) (bool, error) {
			return len(Slice(o, "secrets")) > 0, nil
		}); err != nil {
			return nil, err
		}
	}
	e.Step("the cluster is up")
	return c, nil
}

// WaitNodeReady waits for the node's Ready condition.
func (c *Cluster) WaitNodeReady(ctx context.Context, name string, bound time.Duration) error {
	_, err := c.Client.WaitFor(ctx, Nodes, "", name, bound, "Ready", func(o *Object) (bool, error) {
		return Condition(o, "Ready") == "True", nil
	})
	return err
}
