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
	"github.com/heftai/heft/internal/kernels/roof"
)

// Limit is the maximum duration of Run, apart from delays caused by the machine. The slices add up
// to less.
const Limit = 810 * time.Millisecond

const (
	memorySlice  = 80 * time.Millisecond  // for all thread counts together
	computeSlice = 5 * time.Millisecond   // per kind of product and round
	peakSlice    = 8 * time.Millisecond   // per kind of product
	trialSlice   = 240 * time.Millisecond // for all depths and sizes of reads together
	rateSlice    = 80 * time.Millisecond  // for the chosen ones
)

const (
	// memoryBytes is what all threads together read at a time, some milliseconds, if that leaves leastPart for
	// each: a shorter read would measure how threads start.
	memoryBytes = 64 << 20
	leastPart   = 4 << 20
	// leastMemory is the minimum size of a memory measurement.
	leastMemory = 32 << 20
)

// Options choose what Run measures.
type Options struct {
	// Threads are the thread counts for reading memory, in ascending order; the last one is also
	// used for arithmetic. nil means 1, 2, 4, … up to GOMAXPROCS.
	Threads []int
	Variant string // of the kernels; "" means the best one
	// Files are candidates for the disk measurement; one is picked with probability proportional to
	// its size. Without files there is no disk rate.
	Files []string
	// MemoryBytes bounds the memory used, which is 64 MiB, or 4 MiB a thread if that is more; 0 is no bound.
	// Below 32 MiB memory bandwidth is not measured.
	MemoryBytes int64
	Ledger      *hostmem.Ledger // counts the memory; nil counts nothing
}

// Rates are the measured speeds of a machine.
type Rates struct {
	Memory  []MemoryRate  `json:"memory"`  // one per thread count
	Compute []ComputeRate `json:"compute"` // one per kind of product
	Peaks   []PeakRate    `json:"peaks"`   // one per kind of product that the processor supports
	Disk    *DiskRate     `json:"disk"`    // nil if no file was read
	// OperationSeconds is the time that an operation takes whatever its size: threads begin, and the
	// last one ends. FloatsPerSecond is the rate at which an operation that is no product reads and writes numbers. Both are 0 with
	// little memory.
	OperationSeconds float64 `json:"operation_seconds"`
	FloatsPerSecond  float64 `json:"floats_per_second"`
}

// A MemoryRate is the bandwidth at which threads together read uncached memory.
type MemoryRate struct {
	Threads        int     `json:"threads"`
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// A ComputeRate is the rate at which threads together multiply weights by tokens of a prompt.
type ComputeRate struct {
	Weights string `json:"weights"` // float32, bfloat16 or q8_0
	Rounded bool   `json:"rounded"` // tokens are rounded, as --precision auto does
	Variant string `json:"variant"` // of the kernels
	Threads int    `json:"threads"`
	// OperationsPerSecond counts multiplications and additions: two per weight and token.
	OperationsPerSecond float64 `json:"operations_per_second"`
	// ByTokens are the rates of products of fewer and more tokens, whose weights come from memory. There are none with little memory.
	ByTokens []TokensRate `json:"by_tokens,omitempty"`
}

// A PeakRate is the rate at which threads together compute a kind of product on values in
// registers. It is an upper bound for all kernels.
type PeakRate struct {
	// Name is "fma" (float32), "bf16", "vnni" (8-bit integers), "amx_bf16" or "amx_int8".
	Name    string `json:"name"`
	Threads int    `json:"threads"`
	// OperationsPerSecond counts multiplications and additions.
	OperationsPerSecond float64 `json:"operations_per_second"`
}

// MemoryAt returns the bandwidth in bytes per second for the measured thread count nearest to n, or
// 0 if memory was not measured.
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

// ComputeFor returns the operations per second with weights of the given format and tokens that are rounded or not, or 0 if
// that was not measured.
func (r *Rates) ComputeFor(weights string, rounded bool) float64 {
	for _, c := range r.Compute {
		if c.Weights == weights && c.Rounded == rounded {
			return c.OperationsPerSecond
		}
	}
	return 0
}

// ByTokensFor returns the rates of products by their tokens, as ComputeFor.
func (r *Rates) ByTokensFor(weights string, rounded bool) []TokensRate {
	for _, c := range r.Compute {
		if c.Weights == weights && c.Rounded == rounded {
			return c.ByTokens
		}
	}
	return nil
}

// PeakOf returns the operations per second of a kind of product, or 0 if the processor does not
// support it.
func (r *Rates) PeakOf(name string) float64 {
	for _, p := range r.Peaks {
		if p.Name == name {
			return p.OperationsPerSecond
		}
	}
	return 0
}

// Run measures memory bandwidth, arithmetic and, if there are files, a disk. It returns ctx's error
// once ctx is done. It fails if a file cannot be read or the processor does not support the
// variant.
func Run(ctx context.Context, o Options) (*Rates, error) {
	set, err := kernels.Select(o.Variant)
	if err != nil {
		return nil, err
	}
	if len(o.Threads) == 0 {
		o.Threads = Counts(runtime.GOMAXPROCS(0))
	}
	if slices.Min(o.Threads) < 1 {
		return nil, fmt.Errorf("probe: got %d threads, want at least 1", slices.Min(o.Threads))
	}
	var r Rates
	if r.Memory, err = memory(ctx, o); err != nil {
		return nil, err
	}
	most := o.Threads[len(o.Threads)-1]
	if err = r.compute(ctx, o, set.Name); err != nil {
		return nil, err
	}
	for _, roof := range roof.Roofs() {
		r.Peaks = append(r.Peaks, PeakRate{Name: roof.Name, Threads: most, OperationsPerSecond: peak(ctx, &roof, most)})
	}
	if len(o.Files) > 0 {
		if r.Disk, err = Disk(ctx, o); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	return &r, nil
}

// Counts returns 1, 2, 4, … up to n, and n.
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

// together runs work on n goroutines, each of which returns its amount of work, and adds up their
// rates. The rate of a thread is based on its own running time.
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
