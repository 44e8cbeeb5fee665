package archtest

import (
	"go/ast"
	"strconv"
	"strings"
	"testing"
)

const (
	maxFileLines     = 500
	maxFunctionLines = 60
)

func TestFilesAndFunctionsAreShort(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			if f.generated {
				continue
			}
			if f.lines > maxFileLines {
				t.Errorf("%s has %d lines; split it below %d", f.name, f.lines, maxFileLines)
			}
			for _, d := range f.syntax.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Body == nil {
					continue
				}
				n := f.set.Position(fn.End()).Line - f.set.Position(fn.Pos()).Line + 1
				if n > maxFunctionLines {
					t.Errorf("%s: %s has %d lines; split it below %d", f.name, fn.Name.Name, n, maxFunctionLines)
				}
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range packages(t) {
		said := false
		for _, f := range p.files {
			said = said || f.syntax.Doc != nil && len(f.syntax.Doc.Text()) > 80
		}
		if !said {
			t.Errorf("package %s has no doc comment that names its nouns", p.path)
		}
	}
}

// TestPublicPackagesShowNoInternalTypes looks at exported functions, fields and methods
// of the packages that users import.
func TestPublicPackagesShowNoInternalTypes(t *testing.T) {
	for _, p := range packages(t) {
		if strings.Contains("/"+p.path, "/internal/") || strings.HasPrefix(p.path, "cmd/") || strings.HasPrefix(p.path, "scripts") {
			continue // programs
		}
		for _, f := range p.files {
			if strings.HasSuffix(f.name, "_test.go") {
				continue
			}
			checkExported(t, f)
		}
	}
}

func checkExported(t *testing.T, f file) {
	t.Helper()
	internal := map[string]bool{}
	for _, imp := range f.syntax.Imports {
		p, _ := strconv.Unquote(imp.Path.Value)
		if strings.Contains(p, module+"/internal/") {
			name := p[strings.LastIndex(p, "/")+1:]
			if imp.Name != nil {
				name = imp.Name.Name
			}
			internal[name] = true
		}
	}
	refuse := func(what string, n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && internal[x.Name] {
					t.Errorf("%s: exported %s mentions %s.%s, which users cannot name", f.name, what, x.Name, sel.Sel.Name)
				}
			}
			return true
		})
	}
	for _, d := range f.syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && receiverExported(d) {
				refuse(d.Name.Name, d.Type)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if ts, ok := s.(*ast.TypeSpec); ok && ts.Name.IsExported() {
					exportedParts(ts.Type, func(n ast.Node) { refuse(ts.Name.Name, n) })
				}
			}
		}
	}
}

func receiverExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	x := d.Recv.List[0].Type
	if star, ok := x.(*ast.StarExpr); ok {
		x = star.X
	}
	id, ok := x.(*ast.Ident)
	return ok && id.IsExported()
}

// exportedParts calls f with the exported fields or methods of a type, or all of it.
func exportedParts(x ast.Expr, f func(ast.Node)) {
	var fields *ast.FieldList
	switch x := x.(type) {
	case *ast.StructType:
		fields = x.Fields
	case *ast.InterfaceType:
		fields = x.Methods
	default:
		f(x)
		return
	}
	for _, field := range fields.List {
		shown := len(field.Names) == 0
		for _, n := range field.Names {
			shown = shown || n.IsExported()
		}
		if shown {
			f(field.Type)
		}
	}
}
