//go:build !purego

package isa

import (
	"github.com/klauspost/cpuid/v2"
	"golang.org/x/sys/cpu"
)

// HasAVX2 reports whether the processor and the operating system support level [AVX2].
func HasAVX2() bool {
	x := &cpu.X86
	return x.HasAVX2 && x.HasFMA && x.HasF16C
}

// HasAVX512 reports whether the processor and the operating system support level [AVX512].
func HasAVX512() bool {
	x := &cpu.X86
	return HasAVX2() && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasBMI2
}

// Available returns the variants that this processor supports, best first.
func Available() []Variant {
	var list []Variant
	x := &cpu.X86
	if HasAVX512() {
		// Some processors have VNNI but no bfloat16 instructions.
		v := Variant{Name: "avx512", Level: AVX512, Lanes: 16, VNNI: x.HasAVX512VNNI}
		if x.HasAVX512BF16 {
			rounds := v
			rounds.BF16, rounds.Bytes = true, x.HasAVX512VBMI
			if x.HasAMXTile && x.HasAMXBF16 && TilesAllowed() {
				tiles := rounds
				tiles.Name, tiles.AMX = "amx", true
				list = append(list, tiles)
			}
			rounds.Name, rounds.SlowPairs = "avx512bf16", slowPairs(cpuid.CPU.VendorID)
			list = append(list, rounds)
		}
		list = append(list, v)
	}
	if HasAVX2() {
		list = append(list, Variant{Name: "avx2", Level: AVX2, Lanes: 8})
	}
	return append(list, Portable())
}

// slowPairs reports whether a vendor's processors with bfloat16 instructions multiply bfloat16
// pairs slower than float32. AMD's multiply twice as many pairs as float32 at a time. Intel's
// multiply half as many, since they have tiles for such products; a hypervisor may hide the
// tiles.
func slowPairs(v cpuid.Vendor) bool { return v != cpuid.AMD }
