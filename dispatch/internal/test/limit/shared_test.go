package limit_test

import (
	"encoding/binary"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// Models in which one or two transformer blocks serve some layers.
const (
	zamba = `{"model_type": "zamba", "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 300,
		"num_hidden_layers": 4, "layers_block_type": ["hybrid", "mamba", "hybrid", "hybrid"], "mamba_d_state": 8, "mamba_proj_bias": true, "torch_dtype": "bfloat16"}`
	zamba2 = `{"model_type": "zamba2", "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 2, "n_mamba_heads": 4, "vocab_size": 300,
		"num_hidden_layers": 5, "layers_block_type": ["hybrid", "hybrid", "mamba", "hybrid", "hybrid"], "num_mem_blocks": 2, "adapter_rank": 32,
		"use_mem_rope": true, "use_shared_attention_adapter": true, "torch_dtype": "bfloat16"}`
)

// sharing writes a checkpoint of a config with random weights.
func sharing(t *testing.T, text string) string {
	t.Helper()
	config := []byte(text)
	cfg, err := meta.ReadConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir, r := t.TempDir(), rand.New(rand.NewPCG(6, 6))
	var tensors []loader.NamedTensor
	for _, p := range skeleton.Root.AllParams() {
		if p.SameAs != nil {
			continue
		}
		scale, centre := 0.1, 0.0
		if len(p.Shape) == 1 {
			centre = 1
		}
		var b []byte
		for range p.Elements() {
			b = binary.LittleEndian.AppendUint16(b, mat.ToBFloat16(float32(centre+scale*r.NormFloat64())))
		}
		tensors = append(tensors, loader.NamedTensor{Name: p.Sources[0].Tensor, DType: meta.BFloat16, Shape: p.Shape, Bytes: func() ([]byte, error) { return b, nil }})
	}
	if err := atomicfile.WriteFile(filepath.Join(dir, "config.json"), config); err != nil {
		t.Fatal(err)
	}
	if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestSharedWeightsLeaveAndComeBack: weights that several layers use stream to each of them while a limit leaves no room for
// them, as stored and converted. Logits keep their bits, and the memory in use stays at the minimum.
func TestSharedWeightsLeaveAndComeBack(t *testing.T) {
	ids := make([]int32, 40)
	for i := range ids {
		ids[i] = int32(i*37%290 + 3)
	}
	for _, c := range []struct {
		name, config string
		quant        meta.QuantFormat
	}{{"zamba2", zamba2, meta.QuantNone}, {"zamba2 converted", zamba2, meta.QuantQ8}, {"zamba", zamba, meta.QuantNone}, {"zamba converted", zamba, meta.QuantQ8}} {
		t.Run(c.name, func(t *testing.T) {
			dir := sharing(t, c.config)
			m := dispatchtest.OpenModel(t, dir, dispatch.Options{Quantize: c.quant, Threads: 2, MaxSequences: 4})
			want := dispatchtest.ForcedLogits(t, m, ids, 20, 20)
			dispatchtest.LoadAll(t, m)
			dispatchtest.SameLogits(t, "promoted", dispatchtest.ForcedLogits(t, m, ids, 20, 20), want)
			least := m.SetMemoryLimit(0)
			dispatchtest.SameLogits(t, "streamed", dispatchtest.ForcedLogits(t, m, ids, 20, 20), want)
			if held := dispatchtest.Sum(m.Status().Held); held > least {
				t.Errorf("%d bytes are held, more than the minimum of %d", held, least)
			}
			dispatchtest.LimitWalks(t, m, ids, 20, want)
		})
	}
}

// streamInBands checks a model with all weights on the disk tier: its logits for ids, which it returns, are those in memory,
// and a pass reads as much as the plan says.
func streamInBands(t *testing.T, dir string) (ids []int32, want [][]float32) {
	t.Helper()
	ids = make([]int32, 24)
	for i := range ids {
		ids[i] = int32(i*31%290 + 3)
	}
	want = dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 2}), ids, 12, 12)
	m := dispatchtest.OnDisk(t, dir, dispatchtest.InBands(dispatch.Options{Threads: 2}, 8<<10))
	dispatchtest.SameLogits(t, "in bands", dispatchtest.ForcedLogits(t, m, ids, 12, 5), want)
	plan, reads := m.Plan(), dispatchtest.PassReads(m)
	if most := plan.DiskBytesPerToken + reads.Gaps; reads.Bytes > most || reads.Bytes < plan.DiskBytesPerToken/2 {
		t.Errorf("a pass reads %d bytes, want at most %d", reads.Bytes, most)
	}
	return ids, want
}

// TestSharedWeightsStreamInBands: with all weights on the disk tier, each layer reads the bands of the weights that it
// shares, and a pass as much as the plan says.
func TestSharedWeightsStreamInBands(t *testing.T) {
	dir := sharing(t, zamba2)
	ids, want := streamInBands(t, dir)
	policy, err := devicemap.ParsePolicy("model.layers.0.shared_transformer.self_attn.q_proj=disk")
	if err != nil {
		t.Fatal(err)
	}
	one := dispatchtest.OpenModel(t, dir, dispatchtest.InBands(dispatch.Options{Threads: 2, DeviceMap: policy}, 8<<10))
	dispatchtest.SameLogits(t, "one matrix in bands", dispatchtest.ForcedLogits(t, one, ids, 12, 5), want)
	plan := one.Plan()
	if got, matrix := plan.Streamed(), int64(128*128*2); got != 2*matrix || plan.DiskBytesPerToken != 0 {
		t.Errorf("a token would read %d bytes without lent memory and reads %d, want the %d of a matrix for each of two layers, and 0", got, plan.DiskBytesPerToken, matrix)
	}
}

// TestAlternatingRowsStreamInBands: a mixer of Zamba has even rows of a matrix for its channels and odd ones for their gates.
// It computes both from each band.
func TestAlternatingRowsStreamInBands(t *testing.T) {
	streamInBands(t, sharing(t, zamba))
}
