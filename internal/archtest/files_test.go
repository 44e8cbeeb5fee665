package archtest

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// writers may call what else only internal/atomicfile calls, with the reason.
var writers = map[string]string{
	"train/internal/progress/files.go":    "writes into a checkpoint folder that is renamed when it is complete",
	"train/internal/checkpoint/folder.go": "writes into a checkpoint folder that is renamed when it is complete",
}

// A file that is replaced in place can be found half written: internal/atomicfile is the only
// package that renames files, makes temporary ones or writes a file in one call.
func TestFilesAreWrittenAtomically(t *testing.T) {
	refused := []string{"Rename", "CreateTemp", "WriteFile", "Create"}
	used := map[string]bool{}
	for _, p := range packages(t) {
		if p.path == "internal/atomicfile" || testOnly(p) {
			continue
		}
		for _, f := range p.files {
			if strings.HasSuffix(f.name, "_test.go") {
				continue
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				call, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if pkg, ok := call.X.(*ast.Ident); !ok || pkg.Name != "os" || !slices.Contains(refused, call.Sel.Name) {
					return true
				}
				if used[f.name] = true; writers[f.name] == "" {
					t.Errorf("%s calls os.%s; use internal/atomicfile", f.set.Position(n.Pos()), call.Sel.Name)
				}
				return true
			})
		}
	}
	for name := range writers {
		if !used[name] {
			t.Errorf("%s needs no exemption any more", name)
		}
	}
}
