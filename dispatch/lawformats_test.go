package dispatch_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// formats are those that the matrices of a model are stored in, and whether experts are among them.
func formats(skeleton *meta.Model) string {
	var names []string
	for _, p := range skeleton.Root.AllParams() {
		name := p.DType.String()
		for _, s := range p.Sources {
			if s.Quant != nil {
				name = s.Quant.Format.String()
			}
		}
		if len(p.Shape) == 3 {
			name += " experts"
		}
		if len(p.Shape) >= 2 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// eachFormat runs test for one checkpoint of each set of formats, in every variant but plain Go.
func eachFormat(t *testing.T, test func(t *testing.T, g *golden.Model, variant string)) {
	seen := map[string]bool{}
	for g := range golden.Models(t) {
		skeleton, _ := open(t, g.Dir)
		stored := formats(skeleton)
		if seen[stored] {
			continue
		}
		seen[stored] = true
		for _, variant := range kernels.Names() {
			if variant != "go" { // which is slow
				t.Run(stored+"/"+variant, func(t *testing.T) { test(t, g, variant) })
			}
		}
	}
}

// TestPlacementNeverChangesTheAnswerOfAnyFormat holds law 4 for weights in every format that
// checkpoints have, and for experts.
func TestPlacementNeverChangesTheAnswerOfAnyFormat(t *testing.T) {
	runAtOnce(t, 4)
	eachFormat(t, func(t *testing.T, g *golden.Model, variant string) {
		prompt := g.Prompts[0].IDs
		for len(prompt) < 18 { // more than a page
			prompt = append(prompt, prompt...)
		}
		prompt = prompt[:18:18]
		ids := append(prompt, other(prompt[:8], 1, int(slices.Max(prompt))+1)...)
		for _, precision := range []dispatch.Precision{dispatch.PrecisionAuto, dispatch.PrecisionHigh} {
			if testing.Short() && variant != kernels.Names()[0] {
				continue
			}
			o := dispatch.Options{Variant: variant, Precision: precision, KVTokens: 4096}
			holdsLawOn(t, g.Dir, o, ids, len(prompt), []int{1, 3})
		}
	})
}

// TestDecodingAllocatesNothingInAnyFormat is TestDecodingAllocatesNothing for weights in every
// format that checkpoints have, and for experts.
func TestDecodingAllocatesNothingInAnyFormat(t *testing.T) {
	eachFormat(t, func(t *testing.T, g *golden.Model, variant string) {
		m := cpuModel(t, g.Dir, dispatch.Options{Variant: variant, Threads: 2, MaxSequences: 8})
		defer m.Close()
		for _, batch := range []int{1, 8} {
			if n := allocations(t, m, batch); n != 0 {
				t.Errorf("%d sequences: %v allocations a token", batch, n)
			}
		}
	})
}

// A shape is one of a random model: dense or a mixture, its sizes no powers of two.
type shape struct {
	hidden, inner, heads, kv, dim, vocab, layers int
	dtype                                        meta.DType
	tied, experts                                bool
	shift                                        int // bytes before the first weight
	choose                                       int // experts that a token selects; 0 means 2
}

func randomShape(r *rand.Rand) shape {
	pick := func(v ...int) int { return v[r.IntN(len(v))] }
	s := shape{hidden: pick(32, 64, 96, 160, 40, 33, 66, 72, 100, 127, 256, 320), inner: pick(32, 48, 64, 130, 77, 288, 352, 544),
		kv: pick(1, 2, 3), dim: pick(8, 16, 20, 32, 64, 80, 128), vocab: pick(230, 231, 256, 300, 515), layers: pick(1, 2),
		dtype: []meta.DType{meta.BFloat16, meta.BFloat16, meta.Float16, meta.Float32}[r.IntN(4)],
		tied:  r.IntN(2) == 0, experts: r.IntN(3) == 0, shift: r.IntN(9)}
	s.heads = s.kv * pick(1, 2, 3, 4, 7)
	return s
}

// config is a config.json of a Qwen3 of this shape.
func (s shape) config() string {
	kind, more := "qwen3", ""
	if s.experts {
		kind = "qwen3_moe"
		more = fmt.Sprintf(`"num_experts": 5, "num_experts_per_tok": %d, "moe_intermediate_size": %d, "norm_topk_prob": true, `, max(s.choose, 2), s.inner)
	}
	return fmt.Sprintf(`{"model_type": %q, "torch_dtype": %q, "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d,
		"num_attention_heads": %d, "num_key_value_heads": %d, "head_dim": %d, "vocab_size": %d, %s "max_position_embeddings": 128,
		"rms_norm_eps": 1e-5, "rope_theta": 10000, "hidden_act": "silu", "tie_word_embeddings": %v}`,
		kind, s.dtype, s.hidden, s.inner, s.layers, s.heads, s.kv, s.dim, s.vocab, more, s.tied)
}

// folder is a checkpoint of this shape with random weights.
func (s shape) folder(t *testing.T, r *rand.Rand) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(s.config()), 0o600); err != nil {
		t.Fatal(err)
	}
	shift := make([]byte, s.shift)
	tensors := []loader.NamedTensor{{Name: "a", DType: meta.Uint8, Shape: []int{len(shift)}, Bytes: func() ([]byte, error) { return shift, nil }}}
	add := func(name string, shape ...int) {
		scale, centre := 0.1, 0.0
		switch {
		case len(shape) == 1:
			centre = 1 // of a norm
		case strings.Contains(name, "embed"):
			scale = 1
		}
		b := s.bytes(r, int(meta.Elements(shape)), scale, centre)
		tensors = append(tensors, loader.NamedTensor{Name: name, DType: s.dtype, Shape: shape, Bytes: func() ([]byte, error) { return b, nil }})
	}
	mlp := func(at string) {
		add(at+"gate_proj.weight", s.inner, s.hidden)
		add(at+"up_proj.weight", s.inner, s.hidden)
		add(at+"down_proj.weight", s.hidden, s.inner)
	}
	add("model.embed_tokens.weight", s.vocab, s.hidden)
	for i := range s.layers {
		at := fmt.Sprintf("model.layers.%d.", i)
		add(at+"input_layernorm.weight", s.hidden)
		add(at+"self_attn.q_proj.weight", s.heads*s.dim, s.hidden)
		add(at+"self_attn.k_proj.weight", s.kv*s.dim, s.hidden)
		add(at+"self_attn.v_proj.weight", s.kv*s.dim, s.hidden)
		add(at+"self_attn.o_proj.weight", s.hidden, s.heads*s.dim)
		add(at+"self_attn.q_norm.weight", s.dim)
		add(at+"self_attn.k_norm.weight", s.dim)
		add(at+"post_attention_layernorm.weight", s.hidden)
		if !s.experts {
			mlp(at + "mlp.")
			continue
		}
		add(at+"mlp.gate.weight", 5, s.hidden)
		for e := range 5 {
			mlp(fmt.Sprintf("%smlp.experts.%d.", at, e))
		}
	}
	add("model.norm.weight", s.hidden)
	if !s.tied {
		add("lm_head.weight", s.vocab, s.hidden)
	}
	if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (s shape) bytes(r *rand.Rand, n int, scale, centre float64) (b []byte) {
	for range n {
		v := float32(centre + scale*r.NormFloat64())
		switch s.dtype {
		case meta.BFloat16:
			b = binary.LittleEndian.AppendUint16(b, mat.ToBFloat16(v))
		case meta.Float16:
			b = binary.LittleEndian.AppendUint16(b, mat.ToFloat16(v))
		default:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return b
}

// TestPlacementNeverChangesTheAnswerOfAnyShape holds law 4 for random shapes: rows and columns that
// fill no vector, block or tile, heads of any width, prompts and drafts of any length, formats,
// variants and numbers of threads, weights as stored and converted.
func TestPlacementNeverChangesTheAnswerOfAnyShape(t *testing.T) {
	runAtOnce(t, 4)
	cases := 30
	if testing.Short() {
		cases = 10
	}
	for seed := range cases {
		r := rand.New(rand.NewPCG(uint64(seed), 4))
		s, names := randomShape(r), kernels.Names()
		o := dispatch.Options{Variant: names[r.IntN(max(len(names)-1, 1))]} // plain Go is slow
		if r.IntN(2) == 0 {
			o.Precision = dispatch.PrecisionHigh
		}
		if r.IntN(3) == 0 {
			o.KVDType = meta.Int8
		}
		if s.hidden%32 == 0 {
			o.Quantize = []meta.QuantFormat{meta.QuantNone, meta.QuantQ8, meta.QuantQ4}[r.IntN(3)]
		}
		ids, prompt, threads := make([]int32, 27+r.IntN(30)), 0, 1+r.IntN(4)
		for i := range ids {
			ids[i] = r.Int32N(int32(s.vocab))
		}
		prompt = len(ids) - 9
		t.Run(fmt.Sprintf("%d %+v %s %v %v %v, %d threads", seed, s, o.Variant, o.Precision, o.KVDType, o.Quantize, threads), func(t *testing.T) {
			holdsLawOn(t, s.folder(t, r), o, ids, prompt, []int{1, threads})
		})
	}
}
