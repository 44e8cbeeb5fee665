package loader

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/meta"
)

// Values returns all elements of p in memory order: assembled from its parts, in the parameter's
// shape and the dtype that [Binding.DType] returns. If one whole tensor fills p, the bytes are the tensor's own
// and read-only; see [Tensor.Bytes]. The error is an *Error.
func (b *Binding) Values(p *meta.Param) (meta.DType, []byte, error) {
	p = p.Resolve()
	return b.values(p.Name, p.Shape, b.Tensors(p))
}

// BufferValues is [Binding.Values] for a persistent buffer.
func (b *Binding) BufferValues(buffer *meta.Buffer) (meta.DType, []byte, error) {
	return b.values(buffer.Name, buffer.Shape, b.BufferTensors(buffer))
}

// DType returns the dtype of p's values: the checkpoint's, or float32 if its tensors have different
// floating-point dtypes.
func (b *Binding) DType(p *meta.Param) meta.DType {
	if parts := b.Tensors(p.Resolve()); len(parts) > 0 {
		return commonDType(parts)
	}
	return meta.NoDType
}

func commonDType(parts []BoundTensor) meta.DType {
	first := parts[0].Tensor.DType
	for _, part := range parts {
		if part.Tensor.DType != first {
			return meta.Float32
		}
	}
	return first
}

// widened returns values of dtype from as values of dtype to. ok is false if there is no such
// conversion.
func widened(src []byte, from, to meta.DType) (dst []byte, ok bool) {
	if from == to {
		return src, true
	}
	widen := map[meta.DType]func(uint16) float32{meta.BFloat16: floats.FromBFloat16, meta.Float16: floats.FromFloat16}[from]
	if widen == nil || to != meta.Float32 {
		return nil, false
	}
	dst = make([]byte, 0, 2*len(src))
	for i := 0; i+1 < len(src); i += 2 {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(widen(binary.LittleEndian.Uint16(src[i:]))))
	}
	return dst, true
}

func (b *Binding) values(name string, shape []int, parts []BoundTensor) (meta.DType, []byte, error) {
	if len(parts) == 0 {
		return meta.NoDType, nil, failf(b.ck.name, name, "does not belong to the model that was bound")
	}
	for _, part := range parts {
		if part.Quant != nil {
			return meta.NoDType, nil, failf(part.Tensor.File.label(), part.Tensor.Name, "is stored as %v, want values that are not quantised", part.Quant.Format)
		}
	}
	dtype := commonDType(parts)
	if first := parts[0]; len(parts) == 1 && first.From.IsAll() && first.Into.IsAll() && !first.Transposed && first.Expert < 0 {
		data, err := first.Tensor.Bytes()
		return dtype, data, err
	}
	dst := make([]byte, dtype.Bytes(meta.Elements(shape)))
	for _, part := range parts {
		src, err := part.Bytes()
		if err != nil {
			return meta.NoDType, nil, err
		}
		src, ok := widened(src, part.Tensor.DType, dtype)
		if !ok || dtype.Bits()%8 != 0 {
			return meta.NoDType, nil, failf(part.Tensor.File.label(), part.Tensor.Name,
				"holds %v, which cannot be put together with %v of %s", part.Tensor.DType, parts[0].Tensor.DType, printable(parts[0].Tensor.Name))
		}
		windows := windowsOf(shape, part, dtype)
		if size := windows[0].size; size*int64(len(windows)) != int64(len(src)) {
			return meta.NoDType, nil, failf(part.Tensor.File.label(), part.Tensor.Name, "%d bytes do not fill %d of %s", len(src), size*int64(len(windows)), name)
		}
		for i, w := range windows {
			to, from := dst[w.off:w.off+w.size], src[int64(i)*w.size:][:w.size]
			if part.Transposed {
				transpose(to, from, part.shape(), dtype)
			} else {
				copy(to, from)
			}
		}
	}
	return dtype, dst, nil
}

// A byteRange is a range of a parameter's bytes: size bytes from off on.
type byteRange struct{ off, size int64 }

// windowsOf returns the ranges of a parameter's bytes that a part fills, in order: one range, or
// one in each slab.
func windowsOf(shape []int, part BoundTensor, dtype meta.DType) []byteRange {
	if !part.Slabs {
		off, size := window(shape, part.Expert, part.Into, dtype)
		return []byteRange{{off, size}}
	}
	list := make([]byteRange, shape[0])
	for e := range list {
		list[e].off, list[e].size = window(shape, e, part.Into, dtype)
	}
	return list
}

// window returns the range of rows into of a parameter, or of slab expert of it, in its bytes.
func window(shape []int, expert int, into meta.RowRange, dtype meta.DType) (off, size int64) {
	total := dtype.Bytes(meta.Elements(shape))
	off, size = 0, total
	if expert >= 0 {
		size = total / int64(shape[0])
		off = size * int64(expert)
		shape = shape[1:]
	}
	if !into.IsAll() {
		row := size / int64(shape[0])
		off, size = off+row*int64(into.Begin), row*int64(into.End-into.Begin)
	}
	return off, size
}

// transpose writes the transposes of src, dense matrices of shape [..., rows, columns], to dst.
func transpose(dst, src []byte, shape []int, dtype meta.DType) {
	n := len(shape)
	rows, columns := shape[n-2], shape[n-1]
	word := dtype.Bits() / 8
	matrix := rows * columns * word
	for ; len(src) >= matrix && matrix > 0; src, dst = src[matrix:], dst[matrix:] {
		for r := range rows {
			for c := range columns {
				copy(dst[(c*rows+r)*word:][:word], src[(r*columns+c)*word:][:word])
			}
		}
	}
}

// Unbind yields the tensors of a checkpoint of model. It is the inverse of [Bind]: every source
// becomes a tensor, cut from the parameter that it fills or assembled from several. Tied
// parameters are written once, under the first name.
//
// value returns the dtype and the elements of the parameter or persistent buffer at a dotted
// path, dense and in its shape. elements is called once for each tensor that is cut from it, when
// that is written. Tensors of buffers are Exact.
func Unbind(model *meta.Model, value func(path string) (dtype meta.DType, elements func() ([]byte, error))) (iter.Seq[NamedTensor], error) {
	if model == nil || value == nil {
		return nil, &Error{Reason: "unbind: got a nil model or function"}
	}
	u := unbinder{value: value, at: map[string]int{}}
	for path, m := range model.Root.Walk() {
		if m.SameAs != nil {
			continue
		}
		for _, p := range m.Params {
			if p.SameAs == nil {
				name := meta.Join(path, p.Name)
				u.add(name, bind(name, p.Shape, p.Sources), false)
			}
		}
		for _, b := range m.Buffers {
			if b.Persistent {
				name := meta.Join(path, b.Name)
				u.add(name, bind(name, b.Shape, b.Sources), true)
			}
		}
	}
	if u.err != nil {
		return nil, u.err
	}
	tensors := make([]NamedTensor, len(u.tensors))
	for i, t := range u.tensors {
		var err error
		if tensors[i], err = t.named(); err != nil {
			return nil, err
		}
	}
	return slices.Values(tensors), nil
}

// A piece is a part of a parameter that is written to rows from of a tensor.
type piece struct {
	shape    []int // of the rows in the tensor
	from     meta.RowRange
	off      int64 // offset in the parameter's bytes
	size     int64
	flip     bool
	elements func() ([]byte, error)
}

type unbound struct {
	name   string
	dtype  meta.DType
	exact  bool
	pieces []piece
}

type unbinder struct {
	value   func(string) (meta.DType, func() ([]byte, error))
	tensors []unbound
	at      map[string]int
	err     error
}

func (u *unbinder) add(path string, e *bound, exact bool) {
	dtype, elements := u.value(path)
	if u.err == nil && (dtype.Bits() == 0 || dtype.Bits()%8 != 0) {
		u.err = failf("", path, "%v cannot be cut into tensors", dtype)
	}
	var buf []byte
	for _, s := range e.sources {
		shape, reason := wanted(e.shape, s)
		if s.Quant != nil {
			reason = fmt.Sprintf("weights stored as %v are not written", s.Quant.Format)
		}
		if reason != "" && u.err == nil {
			u.err = failf("", s.Tensor, "cannot be cut from %s of shape %v: %s", path, e.shape, reason)
		}
		if u.err != nil {
			return
		}
		if s.Slabs {
			u.putSlabs(e.shape, shape, &s, dtype, exact, elements)
			continue
		}
		for i := range max(s.Stack, 1) {
			slab := i
			if s.Stack == 0 {
				slab = -1
			}
			p := piece{shape: shape, from: s.Rows(i), flip: s.Transposed, elements: elements}
			p.off, p.size = window(e.shape, slab, s.Into, dtype)
			buf = appendName(buf[:0], s, i)
			u.put(string(buf), dtype, exact, p)
		}
	}
}

// putSlabs writes rows of each slab of a parameter to slabs of the source's tensor, which has the
// given shape.
func (u *unbinder) putSlabs(param, shape []int, s *meta.TensorSource, dtype meta.DType, exact bool, elements func() ([]byte, error)) {
	slab := append([]int{1}, shape[1:]...)
	for e := range param[0] {
		p := piece{shape: slab, from: meta.RowRange{Begin: e, End: e + 1}, flip: s.Transposed, elements: elements}
		p.off, p.size = window(param, e, s.Into, dtype)
		u.put(s.Tensor, dtype, exact, p)
	}
}

func (u *unbinder) put(name string, dtype meta.DType, exact bool, p piece) {
	at, has := u.at[name]
	if !has {
		at = len(u.tensors)
		u.at[name] = at
		u.tensors = append(u.tensors, unbound{name: name, dtype: dtype, exact: exact})
	}
	t := &u.tensors[at]
	if t.dtype != dtype && u.err == nil {
		u.err = failf("", name, "got parts of %v and %v, want one dtype", t.dtype, dtype)
	}
	t.pieces = append(t.pieces, p)
}

// named returns the tensor to write. Its pieces must follow each other without a gap.
func (t unbound) named() (NamedTensor, error) {
	first := t.pieces[0]
	named := NamedTensor{Name: t.name, DType: t.dtype, Shape: slices.Clone(first.shape), Exact: t.exact}
	if first.from.IsAll() {
		if len(t.pieces) > 1 {
			return named, failf("", t.name, "two parameters fill all of it")
		}
		named.Bytes = func() ([]byte, error) { return first.bytes(t.name, t.dtype) }
		return named, nil
	}
	slices.SortFunc(t.pieces, func(a, b piece) int { return a.from.Begin - b.from.Begin })
	rows := 0
	for _, p := range t.pieces {
		if p.from.Begin != rows || len(p.shape) == 0 || p.from.End-p.from.Begin != p.shape[0] || !slices.Equal(p.shape[1:], first.shape[1:]) {
			return named, failf("", t.name, "rows [%d:%d] of shape %v do not follow row %d", p.from.Begin, p.from.End, p.shape, rows)
		}
		rows = p.from.End
	}
	named.Shape[0] = rows
	named.Bytes = func() ([]byte, error) {
		var all []byte
		for _, p := range t.pieces {
			b, err := p.bytes(t.name, t.dtype)
			if err != nil {
				return nil, err
			}
			all = append(all, b...)
		}
		return all, nil
	}
	return named, nil
}

func (p piece) bytes(name string, dtype meta.DType) ([]byte, error) {
	all, err := p.elements()
	if err != nil {
		return nil, err
	}
	if int64(len(all)) < p.off+p.size {
		return nil, failf("", name, "is cut from bytes [%d, %d) of %d", p.off, p.off+p.size, len(all))
	}
	b := all[p.off : p.off+p.size]
	if p.flip {
		flipped := make([]byte, len(b))
		n := len(p.shape)
		memory := slices.Clone(p.shape)
		memory[n-1], memory[n-2] = memory[n-2], memory[n-1]
		transpose(flipped, b, memory, dtype)
		return flipped, nil
	}
	return b, nil
}
