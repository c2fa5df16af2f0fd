// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests writes the objects that install the program, of kinds that
// 1.9 has.
package manifests

import (
	"bytes"
	"crypto/x509"
	"embed"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"

	"holdfast/webhook/internal/exit"
	"holdfast/webhook/internal/names"
)

//go:embed templates/*.yaml
var templates embed.FS

// The forms of an installation.
const (
	// DaemonSet runs on the masters' own network; each kube-apiserver asks the one
	// beside it at 127.0.0.1.
	DaemonSet = "daemonset"
	// Deployment is two replicas behind a Service.
	Deployment = "deployment"
)

// Options are what the objects depend on.
type Options struct {
	Form      string
	Namespace string
	Image     string
	Port      int
	// Rules is a rules file's text.
	Rules []byte
	// Days is how long the certificate holds.
	Days int
	// ClientCA has the authorities of the API server's client certificate, as PEM, and
	// ClientNames the common names it may have, with commas between. Empty: anyone who
	// reaches the port may post.
	ClientCA    []byte
	ClientNames string
	// AllowFrom are the networks of a NetworkPolicy; none: there is no policy.
	AllowFrom []string
}

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func (o *Options) validate() error {
	switch {
	case o.Form != DaemonSet && o.Form != Deployment:
		return exit.Usagef("--form %q: it is %s or %s", o.Form, DaemonSet, Deployment)
	case !dnsLabel.MatchString(o.Namespace) || o.Namespace == names.System:
		return exit.Usagef("--namespace %q: it is the name of a namespace of its own, and not %s", o.Namespace, names.System)
	case o.Image == "" || strings.ContainsAny(o.Image, " \t\n\"'"):
		return exit.Usagef("--image %q: the image with the program is needed", o.Image)
	case o.Port < 1 || o.Port > 65535:
		return exit.Usagef("--port %d: it is 1 to 65535", o.Port)
	case o.Days < 1 || o.Days > 3650:
		return exit.Usagef("--days %d: it is 1 to 3650", o.Days)
	case len(o.ClientCA) == 0 && o.ClientNames != "":
		return exit.Usagef("--client-allowed-names is of no use without --client-ca-file")
	case len(o.ClientCA) > 0 && !x509.NewCertPool().AppendCertsFromPEM(o.ClientCA):
		return exit.Usagef("--client-ca-file: it has no certificate in PEM form")
	case strings.ContainsAny(o.ClientNames, " \t\n\"'\\"):
		return exit.Usagef("--client-allowed-names %q: names with commas between, without spaces and quotes", o.ClientNames)
	case o.Form != Deployment && len(o.AllowFrom) > 0:
		return exit.Usagef("--allow-from is for --form %s: a NetworkPolicy does not hold for pods on the node's own network", Deployment)
	}
	for _, from := range o.AllowFrom {
		if _, _, err := net.ParseCIDR(from); err != nil {
			return exit.Usagef("--allow-from %q: it is a network, such as 10.0.0.0/24", from)
		}
	}
	return nil
}

// Make returns the files by their names.
func Make(o Options, now time.Time) (map[string][]byte, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	dns, ips := []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	if o.Form == Deployment {
		dns = append(dns, "endpoints-rules."+o.Namespace+".svc")
	}
	ca, serving, err := issue(dns, ips, o.Days, now)
	if err != nil {
		return nil, err
	}
	b64 := base64.StdEncoding.EncodeToString
	data := map[string]any{
		"O": o, "CA": b64(ca), "Cert": b64(serving.cert), "Key": b64(serving.key), "Names": map[string]string{"OptIn": names.OptIn, "Value": names.OptInValue},
		"Rules": strings.TrimRight(strings.ReplaceAll("    "+strings.ReplaceAll(strings.TrimRight(string(o.Rules), "\n"), "\n", "\n    "), "    \n", "\n"), " "),
		"Host":  o.Form == DaemonSet, "ClientCA": b64(o.ClientCA),
	}
	t, err := template.ParseFS(templates, "templates/*.yaml")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	var list []string
	for _, x := range t.Templates() {
		var b bytes.Buffer
		if err := x.Execute(&b, data); err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(b.Bytes())) == 0 { // an object that was not asked for
			continue
		}
		files[x.Name()] = b.Bytes()
		list = append(list, x.Name())
	}
	slices.Sort(list)
	var k strings.Builder
	k.WriteString("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n")
	for _, n := range list {
		fmt.Fprintf(&k, "- %s\n", n)
	}
	files["kustomization.yaml"] = []byte(k.String())
	return files, nil
}

// Write writes the files into a folder that does not have them yet. The one with
// the key is the owner's alone.
func Write(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for n := range files {
		if _, err := os.Stat(filepath.Join(dir, n)); err == nil {
			return fmt.Errorf("%s is there already: remove it, or name another folder", filepath.Join(dir, n))
		}
	}
	for n, text := range files {
		mode := os.FileMode(0o644)
		if bytes.Contains(text, []byte("kind: Secret")) {
			mode = 0o600
		}
		if err := os.WriteFile(filepath.Join(dir, n), text, mode); err != nil {
			return err
		}
	}
	return nil
}
