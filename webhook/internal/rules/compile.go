// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"
)

// builtins are the functions of the language that rules may call. Left out are
// those that make long lists or texts, and the clock, for which there is elapsed.
var builtins = []string{"all", "none", "any", "one", "count", "len", "int", "trim", "trimPrefix", "trimSuffix", "upper", "lower", "hasPrefix", "hasSuffix", "indexOf"}

// exprError is a mistake in an expression; line and column count from 1.
type exprError struct {
	line, column int
	msg          string
}

// checker walks an expression. Its evaluation cannot be interrupted, so what
// takes more than one walk over a pod's containers is refused here.
type checker struct {
	depth int
	err   *exprError
	src   string
}

func (c *checker) fail(n ast.Node, format string, args ...any) {
	if c.err == nil {
		e := (&file.Error{Location: n.Location()}).Bind(file.NewSource(c.src))
		c.err = &exprError{e.Line, e.Column + 1, fmt.Sprintf(format, args...)}
	}
}

// walk looks at n and all below it.
func (c *checker) walk(n ast.Node) {
	switch t := n.(type) {
	case *ast.BinaryNode:
		if t.Operator == ".." {
			c.fail(n, "ranges (..) are not allowed: an expression cannot be interrupted")
		}
	case *ast.VariableDeclaratorNode:
		c.fail(n, "variables (let) are not allowed")
	case *ast.PredicateNode:
		if c.depth++; c.depth > 1 {
			c.fail(n, "any, all and the like are not allowed inside one another: an expression cannot be interrupted")
		}
		defer func() { c.depth-- }()
	case *ast.CallNode:
		c.call(t)
	}
	v := reflect.ValueOf(n).Elem()
	for i := range v.NumField() {
		c.children(v.Field(i))
	}
}

var nodeType = reflect.TypeFor[ast.Node]()

func (c *checker) children(f reflect.Value) {
	switch {
	case !f.CanInterface():
	case f.Type() == nodeType:
		if !f.IsNil() {
			c.walk(f.Interface().(ast.Node))
		}
	case f.Kind() == reflect.Slice && f.Type().Elem() == nodeType:
		for i := range f.Len() {
			c.children(f.Index(i))
		}
	}
}

// call checks the durations that are written out.
func (c *checker) call(n *ast.CallNode) {
	id, ok := n.Callee.(*ast.IdentifierNode)
	if !ok || id.Value != "elapsed" || len(n.Arguments) != 2 {
		return
	}
	s, ok := n.Arguments[1].(*ast.StringNode)
	if !ok {
		c.fail(n.Arguments[1], "the second argument of elapsed is a duration in quotes, like \"30s\"")
		return
	}
	if d, err := time.ParseDuration(s.Value); err != nil || d < 0 || d > MaxElapsed {
		c.fail(s, "%q is no duration from 0s to %s, like \"30s\"", s.Value, MaxElapsed)
	}
}

// compile compiles an expression that answers true or false.
func compile(src string) (*vm.Program, *exprError) {
	opts := []expr.Option{expr.Env(&Env{}), expr.AsBool(), expr.MaxNodes(MaxNodes), expr.DisableAllBuiltins()}
	for _, b := range builtins {
		opts = append(opts, expr.EnableBuiltin(b))
	}
	p, err := expr.Compile(src, opts...)
	if err != nil {
		var fe *file.Error
		if errors.As(err, &fe) && fe.Line > 0 {
			return nil, &exprError{fe.Line, fe.Column + 1, fe.Message}
		}
		return nil, &exprError{1, 1, err.Error()}
	}
	c := &checker{src: src}
	tree := p.Node()
	if c.walk(tree); c.err != nil {
		return nil, c.err
	}
	return p, nil
}
