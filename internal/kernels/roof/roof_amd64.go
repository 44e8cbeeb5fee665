//go:build !purego

package roof

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/isa"
)

// Roofs returns the kinds of products that this processor supports. A step adds to 12 registers,
// or to 4 tiles of 16 × 16 sums.
func Roofs() []Roof {
	x := &cpu.X86
	if !hasAVX512() {
		if !x.HasAVX2 || !x.HasFMA {
			return nil
		}
		return []Roof{{"fma", 12 * 8 * 2, roofFloat2}}
	}
	roofs := []Roof{{"fma", 12 * 16 * 2, roofFloat}}
	if x.HasAVX512BF16 {
		roofs = append(roofs, Roof{"bf16", 12 * 16 * 4, roofBFloat})
	}
	if x.HasAVX512VNNI {
		roofs = append(roofs, Roof{"vnni", 12 * 16 * 8, roofInts})
	}
	if x.HasAMXTile && isa.TilesAllowed() {
		if x.HasAMXBF16 {
			roofs = append(roofs, Roof{"amx_bf16", 4 * 16 * 16 * 32 * 2, roofTilesBFloat})
		}
		if x.HasAMXInt8 {
			roofs = append(roofs, Roof{"amx_int8", 4 * 16 * 16 * 64 * 2, roofTilesInts})
		}
	}
	return roofs
}

func hasAVX512() bool {
	x := &cpu.X86
	return x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL
}

func readMemory(b []byte, out *[64]byte) {
	p, n := unsafe.Pointer(unsafe.SliceData(b)), int64(len(b))
	switch one := fetch.Rows(fetch.Roof) == 1; {
	case hasAVX512() && one:
		roofReadx1(p, n, unsafe.Pointer(out))
	case hasAVX512():
		roofReadx8(p, n, unsafe.Pointer(out))
	case cpu.X86.HasAVX2 && one:
		roofRead2x1(p, n, unsafe.Pointer(out))
	case cpu.X86.HasAVX2:
		roofRead2x8(p, n, unsafe.Pointer(out))
	default:
		readPlain(b, out)
	}
}

// stream fills b, which consists of whole aligned cache lines, with non-temporal stores.
func stream(b []byte, with byte) bool {
	p, n := unsafe.Pointer(unsafe.SliceData(b)), int64(len(b))
	switch {
	case hasAVX512():
		roofStream(p, n, int64(with))
	case cpu.X86.HasAVX2:
		roofStream2(p, n, int64(with))
	default:
		return false
	}
	return true
}
