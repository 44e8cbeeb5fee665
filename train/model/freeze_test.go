package model

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/train/tensor"
)

// ownModel returns a folder with one of the project's own models. It exists until t ends.
func ownModel(t *testing.T, name string) string {
	return golden.Unpacked(t, filepath.Join(golden.Module(t), "testdata/golden/train/gradients", name))
}

// ownFiles returns the paths of a file of all of the project's own models that have it. Weights in its folder may be
// packed: see golden.Unpacked.
func ownFiles(t *testing.T, name string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(golden.Module(t), "testdata/golden/train/gradients/*", name))
	if err != nil || len(paths) == 0 {
		t.Fatalf("got no %s (%v)", name, err)
	}
	return paths
}

func someBatch(ids ...int) Batch { return Batch{IDs: ids, Length: len(ids)} }

// TestFrozenParametersStayInTheCheckpoint: trained parameters get the gradients they get when
// everything is trained, frozen weights are not parameters, and the checkpoint has all weights.
func TestFrozenParametersStayInTheCheckpoint(t *testing.T) {
	for name, trained := range map[string]string{
		"deepseek-v3": "layers.1.mlp.experts", "gpt-oss": "layers.0.self_attn", "gemma2": "norm", "qwen3-moe": "embed_tokens", "gpt-neox": "layers.1.",
	} {
		t.Run(name, func(t *testing.T) {
			dir := ownModel(t, name)
			b := someBatch(3, 9, 4, 8, 30, 12, 7)
			all, err := openFile(t, dir, dir)
			if err != nil {
				t.Fatal(err)
			}
			want := gradients(t, all, b, false)
			for _, recompute := range []bool{false, true} {
				some, err := openFile(t, dir, dir, Freeze(func(path string) bool { return !strings.Contains(path, trained) }))
				if err != nil {
					t.Fatal(err)
				}
				got := gradients(t, some, b, recompute)
				for path, p := range some.Parameters() {
					if !strings.Contains(path, trained) || p.Grad() == nil {
						t.Errorf("parameter %s, gradient %v", path, p.Grad() != nil)
					}
				}
				for n, g := range got {
					if strings.Contains(n, trained) {
						near(t, n, g, want[n], 2e-5)
					}
				}
				checkpointsAgree(t, all, some)
				if err := some.Close(); err != nil {
					t.Error(err)
				}
			}
			if err := all.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// checkpointsAgree compares names and values.
func checkpointsAgree(t *testing.T, a, b *Model) {
	t.Helper()
	x, y := named(t, a.Checkpoint), named(t, b.Checkpoint)
	if len(x) != len(y) {
		t.Errorf("%d tensors and %d", len(x), len(y))
	}
	for n := range x {
		if !slices.Equal(x[n], y[n]) {
			t.Errorf("%s differs", n)
		}
	}
}

// TestNothingToTrain: a loss behind which nothing is trained has no Backward, and a head
// alone can be trained.
func TestNothingToTrain(t *testing.T) {
	dir := ownModel(t, "olmo2")
	m, err := openFile(t, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	want := gradients(t, m, someBatch(3, 9, 4, 8), false)
	for _, p := range m.Parameters() {
		p.ZeroGrad()
		p.Trainable = false
	}
	tp := tensor.NewTape(tensor.Options{})
	loss, err := m.Loss(tp, someBatch(3, 9, 4, 8), Options{})
	if err != nil || loss.RequiresGrad() {
		t.Fatalf("loss needs a gradient: %v, %v", loss.RequiresGrad(), err)
	}
	if err := tp.Backward(loss, 1); err == nil {
		t.Error("Backward of a constant is no error")
	}
	for name, p := range m.Parameters() {
		p.Trainable = name == "lm_head.weight"
	}
	got := gradients(t, m, someBatch(3, 9, 4, 8), false)
	near(t, "lm_head.weight", got["lm_head.weight"], want["lm_head.weight"], 1e-7)
	for name, p := range m.Parameters() {
		if (p.Grad() != nil) != p.Trainable {
			t.Errorf("%s: a gradient %v", name, p.Grad() != nil)
		}
	}
}

// TestNothingIsLeftBelowTheFirstTrainedBlock: a block reads inputs by layer, and keys and values, of units that are
// not reversed while they are frozen. Their gradients were added to those of the first pass that reversed these units.
func TestNothingIsLeftBelowTheFirstTrainedBlock(t *testing.T) {
	for _, name := range []string{"gemma3n", "gemma4-small", "mistral-large4"} {
		dir := ownModel(t, name)
		m, err := openFile(t, dir, dir)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		b := someBatch(3, 9, 4, 8, 1, 20)
		for _, recompute := range []bool{false, true} {
			want := gradients(t, m, b, recompute)
			last := strings.Count(strings.Join(m.names, " "), ".input_layernorm.weight") - 1
			for path, p := range m.Parameters() {
				p.Trainable = strings.Contains(path, fmt.Sprintf("layers.%d.", last))
			}
			gradients(t, m, b, recompute)
			for _, p := range m.Parameters() {
				p.Trainable = true
			}
			for tensor, g := range gradients(t, m, b, recompute) {
				if !slices.Equal(g, want[tensor]) {
					t.Errorf("%s, recompute %v: %s has another gradient after a pass that trained the last block", name, recompute, tensor)
				}
			}
		}
	}
}

// TestDroppedLoss: a loss that is never reversed leaves nothing behind.
func TestDroppedLoss(t *testing.T) {
	dir := ownModel(t, "gemma3")
	m, err := openFile(t, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b := someBatch(3, 9, 4, 8, 1, 20)
	want := gradients(t, m, b, false)
	tp := tensor.NewTape(tensor.Options{})
	for range 3 {
		if _, err := m.Loss(tp, b, Options{}); err != nil {
			t.Fatal(err)
		}
		if err := tp.Reset(); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.sessions.free) != 1 {
		t.Errorf("%d sessions", len(m.sessions.free))
	}
	for name, g := range gradients(t, m, b, true) {
		if !slices.Equal(g, want[name]) {
			t.Errorf("%s has another gradient after losses that were dropped", name)
		}
	}
}

// TestLogitsHaveGradients: a loss of one's own over the logits gives the gradients of Loss,
// and so does one loss for each place.
func TestLogitsHaveGradients(t *testing.T) {
	dir := ownModel(t, "qwen3-moe")
	m, err := openFile(t, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b := someBatch(3, 9, 4, 8, 1, 20)
	want := gradients(t, m, b, false)
	for _, each := range []bool{false, true} {
		for _, p := range m.Parameters() {
			p.ZeroGrad()
		}
		tp := tensor.NewTape(tensor.Options{})
		var loss *tensor.Tensor
		if each {
			losses, err := m.Loss(tp, b, Options{CrossEntropyOptions: tensor.CrossEntropyOptions{Reduction: tensor.None}})
			if err != nil {
				t.Fatal(err)
			}
			loss = tp.Scale(tp.Sum(losses), 1/float32(len(b.IDs)-1))
		} else {
			logits, err := m.Logits(tp, b)
			if err != nil {
				t.Fatal(err)
			}
			loss = tp.CausalLoss(logits, b.IDs, tensor.CrossEntropyOptions{})
		}
		if err := tp.Backward(loss, 1); err != nil {
			t.Fatal(err)
		}
		for name, g := range named(t, m.Gradients) {
			near(t, name, g, want[name], 2e-6)
		}
	}
}

// TestCutFileWhileMapped: a frozen base whose file was cut short fails the pass that
// touches it and names the file; the model lives.
func TestCutFileWhileMapped(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors"} {
		data, err := golden.Read(filepath.Join(ownModel(t, "granite"), name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m, err := openFile(t, dir, dir, Freeze(func(path string) bool { return path != "lm_head.weight" }))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	path := filepath.Join(dir, "model.safetensors")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	tp := tensor.NewTape(tensor.Options{})
	for range 2 {
		if _, err := m.Loss(tp, someBatch(3, 9, 4), Options{}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v", err)
		}
	}
}

// TestAFrozenBaseThatIsOverwrittenIsNoticed: a run went on with gradients of two models.
func TestAFrozenBaseThatIsOverwrittenIsNoticed(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(ownModel(t, "granite"))); err != nil {
		t.Fatal(err)
	}
	m, err := openFile(t, dir, dir, Freeze(func(path string) bool { return path != "lm_head.weight" }))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tp := tensor.NewTape(tensor.Options{})
	if _, err := m.Loss(tp, someBatch(3, 9, 4), Options{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.safetensors")
	if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Loss(tp, someBatch(3, 9, 4), Options{}); !errors.Is(err, loader.ErrChanged) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

// TestFloat16Autocast: losses are those of float32 within float16's precision, and a scale
// that is too large overflows gradients.
func TestFloat16Autocast(t *testing.T) {
	for _, name := range []string{"granite", "gpt-neox", "gpt-oss"} {
		dir := ownModel(t, name)
		m, err := openFile(t, dir, dir)
		if err != nil {
			t.Fatal(err)
		}
		b := someBatch(3, 9, 4, 8, 1, 20)
		want := gradients(t, m, b, false)
		for _, scale := range []float32{1024, 1e9} {
			tp := tensor.NewTape(tensor.Options{Autocast: tensor.Float16})
			for _, p := range m.Parameters() {
				p.ZeroGrad()
			}
			loss, err := m.Loss(tp, b, Options{})
			if err == nil {
				err = tp.Backward(loss, scale)
			}
			if err != nil {
				t.Fatal(err)
			}
			finite := true
			for name, g := range named(t, m.Gradients) {
				for i, v := range g {
					finite = finite && !math.IsInf(float64(v), 0) && v == v
					if d := math.Abs(float64(v/scale - want[name][i])); scale < 1e6 && !(d <= 4e-3*(1+math.Abs(float64(want[name][i])))) {
						t.Fatalf("%s[%d] is %g, %g in float32", name, i, v/scale, want[name][i])
					}
				}
			}
			if finite != (scale < 1e6) {
				t.Errorf("%s: with the scale %g gradients are finite: %v", name, scale, finite)
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
