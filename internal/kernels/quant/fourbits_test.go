package quant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
)

func TestReadState(t *testing.T) {
	const good = `{"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [6, 50], "nested_blocksize": 256, "nested_offset": -2.5e-1}`
	s, err := ReadState([]byte(good))
	if want := (State{Elements: 64, DType: mat.BFloat16, Offset: -0.25}); err != nil || s != want {
		t.Errorf("got %+v, error %v, want %+v", s, err, want)
	}
	for change, want := range map[[2]string]string{
		{`"blocksize": 64`, `"blocksize": 0`}:                   "blocksize",
		{`"blocksize": 64, `, ``}:                               "blocksize",
		{`bfloat16`, `float8`}:                                  "dtype",
		{`"nested_blocksize": 256`, `"nested_blocksize": 1024`}: "nested_blocksize",
		{`-2.5e-1`, `NaN`}:                                      "nested_offset",
		{`-2.5e-1`, `1e99`}:                                     "nested_offset",
		{`"blocksize": 64, "dtype`, `"blocksize`}:               "blocksize",
	} {
		if _, err := ReadState([]byte(strings.Replace(good, change[0], change[1], 1))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q for %q: error %v, want one of %s", change[1], change[0], err, want)
		}
	}
	nested := strings.Replace(good, `{`, `{"tensor": {"blocksize": 3, "dtype": ["float32"]}, `, 1)
	if again, err := ReadState([]byte(nested)); err != nil || again != s {
		t.Errorf("with fields of an object inside: got %+v, error %v, want %+v", again, err, s)
	}
	for n := range len(good) {
		_, _ = ReadState([]byte(good[:n]))
	}
	if n := testing.AllocsPerRun(10, func() { _, _ = ReadState([]byte(good)) }); n > 1 { // the copy of the text
		t.Errorf("%v allocations", n)
	}
}

// apart are matrices of the packings whose scales are separate tensors and which have no other kernels.
func apart(rows, cols int) map[string]*Packed {
	random := rand.New(rand.NewPCG(5, 6))
	bytes := func(n int) []byte {
		out := make([]byte, n)
		for i := range out {
			out[i] = byte(random.Uint32())
		}
		return out
	}
	numbers := func(n int) []byte {
		out := make([]byte, 4*n)
		for i := range n {
			binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(float32(random.NormFloat64())))
		}
		return out
	}
	n := rows * cols
	return map[string]*Packed{
		"nf4 nested":    {Packing: NF4, Columns: 64, Scales: bytes(n), Zeros: numbers(n), Index: numbers(256), Global: 0.25, Round: mat.BFloat16},
		"nf4 float16":   {Packing: NF4, Columns: 64, Scales: numbers(n), Round: mat.Float16},
		"fp4":           {Packing: FP4, Columns: 128, Scales: numbers(n), Round: mat.Float32},
		"int4":          {Packing: Int4Packed, Columns: 32, Scales: numbers(n)},
		"int4 by row":   {Packing: Int4Packed, Columns: cols, Scales: numbers(n)},
		"int4 zeros":    {Packing: Int4Packed, Columns: 32, Scales: numbers(n), Zeros: bytes(n)},
		"nvfp4":         {Packing: NVFP4, Columns: 16, Scales: bytes(n), Global: 3},
		"nvfp4 times":   {Packing: NVFP4Times, Columns: 16, Scales: bytes(n), Global: 0.3},
		"mxfp4 packed":  {Packing: E2M1Powers, Columns: 32, Scales: bytes(n)},
		"int8":          {Packing: Int8, Columns: cols, Scales: numbers(n)},
		"int8 zeros":    {Packing: Int8, Columns: 32, Scales: numbers(n), Zeros: bytes(n)},
		"bitsandbytes8": {Packing: BnbInt8, Columns: cols, Scales: numbers(n)},
	}
}

func packedOf(p *Packed, rows, cols int) *Packed {
	random := rand.New(rand.NewPCG(7, 8))
	p.Width, p.Rows, p.ScaleFormat, p.Codes = cols, 1, mat.Float32, make([]byte, rows*cols)
	for i := range p.Codes {
		p.Codes[i] = byte(random.Uint32())
	}
	return p
}

// TestUnpackApart: all variants widen the same bits whatever the range, those of the formula.
func TestUnpackApart(t *testing.T) {
	const rows, cols = 9, 224
	for name, p := range apart(rows, cols) {
		p = packedOf(p, rows, cols)
		for _, v := range isa.Available() {
			k := For(v)
			for _, r := range [][4]int{{0, 0, rows, cols}, {2, 0, 1, 1}, {1, 5, 3, 17}, {8, 63, 1, 90}, {3, 96, 2, 128}, {7, 32, 2, 8}, {0, 223, 9, 1}} {
				got := make([]float32, r[2]*r[3])
				k.Unpack(mat.Floats{V: got, Stride: r[3]}, View{Packed: p, Row: r[0], Col: r[1], Rows: r[2], Cols: r[3]}, make([]float32, UnpackScratch))
				for i, g := range got {
					want := p.apartValue(r[0]+i/r[3], r[1]+i%r[3])
					if math.Float32bits(g) != math.Float32bits(want) && (g == g || want == want) {
						t.Fatalf("%s, %s: element %d of range %v is %v, want %v", name, v.Name, i, r, g, want)
					}
				}
			}
		}
	}
}

// apartValue is one element by the formula of its format.
func (p *Packed) apartValue(row, col int) float32 {
	at, float := row*p.Width+col, func(b []byte, i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])) }
	even, odd := p.Codes[at/2]&15, p.Codes[at/2]>>4
	if p.Packing == NF4 || p.Packing == FP4 {
		even, odd = odd, even
	}
	code := even
	if at%2 != 0 {
		code = odd
	}
	group := row*mat.CeilDiv(p.Width, p.Columns) + col/p.Columns
	switch p.Packing {
	case NVFP4:
		return FromE2M1(code) * (floats.FromE4M3(p.Scales[group]) / p.Global)
	case NVFP4Times:
		return FromE2M1(code) * (floats.FromE4M3(p.Scales[group]) * p.Global)
	case E2M1Powers:
		return FromE2M1(code) * floats.FromE8M0(p.Scales[group])
	case Int4Packed:
		zero := 8
		if p.Zeros != nil {
			zero = int(uint32At(p.Zeros, row/8*(p.Width/p.Columns)+col/p.Columns)>>(row%8*4)) & 15
		}
		return float32(int(code)-zero) * float(p.Scales, group)
	case Int8, BnbInt8:
		zero := 0
		if p.Zeros != nil {
			zero = int(int8(p.Zeros[group]))
		}
		v := float32(int(int8(p.Codes[at]))-zero) * float(p.Scales, group)
		if p.Packing == BnbInt8 {
			v *= 1. / 127
		}
		return v
	}
	group = at / p.Columns
	scale := float32(0)
	if p.Zeros != nil {
		scale = float32(float(p.Index, int(p.Scales[group]))*float(p.Zeros, group/256)) + p.Global
	} else {
		scale = float(p.Scales, group)
	}
	v := fp4[code] * scale
	if p.Packing == NF4 {
		v = nf4[code] * scale
	}
	switch p.Round {
	case mat.BFloat16:
		return floats.RoundBFloat16(v)
	case mat.Float16:
		return floats.RoundFloat16(v)
	}
	return v
}

func uint32At(b []byte, i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }

// BenchmarkUnpackApart widens formats whose scales are separate tensors.
func BenchmarkUnpackApart(b *testing.B) {
	const rows, cols = 16, 4096
	dst, scratch := mat.Floats{V: make([]float32, rows*cols), Stride: cols}, make([]float32, UnpackScratch)
	for name, p := range apart(rows, cols) {
		p = packedOf(p, rows, cols)
		for _, v := range isa.Available() {
			k := For(v)
			b.Run(name+"/"+v.Name, func(b *testing.B) {
				for b.Loop() {
					k.Unpack(dst, View{Packed: p, Rows: rows, Cols: cols}, scratch)
				}
				b.ReportMetric(float64(b.N)*rows*cols/float64(b.Elapsed().Nanoseconds()), "elements/ns")
			})
		}
	}
}
