package archtest

import (
	"go/ast"
	"go/doc"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// exportedNames are the exported names of packages: "train.Config", "train.Config.World". acc
// stands for an accelerator.
func exportedNames(t *testing.T, of func(path string) bool) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, p := range packages(t) {
		if !of(p.path) {
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
	code      = regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
	training  = regexp.MustCompile(`\b(?:train|data|optim|tensor|track|rng|model|acc)\.[A-Z]\w*(?:\.[A-Z]\w*)?`)
	inference = regexp.MustCompile(`\b(?:meta|loader|devicemap|dispatch|text|generate|api)\.[A-Z]\w*(?:\.[A-Z]\w*)?`)
)

// TestGuidesNameWhatExists: every name of a public package in a guide exists.
func TestGuidesNameWhatExists(t *testing.T) {
	for _, guide := range []struct {
		file    string
		of      func(path string) bool
		mention *regexp.Regexp
		least   int
	}{
		{"training.md", func(path string) bool { return path == "train" || strings.HasPrefix(path, "train/") }, training, 100},
		{"inference.md", public, inference, 60},
	} {
		text, err := os.ReadFile(filepath.Join(golden.Module(t), "docs", guide.file))
		if err != nil {
			t.Fatal(err)
		}
		all, found := exportedNames(t, guide.of), 0
		for _, span := range code.FindAllString(string(text), -1) {
			for _, name := range guide.mention.FindAllString(span, -1) {
				found++
				if !all[name] {
					t.Errorf("docs/%s names %s, which does not exist", guide.file, name)
				}
			}
		}
		if found < guide.least {
			t.Errorf("docs/%s: only %d names were found", guide.file, found)
		}
	}
}

// public reports whether other modules may import the package and are meant to.
func public(path string) bool {
	for _, own := range []string{"internal", "cmd", "scripts", "examples"} {
		if path == own || strings.HasPrefix(path, own+"/") || strings.Contains(path, "/"+own+"/") || strings.HasSuffix(path, "/"+own) {
			return false
		}
	}
	return path != "train/tensor/tensortest" // helps the tests of modules
}

// TestEveryPublicPackageHasAnExample that go test runs: an Example function whose output is checked.
func TestEveryPublicPackageHasAnExample(t *testing.T) {
	for _, p := range packages(t) {
		if !public(p.path) {
			continue
		}
		runs := false
		for _, f := range p.files {
			for _, e := range doc.Examples(f.syntax) {
				runs = runs || strings.HasSuffix(f.name, "_test.go") && (e.Output != "" || e.EmptyOutput)
			}
		}
		if !runs {
			t.Errorf("package %s has no example that is run", p.path)
		}
	}
}

var (
	supported = regexp.MustCompile(`(?s)supported: begin.*?supported: end`)
	rows      = regexp.MustCompile("(?m)^\\| [A-Z]\\w+ \\| `")
	counted   = regexp.MustCompile(`\[(\d+) architectures\]\(docs/models\.md\), (\d+) of them the text side of models with images`)
)

// TestREADMECountsTheArchitectures that the generated tables of docs/models.md list.
func TestREADMECountsTheArchitectures(t *testing.T) {
	read := func(name ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{golden.Module(t)}, name...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	table := supported.FindString(read("docs", "models.md"))
	text, images, _ := strings.Cut(table, "Of models with images")
	n, m := len(rows.FindAllString(text, -1)), len(rows.FindAllString(images, -1))
	said := counted.FindStringSubmatch(read("README.md"))
	if n == 0 || m == 0 || said == nil {
		t.Fatalf("found %d and %d rows in docs/models.md, and %q in README.md", n, m, said)
	}
	if said[1] != strconv.Itoa(n+m) || said[2] != strconv.Itoa(m) {
		t.Errorf("README.md says %s architectures, %s with images; docs/models.md has %d, %d", said[1], said[2], n+m, m)
	}
}

// TestREADMEIsShort: details belong to docs.
func TestREADMEIsShort(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(golden.Module(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(text))); n > 1400 {
		t.Errorf("README.md has %d words, want at most 1400", n)
	}
}

var (
	inDocs  = regexp.MustCompile(`(?:^|[\s"(=])(?:\./)?((?:\.ci|api|cmd|deploy|devicemap|dispatch|docs|examples|internal|loader|meta|scripts|testdata|text|train)/[\w./*-]*\w)`)
	targets = regexp.MustCompile(`\bmake ([a-z][\w-]*)`)
	tests   = regexp.MustCompile(`\bTest[A-Z]\w+…?`)
)

// TestDocumentationNamesWhatExists: files of this module, targets of make and tests that the documentation names in code
// exist.
func TestDocumentationNamesWhatExists(t *testing.T) {
	root := golden.Module(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	makefile, err2 := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	functions := map[string]bool{}
	for _, p := range packages(t) {
		for _, f := range p.files {
			for _, d := range f.syntax.Decls {
				if d, ok := d.(*ast.FuncDecl); ok {
					functions[d.Name.Name] = true
				}
			}
		}
	}
	found := 0
	for _, page := range append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "ARCHITECTURE.md"), filepath.Join(root, "CONTRIBUTING.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range code.FindAllString(string(text), -1) {
			span = strings.Trim(span, "`")
			for _, m := range inDocs.FindAllStringSubmatch(span, -1) {
				found++
				here, _ := filepath.Glob(filepath.Join(root, m[1]))
				golden, _ := filepath.Glob(filepath.Join(root, "testdata", "golden", m[1]))
				if len(here)+len(golden) == 0 && !strings.Contains(m[1], "FAMILY") {
					t.Errorf("%s: %s does not exist", filepath.Base(page), m[1])
				}
			}
			for _, m := range targets.FindAllStringSubmatch(span, -1) {
				found++
				if !strings.Contains("\n"+string(makefile), "\n"+m[1]+":") {
					t.Errorf("%s: make has no target %s", filepath.Base(page), m[1])
				}
			}
			for _, name := range tests.FindAllString(span, -1) {
				found++
				if !functions[name] && !strings.HasSuffix(name, "…") {
					t.Errorf("%s: there is no test %s", filepath.Base(page), name)
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d names were found", found)
	}
}
