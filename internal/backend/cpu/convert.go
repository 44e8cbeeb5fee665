package cpu

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var _ backend.Deinterleaver = (*Converter)(nil)

// A Converter converts float matrices to q8_0 or q4_0, in interleaved rows, or in plain rows for
// a device that needs them.
type Converter struct {
	format  meta.QuantFormat
	packing quant.Packing
	set     *kernels.Set
	threads int
	rows    bool
}

// NewConverter returns a converter to a format that uses the kernels of a variant and the given
// number of threads. An empty variant means the best one. It returns an error if no kernels
// convert to the format or the processor does not support the variant.
func NewConverter(format meta.QuantFormat, threads int, variant string) (*Converter, error) {
	packing, ok := quant.Named(format.String())
	if !ok || !format.Row().Convert {
		return nil, fmt.Errorf("backend: weights cannot be converted to %v", format)
	}
	set, err := kernels.Select(variant)
	return &Converter{format: format, packing: packing, set: set, threads: max(threads, 1)}, err
}

// InRows returns a converter to the same blocks in plain rows, as in a GGUF file.
func (c *Converter) InRows() *Converter {
	out := *c
	out.rows = true
	return &out
}

// Format implements [backend.Converter].
func (c *Converter) Format() meta.QuantFormat { return c.format }

// Layout implements [backend.Converter].
func (c *Converter) Layout() string {
	if c.rows {
		return "rows"
	}
	return fmt.Sprintf("bands of %d rows", quant.InterleavedRows)
}

// RowGroup implements [backend.Converter].
func (c *Converter) RowGroup() int { return quant.InterleavedRows }

// Converted implements [backend.Converter].
func (c *Converter) Converted(p backend.Part) (backend.Part, int64, error) {
	_, floats := format(p.DType)
	if !floats || p.Quant != nil || p.Rank != 2 || p.Dims[1]%quant.BlockColumns != 0 {
		return p, 0, fmt.Errorf("%v %v cannot be converted to %v", p.DType, p.Shape(), c.format)
	}
	size := int64(p.Elements() / quant.BlockColumns * c.packing.BlockBytes())
	p.Quant = &backend.Quant{Quant: &meta.Quant{Format: c.format, Rows: 1, Columns: quant.BlockColumns}, Width: p.Dims[1], Height: p.Dims[0]}
	if c.rows {
		p.Quant.Height, p.Quant.Ascending = 0, true
	}
	p.Tensor = tensor.Tensor{DType: meta.Uint8, Rank: p.Rank, Dims: p.Dims}
	return p, size, nil
}

// Convert implements [backend.Converter]. Each thread allocates memory for conversionChunk
// columns of the rows of a band.
func (c *Converter) Convert(ctx context.Context, dst, src []byte, p *backend.Part) error {
	f, _ := format(p.DType)
	rows, cols := p.Dims[0], p.Dims[1]
	if _, size, err := c.Converted(*p); err != nil {
		return err
	} else if int64(len(dst)) != size || len(src) != rows*cols*f.Size() {
		return fmt.Errorf("backend: conversion of %v %v: got %d bytes for %d, want %d for %d", p.DType, p.Shape(), len(src), len(dst), rows*cols*f.Size(), size)
	}
	w := conversion{Converter: c, ctx: ctx, dst: dst, src: src, rows: rows, cols: cols, format: f}
	var group sync.WaitGroup
	for range c.threads {
		group.Go(func() {
			if panicked := hostmem.Guard(w.run); panicked != nil {
				w.fail(faultOf(panicked))
			}
		})
	}
	group.Wait()
	if err := w.err.Load(); err != nil {
		return *err
	}
	return ctx.Err()
}

// Deinterleave implements [backend.Deinterleaver].
func (c *Converter) Deinterleave(dst, src []byte, p *backend.Part) error {
	rows, cols := p.Dims[0], p.Dims[1]
	row := cols / quant.BlockColumns * c.packing.BlockBytes()
	if cols%quant.BlockColumns != 0 || len(src) != rows*row || len(dst) != len(src) {
		return fmt.Errorf("backend: rows of %v %v in %d bytes: got %d bytes for them", c.format, p.Shape(), len(src), len(dst))
	}
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var group sync.WaitGroup
	for range c.threads {
		group.Go(func() {
			panicked := hostmem.Guard(func() {
				for {
					first := int(next.Add(quant.InterleavedRows)) - quant.InterleavedRows
					if first >= rows {
						return
					}
					last := min(first+quant.InterleavedRows, rows)
					quant.Deinterleave(c.packing, dst[first*row:last*row], src[first*row:last*row], last-first, cols/quant.BlockColumns)
				}
			})
			if panicked != nil {
				err := faultOf(panicked)
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// faultOf returns the error for a panic.
func faultOf(panicked any) error {
	if address, ok := hostmem.FaultAddress(panicked); ok {
		return &backend.FaultError{Address: address}
	}
	return fmt.Errorf("backend: conversion failed: %v", panicked)
}

// conversionChunk is the number of columns converted at a time. They take some microseconds;
// kernels cannot be preempted.
const conversionChunk = 4096

// A conversion is a matrix whose bands of interleaved rows the threads convert one by one.
type conversion struct {
	*Converter
	ctx        context.Context
	dst, src   []byte
	rows, cols int
	format     mat.Format
	next       atomic.Int64
	err        atomic.Pointer[error]
}

// fail keeps err if it is the first error.
func (w *conversion) fail(err error) { w.err.CompareAndSwap(nil, &err) }

// run converts bands until none is left.
func (w *conversion) run() {
	most := min(conversionChunk, w.cols)
	values := make([]float32, most)
	blocks := make([]byte, quant.InterleavedRows*most/quant.BlockColumns*w.packing.BlockBytes())
	for {
		first := int(w.next.Add(quant.InterleavedRows)) - quant.InterleavedRows
		if first >= w.rows {
			return
		}
		for col := 0; col < w.cols; col += most {
			if w.ctx.Err() != nil || w.err.Load() != nil {
				return
			}
			w.band(values[:min(most, w.cols-col)], blocks, first, col)
		}
	}
}

// band converts len(values) columns from col on of the band that begins at row first.
func (w *conversion) band(values []float32, blocks []byte, first, col int) {
	rows, size, each := min(quant.InterleavedRows, w.rows-first), w.format.Size(), w.packing.BlockBytes()
	stride := len(values) / quant.BlockColumns * each
	for r := range rows {
		begin := (first+r)*w.cols + col
		w.set.Vector.Widen(values, w.src[begin*size:], w.format)
		if !w.set.Quant.PackBlocks(w.packing, blocks[r*stride:], values) {
			w.fail(fmt.Errorf("there is a value between elements %d and %d that %v cannot hold", begin, begin+len(values), w.Format()))
			return
		}
	}
	if w.Converter.rows {
		for r := range rows {
			copy(w.dst[((first+r)*w.cols+col)/quant.BlockColumns*each:], blocks[r*stride:][:stride])
		}
		return
	}
	at := (first*w.cols + col*rows) / quant.BlockColumns * each
	w.set.Quant.Interleave(w.packing, w.dst[at:], blocks, stride, rows, len(values)/quant.BlockColumns)
}
