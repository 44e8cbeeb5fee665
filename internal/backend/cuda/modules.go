//go:build cuda

package cuda

import (
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"unsafe"

	"gorgonia.org/cu"
)

//go:generate kernels/generate.sh

// The modules are compressed because their text takes most of the space.
//
//go:embed kernels/exact.sm_80.ptx.gz
var exactSM80 string

//go:embed kernels/exact.sm_90a.ptx.gz
var exactSM90a string

//go:embed kernels/fast.sm_80.ptx.gz
var fastSM80 string

//go:embed kernels/fast.sm_90a.ptx.gz
var fastSM90a string

// kernel identifies a function of a module.
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
	kernelShortConv
	kernelDeltaRule
	kernelStateSpace
	kernelSelectiveScan
	firstFast // the kernels from here on are those of Options.Fast
)

const (
	kernelFew8 = firstFast + iota
	kernelFew16
	kernelFew32
	kernelFew64
	kernelFewGated
	kernelFewCodes8
	kernelFewCodes64
	kernelFewCodesGated
	kernelMany128
	kernelMany64
	kernelManyCodes128
	kernelManyCodes64
	kernelWide256
	kernelWide128
	kernelWide64
	kernelAlone
	kernelAloneGated
	kernelRoundRows
	kernelAttendParts128
	kernelAttendParts256
	kernelAttendRows
	kernelAttendSum
	kernelAddNorm
	kernelRopeStore
	kernelCount
)

var kernelNames = [kernelCount]string{"zero", "linear", "linear_codes", "embed", "norm", "rope", "gather", "scatter", "add", "gate", "scale", "store_kv", "store_blocks", "attend",
	"short_conv", "delta_rule", "state_space", "selective_scan",
	"few_8", "few_16", "few_32", "few_64", "few_gated", "few_codes_8", "few_codes_64", "few_codes_gated", "many_128", "many_64", "many_codes_128", "many_codes_64", "wide_256", "wide_128", "wide_64",
	"alone_plain", "alone_gated", "round_rows", "attend_parts_128", "attend_parts_256", "attend_rows", "attend_sum", "add_norm", "rope_store"}

// sharedBytes is the maximum dynamic shared memory of a block, by kernel: the stages of wide, the
// queue of alone, and the queries and values of attend_parts.
var sharedBytes = [kernelCount]int{
	kernelWide256: 4 * (128 + 256) * 128, kernelWide128: 4 * (128 + 128) * 128, kernelWide64: 4 * (64 + 64) * 128,
	kernelAlone: mostAloneBytes, kernelAloneGated: mostAloneBytes,
	kernelAttendParts128: 2*16*128*2 + partWarps*4*16*128*2, kernelAttendParts256: 2*16*256*2 + partWarps*2*16*256*2, kernelAttendRows: partWarps * (2*16*128*2 + 2*16*128*2),
}

// functions are a device's loaded functions, by kernel.
type functions [kernelCount]unsafe.Pointer

// wide reports whether the kernel needs the matrix instructions of compute capability 9.0.
func (k kernel) wide() bool { return k >= kernelWide256 && k <= kernelWide64 }

// load loads the kernels for a compute capability into the current context. The driver compiles
// them the first time and caches the result.
func (f *functions) load(major int, fast bool) error {
	exact, more := exactSM80, fastSM80
	if major == 9 {
		exact, more = exactSM90a, fastSM90a
	}
	if err := f.loadImage(exact, 0, firstFast, major); err != nil || !fast {
		return err
	}
	return f.loadImage(more, firstFast, kernelCount, major)
}

// loadImage loads those of the kernels [begin, end) that a compute capability supports, from one
// compressed module.
func (f *functions) loadImage(image string, begin, end kernel, major int) error {
	text, err := unzipped(image)
	if err != nil {
		return fmt.Errorf("cuda: unpack the kernels: %w", err)
	}
	module, err := cu.LoadDataEx(text)
	if err != nil {
		return fmt.Errorf("cuda: load the kernels: %w", err)
	}
	for k := begin; k < end; k++ {
		if k.wide() && major != 9 {
			continue
		}
		function, err := module.Function(kernelNames[k])
		if err != nil {
			return fmt.Errorf("cuda: kernel %s: %w", kernelNames[k], err)
		}
		f[k] = *(*unsafe.Pointer)(unsafe.Pointer(&function)) // a cu.Function is a handle of the driver
	}
	return nil
}

func unzipped(image string) (string, error) {
	r, err := gzip.NewReader(strings.NewReader(image))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r)
	return string(text), err
}
