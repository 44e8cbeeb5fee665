package kerneltest

import (
	"testing"
	"time"

	"github.com/heftai/heft/internal/kernels/roof"
)

// The weights of a benchmark, which exceed every cache.
const (
	BenchWeights = 512 << 20
	benchPart    = 64 << 20 // of them in turn
)

// BesideReads benchmarks products with weights that exceed every cache. It times the products and
// a loop that only reads the same memory in turn, part by part, and reports the ratio of their
// rates.
func BesideReads(b *testing.B, data []byte, products func(w []byte)) {
	var took, read time.Duration
	b.SetBytes(BenchWeights)
	for b.Loop() {
		for at := 0; at < BenchWeights; at += benchPart { // in turn, as rates wander
			start := time.Now()
			products(data[at:][:benchPart])
			middle := time.Now()
			for w := data[(at+BenchWeights/2)%BenchWeights:][:benchPart]; len(w) > 0; w = w[1<<20:] {
				roof.ReadMemory(w[:1<<20])
			}
			took, read = took+middle.Sub(start), read+time.Since(middle)
		}
	}
	b.ReportMetric(float64(read)/float64(took), "share")
}
