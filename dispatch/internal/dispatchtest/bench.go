package dispatchtest

import (
	"context"
	"testing"

	"github.com/heftai/heft/dispatch"
)

// BenchmarkTokens measures the generation of single tokens after at most 100 earlier tokens.
func BenchmarkTokens(b *testing.B, m *dispatch.Model) {
	s := m.NewSequence()
	defer s.Free()
	batch := &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: []int32{5}, PromptLen: 1, Logits: dispatch.LogitsLast}}}
	b.ReportAllocs()
	for b.Loop() {
		if s.Len() >= 100 {
			s.Truncate(1)
		}
		if _, err := m.Forward(context.Background(), batch); err != nil {
			b.Fatal(err)
		}
	}
}
