package quant

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
)

// TestNewPackingIsARow adds a packing with blocks of 64 columns, a scale and an offset to the table: all variants
// unpack any range of it, with no other code than the row's.
func TestNewPackingIsARow(t *testing.T) {
	const columns, size = 64, 4 + 64
	before := packings
	defer func() { packings = before }()
	packings = append(packings[:len(packings):len(packings)], packing{format: "test", columns: columns, bytes: size, unpack: func(dst []float32, block []byte) {
		scale, least := mat.FromFloat16(binary.LittleEndian.Uint16(block)), mat.FromFloat16(binary.LittleEndian.Uint16(block[2:]))
		for i := range dst {
			dst[i] = float32(block[4+i])*scale + least
		}
	}})
	p, ok := Named("test")
	if !ok || p.BlockBytes() != size || p.BlockColumns() != columns || p.Interleaves() {
		t.Fatalf("got packing %d, %v, with %d bytes for %d columns", p, ok, p.BlockBytes(), p.BlockColumns())
	}
	const rows, width = 5, 3 * columns
	random := rand.New(rand.NewPCG(1, 2))
	w := &Packed{Packing: p, Width: width, Rows: 1, Columns: columns}
	if w.RowBytes() != 3*size {
		t.Fatalf("got %d bytes a row, want %d", w.RowBytes(), 3*size)
	}
	for range rows * 3 {
		w.Codes = binary.LittleEndian.AppendUint16(w.Codes, mat.ToFloat16(random.Float32()))
		w.Codes = binary.LittleEndian.AppendUint16(w.Codes, mat.ToFloat16(random.Float32()))
		for range columns {
			w.Codes = append(w.Codes, byte(random.Uint32()))
		}
	}
	values := make([]float32, rows*width)
	UnpackBlocks(p, values, w.Codes)
	for _, v := range isa.Available() {
		k := For(v)
		if k.HasDots(p) {
			t.Errorf("%s: a packing without assembly has dot products", v.Name)
		}
		for _, r := range [][4]int{{0, 0, rows, width}, {1, 64, 2, 64}, {4, 3, 1, 150}, {2, 63, 3, 2}, {0, 191, 5, 1}} {
			row, col, n, cols := r[0], r[1], r[2], r[3]
			got := make([]float32, n*cols)
			k.Unpack(mat.Floats{V: got, Stride: cols}, View{Packed: w, Row: row, Col: col, Rows: n, Cols: cols}, nil)
			for i, g := range got {
				if want := values[(row+i/cols)*width+col+i%cols]; g != want {
					t.Fatalf("%s: element %d of range %v is %v, want %v", v.Name, i, r, g, want)
				}
			}
		}
	}
}
