package model

import (
	"encoding/json"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/train/optim"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// llamaModel is a folder of the project's own models, whose rows are multiples of 32.
func llamaModel(t *testing.T) string {
	return filepath.Join(golden.Module(t), "testdata", "golden", "train", "models", "llama")
}

// TestQuantizedBase: an adapter on a base that is converted when it is loaded has the loss and the
// gradients of an adapter on the dequantised weights.
func TestQuantizedBase(t *testing.T) {
	dir := llamaModel(t)
	weights := filepath.Join(dir, "init.safetensors")
	b := someBatch(3, 9, 4, 8, 30, 12, 7)
	for _, f := range []meta.QuantFormat{meta.QuantQ8, meta.QuantQ4} {
		plain, err := openFile(t, dir, weights)
		if err != nil {
			t.Fatal(err)
		}
		converted := plain.Meta().Root.Quantized()
		kernels, err := kernels.Select("")
		if err != nil {
			t.Fatal(err)
		}
		packing, _ := quant.Named(f.String())
		blocks := make([]byte, packing.BlockBytes())
		for p, q := range plain.trained {
			for rest := q.Data(); converted[p] > 0 && len(rest) > 0; rest = rest[32:] {
				kernels.Quant.PackBlocks(packing, blocks, rest[:32])
				quant.UnpackBlocks(packing, rest[:32], blocks)
			}
		}
		want := pairGradients(t, plain, b)
		m, err := openFile(t, dir, weights, Freeze(func(string) bool { return true }), Quantize(f))
		if err != nil {
			t.Fatal(err)
		}
		got := pairGradients(t, m, b)
		for i := range want {
			if d := math.Abs(float64(got[i] - want[i])); !(d <= 1e-5) {
				t.Fatalf("%v: value %d is %v, want %v", f, i, got[i], want[i])
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err := openFile(t, dir, weights, Freeze(func(string) bool { return true }), Quantize(meta.QuantQ8), MaxMemory(1<<20))
	if err == nil || !strings.Contains(err.Error(), "omit MaxMemory") {
		t.Errorf("with a limit: %v", err)
	}
	if _, err = openFile(t, dir, weights, Freeze(func(p string) bool { return strings.Contains(p, "norm") }), Quantize(meta.QuantQ8)); err == nil || !strings.Contains(err.Error(), "no frozen weights can be converted") {
		t.Errorf("norms: %v", err)
	}
}

// pairGradients returns the loss and the gradients of an adapter whose B is not 0.
func pairGradients(t *testing.T, m *Model, b Batch) []float32 {
	t.Helper()
	if err := m.AddLoRA(LoRAConfig{R: 4, Alpha: 8}, rng.New(1)); err != nil {
		t.Fatal(err)
	}
	random := rng.New(2)
	for i, p := range m.adapter.params {
		if i%2 == 1 {
			random.Uniform(p.Data(), -0.1, 0.1)
		}
	}
	tp := tensor.NewTape(tensor.Options{})
	loss, err := m.Loss(tp, b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	out := []float32{loss.Item()}
	if err := tp.Backward(loss, 1); err != nil {
		t.Fatal(err)
	}
	for _, p := range m.adapter.params {
		out = append(out, p.Grad()...)
	}
	if !slices.ContainsFunc(out[1:], func(v float32) bool { return v != 0 }) {
		t.Fatal("no gradient")
	}
	return out
}

// nf4Fixture is what bitsandbytes and PEFT computed (scripts/make-nf4-fixtures.py).
type nf4Fixture struct {
	Weights, Scales, Values []float32
	Codes                   []int
	IDs                     []int
	Length                  int
	Losses                  []float64
}

func readNF4(t *testing.T) (f nf4Fixture) {
	t.Helper()
	b, err := golden.Read(filepath.Join("testdata", "nf4.json"))
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestNF4IsBitsandbytes: codes and scales are bitsandbytes'.
func TestNF4IsBitsandbytes(t *testing.T) {
	want := readNF4(t)
	codes := make([]byte, 32)
	for i, scale := range want.Scales {
		got, ok := quant.PackNF4(codes, want.Weights[64*i:64*(i+1)])
		if !ok || got != scale {
			t.Errorf("scale %d is %v, want %v", i, got, scale)
		}
		for k, c := range codes {
			if int(c) != want.Codes[32*i+k] {
				t.Errorf("code %d is %#x, want %#x", 32*i+k, c, want.Codes[32*i+k])
			}
		}
	}
}

// TestQLoRAIsPEFTs: an rsLoRA adapter on a base in NF4 has PEFT's losses on bitsandbytes' numbers.
func TestQLoRAIsPEFTs(t *testing.T) {
	want := readNF4(t)
	dir := llamaModel(t)
	for _, recompute := range []bool{false, true} {
		m, err := openFile(t, dir, filepath.Join(dir, "init.safetensors"), Freeze(func(string) bool { return true }), Quantize(meta.QuantBnbNF4))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.AddLoRA(LoRAConfig{R: 4, Alpha: 8, RSLoRA: true}, rng.New(1)); err != nil {
			t.Fatal(err)
		}
		var params []optim.Param
		for _, p := range m.Parameters() {
			params = append(params, p)
		}
		opt, err := optim.NewAdamW(params, optim.AdamOptions{LR: 0.02})
		if err != nil {
			t.Fatal(err)
		}
		tp := tensor.NewTape(tensor.Options{})
		for i, w := range want.Losses {
			loss, err := m.Loss(tp, Batch{IDs: want.IDs, Length: want.Length}, Options{Recompute: recompute})
			if err != nil {
				t.Fatal(err)
			}
			if d := math.Abs(float64(loss.Item()) - w); !(d <= 1e-5) {
				t.Errorf("recompute %v: loss %d is %v, PEFT's %v", recompute, i, loss.Item(), w)
			}
			if err := tp.Backward(loss, 1); err != nil {
				t.Fatal(err)
			}
			if err := opt.Step(); err != nil {
				t.Fatal(err)
			}
			opt.ZeroGrad()
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
