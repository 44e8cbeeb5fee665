package model

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/heftai/heft/train/tensor"
)

// TestStatesOfAStreamedBaseDoNotReadTheHead: reward models read the head of each step's base, forwards, though a head of their own
// replaces it.
func TestStatesOfAStreamedBaseDoNotReadTheHead(t *testing.T) {
	const hidden, vocab = 64, 1000
	for _, tied := range []bool{false, true} {
		dir := halfBase(t, fmt.Sprintf(`{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": %d, "torch_dtype": "bfloat16", "tie_word_embeddings": %v,
			"hidden_size": %d, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 64}`, vocab, tied, hidden))
		learn := func(options ...Option) ([]byte, int64) {
			m := adapted(t, dir, append([]Option{MaxMemory(1)}, options...)...)
			var out bytes.Buffer
			for range 2 {
				tp := tensor.NewTape(tensor.Options{})
				states, err := m.HiddenStatesOfBatches(tp, window{batches: 3}.uneven(vocab), make([]Options, 3))
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range states {
					fmt.Fprintf(&out, "%x\n", s.Data())
					if err := tp.Backward(tp.Sum(s), 1); err != nil {
						t.Fatal(err)
					}
				}
			}
			for name, p := range m.Parameters() {
				fmt.Fprintf(&out, "%s %x\n", name, p.Grad())
			}
			return out.Bytes(), m.FrozenMemory().Read
		}
		want, with := learn()
		got, without := learn(WithoutHead())
		if !bytes.Equal(got, want) {
			t.Errorf("tied %v: other states or gradients", tied)
		}
		if least := int64(2 * 2 * hidden * vocab); with-without < least { // once in each of two steps
			t.Errorf("tied %v: read %d bytes, %d with the head, want %d less", tied, without, with, least)
		}
		m := adapted(t, dir, MaxMemory(1), WithoutHead())
		tp := tensor.NewTape(tensor.Options{})
		b := window{batches: 1}.uneven(vocab)[0]
		if _, err := m.Loss(tp, b, Options{}); err == nil {
			t.Error("a loss without a head")
		}
		if _, err := m.Logits(tp, b); err == nil {
			t.Error("logits without a head")
		}
	}
}
