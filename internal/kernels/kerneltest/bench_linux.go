package kerneltest

import (
	"testing"
	"time"

	"github.com/heftai/heft/internal/kernels/roof"
	"golang.org/x/sys/unix"
)

// Weights of a benchmark that no cache holds.
const (
	BenchWeights = 512 << 20
	benchPart    = 64 << 20 // of them in turn
)

// BesideReads times products with weights that no cache holds, in parts, and reports the share of
// the rate at which the same memory is read by a loop that does nothing else.
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

// Uncached is the memory of besideReads.
func Uncached(b *testing.B) []byte {
	data, err := unix.Mmap(-1, 0, BenchWeights, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = unix.Munmap(data) })
	_ = unix.Madvise(data, unix.MADV_HUGEPAGE)
	for i := range data {
		data[i] = 0x3c
	}
	return data
}
