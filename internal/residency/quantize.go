package residency

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A quantizer converts weights of the cpu tier. Each is converted before its first use: by
// Warm or Promote in the background, in the order of use, or else by the goroutine that
// computes, which waits for it. So no result depends on how far the background is. What is
// held is the converted copy; the mapped pages are evicted.
type quantizer struct {
	format  meta.QuantFormat
	packing quant.Packing
	set     *kernels.Set
	threads int
	bytes   map[*meta.Param]int64 // of the parameters to convert, as they are held

	mu sync.Mutex // one conversion at a time, with all threads
}

// convertible is the kernels' name of a dtype that is converted.
func convertible(d meta.DType) (mat.Format, bool) {
	switch d {
	case meta.BFloat16:
		return mat.BFloat16, true
	case meta.Float16:
		return mat.Float16, true
	case meta.Float32:
		return mat.Float32, true
	}
	return 0, false
}

// chunk is how many elements of a row are converted at a time, some microseconds of work:
// kernels cannot be stopped.
const chunk = 4096

func newQuantizer(root *meta.Module, o Options) (*quantizer, error) {
	q := &quantizer{format: o.Quantize, threads: max(o.Threads, 1), bytes: root.LoadedBytes(o.Quantize, true)}
	if o.Quantize == meta.QuantNone {
		return q, nil
	}
	var ok bool
	if q.packing, ok = quant.Named(o.Quantize.String()); !ok || !o.Quantize.Row().Convert {
		return nil, fmt.Errorf("residency: weights cannot be converted to %v", o.Quantize)
	}
	var err error
	q.set, err = kernels.Select(o.Variant)
	return q, err
}

// takes reports whether p is converted.
func (q *quantizer) takes(p *meta.Param) bool { return q.bytes[p] > 0 }

// size is what p takes in memory.
func (q *quantizer) size(p *meta.Param) int64 {
	if n := q.bytes[p]; n > 0 {
		return n
	}
	return p.Bytes()
}

// check refuses the disk tier, which has no memory for a copy.
func (q *quantizer) check(p *meta.Param, path string, device devicemap.Device) error {
	if device == devicemap.CPU || !q.takes(p) {
		return nil
	}
	return fmt.Errorf("residency: %s is on device %s; weights are converted to %v on the cpu only: give it more memory, or use the weights as they are stored",
		path, device, q.format)
}

// partOf is the part of a converted piece, without Data, and the bytes that it takes.
func (q *quantizer) partOf(p *stored.Piece) (backend.Part, int, error) {
	part := p.Part
	_, floats := convertible(part.DType)
	if !floats || part.Quant != nil || part.Rank != 2 || part.Dims[1]%quant.BlockColumns != 0 {
		return part, 0, fmt.Errorf("%s of %v %v cannot be converted to %v", p.Ranges[0].Tensor.Name, part.DType, part.Shape(), q.format)
	}
	part.Tensor = stored.View(meta.Uint8, part.Shape())
	part.Quant = &backend.Quant{Quant: &meta.Quant{Format: q.format, Rows: 1, Columns: quant.BlockColumns}, Width: part.Dims[1], Height: part.Dims[0]}
	return part, q.sizeOf(p), nil
}

// sizeOf is the bytes of a converted piece.
func (q *quantizer) sizeOf(p *stored.Piece) int {
	return int(p.Part.Elements()) / quant.BlockColumns * q.packing.BlockBytes()
}

// convert converts the matrix that r is to bands, with all threads, again if its file changed
// meanwhile.
func (q *quantizer) convert(ctx context.Context, to []byte, r stored.Range, part *backend.Part) error {
	return r.Tensor.File.ReadUnchanged(func() error { return q.convertOnce(ctx, to, r, part) })
}

// convertOnce gives each thread memory for the bands of one chunk of columns.
func (q *quantizer) convertOnce(ctx context.Context, to []byte, r stored.Range, part *backend.Part) error {
	data, err := r.Tensor.Bytes()
	if err != nil {
		return err
	}
	_ = r.Tensor.Advise(r.Begin, r.Size, loader.WillNeed) // only a hint
	w := conversionWork{q: q, ctx: ctx, to: to, from: data[r.Begin : r.Begin+r.Size], tensor: r.Tensor, rows: part.Dims[0], cols: part.Dims[1]}
	w.format, _ = convertible(part.DType) // partOf has looked
	var group sync.WaitGroup
	for range q.threads {
		group.Go(func() {
			if err := reading(w.tensor, w.run); err != nil {
				w.fail(err)
			}
		})
	}
	group.Wait()
	if err := w.err.Load(); err != nil {
		return *err
	}
	return ctx.Err()
}

// conversionWork is one matrix, of which threads take bands.
type conversionWork struct {
	q          *quantizer
	ctx        context.Context
	to, from   []byte
	rows, cols int
	format     mat.Format
	tensor     *loader.Tensor // that from is of
	next       atomic.Int64
	err        atomic.Pointer[error]
}

// fail keeps the first error.
func (w *conversionWork) fail(err error) { w.err.CompareAndSwap(nil, &err) }

// run converts bands until none is left.
func (w *conversionWork) run() {
	most := min(chunk, w.cols)
	values := make([]float32, most)
	blocks := make([]byte, quant.InterleavedRows*most/quant.BlockColumns*w.q.packing.BlockBytes())
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
func (w *conversionWork) band(values []float32, blocks []byte, first, col int) {
	rows, size, each := min(quant.InterleavedRows, w.rows-first), w.format.Size(), w.q.packing.BlockBytes()
	stride := len(values) / quant.BlockColumns * each
	for r := range rows {
		begin := (first+r)*w.cols + col
		w.q.set.Vector.Widen(values, w.from[begin*size:], w.format)
		if !w.q.set.Quant.PackBlocks(w.q.packing, blocks[r*stride:], values) {
			w.fail(fmt.Errorf("%s has a value between elements %d and %d that %v cannot hold", w.tensor.Name, begin, begin+len(values), w.q.format))
			return
		}
	}
	at := (first*w.cols + col*rows) / quant.BlockColumns * each
	w.q.set.Quant.Interleave(w.q.packing, w.to[at:], blocks, stride, rows, len(values)/quant.BlockColumns)
}
