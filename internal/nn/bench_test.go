package nn

import (
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/meta"
)

// BenchmarkToken generates one token with a tiny model: the cost of the rules without the
// arithmetic.
func BenchmarkToken(b *testing.B) {
	x := newSteps(b, meta.CausalLMSpec{})
	b.ReportAllocs()
	for b.Loop() {
		if x.seq.Len() == 64 {
			x.seq.Truncate(0)
		}
		if err := x.step(b, 3); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPrompt is a prompt of 96 tokens through the same model.
func BenchmarkPrompt(b *testing.B) {
	root := decoder(b, meta.CausalLMSpec{}, plainBlock)
	m := newMachine(b, root, newRandom(root), Limits{Rows: 96, Outputs: 1}, 8)
	seq := m.cache.NewSequence(0)
	tokens := make([]int32, 96)
	if err := seq.Reserve(len(tokens), len(tokens)); err != nil {
		b.Fatal(err)
	}
	in := Input{
		Tokens: tokens, KV: m.cache.Layers(), Logits: []int32{95},
		Groups: groups(m.cache, []*kvcache.Sequence{seq}, []backend.Span{{Rows: len(tokens)}}),
	}
	b.ReportAllocs()
	for b.Loop() {
		m.run(b, &in)
	}
}

func BenchmarkCompile(b *testing.B) {
	root := decoder(b, meta.CausalLMSpec{}, plainBlock)
	for b.Loop() {
		if _, err := Compile(root); err != nil {
			b.Fatal(err)
		}
	}
}
