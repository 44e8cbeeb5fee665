//go:build !purego

package isa

import "golang.org/x/sys/cpu"

// HasAVX2 reports whether the processor and the system have what level [AVX2] needs.
func HasAVX2() bool {
	x := &cpu.X86
	return x.HasAVX2 && x.HasFMA && x.HasF16C
}

// HasAVX512 reports whether the processor and the system have what level [AVX512] needs.
func HasAVX512() bool {
	x := &cpu.X86
	return HasAVX2() && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasBMI2
}

// Available lists the variants that this processor runs, best first.
func Available() []Variant {
	var list []Variant
	x := &cpu.X86
	if HasAVX512() {
		// Some processors have VNNI and no bfloat16.
		v := Variant{Name: "avx512", Level: AVX512, Lanes: 16, VNNI: x.HasAVX512VNNI}
		if x.HasAVX512BF16 {
			rounds := v
			rounds.BF16 = true
			if x.HasAMXTile && x.HasAMXBF16 && TilesAllowed() {
				tiles := rounds
				tiles.Name, tiles.AMX = "amx", true
				list = append(list, tiles)
			}
			// A processor with tiles has no fast unit for pairs beside them.
			rounds.Name, rounds.SlowPairs = "avx512bf16", x.HasAMXBF16
			list = append(list, rounds)
		}
		list = append(list, v)
	}
	if HasAVX2() {
		list = append(list, Variant{Name: "avx2", Level: AVX2, Lanes: 8})
	}
	return append(list, Portable())
}
