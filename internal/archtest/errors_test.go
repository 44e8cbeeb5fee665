package archtest

import (
	"go/ast"
	"path"
	"strconv"
	"strings"
	"testing"
)

// wrappedErrors are only seen behind a message that begins with the package.
var wrappedErrors = map[string]string{"loader.ErrChanged": "an *Error names the file before it"}

// TestErrorsOfPublicPackagesBeginWithThePackage: exported error values that users compare with.
func TestErrorsOfPublicPackagesBeginWithThePackage(t *testing.T) {
	found := 0
	for _, p := range packages(t) {
		if !public(p.path) {
			continue
		}
		for _, f := range p.files {
			if strings.HasSuffix(f.name, "_test.go") {
				continue
			}
			for _, d := range f.syntax.Decls {
				g, ok := d.(*ast.GenDecl)
				if !ok {
					continue
				}
				for _, s := range g.Specs {
					v, ok := s.(*ast.ValueSpec)
					if !ok {
						continue
					}
					for i, name := range v.Names {
						if !name.IsExported() || i >= len(v.Values) {
							continue
						}
						call, ok := v.Values[i].(*ast.CallExpr)
						if !ok || !selector(`^errors\.New$`)(call.Fun) {
							continue
						}
						found++
						text, err := strconv.Unquote(call.Args[0].(*ast.BasicLit).Value)
						if wrappedErrors[path.Base(p.path)+"."+name.Name] != "" {
							continue
						}
						if err != nil || !strings.HasPrefix(text, path.Base(p.path)+": ") {
							t.Errorf("%s: %s is %q, want it to begin with %q", f.set.Position(v.Pos()), name.Name, text, path.Base(p.path)+": ")
						}
					}
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("found %d errors, want more: the rule looks at nothing", found)
	}
}
