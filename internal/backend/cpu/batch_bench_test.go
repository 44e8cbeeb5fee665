package cpu_test

import (
	"fmt"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/meta"
)

// BenchmarkBatch is sequences that decode together, through layers which no cache holds, in
// bytes of weights.
func BenchmarkBatch(b *testing.B) {
	for _, rounded := range []bool{true, false} {
		for _, tokens := range []int{1, 2, 4, 8, 16} {
			b.Run(fmt.Sprintf("rounded=%v/%d", rounded, tokens), func(b *testing.B) {
				host := open(b, 2, "")
				defer host.Close()
				var layers []*layer
				size := int64(0)
				for range 5 {
					l := newLayer(b, host, meta.BFloat16, tokens)
					l.rounded, l.role = rounded, backend.Generated
					layers = append(layers, l)
					size += l.bytes
				}
				b.SetBytes(size)
				for b.Loop() {
					for _, l := range layers {
						l.run()
					}
				}
				if err := host.Sync(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
