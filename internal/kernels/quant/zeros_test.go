package quant_test

import (
	"encoding/binary"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// TestZerosOfGPTQBorrow: GPTQ's first version stores zeros less 1, subtracted from whole words, so a zero of 0 borrows from
// the zeros after it. The sum of the word with as many ones restores all of them. A sum for each zero gave 16 and wrong
// zeros after it.
func TestZerosOfGPTQBorrow(t *testing.T) {
	for _, test := range []struct {
		packing quant.Packing
		bits    int
		ones    uint32
		zeros   []uint32
	}{
		{quant.Int4Rows, 4, 0x11111111, []uint32{3, 0, 7, 0, 0, 15, 1, 8}},
		{quant.Int8Rows, 8, 0x01010101, []uint32{0, 128, 255, 0}},
	} {
		word, width := uint32(0), len(test.zeros)
		for i, z := range test.zeros {
			word |= z << (i * test.bits)
		}
		one := binary.LittleEndian.AppendUint16(nil, 0x3c00) // float16
		p := &quant.Packed{
			Packing: test.packing, Width: width, Rows: 8, Columns: 1, Codes: make([]byte, width*test.bits), ScaleFormat: mat.Float16,
			Zeros: binary.LittleEndian.AppendUint32(nil, word-test.ones), ZeroWords: [3]uint32{test.ones, test.ones, test.ones},
		}
		for range width {
			p.Scales = append(p.Scales, one...)
		}
		got := mat.Floats{V: make([]float32, width), Stride: width}
		kernels.For(isa.Portable()).Quant.Unpack(got, quant.View{Packed: p, Rows: 1, Cols: width}, make([]float32, quant.UnpackScratch))
		for i, z := range test.zeros {
			if got.V[i] != -float32(z) {
				t.Errorf("%d bits: code 0 with zero %d is %v", test.bits, z, got.V[i])
			}
		}
	}
}
