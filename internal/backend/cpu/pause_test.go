package cpu

import (
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// BenchmarkPauses decodes with large weights while the garbage collector runs again and
// again, and reports how long the world took to stop at most: kernels cannot be stopped, so
// their calls are short.
func BenchmarkPauses(b *testing.B) {
	for _, variant := range kernels.Names() {
		b.Run(variant, func(b *testing.B) { pauses(b, variant) })
	}
}

func pauses(b *testing.B, variant string) {
	const rows, cols = 4096, 8192
	be, err := New(Options{Threads: runtime.GOMAXPROCS(0), Variant: variant})
	if err != nil {
		b.Fatal(err)
	}
	defer be.Close()
	memory := func(d meta.DType, dims ...int) tensor.Tensor {
		t, err := be.New(d, dims...)
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	w := backend.Matrix{Tensor: memory(meta.BFloat16, rows, cols)}
	for i := range w.Data {
		w.Data[i] = 1
	}
	x, y := memory(meta.Float32, 1, cols), memory(meta.Float32, 1, rows)
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
		be.Linear(y, x, w, tensor.Tensor{})
	}
	close(stop)
	<-done
	if err := be.Sync(); err != nil {
		b.Fatal(err)
	}
	count, longest, mean := difference(before, stops())
	b.ReportMetric(longest*1e3, "max-stop-ms")
	b.ReportMetric(mean*1e3, "mean-stop-ms")
	b.ReportMetric(float64(count), "stops")
}

// stops is how often it took how long to stop the world for the collector.
func stops() *metrics.Float64Histogram {
	s := []metrics.Sample{{Name: "/sched/pauses/stopping/gc:seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64Histogram()
}

// difference is the number of stops between two looks, and the upper bound of the longest
// and the mean of them in seconds.
func difference(before, after *metrics.Float64Histogram) (count uint64, longest, mean float64) {
	sum := 0.0
	for i, n := range after.Counts {
		n -= before.Counts[i]
		upper := after.Buckets[i+1]
		if n == 0 || math.IsInf(upper, 0) {
			continue
		}
		count += n
		longest = upper
		sum += float64(n) * upper
	}
	return count, longest, sum / math.Max(float64(count), 1)
}

// TestDifferenceOfStops: what was there before does not count.
func TestDifferenceOfStops(t *testing.T) {
	h := func(counts ...uint64) *metrics.Float64Histogram {
		return &metrics.Float64Histogram{Counts: counts, Buckets: []float64{0, 1, 2, 4}}
	}
	count, longest, mean := difference(h(3, 0, 7), h(5, 2, 7))
	if got, want := fmt.Sprint(count, longest, mean), "4 2 1.5"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
