// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/sweep"
)

// Addresses of the cluster's Services.
const (
	ServiceCIDR    = "10.96.0.0/12"
	serviceFirstIP = "10.96.0.1"
	DNSIP          = "10.96.0.10"
)

// Starter starts control planes in a machine. They share one certificate authority.
type Starter struct {
	*machine.Machine

	once sync.Once
	pki  *PKI
	err  error
}

// NewStarter starts in m.
func NewStarter(m *machine.Machine) *Starter { return &Starter{Machine: m} }

// GetPKI is the run's authority, made at the first call.
func (s *Starter) GetPKI() (*PKI, error) {
	s.once.Do(func() {
		if s.pki, s.err = NewPKI(s.Path("pki")); s.err != nil {
			s.err = fmt.Errorf("make certificates: %w", s.err)
		}
	})
	return s.pki, s.err
}

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
	*process.Proc
	URL     string
	DataDir string
}

// StartEtcd starts a single-member etcd on loopback.
func (s *Starter) StartEtcd(ctx context.Context, c EtcdConfig) (*Etcd, error) {
	if c.Name == "" {
		c.Name = "etcd"
	}
	client, err := s.Port(2379)
	if err != nil {
		return nil, err
	}
	peer, err := s.Port(2380)
	if err != nil {
		return nil, err
	}
	url, peerURL := fmt.Sprintf("http://127.0.0.1:%d", client), fmt.Sprintf("http://127.0.0.1:%d", peer)
	et := &Etcd{URL: url, DataDir: s.Path(c.Name + ".data")}
	args := []string{"--name=lab", "--data-dir=" + et.DataDir,
		"--listen-client-urls=" + url, "--advertise-client-urls=" + url,
		"--listen-peer-urls=" + peerURL, "--initial-advertise-peer-urls=" + peerURL, "--initial-cluster=lab=" + peerURL,
		// A lab's data need not survive a power cut, and fsync of other
		// programs on the machine must not make a lease run out.
		"--unsafe-no-fsync"}
	if c.V2 {
		args = append(args, "--enable-v2=true")
	}
	et.Proc, err = s.Start(ctx, process.Process{Name: c.Name, Component: sweep.Etcd, Path: "/usr/bin/etcd", Args: append(args, c.ExtraArgs...), HealthURL: url + "/health"})
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
	*process.Proc
	Config APIServerConfig
	// URL is https://10.90.0.1:6443, or http://127.0.0.1:8080 for 1.2.
	URL string
	// AuditLog is the audit log's path, or "".
	AuditLog string
	// AdminKubeconfig is a kubeconfig of a member of system:masters ("" for 1.2).
	AdminKubeconfig string
	// TLS is the admin's client configuration (nil for 1.2).
	TLS *tls.Config

	etcd string // its URL, "" if it is used by the v2 API
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
func (s *Starter) StartAPIServer(ctx context.Context, et *Etcd, c APIServerConfig) (*APIServer, error) {
	if c.Name == "" {
		c.Name = "kube-apiserver"
	}
	if c.Admission == nil {
		c.Admission = admission(c.Program.Minor())
	}
	pki, err := s.GetPKI()
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
		"--advertise-address=" + machine.IP, // a loopback address makes the kubernetes Service's Endpoints invalid
		"--logtostderr=true", "--v=2",
	}
	if c.Program.Minor() < 7 {
		port, err := s.Port(8080)
		if err != nil {
			return nil, err
		}
		secure, err := s.Port(6443)
		if err != nil {
			return nil, err
		}
		a.URL = fmt.Sprintf("http://127.0.0.1:%d", port)
		args = append(args, "--insecure-bind-address=127.0.0.1", fmt.Sprintf("--insecure-port=%d", port),
			"--bind-address="+machine.IP, fmt.Sprintf("--secure-port=%d", secure), "--cert-dir="+s.Path("pki", c.Name))
	} else {
		port, err := s.Port(6443)
		if err != nil {
			return nil, err
		}
		a.URL = fmt.Sprintf("https://%s:%d", machine.IP, port)
		serving, err := pki.Issue("apiserver", "kube-apiserver", nil, "kubernetes", "kubernetes.default",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost", serviceFirstIP, machine.IP, "127.0.0.1")
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
		a.etcd = et.URL
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
		a.AuditLog = s.Path(c.Name + "-audit.log")
		args = append(args, "--audit-log-path="+a.AuditLog)
		if c.Program.Minor() >= 8 {
			policy := s.Path(c.Name + "-audit-policy.yaml")
			if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules:\n- level: Metadata\n"), 0o644); err != nil {
				return nil, err
			}
			args = append(args, "--audit-policy-file="+policy, "--audit-log-format=json")
		}
	}
	args = append(args, c.Program.GateArgs()...)
	a.Proc, err = s.Start(ctx, process.Process{Name: c.Name, Component: sweep.APIServer, Path: c.Program.Path, Args: append(args, c.ExtraArgs...),
		HealthURL: a.URL + "/healthz", HealthTLS: a.TLS, StartTimeout: 2 * time.Minute, StopTimeout: 20 * time.Second})
	return a, err
}

// RestartAPIServer starts an API server again that has ended, at the same address and with
// the same files.
func (s *Starter) RestartAPIServer(ctx context.Context, a *APIServer) error {
	p, err := s.Start(ctx, a.Spec)
	if err == nil {
		a.Proc = p
	}
	return err
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
	*process.Proc
	URL string
}

// StartControllerManager starts one with leader election and, from 1.7 on,
// its own certificate and a service account per controller.
func (s *Starter) StartControllerManager(ctx context.Context, a *APIServer, c ControllerManagerConfig) (*ControllerManager, error) {
	if c.Name == "" {
		c.Name = "kube-controller-manager"
	}
	pki, err := s.GetPKI()
	if err != nil {
		return nil, err
	}
	port, err := s.Port(10252)
	if err != nil {
		return nil, err
	}
	m := &ControllerManager{URL: fmt.Sprintf("http://127.0.0.1:%d", port)}
	args := []string{"--address=127.0.0.1", fmt.Sprintf("--port=%d", port), "--leader-elect=true",
		"--service-account-private-key-file=" + pki.SAKeyFile, "--root-ca-file=" + pki.CAFile, "--logtostderr=true", "--v=2"}
	if c.Program.Minor() < 7 {
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
	m.Proc, err = s.Start(ctx, process.Process{Name: c.Name, Component: sweep.ControllerManager, Path: c.Program.Path, Args: append(args, c.ExtraArgs...), Env: c.Env, HealthURL: m.URL + "/healthz"})
	return m, err
}

// SchedulerConfig starts a kube-scheduler.
type SchedulerConfig struct {
	Program   Program
	Name      string
	ExtraArgs []string
}

// StartScheduler starts a kube-scheduler.
func (s *Starter) StartScheduler(ctx context.Context, a *APIServer, c SchedulerConfig) (*process.Proc, error) {
	if c.Name == "" {
		c.Name = "kube-scheduler"
	}
	port, err := s.Port(10251)
	if err != nil {
		return nil, err
	}
	args := []string{"--address=127.0.0.1", fmt.Sprintf("--port=%d", port), "--leader-elect=true", "--logtostderr=true", "--v=2"}
	if c.Program.Minor() < 7 {
		args = append(args, "--master="+a.URL)
	} else {
		pki, err := s.GetPKI()
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
	return s.Start(ctx, process.Process{Name: c.Name, Component: sweep.Scheduler, Path: c.Program.Path, Args: append(args, c.ExtraArgs...), HealthURL: fmt.Sprintf("http://127.0.0.1:%d/healthz", port)})
}
