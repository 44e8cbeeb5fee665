package cpu

import (
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// BenchmarkPauses computes with large weights and long contexts while the garbage collector
// runs again and again, and reports how long the world took to stop: kernels cannot be
// stopped, so their calls are short. "nothing" is a loop that can be stopped anywhere: what
// the system itself takes when it gives the processor to others.
func BenchmarkPauses(b *testing.B) {
	b.Run("nothing", func(b *testing.B) {
		pauses(b, "go", func(be *Backend, _ *pauseMemory) func() {
			return func() { be.run(taskFunc(func(*worker, int) { spun.Store(int64(spin())) }), 64, 64*20_000) }
		})
	})
	for _, variant := range kernels.Names() {
		for name, ops := range pauseOps {
			b.Run(variant+"/"+name, func(b *testing.B) { pauses(b, variant, ops) })
		}
	}
}

// pauseOps are what computes meanwhile.
var pauseOps = map[string]func(*Backend, *pauseMemory) func(){
	"decode": func(be *Backend, m *pauseMemory) func() {
		return func() { be.Linear(m.y.Slice(0, 1), m.x.Slice(0, 1), m.w, tensor.Tensor{}) }
	},
	"prompt": func(be *Backend, m *pauseMemory) func() {
		return func() { be.LinearRounded(m.y, m.x, m.w, tensor.Tensor{}, backend.Prompt) }
	},
	"decode q8_0": func(be *Backend, m *pauseMemory) func() {
		return func() {
			be.LinearRounded(m.y.Slice(0, 1), m.x.Slice(0, 1), m.bands, tensor.Tensor{}, backend.Generated)
		}
	},
	"prompt q8_0": func(be *Backend, m *pauseMemory) func() {
		return func() { be.LinearRounded(m.y, m.x, m.bands, tensor.Tensor{}, backend.Prompt) }
	},
	"prompt q8_0 high": func(be *Backend, m *pauseMemory) func() {
		return func() { be.Linear(m.y, m.x, m.bands, tensor.Tensor{}) }
	},
	"context": func(be *Backend, m *pauseMemory) func() {
		return func() {
			be.Attention(m.heads, m.heads, m.kv, m.spans, backend.AttentionArgs{Heads: 32, KVHeads: 4, Dim: 64, ValueDim: 64, Scale: 1})
		}
	},
}

// spun keeps the work of spin from being left out.
var spun atomic.Int64

// spin is some microseconds of work.
//
//go:noinline
func spin() (sum int) {
	for i := range 20_000 {
		sum += i * i
	}
	return sum
}

// pauseMemory is what operations work on: a matrix, the same converted, 128 rows, and 16384 tokens
// of context.
type pauseMemory struct {
	w     backend.Matrix
	bands backend.Matrix
	x, y  tensor.Tensor
	heads tensor.Tensor
	kv    backend.KV
	spans []backend.Span
}

func newPauseMemory(b *testing.B, be *Backend) *pauseMemory {
	const rows, cols, tokens, page, context = 4096, 8192, 128, 16, 16384
	memory := func(d meta.DType, dims ...int) tensor.Tensor {
		t, err := be.New(d, dims...)
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	m := &pauseMemory{w: backend.Matrix{Tensor: memory(meta.BFloat16, rows, cols)},
		x: memory(meta.Float32, tokens, cols), y: memory(meta.Float32, tokens, rows), heads: memory(meta.Float32, 1, 32*64),
		kv: backend.KV{K: memory(meta.BFloat16, context/page, page, 4*64), V: memory(meta.BFloat16, context/page, page, 4*64), PageTokens: page, Heads: 4}}
	m.bands.Tensor = m.w.Tensor
	m.bands.Data = memory(meta.Uint8, rows*cols/32, 34).Data
	m.bands.Quant = &backend.Quant{Quant: &meta.Quant{Format: meta.QuantQ8, Rows: 1, Columns: 32}, Width: cols, Height: rows}
	for _, w := range []backend.Matrix{m.w, m.bands} {
		for i := range w.Data {
			w.Data[i] = 1
		}
	}
	span := backend.Span{Rows: 1, Start: context - 1}
	for i := range context / page {
		span.Pages = append(span.Pages, int32(i))
	}
	m.spans = []backend.Span{span}
	return m
}

func pauses(b *testing.B, variant string, ops func(*Backend, *pauseMemory) func()) {
	be, err := New(Options{Threads: runtime.GOMAXPROCS(0), Variant: variant})
	if err != nil {
		b.Fatal(err)
	}
	defer be.Close()
	op := ops(be, newPauseMemory(b, be))
	stop, done, before := make(chan struct{}), make(chan struct{}), stops()
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
				runtime.GC()
			}
		}
	}()
	for b.Loop() {
		op()
	}
	close(stop)
	<-done
	if err := be.Sync(); err != nil {
		b.Fatal(err)
	}
	count, longest, most, mean := difference(before, stops())
	b.ReportMetric(longest*1e3, "max-stop-ms")
	b.ReportMetric(most*1e3, "p98-stop-ms")
	b.ReportMetric(mean*1e3, "mean-stop-ms")
	b.ReportMetric(float64(count), "stops")
}

// stops is how often it took how long to stop the world for the collector.
func stops() *metrics.Float64Histogram {
	s := []metrics.Sample{{Name: "/sched/pauses/stopping/gc:seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64Histogram()
}

// difference is the number of stops between two looks, and the upper bounds of the longest, of
// all but two in a hundred, and the mean of them in seconds.
func difference(before, after *metrics.Float64Histogram) (count uint64, longest, most, mean float64) {
	sum := 0.0
	each := func(f func(n uint64, upper float64)) {
		for i, n := range after.Counts {
			if n -= before.Counts[i]; n > 0 && !math.IsInf(after.Buckets[i+1], 0) {
				f(n, after.Buckets[i+1])
			}
		}
	}
	each(func(n uint64, upper float64) { count, longest, sum = count+n, upper, sum+float64(n)*upper })
	seen := uint64(0)
	each(func(n uint64, upper float64) {
		if 100*seen < 98*count {
			most = upper
		}
		seen += n
	})
	return count, longest, most, sum / math.Max(float64(count), 1)
}

// TestDifferenceOfStops: earlier stops do not count.
func TestDifferenceOfStops(t *testing.T) {
	h := func(counts ...uint64) *metrics.Float64Histogram {
		return &metrics.Float64Histogram{Counts: counts, Buckets: []float64{0, 1, 2, 4}}
	}
	count, longest, most, mean := difference(h(3, 0, 7), h(102, 1, 7))
	if got, want := fmt.Sprint(count, longest, most, mean), "100 2 1 1.01"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
