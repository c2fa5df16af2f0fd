// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeapi asks a Kubernetes API server, of any release, for JSON. It knows what a
// kubeconfig of an operator of an old cluster has: certificates, a token or a password.
package kubeapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// timeout is for a whole answer: all pods of a large cluster are a hundred megabytes.
const timeout = 5 * time.Minute

// Client asks one API server as one user.
type Client struct {
	server     string
	context    string
	http       http.Client
	header     string
	user, pass string
	// hint ends each error; it is empty where the kubeconfig is clear.
	hint string
}

// Identity is the user of a kubeconfig's current context by its client certificate: the common name,
// and the organisations as groups. It is "" for a user that logs in otherwise.
func Identity(file string) (name string, groups []string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", nil, err
	}
	var k kubeconfig
	if err := yaml.Unmarshal(text, &k); err != nil {
		return "", nil, fmt.Errorf("%s is not a kubeconfig", file)
	}
	_, u, err := k.find(k.CurrentContext, "which current-context names")
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", file, err)
	}
	text, err = content(filepath.Dir(file), u.CertFile, u.CertData)
	if err != nil || text == nil {
		return "", nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return "", nil, fmt.Errorf("%s: client-certificate is not in PEM", file)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", nil, fmt.Errorf("%s: client-certificate: %w", file, err)
	}
	return cert.Subject.CommonName, cert.Subject.Organization, nil
}

type kubeconfig struct {
	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string
		Context struct{ Cluster, User string }
	}
	Clusters []struct {
		Name    string
		Cluster cluster
	}
	Users []struct {
		Name string
		User user
	}
}

type cluster struct {
	Server        string
	CAFile        string `json:"certificate-authority"`
	CAData        string `json:"certificate-authority-data"`
	SkipTLSVerify bool   `json:"insecure-skip-tls-verify"`
}

type user struct {
	CertFile     string `json:"client-certificate"`
	CertData     string `json:"client-certificate-data"`
	KeyFile      string `json:"client-key"`
	KeyData      string `json:"client-key-data"`
	Token        string
	TokenFile    string
	Username     string
	Password     string
	Exec         json.RawMessage
	AuthProvider json.RawMessage `json:"auth-provider"`
}

// Where names the server and the context that it is asked by.
func (c *Client) Where() string { return fmt.Sprintf("%s (context %q)", c.server, c.context) }

// Server is the URL of the server.
func (c *Client) Server() string { return c.server }

// Load reads a kubeconfig and takes a context, "" for its current one. Paths in it are relative
// to its folder.
func Load(file, name string) (*Client, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var k kubeconfig
	if err := yaml.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	why := "which --context names"
	if name == "" {
		name, why = k.CurrentContext, "which current-context names"
	}
	c, u, err := k.find(name, why)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	client, err := c.client(u, filepath.Dir(file))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	client.context = name
	return client, nil
}

func (k *kubeconfig) find(name, why string) (*cluster, *user, error) {
	for _, x := range k.Contexts {
		if x.Name != name {
			continue
		}
		for i := range k.Clusters {
			if k.Clusters[i].Name != x.Context.Cluster {
				continue
			}
			for j := range k.Users {
				if k.Users[j].Name == x.Context.User {
					return &k.Clusters[i].Cluster, &k.Users[j].User, nil
				}
			}
			return nil, nil, fmt.Errorf("it has no user %q", x.Context.User)
		}
		return nil, nil, fmt.Errorf("it has no cluster %q", x.Context.Cluster)
	}
	return nil, nil, fmt.Errorf("it has no context %q, %s", name, why)
}

func (c *cluster) client(u *user, dir string) (*Client, error) {
	if len(u.Exec) > 0 || len(u.AuthProvider) > 0 {
		return nil, errors.New("the user logs in with a program (exec, auth-provider): use a user with a certificate or a token")
	}
	if c.Server == "" {
		return nil, errors.New("the cluster has no server")
	}
	conf := &tls.Config{InsecureSkipVerify: c.SkipTLSVerify}
	ca, err := content(dir, c.CAFile, c.CAData)
	if err != nil {
		return nil, err
	}
	if ca != nil {
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("certificate-authority has no certificate in PEM")
		}
	}
	cert, err := content(dir, u.CertFile, u.CertData)
	if err != nil {
		return nil, err
	}
	key, err := content(dir, u.KeyFile, u.KeyData)
	if err != nil {
		return nil, err
	}
	if cert != nil {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("client-certificate: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	token := u.Token
	if token == "" && u.TokenFile != "" {
		b, err := content(dir, u.TokenFile, "")
		if err != nil {
			return nil, err
		}
		token = strings.TrimSpace(string(b))
	}
	out := &Client{server: strings.TrimSuffix(c.Server, "/"), user: u.Username, pass: u.Password}
	if token != "" {
		out.header = "Bearer " + token
	}
	if parsed, err := url.Parse(c.Server); err != nil || parsed.Scheme == "" || parsed.Host == "" {
		// As kubectl, 1.9.11 and 1.33: by http, whatever the kubeconfig has of TLS, and no
		// user by http. client-go asks for the scheme before it has read the authority.
		if parsed, err = url.Parse("http://" + out.server); err != nil || parsed.Host == "" || parsed.Path != "" {
			return nil, fmt.Errorf("the cluster's server %q is neither a URL nor HOST:PORT: write https:// before it", c.Server)
		}
		out.server, out.header, out.user, out.pass = "http://"+out.server, "", "", ""
		out.hint = fmt.Sprintf(" (the kubeconfig's server %q has no https:// before it, so the request is sent over http and without credentials)", c.Server)
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	out.http = http.Client{Timeout: timeout, Transport: &http.Transport{TLSClientConfig: conf, Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext}}
	return out, nil
}

// content is a file's or, before that, what stands in the kubeconfig itself; nil if neither
// is given.
func content(dir, file, data string) ([]byte, error) {
	switch {
	case data != "":
		return base64.StdEncoding.DecodeString(data)
	case file == "":
		return nil, nil
	case !filepath.IsAbs(file):
		file = filepath.Join(dir, file)
	}
	return os.ReadFile(file)
}

// Get decodes what the server has at path ("/api/v1/nodes") into v.
func (c *Client) Get(ctx context.Context, path string, v any) error {
	res, err := c.do(ctx, http.MethodGet, path, "", "application/json")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(v); err != nil {
		return fmt.Errorf("GET %s: %w%s", path, err, c.hint)
	}
	return nil
}

// inClusterDir has what every pod with a ServiceAccount has.
const inClusterDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// InCluster asks the API server of the cluster that this program runs in, as the pod's
// ServiceAccount.
func InCluster() (*Client, error) { return inCluster(inClusterDir) }

func inCluster(dir string) (*Client, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: run the command in a pod")
	}
	c := &cluster{Server: "https://" + net.JoinHostPort(host, port), CAFile: filepath.Join(dir, "ca.crt")}
	client, err := c.client(&user{TokenFile: filepath.Join(dir, "token")}, "")
	if err != nil {
		return nil, fmt.Errorf("the pod's ServiceAccount: %w", err)
	}
	client.context = "this pod"
	return client, nil
}
