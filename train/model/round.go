package model

import (
	"sync"
	"unsafe"

	"github.com/heftai/heft/internal/kernels/mat"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// roundElements is the number of elements that one goroutine rounds at a time.
const roundElements = 1 << 20

// round makes float16 copies of all matrices.
func (w *weights) round() {
	var all sync.WaitGroup
	for p, t := range w.model.trained {
		values := t.Data()
		if len(p.Shape) < 2 || len(values) == 0 {
			continue
		}
		h := w.params[p]
		if h.rounded == nil {
			h.memory = make([]byte, 2*len(values))
			h.rounded = &parts{}
			number := w.model.numbers[t]
			w.places[number-1].rounded = uintptr(unsafe.Pointer(unsafe.SliceData(h.memory)))
			dense := view.Tensor{DType: meta.Float16, Owner: number, Rank: len(p.Shape), Data: h.memory}
			copy(dense.Dims[:], p.Shape)
			h.rounded.show(dense, w.model.stacked[p])
			h.rounded.keepVectors(h)
		}
		for at := 0; at < len(values); at += roundElements {
			src, dst := values[at:min(at+roundElements, len(values))], h.memory[2*at:]
			all.Go(func() { mat.NarrowFloat16(dst[:2*len(src)], src) })
		}
	}
	all.Wait()
}

// keepVectors shares the rows of a stack of biases, which are not rounded.
func (h *parts) keepVectors(from *parts) {
	if len(h.experts) > 0 && h.experts[0][0].Rank == 1 {
		h.experts = from.experts
	}
}
