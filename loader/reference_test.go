package loader

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/meta"
)

// needPython is the Python that HEFT_PYTHON names.
func needPython(t *testing.T) string {
	t.Helper()
	python := os.Getenv("HEFT_PYTHON")
	testenv.Need(t, "python", python != "", "set HEFT_PYTHON to a Python with torch, transformers and accelerate")
	return python
}

// reference runs scripts/check-save.py.
func reference(t *testing.T, python string, args ...string) {
	t.Helper()
	script := filepath.Join(golden.Module(t), "scripts", "check-save.py")
	out, err := exec.Command(python, append([]string{script}, args...)...).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// TestSaveOpensInReference saves golden models again, whole and in shards, and lets
// transformers load both.
func TestSaveOpensInReference(t *testing.T) {
	python := needPython(t)
	var pairs []string
	for _, config := range golden.Glob(t, "infer/models/*/config.json") {
		from := golden.Unpacked(t, filepath.Dir(config))
		for _, limit := range []int64{0, 60_000} {
			to := filepath.Join(t.TempDir(), filepath.Base(from))
			ck := open(t, from)
			err := Save(to, func(yield func(NamedTensor) bool) {
				for h := range ck.Tensors() {
					if !yield(h.Named()) {
						return
					}
				}
			}, SaveOptions{MaxShardSize: limit})
			if err != nil {
				t.Fatal(err)
			}
			copyFile(t, config, filepath.Join(to, "config.json"))
			pairs = append(pairs, from, to)
		}
	}
	reference(t, python, append([]string{"checkpoint"}, pairs...)...)
	reference(t, python, append([]string{"model"}, pairs[:min(len(pairs), 4)]...)...)
}

// TestOffloadOpensInReference writes one tensor of each dtype and lets Accelerate read it.
func TestOffloadOpensInReference(t *testing.T) {
	python := needPython(t)
	var tensors []NamedTensor
	for _, d := range []meta.DType{
		meta.Float64, meta.Float32, meta.Float16, meta.BFloat16, meta.Int64, meta.Int32, meta.Int16, meta.Int8,
		meta.Uint8, meta.Float8E4M3, meta.Float8E5M2,
	} {
		tensors = append(tensors, raw(d.String(), d, 2, 3), raw(d.String()+".scalar", d))
	}
	file := filepath.Join(save(t, 0, tensors...), "model.safetensors")
	dir := t.TempDir()
	if err := WriteOffload(dir, slices.Values(tensors)); err != nil {
		t.Fatal(err)
	}
	reference(t, python, "offload", file, dir)
}
