//go:build cuda

package cuda

import (
	_ "embed"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

//go:generate kernels/generate.sh

//go:embed kernels/exact.sm_80.ptx
var exactSM80 string

//go:embed kernels/exact.sm_90a.ptx
var exactSM90a string

// kernel is a function of the module.
type kernel uint8

const (
	kernelZero kernel = iota
	kernelLinear
	kernelLinearCodes
	kernelEmbed
	kernelNorm
	kernelRope
	kernelGather
	kernelScatter
	kernelAdd
	kernelGate
	kernelScale
	kernelStoreKV
	kernelStoreBlocks
	kernelAttend
	kernelCount
)

var kernelNames = [kernelCount]string{"zero", "linear", "linear_codes", "embed", "norm", "rope", "gather", "scatter", "add", "gate", "scale", "store_kv", "store_blocks", "attend"}

// module is a device's code.
type module struct {
	module    cu.Module
	functions [kernelCount]unsafe.Pointer
}

// loadModule loads the kernels for a capability into the current context. The driver compiles them at
// first, and keeps the result.
func loadModule(major int) (m module, err error) {
	image := exactSM80
	if major == 9 {
		image = exactSM90a
	}
	if m.module, err = cu.LoadDataEx(image); err != nil {
		return m, fmt.Errorf("cuda: load the kernels: %w", err)
	}
	for i, name := range kernelNames {
		f, err := m.module.Function(name)
		if err != nil {
			return m, fmt.Errorf("cuda: kernel %s: %w", name, err)
		}
		m.functions[i] = *(*unsafe.Pointer)(unsafe.Pointer(&f)) // a cu.Function is the driver's handle
	}
	return m, nil
}
