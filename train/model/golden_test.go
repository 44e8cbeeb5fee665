package model

import (
	"encoding/binary"
	"encoding/json"
	"iter"
	"math"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/golden"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// open binds a model of the training fixtures.
func open(t testing.TB, dir string) *Model {
	t.Helper()
	m, err := openFile(t, dir, filepath.Join(dir, "init.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// openFile binds the model of a folder's config to a checkpoint. The error is Load's.
func openFile(t testing.TB, dir, path string, options ...Option) (*Model, error) {
	t.Helper()
	config, err := golden.Read(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := meta.ReadConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ck, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	skeleton, err := meta.New(cfg, ck)
	if err != nil {
		t.Fatal(err)
	}
	b, err := loader.Bind(ck, skeleton)
	if err != nil {
		t.Fatal(err)
	}
	return Load(skeleton, b, options...)
}

// microBatch is one of data.json.
type microBatch struct {
	IDs    [][]int `json:"input_ids"`
	Labels [][]int
}

func (m microBatch) batch() Batch {
	var b Batch
	for i, row := range m.IDs {
		b.IDs, b.Labels, b.Length = append(b.IDs, row...), append(b.Labels, m.Labels[i]...), len(row)
	}
	return b
}

func TestGoldenFirstBatches(t *testing.T) {
	cases := 0
	for _, path := range golden.Glob(t, "train/models/*/first_batch_grads.safetensors") {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			cases++
			var data struct {
				Micro []microBatch `json:"micro_batches"`
			}
			golden.JSON(t, filepath.Join(dir, "data.json"), &data)
			m := open(t, dir)
			checkLogits(t, m, dir, data.Micro)
			checkGradients(t, m, dir, data.Micro[0].batch())
		})
	}
	golden.Count(t, "train/models/*/first_batch*", cases)
}

// checkLogits compares logits and losses of the first batches.
func checkLogits(t *testing.T, m *Model, dir string, micro []microBatch) {
	want := arrays(t, filepath.Join(dir, "first_batches_logits.safetensors"))
	tp := tensor.NewTape(tensor.Options{})
	tp.NoGrad(func() {
		for i := range micro {
			n := string(rune('0' + i))
			logits, ok := want["logits"+n]
			if !ok {
				break
			}
			got, err := m.Logits(tp, micro[i].batch())
			if err != nil {
				t.Fatal(err)
			}
			near(t, "logits"+n, got.Data(), logits, 2e-5)
			loss, err := m.Loss(tp, micro[i].batch(), Options{})
			if err != nil {
				t.Fatal(err)
			}
			near(t, "loss"+n, loss.Data(), want["loss"+n], 1e-5)
		}
	})
}

// checkGradients compares gradients by the checkpoint's names, with and without
// recomputed blocks, whose bits are the same.
func checkGradients(t *testing.T, m *Model, dir string, b Batch) {
	want := arrays(t, filepath.Join(dir, "first_batch_grads.safetensors"))
	first := map[string][]float32{}
	for _, recompute := range []bool{false, true} {
		got := gradients(t, m, b, recompute)
		if len(got) != len(want) {
			t.Errorf("%d gradients, want %d", len(got), len(want))
		}
		for name, w := range want {
			g, ok := got[name]
			if !ok {
				t.Errorf("no gradient %s", name)
				continue
			}
			if !recompute {
				near(t, name, g, w, 2e-6)
				first[name] = g
				continue
			}
			for i := range g {
				if g[i] != first[name][i] {
					t.Errorf("%s differs where blocks are computed again", name)
					break
				}
			}
		}
	}
}

func gradients(t *testing.T, m *Model, b Batch, recompute bool) map[string][]float32 {
	t.Helper()
	for _, p := range m.Parameters() {
		p.ZeroGrad()
	}
	tp := tensor.NewTape(tensor.Options{})
	loss, err := m.Loss(tp, b, Options{Recompute: recompute})
	if err == nil {
		err = tp.Backward(loss, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return named(t, m.Gradients)
}

// named are tensors under their names, widened. Buffers of integers are left out.
func named(t testing.TB, of func() (iter.Seq[loader.NamedTensor], error)) map[string][]float32 {
	t.Helper()
	tensors, err := of()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]float32{}
	for n := range tensors {
		if isInteger(n.DType) {
			continue
		}
		data, err := n.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		all[n.Name] = make([]float32, n.Size()/int64(n.DType.Bits()/8))
		if err := view.Widen(all[n.Name], data, n.DType); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func near(t *testing.T, name string, got, want []float32, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s has %d elements, want %d", name, len(got), len(want))
		return
	}
	for i, w := range want {
		if d := math.Abs(float64(got[i] - w)); !(d <= tolerance*(1+math.Abs(float64(w)))) {
			t.Errorf("%s[%d] = %g, want %g: off by %.2g", name, i, got[i], w, d)
			return
		}
	}
}

// arrays are the float32 tensors of a safetensors file of trusted make.
func arrays(t testing.TB, path string) map[string][]float32 {
	t.Helper()
	file, err := golden.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	size := binary.LittleEndian.Uint64(file)
	var header map[string]json.RawMessage
	if err := json.Unmarshal(file[8:8+size], &header); err != nil {
		t.Fatal(err)
	}
	delete(header, "__metadata__")
	all := map[string][]float32{}
	for name, raw := range header {
		var h struct {
			Offsets [2]int `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw, &h); err != nil {
			t.Fatal(err)
		}
		all[name] = floats(file[8+size:][h.Offsets[0]:h.Offsets[1]])
	}
	return all
}

func floats(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}
