package archtest

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// TestComparisonsFailForNaN: a NaN is not larger than any tolerance, so a test that fails where a
// difference is larger passes for a NaN. It must fail where the difference is not small.
func TestComparisonsFailForNaN(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			if f.generated || !strings.HasSuffix(f.name, "_test.go") && !strings.HasSuffix(p.path, "test") {
				continue
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				var conditions []ast.Expr
				switch s := n.(type) {
				case *ast.IfStmt:
					conditions = []ast.Expr{s.Cond}
				case *ast.CaseClause:
					conditions = s.List
				}
				for _, c := range conditions {
					checkDifferences(t, f.name, c)
				}
				return true
			})
		}
	}
}

// checkDifferences reports comparisons of a difference with a tolerance that are false for a NaN. Two magnitudes may be
// compared, as when the largest is sought.
func checkDifferences(t *testing.T, file string, condition ast.Expr) {
	ast.Inspect(condition, func(n ast.Node) bool {
		c, ok := n.(*ast.BinaryExpr)
		if ok && (c.Op == token.GTR || c.Op == token.GEQ) && isAbs(c.X) && !isAbs(c.Y) {
			t.Errorf("%s: math.Abs(…) %v … is false for a NaN: write !(math.Abs(…) <= …)", file, c.Op)
		}
		return true
	})
}

// isAbs reports whether e is a call of math.Abs.
func isAbs(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Abs"
}
