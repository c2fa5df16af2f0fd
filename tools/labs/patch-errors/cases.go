// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package patcherrors

// Users of the lab. The deployer has the right to create the rollback of d1, by
// resourceNames, and no other.
const (
	admin    = "admin"
	deployer = "deployer"
)

// patch is a PATCH of d1 and the status that ours must answer. The fixed kube-apiserver
// and stock answer the same where it is one of Same.
type patch struct {
	Name, Type, Body string
	Want             int
	Same             bool
}

const (
	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
)

var patches = []patch{
	{"JSON patch that is not a list", jsonPatch, `{"op":"remove","path":"/spec"}`, 400, false},
	{"JSON patch that is not JSON", jsonPatch, `[{"op"`, 400, false},
	{"JSON patch with a test that fails", jsonPatch, `[{"op":"test","path":"/spec/replicas","value":7}]`, 422, false},
	{"JSON patch of a path that does not exist", jsonPatch, `[{"op":"replace","path":"/spec/none/none","value":1}]`, 422, false},
	{"JSON patch with an unknown operation", jsonPatch, `[{"op":"merge","path":"/spec","value":{}}]`, 422, false},
	{"JSON patch with a result of a wrong type", jsonPatch, `[{"op":"replace","path":"/spec/replicas","value":"two"}]`, 422, false},
	{"merge patch that is not JSON", mergePatch, `{"spec"`, 400, false},
	{"merge patch that is a list", mergePatch, `[{"spec":{"paused":true}}]`, 400, false},
	{"merge patch with a result of a wrong type", mergePatch, `{"spec":{"replicas":"two"}}`, 422, false},
	{"strategic merge patch with a result of a wrong type", strategicPatch, `{"metadata":{"annotations":{"a":["b"]}}}`, 422, false},
	{"strategic merge patch that is not JSON", strategicPatch, `{"spec"`, 400, true},
	{"patch of a Deployment's name", jsonPatch, `[{"op":"replace","path":"/metadata/name","value":"d3"}]`, 400, true},
	{"patch that validation refuses", mergePatch, `{"spec":{"replicas":-1}}`, 422, true},
	{"good JSON patch", jsonPatch, `[{"op":"test","path":"/spec/replicas","value":0},{"op":"add","path":"/metadata/labels","value":{"json":"1"}}]`, 200, true},
	{"good merge patch", mergePatch, `{"metadata":{"labels":{"merge":"1"}}}`, 200, true},
	{"good strategic merge patch", strategicPatch, `{"metadata":{"labels":{"strategic":"1"}}}`, 200, true},
}

// rollback is a POST to the rollback subresource: of the Deployment URL, with the
// name Body. Reaches is the Deployment that has its template of before afterwards.
type rollback struct {
	User, URL, Body string
	Want            int
	Reaches         string // with ours; "" for none
	StockReaches    string
}

var rollbacks = []rollback{
	{deployer, "d1", "d1", 201, "d1", "d1"},
	{deployer, "d2", "d2", 403, "", ""},
	{deployer, "d1", "d2", 400, "", "d2"},
	{admin, "none", "d1", 404, "", "d1"},
	{admin, "none", "none", 404, "", ""},
}

// The API versions that have the subresource.
var versions = []string{"extensions/v1beta1", "apps/v1beta1"}

// failedTest is what the library says of the third patch; kubectlPatch is one of its kind.
const (
	failedTest   = "Testing value /spec/replicas failed"
	kubectlPatch = `[{"op":"test","path":"/spec/replicas","value":7}]`
)

// fatals are patches of d1 that end stock: a nil pointer in the library of JSON patches, a
// circle at which its encoder fills the stack, and a merge key whose type is taken for
// granted.
var fatals = []patch{
	{"JSON patch with a null operation", jsonPatch, `[{"op":null,"path":"/spec"}]`, 422, false},
	{"JSON patch that copies into itself", jsonPatch, `[{"op":"copy","from":"/spec","path":"/spec/x"}]`, 200, false},
	{"strategic merge patch with objects for names", strategicPatch, `{"spec":{"template":{"spec":{"containers":[{"name":{}},{"name":{}}]}}}}`, 422, false},
}
