// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kcm

import (
	"context"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/kubeletflags"
	"holdfast/cmd/internal/podtemplatehash"
	"holdfast/cmd/internal/servercert"
)

// Bounds of what is asked.
const (
	askTimeout  = 20 * time.Second
	listTimeout = 2 * time.Minute
	maxAnswer   = 1 << 20
	maxList     = 256 << 20
)

var release = regexp.MustCompile(`^Kubernetes v1\.([0-9]+)\.[0-9]+(\S*)`)

// binaryFindings are about the file of --binary and the command line of the manifest. They ask no
// API server. minor is the file's, 0 if it is not known.
func binaryFindings(ctx context.Context, p *pod, binary string, back bool) (out []finding.Finding, minor int) {
	table, err := kubeletflags.LoadManagers()
	if err != nil {
		return []finding.Finding{finding.Of("HF523", "command line", err.Error(), "")}, 0
	}
	line := table.Parse(append([]string{"kube-controller-manager"}, p.flags...))
	to, name := kubeletflags.Ours, "Holdfast"
	if back {
		to, name = "v1.9.11", "stock 1.9.11"
	}
	if refused := table.Refused(to, line); len(refused) > 0 {
		out = append(out, finding.Of("HF523", "command line", name+" refuses "+strings.Join(kubeletflags.Plain(refused), ", "), "remove it from the manifest first"))
	}
	if back {
		if len(p.mounted(binary)) == 0 {
			out = append(out, finding.Of("HF521", "manifest", "it does not mount "+binary, "name the file that it mounts with --binary"))
		}
		return out, 9
	}
	wrong := func(remedy, format string, args ...any) {
		out = append(out, finding.Of("HF522", binary, fmt.Sprintf(format, args...), remedy))
	}
	s, err := os.Stat(binary)
	switch {
	case err != nil:
		wrong("copy Holdfast's controller manager there first", "%v", err)
		return out, 0
	case !s.Mode().IsRegular() || s.Mode().Perm()&0o111 == 0:
		wrong("chmod 0755 "+binary, "it is not executable: %s", s.Mode())
		return out, 0
	}
	if dynamic(binary) {
		wrong("use the file that make builds", "it needs libraries, which the image perhaps does not contain")
	}
	version, err := run(ctx, binary, "--version")
	m := release.FindStringSubmatch(version)
	if err != nil || m == nil {
		wrong("copy it again", "it does not print its version")
		return out, 0
	}
	minor, _ = strconv.Atoi(m[1])
	if !strings.Contains(m[2], "+holdfast") {
		wrong("name Holdfast's file", "it is %s, which is not Holdfast", finding.Clean(m[0]))
	}
	if len(out) == 0 {
		// The words of a refusal may quote a value: they are not shown.
		if _, err := run(ctx, binary, append(slices.Clone(p.flags), "--version")...); err != nil {
			out = append(out, finding.Of("HF523", "command line", "the file refuses the manifest's flags: "+err.Error(), "run the file on this master with the flags and --version: it names the flag"))
		}
	}
	return out, minor
}

// dynamic: the program needs an interpreter, and so libraries.
func dynamic(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false // --version tells
	}
	defer f.Close()
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// run runs the controller manager for its version. It ends at once.
func run(ctx context.Context, file string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, file, args...)
	cmd.WaitDelay = time.Second
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	b := make([]byte, 256)
	n := 0
	for n < len(b) {
		k, err := pipe.Read(b[n:])
		if n += k; err != nil {
			break
		}
	}
	pipe.Close() // who writes more is ended by it
	err = cmd.Wait()
	return string(b[:n]), err
}

// server is what the check asks: kubeapi.Client.
type server interface {
	kubeapi.Asker
	Certificates(ctx context.Context) ([]*x509.Certificate, error)
}

// apiFindings are about the cluster. minor is that of the controller manager, 0 if it is not known.
func apiFindings(ctx context.Context, a server, p *pod, minor int, back bool) []finding.Finding {
	var out []finding.Finding
	failed := func(what string, err error, verb string) {
		var status *kubeapi.StatusError
		text := err.Error()
		if errors.As(err, &status) { // what was answered is not shown
			if text = strconv.Itoa(status.Code); status.Code == http.StatusForbidden {
				text += ": the user needs the verb " + verb
			}
		}
		out = append(out, finding.Of("HF526", what, "could not be read: "+text, "run the command again, or as another user (--kubeconfig)"))
	}
	var v struct{ GitVersion string }
	b, err := a.Ask(ctx, http.MethodGet, "/version", "", maxAnswer, askTimeout)
	if err == nil {
		err = kubeapi.Decode(b, &v)
	}
	if err != nil {
		failed("API server's version", err, "get on /version")
	} else if m := release.FindStringSubmatch("Kubernetes " + v.GitVersion); m == nil {
		failed("API server's version", errors.New("it is not a Kubernetes version"), "")
	} else if minor != 0 && m[1] != strconv.Itoa(minor) {
		out = append(out, finding.Of("HF103", "API server", fmt.Sprintf("the API server is 1.%s, the controller manager 1.%d", m[1], minor), "use a controller manager of the API server's minor release"))
	}
	if !back {
		out = append(out, certificates(ctx, a, p, failed)...)
		user, groups := p.user()
		ok, err := mayGetServices(ctx, a, user, groups)
		if err != nil {
			failed("rights of "+user, err, "create on subjectaccessreviews")
		} else if !ok {
			out = append(out, finding.Of("HF524", user, "it does not have the verb get on services", "give its role the verb get on services"))
		}
	}
	sets, err := kubeapi.List[statefulSet](ctx, a, "/apis/apps/v1/statefulsets", maxList, listTimeout)
	if err != nil {
		failed("StatefulSets", err, "list on statefulsets")
	}
	revisions, err := kubeapi.List[revision](ctx, a, "/apis/apps/v1/controllerrevisions", maxList, listTimeout)
	if err != nil {
		failed("ControllerRevisions", err, "list on controllerrevisions")
	}
	out = append(out, rolled(sets, revisions, back)...)
	if back {
		return out
	}
	deployments, err := kubeapi.List[object](ctx, a, "/apis/apps/v1/deployments", maxList, listTimeout)
	if err != nil {
		failed("Deployments", err, "list on deployments")
	}
	replicas, err := kubeapi.List[owned](ctx, a, "/apis/apps/v1/replicasets", maxList, listTimeout)
	if err != nil {
		failed("ReplicaSets", err, "list on replicasets")
	}
	others, err := foreign(deployments, replicas)
	if err != nil {
		failed("Deployments", err, "")
	}
	return append(out, others...)
}

const refuses = "Holdfast's controller manager refuses it, and never leads"

// certificates are those of the server that the manifest's kubeconfig names, or else of the one that
// is asked.
func certificates(ctx context.Context, a server, p *pod, failed func(string, error, string)) []finding.Finding {
	if file := p.hostFile(p.flag("kubeconfig")); file != "" {
		if own, err := kubeapi.Load(file, ""); err == nil {
			a = own
		}
	}
	chain, err := a.Certificates(ctx)
	if err != nil {
		failed("API server's certificate", err, "")
	}
	return servercert.Findings("API server", refuses, chain)
}

// flag is a flag's last value, "" if it is not there.
func (p *pod) flag(name string) string {
	table, err := kubeletflags.LoadManagers()
	if err != nil {
		return ""
	}
	v, _ := table.Parse(append([]string{"kube-controller-manager"}, p.flags...)).Last(name)
	return v
}

// user is whom the endpoints controller asks as.
func (p *pod) user() (string, []string) {
	if set, err := strconv.ParseBool(p.flag("use-service-account-credentials")); err == nil && set {
		return "system:serviceaccount:kube-system:endpoint-controller", []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"}
	}
	if file := p.hostFile(p.flag("kubeconfig")); file != "" {
		if name, groups, err := kubeapi.Identity(file); err == nil && name != "" {
			return name, append(groups, "system:authenticated")
		}
	}
	return "system:kube-controller-manager", []string{"system:authenticated"}
}

func mayGetServices(ctx context.Context, a kubeapi.Asker, user string, groups []string) (bool, error) {
	body, err := json.Marshal(object{"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": object{
		"user": user, "groups": groups, "resourceAttributes": object{"verb": "get", "resource": "services"}}})
	if err != nil {
		return false, err
	}
	b, err := a.Ask(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", string(body), maxAnswer, askTimeout)
	if err != nil {
		return false, err
	}
	var review struct{ Status *struct{ Allowed bool } }
	if err := kubeapi.Decode(b, &review); err != nil {
		return false, err
	}
	if review.Status == nil {
		return false, errors.New("the answer is not a review")
	}
	return review.Status.Allowed, nil
}

// owned is an object with its owners.
type owned struct {
	Metadata struct {
		Name, Namespace, UID string
		CreationTimestamp    string
		OwnerReferences      []struct {
			Kind, Name, UID string
			Controller      bool
		}
	}
}

func (o owned) name() string { return o.Metadata.Namespace + "/" + o.Metadata.Name }

// controller is the UID of the object's controller, "" if it has none.
func (o owned) controller() string {
	for _, r := range o.Metadata.OwnerReferences {
		if r.Controller {
			return r.UID
		}
	}
	return ""
}

type statefulSet struct {
	owned
	Spec   struct{ UpdateStrategy struct{ Type string } }
	Status struct {
		CollisionCount                  int64
		CurrentRevision, UpdateRevision string
	}
}

type revision struct {
	owned
	Revision int64
	Data     json.RawMessage
}

// older is the order of package hash-collision: by number, time and name.
func (r revision) older(q revision) int {
	if r.Revision != q.Revision {
		return int(min(max(r.Revision-q.Revision, -1), 1))
	}
	if d := strings.Compare(r.Metadata.CreationTimestamp, q.Metadata.CreationTimestamp); d != 0 {
		return d
	}
	return strings.Compare(r.Metadata.Name, q.Metadata.Name)
}

// rolled are the StatefulSets whose pods the other controller manager may replace, see
// patches/hash-collision.
func rolled(sets []statefulSet, revisions []revision, back bool) []finding.Finding {
	of := map[string][]revision{}
	for _, r := range revisions {
		if uid := r.controller(); uid != "" {
			of[uid] = append(of[uid], r)
		}
	}
	const remedy = "first set its partition as high as its replicas, until its pods may be replaced"
	var out []finding.Finding
	for _, s := range sets {
		if s.Spec.UpdateStrategy.Type == "OnDelete" {
			continue
		}
		mine := of[s.Metadata.UID]
		slices.SortFunc(mine, revision.older)
		object := "StatefulSet " + s.name()
		if back {
			if s.Status.CollisionCount > 0 {
				out = append(out, finding.Of("HF525", object, fmt.Sprintf("it has the collision count %d: a stock controller manager may replace all its pods", s.Status.CollisionCount), remedy))
			}
			for i := 1; i < len(mine); i++ {
				if mine[i].Revision == mine[i-1].Revision {
					out = append(out, finding.Of("HF525", object, fmt.Sprintf("it has two revisions with the number %d: a stock controller manager may roll it back and forth", mine[i].Revision), remedy))
					break
				}
			}
			continue
		}
		i := slices.IndexFunc(mine, func(r revision) bool { return r.Metadata.Name == s.Status.UpdateRevision })
		if i < 0 {
			continue
		}
		same, youngest := 0, ""
		for _, r := range mine {
			if string(r.Data) == string(mine[i].Data) {
				same, youngest = same+1, r.Metadata.Name
			}
		}
		if same > 1 && (s.Status.UpdateRevision != youngest || s.Status.CurrentRevision != youngest) {
			out = append(out, finding.Of("HF525", object, fmt.Sprintf("it has %d revisions of its template: Holdfast rolls it once to %s", same, youngest), remedy))
		}
	}
	return out
}

// foreign are the Deployments whose next ReplicaSet's name is that of one with another owner.
func foreign(deployments []object, replicas []owned) ([]finding.Finding, error) {
	r, err := podtemplatehash.Find("1.9")
	if err != nil {
		return nil, err
	}
	owner := map[string]string{}
	for _, s := range replicas {
		owner[s.name()] = s.controller()
	}
	var out []finding.Finding
	unknown := 0
	for _, d := range deployments {
		meta, _ := d["metadata"].(object)
		status, _ := d["status"].(object)
		name := text(meta, "namespace") + "/" + text(meta, "name")
		count := -1
		if n, ok := status["collisionCount"].(json.Number); ok {
			if i, err := strconv.Atoi(n.String()); err == nil && i >= 0 {
				count = i
			}
		}
		template, err := podtemplatehash.Template(d)
		var hash uint32
		if err == nil {
			hash, err = r.Hash(template, count)
		}
		if err != nil {
			unknown++
			continue
		}
		set := name + "-" + r.Suffix(hash)
		if uid := owner[set]; uid != "" && uid != text(meta, "uid") {
			out = append(out, finding.Of("HF525", "Deployment "+name, "it uses "+filepath.Base(set)+", the ReplicaSet of another owner: Holdfast gives it a ReplicaSet of its own, with new pods", "decide whether that may happen now"))
		}
	}
	if unknown > 0 {
		return out, fmt.Errorf("the hash of the templates of %d Deployments cannot be computed", unknown)
	}
	return out, nil
}
