package probe

import (
	"context"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/roof"
)

// piece is the number of bytes read between two clock checks: some tens of microseconds.
const piece = 1 << 20

// memory measures the memory bandwidth for each number of threads.
func memory(ctx context.Context, o Options) ([]MemoryRate, error) {
	size := int64(memoryBytes)
	if o.MemoryBytes > 0 {
		size = min(size, o.MemoryBytes)
	}
	if o.MemoryBytes < 0 || size < leastMemory {
		return nil, nil
	}
	block, err := hostmem.Alloc(o.Ledger, hostmem.Other, int(size))
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	defer func() { _ = block.Release() }() // held once
	data := fill(ctx, block.Bytes(), o.Threads[len(o.Threads)-1])
	if len(data) < leastMemory {
		return nil, ctx.Err()
	}
	var rates []MemoryRate
	slice := memorySlice / time.Duration(len(o.Threads))
	for _, n := range o.Threads {
		rates = append(rates, MemoryRate{Threads: n, BytesPerSecond: fastest(ctx, data, n, slice)})
	}
	return rates, nil
}

// fill writes to data, because unwritten memory is read from a single page of zeros. It returns the
// part that it could write in time.
func fill(ctx context.Context, data []byte, threads int) []byte {
	const step = 16 << 20
	deadline := time.Now().Add(fillSlice)
	filled := 0
	for filled < len(data) && ctx.Err() == nil && (filled < leastMemory || time.Now().Before(deadline)) {
		part := data[filled:min(filled+step, len(data))]
		together(threads, func(i int) int64 {
			own := share(part, i, threads)
			if len(own) == 0 {
				return 0
			}
			own[0] = 1
			for n := 1; n < len(own); n *= 2 {
				copy(own[n:], own[:n])
			}
			return 0
		})
		filled += len(part)
	}
	return data[:filled]
}

// share returns part i of n of data.
func share(data []byte, i, n int) []byte { return data[len(data)*i/n : len(data)*(i+1)/n] }

// fastest returns the bandwidth with the fastest fetch pattern. The best pattern differs between
// processors, and the result is an upper bound for all kernels.
func fastest(ctx context.Context, data []byte, n int, slice time.Duration) (best float64) {
	patterns := fetch.Candidates(fetch.Roof)
	before := fetch.UseFor(fetch.Roof, patterns[0])
	defer func() { fetch.UseFor(fetch.Roof, before) }()
	for _, p := range patterns {
		fetch.UseFor(fetch.Roof, p)
		best = max(best, read(ctx, data, n, slice/time.Duration(len(patterns))))
	}
	return best
}

// read returns the bandwidth of n threads that each read their own part of data repeatedly.
func read(ctx context.Context, data []byte, n int, slice time.Duration) float64 {
	deadline := time.Now().Add(slice)
	return together(n, func(i int) (done int64) {
		part, sum := share(data, i, n), byte(0)
		for at := 0; ; at += piece {
			if at >= len(part) {
				at = 0
			}
			own := part[at:min(at+piece, len(part))]
			sum ^= roof.ReadMemory(own)
			done += int64(len(own))
			if !time.Now().Before(deadline) || ctx.Err() != nil {
				runtime.KeepAlive(sum) // keeps the compiler from removing the reads
				return done
			}
		}
	})
}

// peak returns the operation rate of n threads at one of the processor's arithmetic limits.
func peak(ctx context.Context, roof *roof.Roof, n int) float64 {
	const steps = 2000 // some microseconds
	deadline := time.Now().Add(peakSlice)
	return together(n, func(int) (done int64) {
		for {
			roof.Run(steps)
			done += steps * roof.Operations
			if !time.Now().Before(deadline) || ctx.Err() != nil {
				return done
			}
		}
	})
}

// The shape of a prefill work unit: weights that fit in the second-level cache, and the tokens of a
// chunk.
const (
	tileRows   = 32
	tileCols   = 1024
	tileTokens = 96
)

// compute returns the operation rate of n threads on weights of format f. If the variant has to
// widen the weights, each use includes the widening.
func compute(ctx context.Context, set *kernels.Set, f mat.Format, n int) float64 {
	deadline := time.Now().Add(computeSlice)
	return together(n, func(int) (done int64) {
		w := mat.Weights{Data: make([]byte, tileRows*tileCols*f.Size()), Stride: tileCols * f.Size(), Format: f}
		x := mat.Floats{V: make([]float32, tileTokens*tileCols), Stride: tileCols}
		y := mat.Floats{V: make([]float32, tileTokens*tileRows), Stride: tileRows}
		var panel []float32
		if f != mat.Float32 && set.GEMV.WidenAt > 0 && set.GEMV.WidenAt <= tileTokens {
			panel = make([]float32, tileRows*tileCols)
		}
		for {
			use := w
			if panel != nil {
				set.Vector.Widen(panel, w.Data, f)
				use = widened(panel)
			}
			set.GEMV.Mul(&gemv.Product{Y: y, W: use, X: x, Rows: tileRows, Tokens: tileTokens, N: tileCols})
			done += 2 * tileRows * tileCols * tileTokens
			if !time.Now().Before(deadline) || ctx.Err() != nil {
				return done
			}
		}
	})
}

// widened returns a panel of float32 as weights.
func widened(panel []float32) mat.Weights {
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(panel))), 4*len(panel))
	return mat.Weights{Data: data, Stride: 4 * tileCols, Format: mat.Float32}
}
