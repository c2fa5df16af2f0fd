// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeapi"
)

// RBAC is all that doctor asks for. v1beta1 is there from 1.6 to 1.21.
const RBAC = `# What kubectl holdfast doctor needs. It reads, and asks whether others may read; it changes
# nothing. But whoever may get nodes/proxy may do more than doctor does with it: a kubelet takes
# commands for containers as GET requests, too. Give it to nobody who may not do that.
apiVersion: rbac.authorization.k8s.io/v1beta1
kind: ClusterRole
metadata:
  name: holdfast-doctor
rules:
- apiGroups: [""]
  resources: [nodes, services, pods, persistentvolumes]
  verbs: [list]
- apiGroups: [""]
  resources: [endpoints]
  verbs: [list, watch]
- apiGroups: [apps, extensions]
  resources: [deployments, replicasets, daemonsets, statefulsets, controllerrevisions]
  verbs: [list]
- apiGroups: [""]
  resources: [nodes/proxy]
  verbs: [get]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1beta1
kind: Role
metadata:
  name: holdfast-doctor
  namespace: kube-system
rules:
- apiGroups: [""]
  resources: [pods/proxy]
  verbs: [get]
- apiGroups: [""]
  resources: [serviceaccounts]
  resourceNames: [endpoint-controller]
  verbs: [get]
# Bind both, with NAME for the user:
#   kubectl create clusterrolebinding holdfast-doctor --clusterrole=holdfast-doctor --user=NAME
#   kubectl -n kube-system create rolebinding holdfast-doctor --role=holdfast-doctor --user=NAME
`

const (
	managerUser = "system:kube-controller-manager"
	accountUser = "system:serviceaccount:kube-system:endpoint-controller"
)

// mayGet asks whether the controller manager's user may get Services. No API server before 1.6 has a
// controller manager that asks for them.
func (c *cluster) mayGet(ctx context.Context, a *kubeapi.Client, user string) []finding.Finding {
	if c.server.minor < 6 {
		return nil
	}
	unknown := func(text string) []finding.Finding {
		return []finding.Finding{finding.Of("HF631", "controller manager", "could not check whether it has the permission to get services: "+text, "").At(finding.Unknown)}
	}
	var groups []string
	if user == "" {
		user = managerUser
		// The controller manager makes the account with --use-service-account-credentials.
		_, err := a.Ask(ctx, http.MethodGet, "/api/v1/namespaces/kube-system/serviceaccounts/endpoint-controller", "", maxVersion, shortTimeout)
		var status *kubeapi.StatusError
		switch {
		case err == nil:
			user, groups = accountUser, []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"}
		case !errors.As(err, &status) || status.Code != http.StatusNotFound:
			return unknown(why(err, "get", "serviceaccounts"))
		}
	}
	review := map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": map[string]any{
		"user": user, "groups": append(groups, "system:authenticated"), "resourceAttributes": map[string]string{"verb": "get", "resource": "services"}}}
	body, err := json.Marshal(review)
	if err != nil {
		return unknown(err.Error())
	}
	b, err := a.Ask(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", string(body), maxVersion, shortTimeout)
	if err != nil {
		return unknown(why(err, "create", "subjectaccessreviews"))
	}
	var answer struct{ Status *struct{ Allowed bool } }
	if json.Unmarshal(b, &answer) != nil || answer.Status == nil {
		return unknown("the answer is not the JSON that was expected")
	}
	if answer.Status.Allowed {
		return nil
	}
	return []finding.Finding{finding.Of("HF631", "controller manager", "the user "+user+" has no permission to get services", "add the verb get on services to its role; if the controller manager has another user, name it with --controller-manager-user")}
}

// checkUser refuses what is no user's name.
func checkUser(user string) error {
	if len(user) > 253 {
		return exit.Usagef("--controller-manager-user has more than 253 bytes")
	}
	return nil
}
