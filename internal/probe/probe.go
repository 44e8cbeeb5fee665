package probe

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/roof"
)

// Limit is what Run takes at most, but for delays of the machine's own. The slices add up
// to less.
const Limit = 450 * time.Millisecond

const (
	fillSlice    = 80 * time.Millisecond
	memorySlice  = 80 * time.Millisecond // for all counts of threads
	computeSlice = 20 * time.Millisecond // for each format
	peakSlice    = 8 * time.Millisecond  // for each kind of product
	diskSlice    = 160 * time.Millisecond
)

const (
	// memoryBytes is more than the last-level caches of most processors.
	memoryBytes = 256 << 20
	// leastMemory is less than which measures a cache.
	leastMemory = 32 << 20
)

// Options say what Run measures.
type Options struct {
	// Threads are the numbers of threads that memory is read with, in rising order; the
	// last also computes. nil means 1, 2, 4 and so on up to what Go uses.
	Threads []int
	Variant string // of the kernels; "" is the best one
	// Files are of which one is read, each as likely as it is large. None: no disk rate.
	Files []string
	// MemoryBytes bounds the memory that is taken, 256 MiB at most; 0 means that.
	// Where it is less than 32 MiB memory is not measured.
	MemoryBytes int64
	Ledger      *hostmem.Ledger // counts the memory; nil counts nothing
}

// Rates are what a machine does in a second.
type Rates struct {
	Memory  []MemoryRate  `json:"memory"`  // one for each number of threads
	Compute []ComputeRate `json:"compute"` // one for each format of weights
	Peaks   []PeakRate    `json:"peaks"`   // one for each kind of product that the processor has
	Disk    *DiskRate     `json:"disk"`    // nil where no file was read
}

// A MemoryRate is how fast threads together read memory that is in no cache.
type MemoryRate struct {
	Threads        int     `json:"threads"`
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// A ComputeRate is how fast threads together multiply weights in their caches by 96 tokens.
type ComputeRate struct {
	Weights string `json:"weights"` // float32, bfloat16
	Variant string `json:"variant"` // of the kernels
	Threads int    `json:"threads"`
	// OperationsPerSecond counts multiplications and additions, two for each weight and token.
	OperationsPerSecond float64 `json:"operations_per_second"`
}

// A PeakRate is how fast threads together make a kind of product on values that stay in
// registers: no kernel is faster.
type PeakRate struct {
	// Name is "fma" (float32), "bf16", "vnni" (8-bit integers), "amx_bf16" or "amx_int8".
	Name    string `json:"name"`
	Threads int    `json:"threads"`
	// OperationsPerSecond counts multiplications and additions.
	OperationsPerSecond float64 `json:"operations_per_second"`
}

// A DiskRate is how fast one thread reads a file in pieces of 8 MiB.
type DiskRate struct {
	File           string  `json:"file"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	Bytes          int64   `json:"bytes"` // that were read for it
	// Direct is false where the file system reads through the page cache only, so that
	// the rate may be that of memory.
	Direct bool `json:"direct"`
}

// MemoryAt is the rate at the number of threads measured that is nearest to n, in bytes a
// second; 0 where memory was not measured.
func (r *Rates) MemoryAt(n int) float64 {
	best := MemoryRate{}
	for _, m := range r.Memory {
		if best.Threads == 0 || distance(m.Threads, n) < distance(best.Threads, n) {
			best = m
		}
	}
	return best.BytesPerSecond
}

func distance(a, b int) int { return max(a-b, b-a) }

// ComputeFor is the rate with weights of the given format in operations a second; 0 where
// it was not measured.
func (r *Rates) ComputeFor(weights string) float64 {
	for _, c := range r.Compute {
		if c.Weights == weights {
			return c.OperationsPerSecond
		}
	}
	return 0
}

// PeakOf is the rate of a kind of product in operations a second; 0 where the processor lacks
// it.
func (r *Rates) PeakOf(name string) float64 {
	for _, p := range r.Peaks {
		if p.Name == name {
			return p.OperationsPerSecond
		}
	}
	return 0
}

// Run measures memory, arithmetic and, with files, the disk. It ends with ctx's error once
// that is done. A file that cannot be read is an error, and so is a variant that this
// processor lacks.
func Run(ctx context.Context, o Options) (*Rates, error) {
	set, err := kernels.Select(o.Variant)
	if err != nil {
		return nil, err
	}
	if len(o.Threads) == 0 {
		o.Threads = Counts(runtime.GOMAXPROCS(0))
	}
	if slices.Min(o.Threads) < 1 {
		return nil, fmt.Errorf("probe: %d threads", slices.Min(o.Threads))
	}
	var r Rates
	if r.Memory, err = memory(ctx, o); err != nil {
		return nil, err
	}
	most := o.Threads[len(o.Threads)-1]
	for _, f := range []format{{"float32", mat.Float32}, {"bfloat16", mat.BFloat16}} {
		rate := compute(ctx, set, f.format, most)
		r.Compute = append(r.Compute, ComputeRate{Weights: f.name, Variant: set.Name, Threads: most, OperationsPerSecond: rate})
	}
	for _, roof := range roof.Roofs() {
		r.Peaks = append(r.Peaks, PeakRate{Name: roof.Name, Threads: most, OperationsPerSecond: peak(ctx, &roof, most)})
	}
	if len(o.Files) > 0 {
		if r.Disk, err = disk(ctx, o); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	return &r, nil
}

type format struct {
	name   string
	format mat.Format
}

// Counts are 1, 2, 4 and so on up to n, and n.
func Counts(n int) []int {
	counts := []int{1}
	for c := 2; c < n; c *= 2 {
		counts = append(counts, c)
	}
	if n > 1 {
		counts = append(counts, n)
	}
	return counts
}

// together runs work on n goroutines until each returns what it did, and adds up their
// rates. A thread that the system holds up counts for the time that it had.
func together(n int, work func(thread int) (done int64)) float64 {
	rates := make([]float64, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			start := time.Now()
			if done := work(i); done > 0 {
				rates[i] = float64(done) / max(time.Since(start).Seconds(), 1e-9)
			}
		})
	}
	all.Wait()
	sum := 0.0
	for _, r := range rates {
		sum += r
	}
	return sum
}
