package record

import (
	"cmp"
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// chunkFloats is the minimum size of a chunk of memory, from which Take takes matrices.
const chunkFloats = 1 << 20

// memory holds the blocks, their shadows, and the chunks that Take uses. All views of a block
// have its number as their owner. It is negative, because owners of weights are positive.
type memory struct {
	backend backend.Backend
	blocks  map[int32]*block // by owner
	newest  int32            // owner
	failed  error

	chunks []*block // in the order of their use
	chunk  int      // index of the current one
	used   int      // floats used in it
	spare  []tensor.Tensor
	// replaced is memory that holds the gradient instead of the values.
	replaced struct {
		owner  int32
		lo, hi uintptr
	}
}

// A block is memory allocated from the backend.
type block struct {
	lo     uintptr
	memory tensor.Tensor
	shadow tensor.Tensor // absent until first used
	chunk  bool
	idle   bool // the shadow is zeros and unused
}

func (m *memory) alloc(dtype meta.DType, dims ...int) (tensor.Tensor, error) {
	t, err := m.backend.New(dtype, dims...)
	if err == nil {
		m.newest--
		t.Owner = m.newest
		m.blocks[t.Owner] = &block{lo: address(t), memory: t}
	}
	return t, err
}

func (m *memory) free(t tensor.Tensor) {
	if b := m.blocks[t.Owner]; b != nil {
		s := b.shadow
		if s.IsZero() {
			s = m.takeSpare(t.Elements())
		}
		if !s.IsZero() {
			m.backend.Free(s)
		}
		delete(m.blocks, t.Owner)
	}
	m.backend.Free(t)
}

// shadow returns the same view of the gradients. It is absent for memory that the recorder did
// not allocate.
func (m *memory) shadow(t tensor.Tensor) (tensor.Tensor, error) {
	at := address(t)
	if t.Owner == m.replaced.owner && m.replaced.lo <= at && at < m.replaced.hi {
		return t, nil
	}
	b := m.blocks[t.Owner]
	if b == nil || t.DType != meta.Float32 {
		return tensor.Tensor{}, nil
	}
	if b.shadow.IsZero() {
		if err := m.addShadow(b); err != nil {
			return tensor.Tensor{}, err
		}
	}
	if t.Owner = 0; t.Data != nil {
		from := int(at - b.lo)
		t.Data = b.shadow.Data[from : from+len(t.Data)]
	} else {
		t.Address = b.shadow.Address + (at - b.lo)
	}
	return t, nil
}

// addShadow allocates a zeroed shadow for a block.
func (m *memory) addShadow(b *block) (err error) {
	n := b.memory.Elements()
	if b.shadow = m.takeSpare(n); b.shadow.IsZero() {
		b.shadow, err = m.backend.New(meta.Float32, n)
	}
	return err
}

// takeSpare takes an unused shadow of n elements, if one exists.
func (m *memory) takeSpare(n int) (t tensor.Tensor) {
	if i := slices.IndexFunc(m.spare, func(t tensor.Tensor) bool { return t.Elements() == n }); i >= 0 {
		t = m.spare[i]
		m.spare = slices.Delete(m.spare, i, i+1)
	}
	return t
}

// take takes a matrix from the current chunk, or from the next one with room for it.
func (m *memory) take(rows, cols int) (tensor.Tensor, error) {
	n := (rows*cols + 15) &^ 15
	if m.chunk < len(m.chunks) && m.used+n > m.chunks[m.chunk].memory.Elements() {
		m.chunk, m.used = m.chunk+1, 0
	}
	if m.used == 0 {
		if err := m.fit(n); err != nil {
			return tensor.Tensor{}, err
		}
	}
	t := m.chunks[m.chunk].memory.Slice(m.used, m.used+rows*cols)
	m.used += n
	if t.Data != nil {
		t.Data = t.Data[: 4*rows*cols : 4*rows*cols]
	}
	t.Rank, t.Stride, t.Dims = 2, 0, [tensor.MaxRank]int{rows, cols}
	return t, nil
}

// fit makes the smallest chunk of at least n floats the current one.
func (m *memory) fit(n int) error {
	best := -1
	for i := m.chunk; i < len(m.chunks); i++ {
		size := m.chunks[i].memory.Elements()
		if size >= n && (best < 0 || size < m.chunks[best].memory.Elements()) {
			best = i
		}
	}
	if best >= 0 {
		m.chunks[best], m.chunks[m.chunk] = m.chunks[m.chunk], m.chunks[best]
		return nil
	}
	m.replaceLargest()
	t, err := m.alloc(meta.Float32, max(n+n/8, chunkFloats)) // the next batch may be longer
	if err != nil {
		return err
	}
	b := m.blocks[t.Owner]
	b.chunk = true
	m.chunks = slices.Insert(m.chunks, m.chunk, b)
	return nil
}

// replaceLargest frees the largest unused chunk before a larger one is allocated, so that memory
// grows with the largest batch and not with the number of sizes.
func (m *memory) replaceLargest() {
	unused := m.chunks[min(m.chunk, len(m.chunks)):]
	if len(unused) == 0 {
		return
	}
	largest := slices.MaxFunc(unused, func(a, b *block) int { return cmp.Compare(a.memory.Elements(), b.memory.Elements()) })
	m.chunks = slices.DeleteFunc(m.chunks, func(b *block) bool { return b == largest })
	m.free(largest.memory)
}

// rewind frees the memory that was taken since the given position. Its shadows, which are zeros,
// may be used for other blocks.
func (m *memory) rewind(chunk, used int) {
	first := chunk
	if used > 0 {
		first++
	}
	for _, b := range m.chunks[min(first, len(m.chunks)):] {
		m.lend(b)
	}
	m.chunk, m.used = chunk, used
}

// lend makes a block's zeroed shadow available to other blocks.
func (m *memory) lend(b *block) {
	if !b.shadow.IsZero() {
		m.spare = append(m.spare, b.shadow)
		b.shadow = tensor.Tensor{}
	}
}

// lendIdle lends the shadows that are idle.
func (m *memory) lendIdle() {
	for _, b := range m.blocks {
		if b.idle {
			b.idle = false
			m.lend(b)
		}
	}
}

// idle sets whether the gradients of a block are all zero until a backward operation adds to
// them.
func (m *memory) idle(t tensor.Tensor, is bool) {
	if b := m.blocks[t.Owner]; b != nil {
		b.idle = is
	}
}

// clearShadows sets all gradients to 0.
func (m *memory) clearShadows(g backend.Gradients) {
	zero := func(t tensor.Tensor) {
		if !t.IsZero() {
			t.Rank, t.Stride, t.Dims = 2, 0, [tensor.MaxRank]int{t.Elements(), 1}
			g.Zero(t)
		}
	}
	for _, b := range m.blocks {
		zero(b.shadow)
	}
	for _, t := range m.spare {
		zero(t)
	}
}
