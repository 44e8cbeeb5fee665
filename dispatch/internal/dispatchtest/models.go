package dispatchtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A Shape is the shape of a random model, dense or MoE. Its sizes are not powers of two.
type Shape struct {
	Hidden, Inner, Heads, KV, Dim, Vocab, Layers int
	DType                                        meta.DType
	Tied, Experts                                bool
	Shift                                        int // bytes before the first weight
	Choose                                       int // experts that a token selects; 0 means 2
}

// Config returns the config.json of a Qwen3 model with this shape.
func (s Shape) Config() string {
	kind, more := "qwen3", ""
	if s.Experts {
		kind = "qwen3_moe"
		more = fmt.Sprintf(`"num_experts": 5, "num_experts_per_tok": %d, "moe_intermediate_size": %d, "norm_topk_prob": true, `, max(s.Choose, 2), s.Inner)
	}
	return fmt.Sprintf(`{"model_type": %q, "torch_dtype": %q, "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d,
		"num_attention_heads": %d, "num_key_value_heads": %d, "head_dim": %d, "vocab_size": %d, %s "max_position_embeddings": 128,
		"rms_norm_eps": 1e-5, "rope_theta": 10000, "hidden_act": "silu", "tie_word_embeddings": %v}`,
		kind, s.DType, s.Hidden, s.Inner, s.Layers, s.Heads, s.KV, s.Dim, s.Vocab, more, s.Tied)
}

// Folder returns the folder of a checkpoint of this shape with random weights.
func (s Shape) Folder(t *testing.T, r *rand.Rand) string {
	t.Helper()
	dir := t.TempDir()
	if err := atomicfile.WriteFile(filepath.Join(dir, "config.json"), []byte(s.Config())); err != nil {
		t.Fatal(err)
	}
	shift := make([]byte, s.Shift)
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
		tensors = append(tensors, loader.NamedTensor{Name: name, DType: s.DType, Shape: shape, Bytes: func() ([]byte, error) { return b, nil }})
	}
	mlp := func(at string) {
		add(at+"gate_proj.weight", s.Inner, s.Hidden)
		add(at+"up_proj.weight", s.Inner, s.Hidden)
		add(at+"down_proj.weight", s.Hidden, s.Inner)
	}
	add("model.embed_tokens.weight", s.Vocab, s.Hidden)
	for i := range s.Layers {
		at := fmt.Sprintf("model.layers.%d.", i)
		add(at+"input_layernorm.weight", s.Hidden)
		add(at+"self_attn.q_proj.weight", s.Heads*s.Dim, s.Hidden)
		add(at+"self_attn.k_proj.weight", s.KV*s.Dim, s.Hidden)
		add(at+"self_attn.v_proj.weight", s.KV*s.Dim, s.Hidden)
		add(at+"self_attn.o_proj.weight", s.Hidden, s.Heads*s.Dim)
		add(at+"self_attn.q_norm.weight", s.Dim)
		add(at+"self_attn.k_norm.weight", s.Dim)
		add(at+"post_attention_layernorm.weight", s.Hidden)
		if !s.Experts {
			mlp(at + "mlp.")
			continue
		}
		add(at+"mlp.gate.weight", 5, s.Hidden)
		for e := range 5 {
			mlp(fmt.Sprintf("%smlp.experts.%d.", at, e))
		}
	}
	add("model.norm.weight", s.Hidden)
	if !s.Tied {
		add("lm_head.weight", s.Vocab, s.Hidden)
	}
	if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (s Shape) bytes(r *rand.Rand, n int, scale, centre float64) (b []byte) {
	for range n {
		v := float32(centre + scale*r.NormFloat64())
		switch s.DType {
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

// LargeShape has matrices of more than 256 KiB.
var LargeShape = Shape{Hidden: 320, Inner: 544, Heads: 6, KV: 2, Dim: 64, Vocab: 515, Layers: 2, DType: meta.Float32, Shift: 3}

// CodableShapes are dense and MoE models whose matrices are wide enough to be coded.
var CodableShapes = []Shape{
	{Hidden: 256, Inner: 384, Heads: 4, KV: 2, Dim: 64, Vocab: 300, Layers: 2, DType: meta.BFloat16, Shift: 3},
	{Hidden: 320, Inner: 512, Heads: 4, KV: 2, Dim: 80, Vocab: 230, Layers: 1, DType: meta.BFloat16, Tied: true},
	{Hidden: 256, Inner: 320, Heads: 2, KV: 1, Dim: 128, Vocab: 231, Layers: 2, DType: meta.BFloat16, Experts: true, Shift: 5},
}

// LawIDsOf returns ids for a vocabulary of the given size, and how many of them are the prompt.
func LawIDsOf(vocab int) (ids []int32, prompt int) {
	ids, prompt = LawIDs()
	for i := range ids {
		ids[i] %= int32(vocab)
	}
	return ids, prompt
}

// Incompressible returns the folder of a model whose second matrices have values of a hundred
// magnitudes.
func Incompressible(t *testing.T) string {
	t.Helper()
	s := CodableShapes[0]
	r := rand.New(rand.NewPCG(3, 21))
	dir := s.Folder(t, r)
	_, checkpoint := OpenCheckpoint(t, dir)
	var tensors []loader.NamedTensor
	for from := range checkpoint.Tensors() {
		b, err := from.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		b = slices.Clone(b)
		if n := from.Name; n == "model.layers.1.mlp.up_proj.weight" || n == "model.layers.0.self_attn.q_proj.weight" {
			for i := 0; i+1 < len(b); i += 2 {
				binary.LittleEndian.PutUint16(b[i:], uint16(r.IntN(2))<<15|uint16(10+r.IntN(110))<<7|uint16(r.IntN(128)))
			}
		}
		tensors = append(tensors, loader.NamedTensor{Name: from.Name, DType: from.DType, Shape: from.Shape, Bytes: func() ([]byte, error) { return b, nil }})
	}
	to := t.TempDir()
	if err := atomicfile.WriteFile(filepath.Join(to, "config.json"), []byte(s.Config())); err != nil {
		t.Fatal(err)
	}
	if err := loader.Save(to, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	return to
}

// MixtureFolder returns the folder of a random MoE model with experts of the given width.
func MixtureFolder(t *testing.T, inner int) string {
	t.Helper()
	return Shape{Hidden: 96, Inner: inner, Heads: 4, KV: 2, Dim: 20, Vocab: 230, Layers: 3, DType: meta.BFloat16, Shift: 3, Experts: true, Choose: 2}.Folder(t, rand.New(rand.NewPCG(7, 7)))
}

// RunRandomTokens runs prompts and generates random tokens, several sequences at a time.
func RunRandomTokens(t *testing.T, m *dispatch.Model, passes int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(8, 8))
	for pass := 0; pass < passes; {
		sequences := make([]*dispatch.Sequence, 1+rng.IntN(3))
		for i := range sequences {
			sequences[i] = m.NewSequence()
		}
		for step := range 12 {
			var rows []dispatch.BatchRow
			for _, s := range sequences {
				tokens := make([]int32, 1)
				if step == 0 {
					tokens = make([]int32, 9)
				}
				for k := range tokens {
					tokens[k] = int32(rng.IntN(m.Vocab()))
				}
				rows = append(rows, dispatch.BatchRow{Sequence: s, Tokens: tokens, PromptLen: 9, Logits: dispatch.LogitsLast})
			}
			if _, err := m.Forward(t.Context(), &dispatch.Batch{Rows: rows}); err != nil {
				t.Fatal(err)
			}
			pass++
		}
		for _, s := range sequences {
			s.Free()
		}
	}
}
