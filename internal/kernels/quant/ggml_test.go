package quant

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
)

// TestBlocksAreThoseOfTheGGUFPackage compares every bit of random blocks of each type with what the gguf package
// makes of them (scripts/make-gguf-fixtures.py), in all variants of the kernels.
func TestBlocksAreThoseOfTheGGUFPackage(t *testing.T) {
	var fixture map[string]struct {
		Columns        int
		Blocks, Values []byte
	}
	text, err := golden.Read("../../backend/backendtest/testdata/gguf-blocks.json")
	if err == nil {
		err = json.Unmarshal(text, &fixture)
	}
	if err != nil {
		t.Fatal(err)
	}
	tested := map[Packing]bool{}
	for name, f := range fixture {
		format := strings.ToLower(name)
		if format == "mxfp4" || format == "nvfp4" {
			format += " block"
		}
		p, ok := Named(format)
		if !ok || p.BlockColumns() != f.Columns {
			t.Errorf("%s: got packing %v with blocks of %d columns, want %d", name, ok, p.BlockColumns(), f.Columns)
			continue
		}
		tested[p] = true
		n := len(f.Blocks) / p.BlockBytes() * f.Columns
		w := &Packed{Packing: p, Codes: f.Blocks, Width: n, Rows: 1, Columns: f.Columns, Global: 1}
		for _, v := range isa.Available() {
			k, got := For(v), make([]float32, n)
			k.Unpack(mat.Floats{V: got, Stride: n}, View{Packed: w, Rows: 1, Cols: n}, nil)
			for i, g := range got {
				want := binary.LittleEndian.Uint32(f.Values[4*i:])
				if math.Float32bits(g) != want {
					t.Errorf("%s, %s: element %d is %v, want %v", v.Name, name, i, g, math.Float32frombits(want))
					break
				}
			}
		}
	}
	for p := Q8; p < Packings; p++ {
		if p.BlockBytes() > 0 && !tested[p] {
			t.Errorf("%v is not in the fixture", p)
		}
	}
}

// BenchmarkUnpackBlocks widens rows of each packing of blocks, in Go and in assembly.
func BenchmarkUnpackBlocks(b *testing.B) {
	const rows, cols = 16, 4096
	dst := mat.Floats{V: make([]float32, rows*cols), Stride: cols}
	for p := Q8; p < Packings; p++ {
		if p.BlockBytes() == 0 {
			continue
		}
		w := &Packed{Packing: p, Width: cols, Rows: 1, Columns: p.BlockColumns()}
		w.Codes = make([]byte, rows*w.RowBytes())
		for i := range w.Codes {
			w.Codes[i] = byte(i*i*7 + i/3)
		}
		for _, v := range isa.Available() {
			k := For(v)
			b.Run(p.String()+"/"+v.Name, func(b *testing.B) {
				for b.Loop() {
					k.Unpack(dst, View{Packed: w, Rows: rows, Cols: cols}, nil)
				}
				b.ReportMetric(float64(b.N)*rows*cols/float64(b.Elapsed().Nanoseconds()), "elements/ns")
			})
		}
	}
}
