package archtest

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// A pkg is a folder of Go files, below whatever build tags.
type pkg struct {
	path  string // below the module
	files []file
}

type file struct {
	name      string // below the module
	imports   []string
	syntax    *ast.File
	lines     int
	generated bool
	set       *token.FileSet
}

// packages are the Go files of the module, but for testdata and nested modules. They are parsed once for all tests.
func packages(t *testing.T) []pkg {
	t.Helper()
	root := golden.Module(t)
	parsed.Do(func() { parsed.packages, parsed.err = parse(root) })
	if parsed.err != nil {
		t.Fatal(parsed.err)
	}
	return parsed.packages
}

var parsed struct {
	sync.Once
	packages []pkg
	err      error
}

func parse(root string) ([]pkg, error) {
	byPath := map[string]*pkg{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, name)
		if d.IsDir() {
			base := d.Name()
			if rel != "." && (base == "testdata" || strings.HasPrefix(base, "_") || strings.HasPrefix(base, ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := read(name, filepath.ToSlash(rel))
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(rel))
		if byPath[dir] == nil {
			byPath[dir] = &pkg{path: dir}
		}
		byPath[dir].files = append(byPath[dir].files, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var all []pkg
	for _, p := range byPath {
		all = append(all, *p)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].path < all[j].path })
	return all, nil
}

func read(name, rel string) (file, error) {
	src, err := os.ReadFile(name)
	if err != nil {
		return file{}, err
	}
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, name, src, parser.ParseComments)
	if err != nil {
		return file{}, err
	}
	f := file{name: rel, syntax: syntax, set: set, lines: bytes.Count(src, []byte("\n")), generated: ast.IsGenerated(syntax)}
	for _, imp := range syntax.Imports {
		p, _ := strconv.Unquote(imp.Path.Value)
		f.imports = append(f.imports, p)
	}
	return f, nil
}

func topLevel(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(golden.Module(t))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() || holdsGo(filepath.Join(golden.Module(t), e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names
}

// holdsGo reports whether a Go file is somewhere below dir.
func holdsGo(dir string) bool {
	found := errors.New("found")
	return errors.Is(filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".go" {
			return found
		}
		return err
	}), found)
}
