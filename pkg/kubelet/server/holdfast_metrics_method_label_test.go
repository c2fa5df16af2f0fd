// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// requestSeries are the methods that the metric http_requests_total has.
func requestSeries(t *testing.T) map[string]bool {
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, f := range families {
		if f.GetName() != "http_requests_total" {
			continue
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "method" {
					out[l.GetValue()] = true
				}
			}
		}
	}
	return out
}

func TestMetricsMethodLabel(t *testing.T) {
	fw := newServerTest()
	defer fw.testHTTPServer.Close()
	send := func(method string) {
		req, err := http.NewRequest(method, fw.testHTTPServer.URL+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s is answered %d", method, resp.StatusCode)
		}
	}
	send("GET")
	send("PATCH")
	before := requestSeries(t)
	if !before["get"] || !before["patch"] {
		t.Errorf("methods %v, want get and patch", before)
	}
	for i := 0; i < 100; i++ {
		send(fmt.Sprintf("INVENTED%d", i))
	}
	if n := len(requestSeries(t)) - len(before); n > 1 {
		t.Errorf("100 invented methods made %d series", n)
	}
}

// TestMetricsMethodLabelControllerManager: its startHTTP ends with the process, so its
// source is asked.
func TestMetricsMethodLabelControllerManager(t *testing.T) {
	if n := callsOf(t, "../../../cmd/kube-controller-manager/app/controllermanager.go", "startHTTP", "metricsmethod", "Handler"); n != 1 {
		t.Errorf("startHTTP calls metricsmethod.Handler %d times", n)
	}
	if n := callsOf(t, "../../../cmd/kube-controller-manager/app/controllermanager.go", "startHTTP", "prometheus", "Handler"); n != 0 {
		t.Errorf("startHTTP calls prometheus.Handler %d times", n)
	}
}

// callsOf counts the calls of pkg.name in function function of file.
func callsOf(t *testing.T, file, function, pkg, name string) (n int) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == function {
			ast.Inspect(fn, func(node ast.Node) bool {
				if call, ok := node.(*ast.CallExpr); ok {
					if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == name {
						if x, ok := s.X.(*ast.Ident); ok && x.Name == pkg {
							n++
						}
					}
				}
				return true
			})
		}
	}
	return n
}
