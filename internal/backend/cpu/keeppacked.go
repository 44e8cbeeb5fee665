package cpu

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/matmul"
	"github.com/heftai/heft/internal/tensor"
)

// KeepPacked keeps bfloat16 weights of training products and their gradients as products take them, in memory of float32,
// as far as it is large enough. No such weight may change or move before the next KeepPacked, which forgets them. The zero
// tensor keeps none. No bit depends on it.
func (b *Backend) KeepPacked(memory tensor.Tensor) {
	var words []uint32
	if !memory.IsZero() {
		f := memory.F32()
		words = unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(f))), len(f))
	}
	b.gemm.Keep(words)
}

// KeepsPacked reports whether KeepPacked has an effect on this processor.
func KeepsPacked() bool {
	set, err := kernels.Select("")
	return err == nil && matmul.Keeps(set)
}
