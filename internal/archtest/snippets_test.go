package archtest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// snippetPackages are what code of the documentation may use, by the name of the package.
var snippetPackages = map[string]string{
	"api": module + "/api", "context": "context", "data": module + "/train/data", "dispatch": module + "/dispatch", "finetune": module + "/train/finetune",
	"generate": module + "/api/generate", "meta": module + "/meta", "net": "net", "optim": module + "/train/optim", "tensor": module + "/train/tensor",
	"text": module + "/text", "train": module + "/train", "loader": module + "/loader", "devicemap": module + "/devicemap",
}

// snippetNames are the names that snippets use without declaring them, with their types.
var snippetNames = map[string]string{
	"ctx": "context.Context", "listener": "net.Listener", "model": "*tensor.Parameter", "loader": "*data.Loader[float32]",
	"criterion": "func(*tensor.Parameter, float32) *tensor.Tensor", "fit": "func(context.Context, *train.World) error",
}

var goBlock = regexp.MustCompile("(?s)\n```go\n(.*?)\n```\n")

// TestGoInTheDocumentationCompiles builds the Go code of the pages, each piece in a function of its own. Names that it
// does not use are not errors, because pages show only a part of a program.
func TestGoInTheDocumentationCompiles(t *testing.T) {
	top := golden.Module(t)
	pages, err := filepath.Glob(filepath.Join(top, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(filepath.Join(top, "internal", "archtest"), "_snippets-") // within the module, for its requirements; tools pass it over
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	pieces := 0
	for _, page := range append(pages, filepath.Join(top, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range goBlock.FindAllStringSubmatch(string(text), -1) {
			name := fmt.Sprintf("%s_%d.go", strings.TrimSuffix(strings.ToLower(filepath.Base(page)), ".md"), i)
			if err := os.WriteFile(filepath.Join(dir, name), []byte(snippet(pieces, block[1])), 0o666); err != nil {
				t.Fatal(err)
			}
			pieces++
		}
	}
	if pieces < 5 {
		t.Fatalf("%d pieces of Go in the documentation, want 5 or more: the pages have changed", pieces)
	}
	build := exec.Command("go", "build", "-gcflags=-e", ".")
	build.Dir = dir
	out, err := build.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if err != nil && !strings.HasPrefix(line, "#") && !strings.Contains(line, "declared and not used") {
			t.Errorf("%s", strings.TrimSpace(line))
		}
	}
}

// snippet returns a file with a function that has the code as its body.
func snippet(n int, code string) string {
	code = strings.ReplaceAll(code, "\n…", "")
	uses := func(name string) bool { return regexp.MustCompile(`\b` + name + `\b`).MatchString(code) }
	var parameters []string
	for _, name := range slices.Sorted(maps.Keys(snippetNames)) {
		if uses(name) && !regexp.MustCompile(`\b`+name+`\b[^\n(]*:=`).MatchString(code) {
			parameters = append(parameters, name+" "+snippetNames[name])
		}
	}
	signature := strings.Join(parameters, ", ")
	all := signature + "\n" + code
	variable := func(name string) bool { return snippetNames[name] != "" && uses(name) }
	var imports strings.Builder
	for _, name := range slices.Sorted(maps.Keys(snippetPackages)) {
		if !variable(name) && regexp.MustCompile(`\b`+name+`\.[A-Z]`).MatchString(all) {
			fmt.Fprintf(&imports, "import %q\n", snippetPackages[name])
		}
	}
	end := "\nreturn nil\n"
	if strings.HasPrefix(code[strings.LastIndex(code, "\n")+1:], "return ") {
		end = "\n"
	}
	return fmt.Sprintf("package snippets\n\n%s\nfunc piece%d(%s) error {\n%s%s}\n", imports.String(), n, signature, code, end)
}
