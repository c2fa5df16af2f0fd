// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apiserver/pkg/server/healthz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
)

func TestHealthzHandler(t *testing.T) {
	healthz.DefaultHealthz()
	refused := func() float64 {
		var m dto.Metric
		if err := healthzRefused.Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetCounter().GetValue()
	}
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletHealthzOwnMux, on)()
			server := httptest.NewUnstartedServer(nil)
			server.Config.Handler = HealthzHandler() // nil is the default mux, as in stock
			server.Start()
			defer server.Close()
			before := refused()
			for path, stock := range map[string]int{
				"/healthz": 200, "/healthz/ping": 200, "/healthz/other": 404, "/": 404,
				"/debug/pprof/": 200, "/debug/pprof/cmdline": 200, "/debug/pprof/heap": 200,
			} {
				want := stock
				if on && len(path) > 6 && path[:6] == "/debug" {
					want = 404
				}
				resp, err := http.Get(server.URL + path)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != want {
					t.Errorf("gate %v: %s answers %d, want %d", on, path, resp.StatusCode, want)
				}
			}
			if n := refused() - before; on && n != 3 || !on && n != 0 {
				t.Errorf("gate %v: %v requests counted", on, n)
			}
		}()
	}
}

// TestHealthzHandlerServed: the kubelet listens on its healthz port with HealthzHandler,
// and nowhere with the default mux. Its run ends with the process, so its source is asked.
func TestHealthzHandlerServed(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../../cmd/kubelet/app/server.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	served := 0
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 || !isSelector(call.Fun, "http", "ListenAndServe") {
			return true
		}
		switch handler := call.Args[1].(type) {
		case *ast.CallExpr:
			if isSelector(handler.Fun, "server", "HealthzHandler") {
				served++
			}
		case *ast.Ident:
			if handler.Name == "nil" {
				t.Error("cmd/kubelet/app/server.go serves the default mux")
			}
		}
		return true
	})
	if served != 1 {
		t.Errorf("cmd/kubelet/app/server.go serves server.HealthzHandler() %d times, want 1", served)
	}
}

func isSelector(e ast.Expr, pkg, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}
