package archtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// TestExamplesImportPublicPackagesOnly: a program outside of the module can be written like them.
func TestExamplesImportPublicPackagesOnly(t *testing.T) {
	for _, p := range packages(t) {
		if !strings.HasPrefix(p.path, "examples/") {
			continue
		}
		for _, f := range p.files {
			for _, imp := range f.imports {
				if strings.Contains(imp, "/internal/") && !strings.HasSuffix(f.name, "_test.go") {
					t.Errorf("%s imports %s", f.name, imp)
				}
			}
		}
	}
}

// TestAnotherModuleImportsUs builds and runs the program of testdata/outside, a
// module of its own: the public packages are enough to plan, generate, chat with tools, fine-tune an
// adapter from a file, serve it and train a module of one's own. It is built in a copy, with this module's own requirements and checksums.
func TestAnotherModuleImportsUs(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	top, dir := golden.Module(t), t.TempDir()
	read := func(elem ...string) []byte {
		b, err := os.ReadFile(filepath.Join(append([]string{top}, elem...)...))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	mod := bytes.Replace(read("testdata", "outside", "go.mod"), []byte("=> ../.."), []byte("=> "+top), 1)
	for _, block := range regexp.MustCompile(`(?s)\nrequire \(.*?\n\)`).FindAll(read("go.mod"), -1) {
		mod = append(append(mod, block...), '\n')
	}
	files := map[string][]byte{"go.mod": mod, "go.sum": read("go.sum")}
	for _, name := range []string{"main.go", "serve.go", "tune.go"} {
		files[name] = read("testdata", "outside", name)
		if bytes.Contains(files[name], []byte("/internal/")) {
			t.Errorf("%s imports an internal package", name)
		}
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(dir, "outside")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off", "GOPROXY=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.Command(bin)
	run.Dir = dir
	out, err := run.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"step 100, loss 0.0000\n", "planned: true of weights on the disk\n", "tight: warned, and ran\n",
		"call: weather {\"city\": \"Oslo\"}\n", "generated: Hello\n", "heft-demo: I am Heft's demo model", "parrot: I am a parrot, and I serve.\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing:\n%s", want, out)
		}
	}
	if !strings.HasSuffix(string(out), "y = 2.0000x + 1.0000\n") {
		t.Errorf("got %s", out)
	}
}
