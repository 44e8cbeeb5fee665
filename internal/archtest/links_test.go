package archtest

import (
	"go/ast"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/heftai/heft/internal/golden"
)

// markdown returns the text of all pages by their path below the module: those at the top and in docs, deploy and examples.
func markdown(t *testing.T) map[string]string {
	t.Helper()
	root, pages := golden.Module(t), map[string]string{}
	for _, p := range []string{"*.md", "docs/*.md", "deploy/*.md", "examples/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(p)))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			rel, _ := filepath.Rel(root, name)
			pages[filepath.ToSlash(rel)] = string(text)
		}
	}
	return pages
}

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```")
	codeSpan  = regexp.MustCompile("`[^`\n]*`")
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ (.*)$`)
	linkText  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchors are the names that GitHub gives to the headings of a page.
func anchors(page string) map[string]bool {
	all, seen := map[string]bool{}, map[string]int{}
	for _, h := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(linkText.ReplaceAllString(h[1], "$1")))
		if n := seen[name]; n > 0 {
			all[name+"-"+strconv.Itoa(n)] = true
		} else {
			all[name] = true
		}
		seen[name]++
	}
	return all
}

// TestLinksOfTheDocumentationResolve: the files and headings to which pages link exist. Web addresses are not followed.
func TestLinksOfTheDocumentationResolve(t *testing.T) {
	root, pages, found := golden.Module(t), markdown(t), 0
	for name, text := range pages {
		for _, m := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(codeBlock.ReplaceAllString(text, ""), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			found++
			to, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if to != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(name), to))
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, m[1])
			} else if anchor != "" && !anchors(pages[target])[anchor] {
				t.Errorf("%s links to %s, but %s has no such heading", name, m[1], target)
			}
		}
	}
	if found < 100 {
		t.Errorf("found %d links in %d pages, want 100 or more", found, len(pages))
	}
}

// flagsOfOthers are flags in the documentation that are not of serve and train, by the program that has them.
var flagsOfOthers = map[string]string{
	"fuse-qkv": "llama.cpp's converter", "fuse-gate-up-exps": "llama.cpp's converter", "mpi": "srun", "simulator": "scripts/bench-gpu.sh",
	"max-tokens": "scripts/bench_streams.py", "streams": "scripts/bench_streams.py", "help": "kong",
	"chat-template": "a flag of other servers with a hint", "ctx-size": "a flag of other servers with a hint", "ssl-certfile": "a flag of other servers with a hint",
}

var flagInPage = regexp.MustCompile(`(?:^|[^\w-])--([A-Za-z][\w-]*)`)

// TestFlagsInTheDocumentationExist, also outside command lines. The tests of cmd/serve and cmd/train check the converse:
// that the documentation names every flag.
func TestFlagsInTheDocumentationExist(t *testing.T) {
	known := map[string]bool{}
	for _, p := range packages(t) {
		switch p.path {
		case "cmd/serve", "cmd/train", "internal/cmdline", "train/finetune":
			for _, f := range p.files {
				if !strings.HasSuffix(f.name, "_test.go") {
					ast.Inspect(f.syntax, func(n ast.Node) bool { addFlags(known, n); return true })
				}
			}
		}
	}
	if len(known) < 150 {
		t.Fatalf("found %d flags, want 150 or more", len(known))
	}
	found, used := 0, map[string]bool{}
	for name, text := range markdown(t) {
		for _, m := range flagInPage.FindAllStringSubmatch(text, -1) {
			found++
			flag := strings.ReplaceAll(m[1], "_", "-") // train takes both, as Accelerate does
			used[flag] = true
			if !known[flag] && flagsOfOthers[flag] == "" {
				t.Errorf("%s names --%s, which neither serve nor train has", name, m[1])
			}
		}
	}
	for flag, program := range flagsOfOthers {
		if known[flag] || !used[flag] {
			t.Errorf("remove --%s of %s from the list of other programs' flags", flag, program)
		}
	}
	if found < 500 {
		t.Errorf("found %d flags in the documentation, want 500 or more", found)
	}
}

// addFlags adds the flags that kong reads from the fields of a struct with tags.
func addFlags(known map[string]bool, n ast.Node) {
	field, ok := n.(*ast.Field)
	if !ok || field.Tag == nil || len(field.Names) == 0 {
		return
	}
	text, err := strconv.Unquote(field.Tag.Value)
	if err != nil {
		return
	}
	tag := reflect.StructTag(text)
	if tag.Get("help") == "" && tag.Get("hidden") == "" {
		return // a field of another kind, such as one of JSON
	}
	name := tag.Get("name")
	if name == "" {
		name = dashed(field.Names[0].Name)
	}
	known[name] = true
	if no, ok := tag.Lookup("negatable"); ok && no == "" {
		known["no-"+name] = true
	} else if ok {
		known[strings.TrimPrefix(no, "--")] = true
	}
	for alias := range strings.SplitSeq(tag.Get("aliases"), ",") {
		known[alias] = true
	}
}

// dashed is kong's name for a field: MaxModelLen is max-model-len.
func dashed(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if i > 0 && unicode.IsUpper(r) && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
