package cpu

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var _ backend.Converter = (*FourBits)(nil)

// FourBits converts float matrices to bitsandbytes' NF4: [meta.QuantBnbNF4] with float32 scales
// of [meta.NF4Columns] elements. A matrix is stored as its codes followed by its scales.
type FourBits struct {
	set     *kernels.Set
	threads int
}

// NewFourBits returns a converter that uses the given number of threads.
func NewFourBits(threads int) (*FourBits, error) {
	set, err := kernels.Select("")
	return &FourBits{set, max(threads, 1)}, err
}

// Format implements [backend.Converter].
func (c *FourBits) Format() meta.QuantFormat { return meta.QuantBnbNF4 }

// Layout implements [backend.Converter].
func (c *FourBits) Layout() string { return "codes, and scales behind them" }

// RowGroup implements [backend.Converter]. Scales follow all codes, so a matrix can only be
// converted as a whole.
func (c *FourBits) RowGroup() int { return math.MaxInt32 }

// Converted implements [backend.Converter].
func (c *FourBits) Converted(p backend.Part) (backend.Part, int64, error) {
	_, floats := format(p.DType)
	n := p.Elements()
	if !floats || p.Quant != nil || p.Rank != 2 || n%2 != 0 {
		return p, 0, fmt.Errorf("%v %v cannot be converted to nf4", p.DType, p.Shape())
	}
	state := fmt.Appendf(nil, `{"blocksize": %d, "dtype": %q}`, meta.NF4Columns, p.DType)
	p.Quant = &backend.Quant{Quant: &meta.Quant{Format: meta.QuantBnbNF4, Global: "nf4", ScaleDType: meta.Float32, Rows: 1, Columns: meta.NF4Columns, Width: p.Dims[1], State: len(state)},
		Width: p.Dims[1], Scales: tensor.Tensor{DType: meta.Float32, Rank: 1, Dims: [tensor.MaxRank]int{(n + meta.NF4Columns - 1) / meta.NF4Columns}},
		Global: tensor.Tensor{DType: meta.Uint8, Rank: 1, Dims: [tensor.MaxRank]int{len(state)}, Data: state}}
	p.Tensor = tensor.Tensor{DType: meta.Uint8, Rank: p.Rank, Dims: p.Dims}
	return p, meta.NF4Bytes(int64(n)), nil
}

// Convert implements [backend.Converter].
func (c *FourBits) Convert(ctx context.Context, dst, src []byte, p *backend.Part) error {
	f, _ := format(p.DType)
	n := p.Elements()
	if _, size, err := c.Converted(*p); err != nil {
		return err
	} else if int64(len(dst)) != size || len(src) != n*f.Size() {
		return fmt.Errorf("backend: conversion of %v %v to nf4: got %d bytes for %d, want %d for %d", p.DType, p.Shape(), len(src), len(dst), n*f.Size(), size)
	}
	codes, scales := dst[:n/2], dst[n/2:]
	var next atomic.Int64
	var failed atomic.Pointer[error]
	work := func() {
		const chunk = 64 * meta.NF4Columns
		var values [chunk]float32
		for ctx.Err() == nil && failed.Load() == nil {
			at := int(next.Add(chunk)) - chunk
			if at >= n {
				return
			}
			x := values[:min(chunk, n-at)]
			c.set.Vector.Widen(x, src[at*f.Size():], f)
			for ; len(x) > 0; at += meta.NF4Columns {
				block := x[:min(meta.NF4Columns, len(x))]
				scale, ok := quant.PackNF4(codes[at/2:], block)
				if !ok {
					err := fmt.Errorf("elements from %d on have a value that is not finite", at)
					failed.CompareAndSwap(nil, &err)
					return
				}
				binary.LittleEndian.PutUint32(scales[at/meta.NF4Columns*4:], math.Float32bits(scale))
				x = x[len(block):]
			}
		}
	}
	var group sync.WaitGroup
	for range c.threads {
		group.Go(func() {
			if panicked := hostmem.Guard(work); panicked != nil {
				err := faultOf(panicked)
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return ctx.Err()
}
