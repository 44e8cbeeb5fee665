package probe

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/roof"
)

// memory measures the memory bandwidth for each number of threads. Each thread has a part of its own, of the
// same size with any number of threads.
func memory(ctx context.Context, o Options) ([]MemoryRate, error) {
	most := o.Threads[len(o.Threads)-1]
	size := max(memoryBytes, int64(most)*leastPart)
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
	parts := partsOf(block.Bytes(), most)
	together(most, func(i int) int64 { // the system gives the pages
		for part := parts[i]; len(part) > 0 && ctx.Err() == nil; part = part[min(piece, len(part)):] {
			write(part[:min(piece, len(part))])
		}
		return 0
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var rates []MemoryRate
	slice := memorySlice / time.Duration(len(o.Threads))
	for _, n := range o.Threads {
		rates = append(rates, MemoryRate{Threads: n, BytesPerSecond: fastest(ctx, parts[:n], slice)})
	}
	return rates, nil
}

// piece is the number of bytes written between two looks at the context: some milliseconds, where the
// system has to give the pages.
const piece = 4 << 20

// partsOf returns n parts of equal size, which begin and end with cache lines.
func partsOf(data []byte, n int) [][]byte {
	each := len(data) / n &^ 63
	parts := make([][]byte, n)
	for i := range parts {
		parts[i] = data[i*each:][:each:each]
	}
	return parts
}

// write fills part past the caches, so that the next read comes from memory however large they are: a
// processor of 32 MiB of them read 96 MiB at 1.2 times the rate of memory, and 32 MiB at twice that rate.
// Without instructions for that, the end of part may be in a cache.
func write(part []byte) {
	const filler = 1 // unwritten memory is read from a single page of zeros
	if !roof.Stream(part, filler) {
		for i := range part {
			part[i] = filler
		}
	}
}

// fastest returns the bandwidth with the fastest fetch pattern. The best pattern differs between
// processors, and the result is an upper bound for all kernels.
func fastest(ctx context.Context, parts [][]byte, slice time.Duration) (best float64) {
	patterns := fetch.Candidates(fetch.Roof)
	before := fetch.UseFor(fetch.Roof, patterns[0])
	defer func() { fetch.UseFor(fetch.Roof, before) }()
	for _, p := range patterns {
		fetch.UseFor(fetch.Roof, p)
		best = max(best, read(ctx, parts, slice/time.Duration(len(patterns))))
	}
	return best
}

// read returns the bandwidth of threads that each read their own part: the median of as many rounds as
// begin within slice, at least one.
func read(ctx context.Context, parts [][]byte, slice time.Duration) float64 {
	var rounds []float64
	for deadline := time.Now().Add(slice); len(rounds) == 0 || ctx.Err() == nil && time.Now().Before(deadline); {
		rounds = append(rounds, round(parts))
	}
	slices.Sort(rounds)
	return rounds[len(rounds)/2]
}

// round writes all parts and then reads them once. The rate is that of the time in which any thread read.
func round(parts [][]byte) float64 {
	var ready atomic.Int64
	times := make([]struct{ begin, end time.Duration }, len(parts))
	start := time.Now()
	together(len(parts), func(i int) int64 {
		write(parts[i])
		for ready.Add(1); ready.Load() < int64(len(parts)); { // so that all read at the same time
			runtime.Gosched()
		}
		times[i].begin = time.Since(start)
		sum := roof.ReadMemory(parts[i])
		times[i].end = time.Since(start)
		runtime.KeepAlive(sum) // keeps the compiler from removing the read
		return 0
	})
	begin, end := times[0].begin, times[0].end
	for _, t := range times {
		begin, end = min(begin, t.begin), max(end, t.end)
	}
	return float64(len(parts)*len(parts[0])) / max((end-begin).Seconds(), 1e-9)
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

// aligned is the part of data that begins and ends with cache lines.
func aligned(data []byte) []byte {
	const line = 64
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(data)))) & (line - 1)
	if skip >= len(data) {
		return nil
	}
	return data[skip : skip+(len(data)-skip)&^(line-1)]
}
