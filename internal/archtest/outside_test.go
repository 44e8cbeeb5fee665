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

// TestAnotherModuleImportsUs builds and runs the program of internal/testdata/outside, a
// module of its own: what is public is enough to train with, and can be named. It is
// built in a copy, with this module's own requirements and checksums.
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
	mod := bytes.Replace(read("internal", "testdata", "outside", "go.mod"), []byte("=> ../../.."), []byte("=> "+top), 1)
	for _, block := range regexp.MustCompile(`(?s)\nrequire \(.*?\n\)`).FindAll(read("go.mod"), -1) {
		mod = append(append(mod, block...), '\n')
	}
	for name, b := range map[string][]byte{"main.go": read("internal", "testdata", "outside", "main.go"), "go.mod": mod, "go.sum": read("go.sum")} {
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
	if err != nil || !strings.Contains(string(out), "step 100, loss 0.0000") || !strings.HasSuffix(string(out), "y = 2.0000x + 1.0000\n") {
		t.Errorf("it says %q, %v", out, err)
	}
}
