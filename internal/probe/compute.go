package probe

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// The shape of the products that are measured: a part of a prompt with a part of a layer.
const (
	productCols   = 2048
	productTokens = 256
	productRows   = 1024 // of each thread
	mostRows      = 8192 // of all threads together, with less memory fewer
	fewestRows    = 16   // of each thread, for slow kernels
)

// computeRounds is how often each kind of product is measured.
const computeRounds = 2

// leastProduct is the time from which a product is long enough for the start of threads not to count.
const leastProduct = time.Millisecond

// A kind is a kind of product whose rate is measured.
type kind struct {
	dtype   meta.DType
	format  meta.QuantFormat
	rounded bool
}

// kinds are what prompts of most models compute, with either precision.
var kinds = []kind{{dtype: meta.Float32}, {dtype: meta.BFloat16}, generating, {dtype: meta.BFloat16, format: meta.Conversions()[0], rounded: true}}

// generating is the kind from which the time of an operation is derived.
var generating = kind{dtype: meta.BFloat16, rounded: true}

// weights is the name of the format of the weights.
func (k kind) weights() string {
	if k.format != meta.QuantNone {
		return k.format.String()
	}
	return k.dtype.String()
}

// compute measures the products of all kinds with the kernels that passes use, and other operations.
func (r *Rates) compute(ctx context.Context, o Options, variant string) (err error) {
	threads := o.Threads[len(o.Threads)-1]
	b, err := cpu.New(cpu.Options{Threads: threads, Variant: variant, Ledger: o.Ledger, Arena: &hostmem.Arena{Ledger: o.Ledger, Size: 128 << 20}})
	if err != nil {
		return err
	}
	defer func() {
		if closed := b.Close(); err == nil {
			err = closed
		}
	}()
	for _, k := range kinds {
		r.Compute = append(r.Compute, ComputeRate{Weights: k.weights(), Rounded: k.rounded, Variant: variant, Threads: threads})
	}
	for range computeRounds { // apart, as a neighbour on the machine may be at work
		for i, k := range kinds {
			rate, err := k.rate(ctx, b, o, variant)
			if err != nil {
				return fmt.Errorf("probe: %w", err)
			}
			r.Compute[i].OperationsPerSecond = max(r.Compute[i].OperationsPerSecond, rate)
		}
	}
	if err := r.byTokens(ctx, b, o, variant); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	return nil
}

// rate returns the operations per second of the fastest product on b.
func (k kind) rate(ctx context.Context, b *cpu.Backend, o Options, variant string) (float64, error) {
	threads := o.Threads[len(o.Threads)-1]
	most := rowsWithin(o.MemoryBytes, threads)
	x, err := b.New(meta.Float32, productTokens, productCols)
	if err != nil {
		return 0, err
	}
	defer b.Free(x)
	y, err := b.New(meta.Float32, productTokens, most)
	if err != nil {
		return 0, err
	}
	defer b.Free(y)
	w, err := k.matrix(b, most, variant)
	if err != nil {
		return 0, err
	}
	defer b.Free(w.Tensor)
	run := func(rows int) (time.Duration, error) {
		part := w
		if part.Dims[0] = rows; part.Quant != nil {
			part.Quant.Height = rows
		}
		start := time.Now()
		b.Products([]backend.Product{{Dst: y.Columns(0, rows), X: x, W: part, Rounded: k.rounded, Role: backend.Prompt}})
		return time.Since(start), b.Sync()
	}
	rows, err := rowsFor(ctx, min(fewestRows*threads, most), most, run)
	if err != nil {
		return 0, err
	}
	fastest := time.Duration(math.MaxInt64)
	for begin := time.Now(); fastest == math.MaxInt64 || time.Since(begin) < computeSlice && ctx.Err() == nil; {
		took, err := run(rows)
		if err != nil {
			return 0, err
		}
		fastest = min(fastest, took)
	}
	return 2 * productTokens * productCols * float64(rows) / max(fastest.Seconds(), 1e-9), nil
}

// rowsFor returns the rows, from first up to most, of a product that takes leastProduct. Each size is
// run twice: the first run may have to wait for memory or for a thread that sleeps, and would end
// the search at a size that is too small.
func rowsFor(ctx context.Context, first, most int, run func(rows int) (time.Duration, error)) (int, error) {
	rows := first
	for took := time.Duration(0); rows < most && took < leastProduct && ctx.Err() == nil; {
		rows = min(2*rows, most)
		for range 2 {
			again, err := run(rows)
			if err != nil {
				return 0, err
			}
			if took = again; took < leastProduct {
				break
			}
		}
	}
	return rows, nil
}

// rowsWithin returns the rows of the largest product. Its operands take half of the memory, which 0 does not bound; the backend
// takes scratch memory too.
func rowsWithin(memory int64, threads int) int {
	rows := min(productRows*threads, mostRows)
	if memory != 0 {
		const floats, row = productTokens * productCols, productTokens + productCols
		rows = min(rows, max(int(memory/2/4-floats)/row, fewestRows))
	}
	return rows
}

// matrix returns weights that are zeros.
func (k kind) matrix(b *cpu.Backend, rows int, variant string) (backend.Matrix, error) {
	w, size, err := k.shape(rows, variant)
	if err != nil {
		return w, err
	}
	data, err := b.New(meta.Uint8, size)
	w.Data = data.Data
	return w, err
}

// shape returns a matrix without data, and the size of that.
func (k kind) shape(rows int, variant string) (backend.Matrix, int, error) {
	w := backend.Matrix{Tensor: tensor.Tensor{DType: k.dtype, Rank: 2, Dims: [tensor.MaxRank]int{rows, productCols}}}
	if k.format == meta.QuantNone {
		return w, int(w.Bytes()), nil
	}
	c, err := cpu.NewConverter(k.format, 1, variant)
	if err != nil {
		return w, 0, err
	}
	part, size, err := c.Converted(backend.Part{Matrix: w})
	return part.Matrix, int(size), err
}
