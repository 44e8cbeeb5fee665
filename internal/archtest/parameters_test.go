package archtest

import (
	"go/ast"
	"strings"
	"testing"
)

// The most parameters that functions of the kernels and of the backends have. A kernel with more operands takes a
// struct with a field for each, by value: callers name what they pass, and nothing is allocated.
const (
	maxKernelParameters  = 6
	maxPrivateParameters = 10 // of functions that other packages cannot call
	maxBackendParameters = 8  // the gradients of backend.Gradients, whose operands are tensors
)

// TestKernelsTakeOperandsAsStructs counts parameters. Functions called call… only hand registers to the assembly.
func TestKernelsTakeOperandsAsStructs(t *testing.T) {
	for _, p := range packages(t) {
		kernel, backend := strings.HasPrefix(p.path, "internal/kernels"), strings.HasPrefix(p.path, "internal/backend")
		if !kernel && !backend || strings.HasSuffix(p.path, "test") { // helpers of tests
			continue
		}
		for _, f := range p.files {
			if f.generated || strings.HasSuffix(f.name, "_test.go") {
				continue
			}
			for _, d := range f.syntax.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || strings.HasPrefix(fn.Name.Name, "call") {
					continue
				}
				most := maxPrivateParameters
				switch {
				case fn.Name.IsExported() && kernel:
					most = maxKernelParameters
				case fn.Name.IsExported():
					most = maxBackendParameters
				}
				if n := fn.Type.Params.NumFields(); n > most {
					t.Errorf("%s: %s has %d parameters, want at most %d: make a struct of its operands", f.name, fn.Name.Name, n, most)
				}
			}
		}
	}
}
