package archtest

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A kind of code that has one home: other files use that.
type once struct {
	what  string
	use   string // what other files call
	is    func(ast.Node) bool
	homes []string // packages, with those below them, or files
}

// onlyOnce are the kinds of code that were written several times.
var onlyOnce = []once{
	{"treats faults of mapped memory", "hostmem.Guard", selector(`^debug\.SetPanicOnFault$`), []string{"internal/hostmem", "internal/backend/cpu/pool.go"}},
	{"maps memory", "internal/hostmem", selector(`^(unix|syscall)\.(Mmap|MmapPtr|Munmap|MunmapPtr|Madvise|O_DIRECT)$`), []string{"internal/hostmem", "internal/kernels/kerneltest"}},
	{"parses files of control groups", "internal/topology", text(`memory\.(max|high|current|limit_in_bytes)|cpu\.max|/sys/fs/cgroup`), []string{"internal/topology"}},
	{"widens or narrows numbers by their bits", "internal/floats or internal/tensor", halves, []string{"internal/floats", "internal/kernels"}},
	{"reads the environment", "a parameter", selector(`^os\.(Getenv|LookupEnv|Environ)$`),
		[]string{"cmd", "internal/hub", "internal/hubcache", "internal/testenv", "internal/golden", "train/environment.go", "train/finetune/ranks.go"}},
}

func selector(pattern string) func(ast.Node) bool {
	names := regexp.MustCompile(pattern)
	return func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		pkg, ok := s.X.(*ast.Ident)
		return ok && names.MatchString(pkg.Name+"."+s.Sel.Name)
	}
}

func text(pattern string) func(ast.Node) bool {
	texts := regexp.MustCompile(pattern)
	return func(n ast.Node) bool {
		s, ok := n.(*ast.BasicLit)
		return ok && s.Kind == token.STRING && texts.MatchString(s.Value)
	}
}

// halves finds math.Float32frombits(x << 16) and math.Float32bits(x) >> 16.
func halves(n ast.Node) bool {
	shift := func(n ast.Node, op token.Token) *ast.BinaryExpr {
		for {
			p, ok := n.(*ast.ParenExpr)
			if !ok {
				break
			}
			n = p.X
		}
		b, _ := n.(*ast.BinaryExpr)
		if b == nil || b.Op != op {
			return nil
		}
		if by, ok := b.Y.(*ast.BasicLit); !ok || by.Value != "16" {
			return nil
		}
		return b
	}
	calls := func(n ast.Node, name string) *ast.CallExpr {
		c, ok := n.(*ast.CallExpr)
		if !ok || !selector(`^math\.`+name+`$`)(c.Fun) {
			return nil
		}
		return c
	}
	if c := calls(n, "Float32frombits"); c != nil {
		return shift(c.Args[0], token.SHL) != nil
	}
	b := shift(n, token.SHR)
	return b != nil && calls(b.X, "Float32bits") != nil
}

// TestOneOfEach: code that a package has for all others is not written again elsewhere.
func TestOneOfEach(t *testing.T) {
	used := map[string]bool{}
	for _, p := range packages(t) {
		for _, f := range p.files {
			if strings.HasSuffix(f.name, "_test.go") || p.path == "internal/archtest" {
				continue
			}
			for _, o := range onlyOnce {
				home := slices.IndexFunc(o.homes, func(h string) bool { return f.name == h || strings.HasPrefix(f.name, h+"/") })
				ast.Inspect(f.syntax, func(n ast.Node) bool {
					if n == nil || !o.is(n) {
						return true
					}
					if home < 0 {
						t.Errorf("%s %s; use %s", f.set.Position(n.Pos()), o.what, o.use)
					} else {
						used[o.what+o.homes[home]] = true
					}
					return true
				})
			}
		}
	}
	for _, o := range onlyOnce {
		for _, home := range o.homes {
			if !used[o.what+home] {
				t.Errorf("%s: nothing %s there any more", home, o.what)
			}
		}
	}
}

// formatUsers may name formats, with the reason. All others ask a row of meta's table, so that a new format is a row, a
// reader of its config and kernels.
var formatUsers = map[string]string{
	"meta":                                    "the table, and the readers of configs",
	"loader/gguf.go":                          "which formats the types of GGUF files are",
	"internal/backend/backend.go":             "the KV cache in q8_0",
	"internal/backend/cpu/kernels.go":         "the KV cache in q8_0",
	"internal/backend/cpu/coded.go":           "coded weights, which have a package of their own",
	"internal/backend/cpu/coder.go":           "converts to coded weights",
	"internal/backend/cpu/operand.go":         "coded weights, which have a package of their own",
	"internal/backend/cpu/nf4.go":             "converts to nf4",
	"internal/backend/cuda/operands.go":       "which formats a GPU has kernels for",
	"internal/backend/backendtest":            "makes weights in each format",
	"dispatch/internal/placement/compress.go": "--compress",
	"dispatch/internal/cost/weights.go":       "--compress",
	"dispatch/internal/dispatchtest":          "models of tests",
	"train/model/base.go":                     "nf4 has a converter of its own",
	"train/finetune/lora.go":                  "--quantize nf4",
	"cmd/serve/draftmodel.go":                 "--draft self is q4_0",
	"scripts":                                 "tables for q8_0 and q4_0",
}

func TestFormatsAreATable(t *testing.T) {
	named := selector(`^meta\.Quant(FP8|MXFP4|GPTQ|AWQ|Q\d|IQ|TQ|Int|Bnb|NV|Coded)\w*$`)
	used := map[string]bool{"meta": true} // by names without a package
	for _, p := range packages(t) {
		for _, f := range p.files {
			if strings.HasSuffix(f.name, "_test.go") {
				continue
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				if n == nil || !named(n) {
					return true
				}
				folder, _, _ := strings.Cut(f.name, "/")
				for _, home := range []string{f.name, p.path, folder} {
					if formatUsers[home] != "" {
						used[home] = true
						return true
					}
				}
				t.Errorf("%s names a format; ask its row in meta's table", f.set.Position(n.Pos()))
				return true
			})
		}
	}
	for home := range formatUsers {
		if !used[home] {
			t.Errorf("%s names no format any more", home)
		}
	}
}
