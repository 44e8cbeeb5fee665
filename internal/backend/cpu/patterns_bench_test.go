package cpu_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/meta"
)

// BenchmarkPackingPatterns reports for each pattern of packing how many times faster prompts go through layers that no cache
// holds than with the first one: medians of the ratios of layers in turn, so that a neighbour slows all alike.
func BenchmarkPackingPatterns(b *testing.B) {
	for _, threads := range []int{1, 2} {
		for _, tokens := range []int{64, 256, 512} {
			b.Run(fmt.Sprintf("%d threads/%d tokens", threads, tokens), func(b *testing.B) { benchPacking(b, threads, tokens) })
		}
	}
}

func benchPacking(b *testing.B, threads, tokens int) {
	defer fetch.Use(fetch.Current())
	backendOf, err := cpu.New(cpu.Options{Threads: threads})
	if err != nil {
		b.Fatal(err)
	}
	defer backendOf.Close()
	var layers [4]*layer // 88 MB each
	for i := range layers {
		layers[i] = newLayer(b, backendOf, meta.BFloat16, tokens)
		layers[i].rounded, layers[i].role = true, backend.Prompt
	}
	patterns := fetch.Candidates(fetch.Packing)
	ratios := make([][]float64, len(patterns))
	for b.Loop() {
		for turn := range patterns {
			took := make([]float64, len(patterns))
			for k := range patterns {
				i := (turn + k) % len(patterns)
				fetch.UseFor(fetch.Packing, patterns[i])
				begin := time.Now()
				layers[(turn+k)%len(layers)].run()
				took[i] = time.Since(begin).Seconds()
			}
			for i, t := range took {
				ratios[i] = append(ratios[i], took[0]/t)
			}
		}
	}
	for i, p := range patterns {
		slices.SortFunc(ratios[i], cmp.Compare)
		b.ReportMetric(ratios[i][len(ratios[i])/2], strings.NewReplacer(" ", "-", ",", "").Replace(p.String())+"-x")
	}
}
