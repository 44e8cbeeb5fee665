package archtest

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// refused are phrases that strangers had to decode. CONTRIBUTING.md says how to write instead.
var refused = phrases("let go", "lets go of", "the least that works", "who asks", "who reads", "nobody", "somebody",
	"is refused by name", "tokens meet", "codes meet", "codes are met", "where they lie", "as they lie", "lying weights",
	"as which they", "is told so", "speaks of", "gives back", "given back")

// phrases matches any of the phrases, over the line breaks of a comment too.
func phrases(list ...string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(` + strings.ReplaceAll(strings.Join(list, "|"), " ", `[\s/]+`) + `)\b`)
}

// quoted are spans of a text that are not ours: code and quotations.
var quoted = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`|\"[^\"\n]*\"")

// TestEnglishIsPlain looks for refused phrases in pages, comments, help texts and errors.
func TestEnglishIsPlain(t *testing.T) {
	root := golden.Module(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"} {
		pages = append(pages, filepath.Join(root, name))
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		plain(t, filepath.Base(page), 1, quoted.ReplaceAllStringFunc(string(text), blank))
	}
	for _, p := range packages(t) {
		for _, f := range p.files {
			if !f.generated && f.name != "internal/archtest/english_test.go" {
				plainGo(t, f)
			}
		}
	}
}

// plainGo checks the comments of a file and, outside tests, its string literals.
func plainGo(t *testing.T, f file) {
	t.Helper()
	line := func(at token.Pos) int { return f.set.Position(at).Line }
	for _, group := range f.syntax.Comments {
		var text strings.Builder
		for _, c := range group.List {
			text.WriteString(c.Text + "\n")
		}
		plain(t, f.name, line(group.Pos()), quoted.ReplaceAllStringFunc(text.String(), blank))
	}
	if strings.HasSuffix(f.name, "_test.go") || strings.Contains(f.name, "internal/demo/") {
		return // quotations of tests and of the demo's lessons are not help
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
			plain(t, f.name, line(s.Pos()), s.Value)
		}
		return true
	})
}

// plain reports the refused phrases of a text whose first line is line.
func plain(t *testing.T, name string, line int, text string) {
	t.Helper()
	for _, at := range refused.FindAllStringIndex(text, -1) {
		before := strings.Count(text[:at[0]], "\n")
		t.Errorf("%s:%d: %q: say it as CONTRIBUTING.md asks", name, line+before, text[at[0]:at[1]])
	}
}

// blank keeps the line breaks of a text.
func blank(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }
