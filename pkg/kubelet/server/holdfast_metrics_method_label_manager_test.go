// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

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
