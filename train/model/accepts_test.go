package model_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/tensor"
)

// frozen loads the model of a folder with all weights frozen and runs a batch.
func frozen(t *testing.T, dir string, options ...model.Option) error {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := meta.ReadConfig(config)
	if err != nil {
		return err
	}
	ck, err := loader.Open(dir)
	if err != nil {
		return err
	}
	defer ck.Close()
	skeleton, err := meta.New(cfg, ck)
	if err != nil {
		return err
	}
	b, err := loader.Bind(ck, skeleton)
	if err != nil {
		return err
	}
	m, err := model.Load(skeleton, b, append(options, model.Freeze(func(string) bool { return true }))...)
	if err != nil {
		return err
	}
	defer m.Close()
	tp := tensor.NewTape(tensor.Options{})
	_, err = m.Logits(tp, model.Batch{IDs: []int{1, 2, 3, 4}, Length: 4})
	return err
}

// served loads and runs the model of a folder as serve does.
func served(ctx context.Context, dir string) error {
	m, err := dispatch.Open(dir, dispatch.Options{KVTokens: 64, MeasurementsDir: "none"})
	if err != nil {
		return err
	}
	defer m.Close()
	for _, err := range m.Generate(ctx, []int32{1, 2, 3, 4}, dispatch.GenerateOptions{MaxTokens: 1}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// storedAs writes the small llama with its matrices in another dtype, and returns its folder.
func storedAs(t *testing.T, dtype meta.DType) string {
	t.Helper()
	from, dir := filepath.Join(golden.Module(t), "testdata/golden/train/models/llama"), t.TempDir()
	config, err := golden.Read(filepath.Join(from, "config.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	ck, err := loader.Open(filepath.Join(from, "init.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	err = loader.Save(dir, func(yield func(loader.NamedTensor) bool) {
		for x := range ck.Tensors() {
			n := dtype.Bytes(meta.Elements(x.Shape))
			bytes := func() ([]byte, error) { return make([]byte, n), nil }
			if !yield(loader.NamedTensor{Name: x.Name, DType: dtype, Shape: x.Shape, Bytes: bytes}) {
				return
			}
		}
	}, loader.SaveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestTrainingAcceptsWhatServingAccepts: a frozen base in any dtype is used, or refused with the same error,
// mapped and streamed.
func TestTrainingAcceptsWhatServingAccepts(t *testing.T) {
	refused := 0
	for _, dtype := range []meta.DType{meta.Float32, meta.BFloat16, meta.Float16, meta.Float64, meta.Float8E4M3, meta.Float8E5M2, meta.Int8, meta.Int32, meta.Bool} {
		dir := storedAs(t, dtype)
		want := served(t.Context(), dir)
		if want != nil {
			refused++
		}
		for name, options := range map[string][]model.Option{"mapped": nil, "streamed": {model.MaxMemory(1)}} {
			if got := frozen(t, dir, options...); reason(got) != reason(want) {
				t.Errorf("%v, %s: got %q, want %q", dtype, name, reason(got), reason(want))
			}
		}
	}
	if refused == 0 {
		t.Error("nothing is refused")
	}
}

// reason is the text of an error without the name of the package that reports it.
func reason(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	for _, prefix := range []string{"dispatch: ", "model: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}
