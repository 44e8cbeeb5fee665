package archtest

import (
	"go/ast"
	"testing"
)

// maxOperations is how many operations a backend has, beside those of memory. A new one is work for every backend:
// it comes with its reason, and with its case in backendtest.
const maxOperations = 14

// TestBackendHasFewOperations counts the coarse operations of internal/backend.
func TestBackendHasFewOperations(t *testing.T) {
	found := false
	for _, p := range packages(t) {
		if p.path != "internal/backend" {
			continue
		}
		for _, f := range p.files {
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				s, ok := n.(*ast.TypeSpec)
				if !ok || s.Name.Name != "Backend" {
					return true
				}
				operations := 0
				for _, m := range s.Type.(*ast.InterfaceType).Methods.List {
					operations += len(m.Names)
				}
				if found = true; operations > maxOperations {
					t.Errorf("backend.Backend has %d operations, want at most %d", operations, maxOperations)
				}
				return true
			})
		}
	}
	if !found {
		t.Error("internal/backend has no interface Backend")
	}
}
