package sample

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkMask applies a mask of a vocabulary of 128,256 ids with most ids, half of them, or few.
func BenchmarkMask(b *testing.B) {
	const vocab = 128256
	for name, share := range map[string]float64{"most": 0.97, "half": 0.5, "few": 0.002} {
		b.Run(name, func(b *testing.B) {
			s, rng := New(vocab, ""), rand.New(rand.NewPCG(1, 2))
			words := make([]uint64, vocab/64)
			for id := range vocab {
				if rng.Float64() < share {
					words[id>>6] |= 1 << (id & 63)
				}
			}
			for b.Loop() {
				s.mask(words)
			}
		})
	}
}
