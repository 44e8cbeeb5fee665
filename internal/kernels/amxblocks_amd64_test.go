//go:build !purego

package kernels

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// blockTiles are operands of amxBlocks.
type blockTiles struct {
	x, w, ring []byte
	y          []float32
	groups     int
}

func newBlockTiles(groups int) *blockTiles {
	room := make([]byte, 8<<10+64)
	return &blockTiles{
		x: make([]byte, groups*4*16*32), w: make([]byte, groups*4*16*34), y: make([]float32, 16*16), groups: groups,
		ring: room[-uintptr(unsafe.Pointer(unsafe.SliceData(room)))&63:],
	}
}

func (b *blockTiles) run() {
	amxBlocks(bytePtr(b.x), bytePtr(b.w), ptr(b.y), bytePtr(b.ring), int64(b.groups))
}

func hasBlockTiles() bool {
	return hasAVX512() && cpu.X86.HasAMXTile && cpu.X86.HasAMXInt8 && tilesAllowed()
}

// TestTilesOfBlocks: what the benchmark times are products.
func TestTilesOfBlocks(t *testing.T) {
	if !hasBlockTiles() {
		return
	}
	random := rand.New(rand.NewPCG(31, 32))
	for groups := 1; groups <= 3; groups++ {
		b := newBlockTiles(groups)
		b.x, b.w, b.y = guarded(t, len(b.x)), guarded(t, len(b.w)), guardedFloats(t, len(b.y)) // where memory ends
		for i := range b.x {
			b.x[i] = byte(random.Uint32())
		}
		for i := range b.w {
			if b.w[i] = byte(random.Uint32()); i%(16*34) < 32 {
				b.w[i] = []byte{0, 0x3c, 0, 0x40, 0, 0xbc}[i%6] // 1, 2 and -1
			}
		}
		b.run()
		for i, got := range b.y {
			token, row, want := i/16, i%16, float32(0)
			for block := range 4 * groups {
				w := b.w[block*16*34:]
				sum := 0
				for k := range 32 {
					sum += int(int8(b.x[block*16*32+token*32+k])) * int(int8(w[32+k/4*64+row*4+k%4]))
				}
				want += float32(sum) * FromFloat16(binary.LittleEndian.Uint16(w[2*row:]))
			}
			if got != want {
				t.Fatalf("%d groups: token %d, row %d is %v, want %v", groups, token, row, got, want)
			}
		}
	}
}

// BenchmarkTilesOfBlocks is a product of 16 rows, 16 tokens and 32 columns, one block: of bfloat16 as
// prompts make it, among 32 rows and 32 tokens, alone and with what unpacking adds for 512 tokens; and of
// integers, whose sums have to be stored, converted and scaled block by block (rows' scales alone; those of
// tokens are left out). A tile of 32 integers takes the processor as long as one of 32 bfloat16.
func BenchmarkTilesOfBlocks(b *testing.B) {
	const columns, tokens = 2048, 512
	per := func(b *testing.B, products int) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*products), "ns/product")
	}
	for _, s := range available() {
		if !s.TilesRows() || !hasBlockTiles() {
			continue
		}
		words := PanelWords(columns)
		w, x, c := make([]uint32, 2*words), make([]uint32, tokens/PanelTokens*words), Floats{make([]float32, 2*PackRows*tokens), tokens}
		p := &Packed{Packing: Q4, Codes: make([]byte, 2*PackRows*columns/BlockColumns*q4Bytes), Width: columns, Height: 2 * PackRows}
		tile := func() {
			for t := 0; t < tokens; t += 2 * PanelTokens {
				s.Tile(Floats{c.V[t:], tokens}, w, words, x[t/PanelTokens*words:], words, columns/BlockK, 1, false)
			}
		}
		const products = 2 * tokens / PanelTokens * columns / BlockK
		b.Run("bfloat16", func(b *testing.B) {
			for b.Loop() {
				tile()
			}
			per(b, products)
		})
		for _, packing := range []Packing{Q8, Q4} {
			p.Packing, p.Codes = packing, make([]byte, 2*PackRows*columns/BlockColumns*packing.BlockBytes())
			b.Run([]string{Q8: "bfloat16 from q8_0", Q4: "bfloat16 from q4_0"}[packing], func(b *testing.B) {
				for b.Loop() {
					s.PackQuantised(w, p, 0, 1, 0, PackRows, columns, nil)
					s.PackQuantised(w[words:], p, PackRows, 1, 0, PackRows, columns, nil)
					tile()
				}
				per(b, products)
			})
		}
		b.Run("integers", func(b *testing.B) {
			blocks := newBlockTiles(columns / BlockK / 4)
			for b.Loop() {
				for range 2 * tokens / PanelTokens {
					blocks.run()
				}
			}
			per(b, products)
		})
	}
}
