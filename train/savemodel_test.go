package train

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/checkpoint"
	"github.com/heftai/heft/train/optim"
)

// savedNet saves a net and opens the files.
func savedNet(t *testing.T, n *net, o SaveModelOptions) (string, *loader.Checkpoint) {
	t.Helper()
	a, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "out")
	if err := SaveModel(t.Context(), a, n, dir, o); err != nil {
		t.Fatal(err)
	}
	ck, err := loader.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ck.Close() })
	return dir, ck
}

func TestSaveModelRoundsAndSavesTiedOnesOnce(t *testing.T) {
	n := newNet(0.3)
	for _, c := range []struct {
		dtype meta.DType
		round func(float32) float32
	}{{meta.Float32, func(v float32) float32 { return v }}, {meta.BFloat16, optim.BFloat16}, {meta.Float16, optim.Float16}} {
		_, ck := savedNet(t, n, SaveModelOptions{DType: c.dtype})
		names := slices.Collect(ck.Names())
		if !slices.Equal(names, []string{"first.weight", "frozen", "moments", "second.weight"}) {
			t.Errorf("%v: tensors %v", c.dtype, names)
		}
		w, _ := ck.Lookup("first.weight")
		b, err := w.Bytes()
		if err != nil || w.DType != c.dtype || len(b) != int(c.dtype.Bytes(6)) {
			t.Fatalf("%v of %d bytes, %v", w.DType, len(b), err)
		}
		for i, v := range n.first.Data() {
			if got := elementAt(b, i, c.dtype); got != c.round(v) {
				t.Errorf("%v: %v is %v, want %v", c.dtype, v, got, c.round(v))
			}
		}
	}
	a, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := SaveModel(t.Context(), a, n, t.TempDir(), SaveModelOptions{DType: meta.Int8}); err == nil {
		t.Error("weights were rounded to int8")
	}
}

// elementAt is element i of b.
func elementAt(b []byte, i int, d meta.DType) float32 {
	if d == meta.Float32 {
		return checkpoint.Floats(b)[i]
	}
	h := uint32(b[2*i]) | uint32(b[2*i+1])<<8
	if d == meta.BFloat16 {
		return math.Float32frombits(h << 16)
	}
	v := math.Ldexp(float64(h&1023|1024), int(h>>10&31)-25)
	if h>>10&31 == 0 {
		v = math.Ldexp(float64(h&1023), -24)
	}
	return float32(math.Copysign(v, 1-2*float64(h>>15)))
}

func TestSaveModelCopiesOtherFiles(t *testing.T) {
	from := t.TempDir()
	for name, text := range map[string]string{
		"config.json":           `{"model_type": "net", "torch_dtype": "float32", "big": 12345678901234567890, "rate": 1e-05}`,
		"tokenizer.json":        `{"a": 1}`,
		"notes.txt":             "mine",
		"pytorch_model.bin":     "old",
		"chat_template.jinja":   "{{ x }}",
		"other.safetensors.bak": "",
	} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, _ := savedNet(t, newNet(1), SaveModelOptions{From: from, DType: meta.BFloat16, MaxShardSize: 20})
	var config map[string]json.RawMessage
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err == nil {
		err = json.Unmarshal(b, &config)
	}
	if err != nil || string(config["torch_dtype"]) != `"bfloat16"` || string(config["big"]) != "12345678901234567890" || string(config["rate"]) != "1e-05" {
		t.Errorf("config %s (%v)", b, err)
	}
	got := listing(t, dir)
	want := []string{"chat_template.jinja", "config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
		"model.safetensors.index.json", "tokenizer.json"}
	if !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
	a, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := SaveModel(t.Context(), a, newNet(1), t.TempDir(), SaveModelOptions{From: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("from a folder without a config: %v", err)
	}
}

// TestARankThatFailsKeepsAllFromSaving: no rank goes on as if there were a checkpoint.
func TestARankThatFailsKeepsAllFromSaving(t *testing.T) {
	fault := errors.New("the disk of rank 1 is full")
	dir := filepath.Join(t.TempDir(), "saved")
	world(t, 2, func(ctx context.Context, a *Accelerator) error {
		if err := a.Prepare(newNet(1)); err != nil {
			return err
		}
		a.RegisterSaveStatePreHook(func(string) error {
			if a.IsMainProcess() {
				return nil
			}
			return fault
		})
		_, err := a.SaveState(ctx, dir)
		if err == nil || !strings.Contains(err.Error(), fault.Error()) || a.SaveIteration() != 0 {
			t.Errorf("rank %d: %v, iteration %d", a.ProcessIndex(), err, a.SaveIteration())
		}
		return nil
	})
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// TestSkippingGoesOnInTheEpoch is the reference's way to go on: a seedable order, its
// epoch set, and the batches that were used skipped.
func TestSkippingGoesOnInTheEpoch(t *testing.T) {
	const used = 3
	epochs := func(from, skip int) (all [][]int) {
		a, err := New(Config{DataLoader: DataLoaderConfig{UseSeedableSampler: true, DataSeed: 5}})
		if err != nil {
			t.Fatal(err)
		}
		samples := make(data.Slice[int], 17)
		for i := range samples {
			samples[i] = i
		}
		l, err := data.NewLoader(samples, data.Samples[int], data.Options{BatchSize: 3, Shuffle: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Prepare(l); err != nil {
			t.Fatal(err)
		}
		for epoch := from; epoch < 3; epoch++ {
			l.SetEpoch(epoch)
			walked := l
			if epoch == from {
				walked = SkipFirstBatches(l, skip)
			}
			for b, err := range walked.All(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, b)
			}
		}
		return all
	}
	whole := epochs(0, 0)
	each := len(whole) / 3
	if rest := epochs(1, used); !slices.EqualFunc(rest, whole[each+used:], slices.Equal) {
		t.Errorf("went on with %v, want %v", rest, whole[each+used:])
	}
}
