//go:build !purego

package kernels

import "unsafe"

var _ parter = bf16{}

//go:noinline
func (bf16) packPart(dst []uint32, x Floats, columns, turn bool, part, width, n int) {
	to, from, stride, w, terms := wordPtr(dst), ptr(x.V), int64(4*x.Stride), int64(width), int64(n)
	turned := int64(0)
	if turn {
		turned = 1
	}
	switch {
	case columns && part == 0:
		avx512PartColumns0(to, from, stride, w, terms, turned)
	case columns && part == 1:
		avx512PartColumns1(to, from, stride, w, terms, turned)
	case columns:
		avx512PartColumns2(to, from, stride, w, terms, turned)
	case part == 0:
		avx512PartLines0(to, from, stride, w, terms, turned)
	case part == 1:
		avx512PartLines1(to, from, stride, w, terms, turned)
	default:
		avx512PartLines2(to, from, stride, w, terms, turned)
	}
}

// The pairs of parts whose products are summed, in that order. Those that are left out are
// below the precision of a float.
var (
	roundedPairs = [][2]int64{{0, 0}}
	floatPairs   = [][2]int64{{2, 0}, {0, 2}, {1, 1}, {1, 0}, {0, 1}, {0, 0}}
)

//go:noinline
func (t bf16) mulParts(c Floats, a, b []uint32, parts, blocks, couples int, add bool) {
	if !t.tiles { // parts is 1
		panel := PanelWords(blocks * BlockK)
		t.tile(c, a, panel, b, panel, blocks, couples, add)
		return
	}
	pairs := roundedPairs
	if parts == FloatParts {
		pairs = floatPairs
	}
	var list [1 + 3*7]int64
	if add {
		list[0] = 1
	}
	// Where the kernel's pointers are, from the beginning of the operands.
	part := int64(blocks) * 4 * BlockK / 2 * PackRows
	left, right, at := int64(0), int64(0), 1
	for _, p := range pairs {
		list[at], list[at+1], list[at+2] = 1, p[0]*part-left, p[1]*part-right
		left, right, at = (p[0]+1)*part, (p[1]+1)*part, at+3
	}
	size := int64(parts) * part
	list[at+1], list[at+2] = -left, 2*size-right
	amxParts(wordPtr(a), wordPtr(b), size, ptr(c.V), int64(4*c.Stride), int64(blocks), int64(couples), unsafe.Pointer(&list))
}
