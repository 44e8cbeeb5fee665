package dispatch

import (
	"context"
	"errors"
	"sync"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// sampledExperts is the number of experts of a stack that a sample codes.
const sampledExperts = 3

// A codingSample is which matrices of a checkpoint do not get smaller when they are coded. It looks when it is first
// asked.
type codingSample struct {
	skeleton   *meta.Model
	checkpoint *loader.Checkpoint
	once       sync.Once
	plain      map[*meta.Param]bool
}

// SampleCoding returns o for plans that count matrices as the checkpoint's weights can be coded: those that do not get
// smaller are used as stored. A plan that codes weights reads 16 rows of each matrix for that, and of three experts of
// each stack. Other plans read none. checkpoint may be nil, for a model without weights.
func (o Options) SampleCoding(skeleton *meta.Model, checkpoint *loader.Checkpoint) Options {
	if checkpoint != nil && o.Compress != CompressNone {
		o.sample = &codingSample{skeleton: skeleton, checkpoint: checkpoint}
	}
	return o
}

// codedBytes returns the sizes of the parameters of skeleton that are coded.
func (o *Options) codedBytes(skeleton *meta.Model) map[*meta.Param]int64 {
	coded := skeleton.Root.Coded(o.mostCoded())
	if s := o.sample; s != nil && s.skeleton == skeleton {
		s.once.Do(func() { s.take(coded) })
		for p := range s.plain {
			delete(coded, p)
		}
	}
	return coded
}

// take finds the matrices among those of coded that do not get smaller. What cannot be read counts as coded.
func (s *codingSample) take(coded map[*meta.Param]int64) {
	s.plain = map[*meta.Param]bool{}
	binding, err := loader.Bind(s.checkpoint, s.skeleton)
	if err != nil {
		return
	}
	coder := cpu.NewCoder(1)
	for p := range coded {
		list := binding.Tensors(p)
		n := len(list)
		if len(p.Shape) == 3 {
			n = min(n, sampledExperts)
		}
		fails := 0
		for i := range n {
			if incompressible(coder, list[i*(len(list)-1)/max(n-1, 1)]) {
				fails++
			}
		}
		if n > 0 && fails == n {
			s.plain[p] = true
		}
	}
}

// incompressible reports whether the rows in the middle of a part do not get smaller.
func incompressible(coder *cpu.Coder, part loader.BoundTensor) bool {
	t := part.Tensor
	if t.DType != meta.BFloat16 || len(t.Shape) < 2 || t.Shape[len(t.Shape)-1] < 1 {
		return false // not coded in any case
	}
	begin, size := part.Span()
	columns := t.Shape[len(t.Shape)-1]
	row := t.DType.Bytes(int64(columns))
	rows := int(size / row)
	group := coder.RowGroup()
	first := rows / 2 / group * group
	n := min(group, rows-first)
	from := make([]byte, int64(n)*row)
	if _, err := t.ReadAt(from, begin+int64(first)*row); err != nil {
		return false
	}
	p := backend.Part{Matrix: backend.Matrix{Tensor: tensor.Tensor{DType: t.DType, Rank: 2}}}
	p.Dims[0], p.Dims[1] = n, columns
	_, coded, err := coder.Converted(p)
	if err != nil {
		return false
	}
	return errors.Is(coder.Convert(context.Background(), make([]byte, coded), from, &p), backend.ErrIncompressible)
}
