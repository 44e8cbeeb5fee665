package archtest

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// A signature is the number of a function's parameters.
type signature struct {
	count    int
	variadic bool
}

func (s signature) takes(n int) bool { return n == s.count || s.variadic && n >= s.count-1 }

// signatures returns the exported functions and methods of packages by their qualified names, with
// acc.NAME for the methods of an accelerator.
func signatures(t *testing.T, of func(path string) bool) map[string]signature {
	t.Helper()
	all := map[string]signature{}
	for _, p := range packages(t) {
		if !of(p.path) {
			continue
		}
		for _, f := range p.files {
			if strings.HasSuffix(f.name, "_test.go") {
				continue
			}
			for _, d := range f.syntax.Decls {
				d, ok := d.(*ast.FuncDecl)
				if !ok || !d.Name.IsExported() {
					continue
				}
				var s signature
				for _, field := range d.Type.Params.List {
					s.count += max(1, len(field.Names))
					_, dots := field.Type.(*ast.Ellipsis)
					s.variadic = s.variadic || dots
				}
				name := path.Base(p.path) + "." + d.Name.Name
				if d.Recv != nil {
					name = path.Base(p.path) + "." + receiver(d.Recv.List[0].Type) + "." + d.Name.Name
				}
				all[strings.Replace(name, "train.Accelerator.", "acc.", 1)] = s
			}
		}
	}
	return all
}

var (
	spans    = regexp.MustCompile("`([^`\n]+)`")
	literal  = regexp.MustCompile(`\b(\w+\.[A-Z]\w*)(?:\[\w+\])?\{([\w, ]*)\}`)
	bare     = regexp.MustCompile(`^[A-Z]\w*`)
	owner    = regexp.MustCompile(`^\w+\.[A-Z]\w*$`)
	callBase = regexp.MustCompile(`(?:\w+\.)?(?:[A-Z]\w*\.)?[A-Z]\w*\(`)
	inQuotes = regexp.MustCompile(`"[^"]*"`)
)

// arguments returns the arguments of the call that begins text, without its opening parenthesis. ok
// is false if text has no closing one or leaves some out with "…".
func arguments(text string) (list []string, ok bool) {
	text = inQuotes.ReplaceAllString(text, "s")
	depth, begin := 0, 0
	for i, r := range text {
		switch r {
		case '(', '{', '[':
			depth++
		case ',':
			if depth == 0 {
				list, begin = append(list, text[begin:i]), i+1
			}
		case ')', '}', ']':
			if depth--; depth >= 0 {
				continue
			}
			if last := strings.TrimSpace(text[begin:i]); last != "" {
				list = append(list, last)
			}
			return list, !slices.Contains(list, "…") && !slices.Contains(list, " …")
		}
	}
	return nil, false
}

// A mapping checks the right column of a guide's tables.
type mapping struct {
	t     *testing.T
	file  string
	names map[string]bool
	calls map[string]signature
	found int
}

// fields checks the fields of composite literals.
func (m *mapping) fields(span string) {
	for _, l := range literal.FindAllStringSubmatch(span, -1) {
		for _, field := range strings.FieldsFunc(l[2], func(r rune) bool { return r == ',' || r == ' ' }) {
			m.found++
			if !m.names[l[1]+"."+field] {
				m.t.Errorf("docs/%s: %s has no field %s", m.file, l[1], field)
			}
		}
	}
}

// arity checks the number of arguments of calls. owners are the types whose methods a row may name
// without them.
func (m *mapping) arity(span string, owners []string) {
	for _, at := range callBase.FindAllStringIndex(span, -1) {
		if at[0] > 0 && strings.ContainsAny(span[at[0]-1:at[0]], "&.") {
			continue
		}
		name := span[at[0] : at[1]-1]
		list, ok := arguments(span[at[1]:])
		if !ok {
			continue
		}
		candidates := []string{name}
		for _, o := range owners {
			candidates = append(candidates, o+"."+name)
		}
		for _, c := range candidates {
			if s, known := m.calls[c]; known {
				m.found++
				if !s.takes(len(list)) {
					m.t.Errorf("docs/%s: %s has %d arguments, want %d", m.file, span, len(list), s.count)
				}
				break
			}
		}
	}
}

// unqualified checks that a name without a package is an exported name of one of the owners.
func (m *mapping) unqualified(span string, owners []string) {
	name := bare.FindString(span)
	if name == "" || strings.ToUpper(name) == name || strings.HasPrefix(span, name+".") {
		return
	}
	m.found++
	for _, o := range owners {
		if m.names[o+"."+name] {
			return
		}
	}
	m.t.Errorf("docs/%s: none of %v has %s", m.file, owners, name)
}

// TestMappingTablesOfGuides: the right columns of the tables that map Accelerate, Colossal-AI, torch
// and PEFT name fields and methods that exist, and pass as many arguments as functions take. Names
// with a package are checked by TestGuidesNameWhatExists.
func TestMappingTablesOfGuides(t *testing.T) {
	for _, guide := range []struct {
		file   string
		of     func(path string) bool
		owners []string // of names without a type
		least  int
	}{
		{"training.md", func(path string) bool { return path == "train" || strings.HasPrefix(path, "train/") },
			[]string{"tensor.Tape", "tensor", "train.Booster", "train.Trainer", "train.Window", "optim.Group", "model.Model", "model.Options", "rng.Generator", "train.GeminiPlugin"}, 100},
		{"inference.md", public, []string{"devicemap.InferredMap", "loader.Binding"}, 15},
	} {
		text, err := os.ReadFile(filepath.Join(golden.Module(t), "docs", guide.file))
		if err != nil {
			t.Fatal(err)
		}
		m := &mapping{t: t, file: guide.file, names: exportedNames(t, guide.of), calls: signatures(t, guide.of)}
		mapped := false
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "|---") {
				continue
			}
			columns := strings.Split(line, " | ")
			if !strings.HasPrefix(line, "|") || len(columns) < 2 {
				mapped = false
				continue
			}
			if heft := strings.TrimRight(columns[len(columns)-1], "|\n "); heft == "Heft" {
				mapped = true
			}
			if !mapped || len(columns) != 2 {
				continue
			}
			owners := guide.owners
			for _, s := range spans.FindAllStringSubmatch(columns[1], -1) {
				if owner.MatchString(s[1]) {
					owners = append([]string{s[1]}, owners...)
				}
			}
			for _, s := range spans.FindAllStringSubmatch(columns[1], -1) {
				m.fields(s[1])
				m.arity(s[1], owners)
				m.unqualified(s[1], owners)
			}
		}
		if m.found < guide.least {
			t.Errorf("docs/%s: only %d fields, methods and calls were checked", guide.file, m.found)
		}
	}
}
