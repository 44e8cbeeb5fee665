package coded

import "github.com/heftai/heft/internal/kernels/mat"

// A Piece is a part of a coded matrix that [Kernels.PackPiece] decodes: Rows rows from Row on, and
// Cols columns from Col on, both whole groups.
type Piece struct {
	W         *Matrix
	Row, Rows int
	Col, Cols int
}

const (
	packRows = 16 // as gemm's PackRows
	pairs    = 2  // columns in a word
)

// HasPacks reports whether the variant implements [Kernels.PackPiece] for rows of cols columns.
func (k *Kernels) HasPacks(cols int) bool { return k.packs != nil && cols%GroupColumns == 0 }

// PackPiece decodes p into packs of 16 rows, as gemm.Kernels.PackPiece packs the decoded rows. Rows
// of the last pack beyond p keep their values. Call it only if HasPacks returns true.
func (k *Kernels) PackPiece(dst []uint32, p Piece) {
	if p.Rows <= 0 || p.Cols <= 0 {
		return
	}
	packs := mat.CeilDiv(p.Rows, packRows)
	_ = dst[:packs*packRows*p.Cols/pairs]
	k.packs.packPiece(dst, p, p.W.strip(p.Row, p.Rows))
}

// Ahead returns the bytes of a row from which on PackPiece reads columns from col on: its table is
// read with the first ones.
func Ahead(cols, col int) int {
	if col == 0 {
		return 0
	}
	return beforeGroups(cols) + col/GroupColumns*groupBytes
}

// A packer decodes the rows of w, from column p.Col on.
type packer interface {
	packPiece(dst []uint32, p Piece, w strip)
}
