package coded

// A TilesProduct is a product, computed with AMX, of rows of a coded matrix and one token, or up
// to [MostPanels] of gemm's panels of tokens.
type TilesProduct struct {
	// C holds the sums: RowSums(Panels) per row.
	C         []float32
	W         *Matrix
	Row, Rows int
	X         []uint32  // the pairs of one token, or panels that begin XStride words apart
	XStride   int       // in words
	Panels    int       // number of panels; 0 for one token
	Scratch   []float32 // TileScratch floats; faster if it begins at a cache line
	// Next begins with the coded rows that are multiplied next. Of as many as these, the part with number Part of Parts
	// equal ones is prefetched into the second-level cache. Next may be nil.
	Next        []byte
	Part, Parts int
}

const (
	// TileScratch is the length of the scratch of a product with tiles: the decoded groups of two
	// steps.
	TileScratch = 2 * BandRows * GroupColumns / 2

	// MostPanels is the largest number of panels of a product.
	MostPanels = 4

	tileTokens = 16
)

// RowSums returns the number of sums per row of a product of so many panels, some of which may be
// unused: those of one or two couples of panels.
func RowSums(panels int) int {
	switch {
	case panels == 0:
		return 1
	case panels <= 2:
		return 2 * tileTokens
	}
	return MostPanels * tileTokens
}

// HasTiles reports whether the variant implements [Kernels.MulTiles] for rows of cols columns.
func (k *Kernels) HasTiles(cols int) bool { return k.strips != nil && cols%GroupColumns == 0 }

// MulTiles computes p with the bits of gemv.Kernels.MulTile, or of gemm.Kernels.TileRows, on the decoded rows. Call it only
// if HasTiles returns true.
func (k *Kernels) MulTiles(p TilesProduct) {
	if p.Rows <= 0 {
		return
	}
	_ = p.Scratch[:TileScratch]
	each := RowSums(p.Panels)
	if p.Panels == 0 {
		_ = p.X[:p.W.Cols/2]
	} else {
		_ = p.X[:(p.Panels-1)*p.XStride+p.W.Cols/2*tileTokens]
	}
	whole := p.Rows / BandRows * BandRows
	_ = p.C[:p.Rows*each]
	for _, part := range [2][2]int{{0, whole}, {whole, p.Rows - whole}} {
		if first, rows := part[0], part[1]; rows > 0 {
			k.strips.mulStrips(p, p.W.strip(p.Row+first, rows), p.C[first*each:], rows)
		}
	}
}

// A striper multiplies whole bands of rows, or fewer rows than a band.
type striper interface {
	mulStrips(p TilesProduct, w strip, c []float32, rows int)
}
