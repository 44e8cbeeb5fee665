package archtest

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// names are the exported names of the training packages: "train.Config",
// "train.Config.World". acc stands for an accelerator.
func trainingNames(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, p := range packages(t) {
		if p.path != "train" && !strings.HasPrefix(p.path, "train/") {
			continue
		}
		for _, f := range p.files {
			if strings.HasSuffix(f.name, "_test.go") {
				continue
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				note(all, path.Base(p.path), n)
				_, function := n.(*ast.FuncDecl)
				return !function
			})
		}
	}
	return all
}

func note(all map[string]bool, pkg string, n ast.Node) {
	switch n := n.(type) {
	case *ast.FuncDecl:
		name := pkg + "." + n.Name.Name
		if n.Recv != nil {
			name = pkg + "." + receiver(n.Recv.List[0].Type) + "." + n.Name.Name
			all[strings.Replace(name, "train.Accelerator.", "acc.", 1)] = true
		}
		all[name] = true
	case *ast.TypeSpec:
		all[pkg+"."+n.Name.Name] = true
		if s, ok := n.Type.(*ast.StructType); ok {
			for _, field := range s.Fields.List {
				for _, name := range field.Names {
					all[pkg+"."+n.Name.Name+"."+name.Name] = true
				}
			}
		}
	case *ast.ValueSpec:
		for _, name := range n.Names {
			all[pkg+"."+name.Name] = true
		}
	}
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

var (
	code    = regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
	mention = regexp.MustCompile(`\b(?:train|data|optim|tensor|track|rng|model|acc)\.[A-Z]\w*(?:\.[A-Z]\w*)?`)
)

// TestTrainingGuideNamesWhatExists: what docs/training.md calls by name is there.
func TestTrainingGuideNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(golden.Module(t), "docs", "training.md"))
	if err != nil {
		t.Fatal(err)
	}
	all, found := trainingNames(t), 0
	for _, span := range code.FindAllString(string(text), -1) {
		for _, name := range mention.FindAllString(span, -1) {
			found++
			if !all[name] {
				t.Errorf("docs/training.md speaks of %s, which does not exist", name)
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d names were found", found)
	}
}
