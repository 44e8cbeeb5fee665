package cpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var _ backend.Converter = (*Coder)(nil)

// A Coder converts bfloat16 matrices to [meta.QuantCoded]. All variants compute the same bits.
type Coder struct{ threads int }

// NewCoder returns a Coder that uses the given number of threads.
func NewCoder(threads int) *Coder { return &Coder{max(threads, 1)} }

// Format implements [backend.Converter].
func (c *Coder) Format() meta.QuantFormat { return meta.QuantCoded }

// Layout implements [backend.Converter].
func (c *Coder) Layout() string {
	return "rows of a table, units for exceptions and groups of 128 columns"
}

// RowGroup implements [backend.Converter].
func (c *Coder) RowGroup() int { return coded.BandRows }

// Converted implements [backend.Converter].
func (c *Coder) Converted(p backend.Part) (backend.Part, int64, error) {
	if p.DType != meta.BFloat16 || p.Quant != nil || p.Rank != 2 || p.Transposed || p.Dims[1] == 0 {
		return p, 0, fmt.Errorf("%v %v cannot be coded", p.DType, p.Shape())
	}
	size := int64(p.Dims[0]) * int64(coded.RowBytes(p.Dims[1]))
	p.Quant = &backend.Quant{Quant: &meta.Quant{Format: meta.QuantCoded, Rows: 1, Columns: 1}, Width: p.Dims[1], Height: p.Dims[0]}
	p.Tensor = tensor.Tensor{DType: meta.Uint8, Rank: p.Rank, Dims: p.Dims}
	return p, size, nil
}

// Convert implements [backend.Converter]. It fails with [backend.ErrIncompressible] if the coded
// weights do not fit their size.
func (c *Coder) Convert(ctx context.Context, dst, src []byte, p *backend.Part) error {
	rows, cols := p.Dims[0], p.Dims[1]
	if _, size, err := c.Converted(*p); err != nil {
		return err
	} else if int64(len(dst)) != size || len(src) != 2*rows*cols {
		return fmt.Errorf("backend: coding of %v %v: got %d bytes for %d, want %d for %d", p.DType, p.Shape(), len(src), len(dst), 2*rows*cols, size)
	}
	var next atomic.Int64
	var failed atomic.Pointer[error]
	fail := func(err error) { failed.CompareAndSwap(nil, &err) }
	work := func() {
		for ctx.Err() == nil && failed.Load() == nil {
			first := int(next.Add(coded.BandRows)) - coded.BandRows
			if first >= rows {
				return
			}
			n, each := min(coded.BandRows, rows-first), coded.RowBytes(cols)
			if err := coded.Encode(dst[first*each:], src[2*first*cols:], n, cols); errors.Is(err, coded.ErrNoRoom) {
				fail(fmt.Errorf("rows %d to %d: %w", first, first+n, backend.ErrIncompressible))
			} else if err != nil {
				fail(err)
			}
		}
	}
	var group sync.WaitGroup
	for range c.threads {
		group.Go(func() {
			if panicked := hostmem.Guard(work); panicked != nil {
				fail(faultOf(panicked))
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return ctx.Err()
}
