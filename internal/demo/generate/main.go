// Command generate makes the embedded demo model: a tokenizer learnt from a text in this
// package and a llama with random weights, the same on every machine.
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"hash/fnv"
	"log"
	"math"
	"math/rand/v2"
	"os"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

func main() {
	log.SetFlags(0)
	dir := flag.String("o", "model", "folder to write")
	flag.Parse()
	if err := generate(*dir); err != nil {
		log.Fatal("generate: ", err)
	}
}

func generate(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	v := learn(corpus, specials, vocabSize)
	if len(v.tokens) != vocabSize {
		return fmt.Errorf("the text gives %d tokens, not %d", len(v.tokens), vocabSize)
	}
	for name, content := range map[string]any{
		"config.json":            config(),
		"generation_config.json": generationConfig(),
		"tokenizer.json":         tokenizer(v),
		"tokenizer_config.json":  tokenizerConfig(),
	} {
		if err := writeJSON(dir, name, content); err != nil {
			return err
		}
	}
	return loader.Save(dir, weights, loader.SaveOptions{})
}

// weights yields the tensors: ones for norms, normal numbers for matrices, drawn from a
// stream that the tensor's name seeds.
func weights(yield func(loader.NamedTensor) bool) {
	headDim := hidden / heads
	tensors := []struct {
		name  string
		shape []int
	}{{"model.embed_tokens.weight", []int{vocabSize, hidden}}, {"model.norm.weight", []int{hidden}}}
	add := func(name string, shape ...int) {
		tensors = append(tensors, struct {
			name  string
			shape []int
		}{name, shape})
	}
	for i := range layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		add(p+"input_layernorm.weight", hidden)
		add(p+"post_attention_layernorm.weight", hidden)
		add(p+"self_attn.q_proj.weight", heads*headDim, hidden)
		add(p+"self_attn.k_proj.weight", kvHeads*headDim, hidden)
		add(p+"self_attn.v_proj.weight", kvHeads*headDim, hidden)
		add(p+"self_attn.o_proj.weight", hidden, heads*headDim)
		add(p+"mlp.gate_proj.weight", intermediate, hidden)
		add(p+"mlp.up_proj.weight", intermediate, hidden)
		add(p+"mlp.down_proj.weight", hidden, intermediate)
	}
	for _, t := range tensors {
		data := values(t.name, t.shape)
		if !yield(loader.NamedTensor{Name: t.name, DType: meta.BFloat16, Shape: t.shape,
			Bytes: func() ([]byte, error) { return data, nil }}) {
			return
		}
	}
}

// values are the tensor's elements as bfloat16. The deviation of the embedding, which is
// also the head, is such that the next token is uncertain but not arbitrary.
func values(name string, shape []int) []byte {
	h := fnv.New64a()
	h.Write([]byte(name))
	rng := rand.New(rand.NewPCG(h.Sum64(), 7))
	deviation := 1 / math.Sqrt(float64(hidden))
	if len(shape) == 2 && shape[0] == vocabSize {
		deviation *= 3
	}
	out := make([]byte, 0, 2*meta.Elements(shape))
	for range meta.Elements(shape) {
		x := float32(1)
		if len(shape) == 2 {
			x = float32(rng.NormFloat64() * deviation)
		}
		out = binary.LittleEndian.AppendUint16(out, uint16(math.Float32bits(x)>>16))
	}
	return out
}
