package model

import (
	"encoding/binary"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// peftRun is a run of testdata/golden/train/peft.
type peftRun struct {
	traceRun
	Base string
	Seed *uint64 `json:"dropout_seed"`
}

// peftRuns returns the runs, their batches and their folder.
func peftRuns(t *testing.T) (dir string, micro []microBatch, runs []peftRun) {
	t.Helper()
	var trace struct {
		Micro []microBatch `json:"micro_batches"`
		Runs  []peftRun
	}
	dir = filepath.Join(golden.Module(t), "testdata", "golden", "train", "peft")
	if !golden.JSON(t, filepath.Join(dir, "trace.json"), &trace) || len(trace.Runs) == 0 {
		t.Fatalf("%s has no runs: make them with scripts/make-peft-fixtures.py", dir)
	}
	return dir, trace.Micro, trace.Runs
}

// TestGoldenPEFTTraces trains adapters with magnitudes (DoRA) and whole modules (modules_to_save) as PEFT did: losses,
// norms and weights of each step, the saved adapter, and the logits of the merged model. Biases, dropout, tied heads
// and weights stored as [in, out] are among them.
func TestGoldenPEFTTraces(t *testing.T) {
	cases := 0
	dir, micro, runs := peftRuns(t)
	for _, r := range runs {
		for _, recompute := range []bool{false, true} {
			name := r.Run
			if recompute {
				name += ", recomputed"
			}
			t.Run(name, func(t *testing.T) {
				cases++
				m := frozenModel(t, filepath.Join(dir, "base", r.Base, "model.safetensors"))
				if err := m.LoadAdapter(filepath.Join(dir, r.Run, "init")); err != nil {
					t.Fatal(err)
				}
				x := &replay{T: t, run: r.traceRun, m: m, micro: micro, recompute: recompute}
				if r.Seed != nil {
					x.dropout = rng.New(*r.Seed)
				}
				x.replay(dir)
				again := t.TempDir()
				if err := m.SaveAdapter(again); err != nil {
					t.Fatal(err)
				}
				limit := 3e-6
				if r.Optimizer.Name != "SGD" {
					limit = 3e-4
				}
				const file = "adapter_model.safetensors"
				within(t, arrays(t, filepath.Join(again, file)), arrays(t, filepath.Join(dir, r.Run, "final", file)), limit)
				mergedLogits(t, m, filepath.Join(dir, r.Run), r.Base)
			})
		}
	}
	golden.Count(t, "train/peft (training)", cases)
}

// mergedLogits compares the model that is left when an adapter is merged with PEFT's.
func mergedLogits(t *testing.T, m *Model, dir, base string) {
	t.Helper()
	tensors, err := m.MergeAdapter()
	if strings.HasPrefix(filepath.Base(dir), "saved_") { // these bases tie a saved module
		if err == nil || !strings.Contains(err.Error(), "tied to another weight") {
			t.Errorf("merging a saved module that is tied: %v, want an error", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	if err := loader.Save(to, tensors, loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	ids, want := logitsFixture(t, filepath.Join(dir, "logits.safetensors"))
	merged, err := openFile(t, filepath.Join(dir, "..", "base", base), to)
	if err != nil {
		t.Fatal(err)
	}
	tp := tensor.NewTape(tensor.Options{})
	tp.NoGrad(func() {
		got, err := merged.Logits(tp, ids)
		if err != nil {
			t.Fatal(err)
		}
		within(t, map[string][]float32{"logits": got.Data()}, map[string][]float32{"logits": want}, 2e-3)
	})
}

// logitsFixture reads tokens and the logits of the merged model.
func logitsFixture(t *testing.T, path string) (ids Batch, want []float32) {
	t.Helper()
	c, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for name, use := range map[string]func(x *loader.Tensor, b []byte){
		"input_ids": func(x *loader.Tensor, b []byte) {
			for ids.Length = x.Shape[1]; len(b) > 0; b = b[8:] {
				ids.IDs = append(ids.IDs, int(binary.LittleEndian.Uint64(b)))
			}
		},
		"merged_logits": func(_ *loader.Tensor, b []byte) { want = floats(b) },
	} {
		x, ok := c.Lookup(name)
		if !ok {
			t.Fatalf("%s has no %s", path, name)
		}
		b, err := x.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		use(x, b)
	}
	return ids, want
}

// TestAddLoRAStartsAsPEFT compares a new adapter with the one that PEFT makes under the same state of the generator:
// its magnitudes are the lengths of rows, and saved modules are the base's.
func TestAddLoRAStartsAsPEFT(t *testing.T) {
	dir, _, runs := peftRuns(t)
	for _, r := range runs {
		t.Run(r.Run, func(t *testing.T) {
			m := frozenModel(t, filepath.Join(dir, "base", r.Base, "model.safetensors"))
			first := filepath.Join(dir, r.Run, "init")
			if err := m.LoadAdapter(first); err != nil {
				t.Fatal(err)
			}
			c := m.adapter.Config
			added := frozenModel(t, filepath.Join(dir, "base", r.Base, "model.safetensors"))
			err := added.AddLoRA(LoRAConfig{R: c.R, Alpha: c.Alpha, RSLoRA: c.RSLoRA, DoRA: c.DoRA, Targets: c.Targets.List, Save: c.Save}, rng.New(1))
			if err != nil {
				t.Fatal(err)
			}
			got, want := valuesOf(added), valuesOf(m)
			if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
				t.Fatalf("parameters %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
			}
			for name := range got {
				if strings.HasSuffix(name, "lora_A.weight") { // random
					delete(got, name)
					delete(want, name)
				}
			}
			within(t, got, want, 1e-6)
			before, after := lossOf(t, m, Options{Base: true}), lossOf(t, added, Options{})
			if before != after {
				t.Errorf("a loss of %v with a new adapter, %v without", after, before)
			}
		})
	}
}

func valuesOf(m *Model) map[string][]float32 {
	out := map[string][]float32{}
	for name, p := range m.Parameters() {
		out[name] = p.Data()
	}
	return out
}

func lossOf(t *testing.T, m *Model, o Options) (loss float32) {
	t.Helper()
	tp := tensor.NewTape(tensor.Options{})
	tp.NoGrad(func() {
		l, err := m.Loss(tp, someTokensOf(m), o)
		if err != nil {
			t.Fatal(err)
		}
		loss = l.Item()
	})
	return loss
}

// someTokensOf is someTokens for models of any vocabulary.
func someTokensOf(m *Model) Batch {
	b := someTokens()
	for i := range b.IDs {
		b.IDs[i] %= m.spec.Vocab
	}
	return b
}

// TestDoRAGradientsAreSlopes compares gradients with differences of losses while the lengths of rows stay, through
// which no gradient goes: for the magnitudes, which the lengths do not depend on.
func TestDoRAGradientsAreSlopes(t *testing.T) {
	m := open(t, smallLlama(t))
	if err := m.AddLoRA(LoRAConfig{R: 2, DoRA: true, Pattern: ".*(proj|lm_head)"}, rng.New(5)); err != nil {
		t.Fatal(err)
	}
	spread(m)
	grads := adapterGradients(t, m, Options{})
	checked := 0
	for name, p := range m.Parameters() {
		if !strings.HasSuffix(name, "lora_magnitude_vector") {
			continue
		}
		const h = 1e-2
		i := p.Len() / 3
		old := p.Data()[i]
		p.Data()[i] = old + h
		up := float64(lossOf(t, m, Options{}))
		p.Data()[i] = old - h
		slope := (up - float64(lossOf(t, m, Options{}))) / (2 * h)
		p.Data()[i] = old
		if d := slope - float64(grads[name][i]); d > 2e-3*(1+max(slope, -slope)) || -d > 2e-3*(1+max(slope, -slope)) {
			t.Errorf("%s[%d]: gradient %g, slope %g", name, i, grads[name][i], slope)
		}
		checked++
	}
	if checked != 15 {
		t.Errorf("got %d magnitudes, want 15", checked)
	}
}
