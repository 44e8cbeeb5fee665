package coded

// A TilesProduct is a product of rows of a coded matrix and one token, or one or two panels of tokens of gemm, with AMX.
type TilesProduct struct {
	// C has the sums: a row of one for one token, of gemm.CoupleTokens for panels.
	C         []float32
	W         *Matrix
	Row, Rows int
	X         []uint32  // the pairs of one token, or panels that begin XStride words apart
	XStride   int       // words
	Panels    int       // 0: one token
	Scratch   []float32 // [TileScratch]; faster if it begins with a cache line
}

const (
	// TileScratch is the scratch of a product of tiles in floats: the decoded groups of two steps.
	TileScratch = 2 * BandRows * GroupColumns / 2

	tileTokens  = 16
	coupleToken = 2 * tileTokens
)

// HasTiles reports whether there is [Kernels.MulTiles] for rows of cols columns.
func (k *Kernels) HasTiles(cols int) bool { return k.strips != nil && cols%GroupColumns == 0 }

// MulTiles computes p with the bits of gemv.Kernels.MulTile, or of gemm.Kernels.TileRows, on the decoded rows. Call it only
// if HasTiles returns true.
func (k *Kernels) MulTiles(p TilesProduct) {
	if p.Rows <= 0 {
		return
	}
	_ = p.Scratch[:TileScratch]
	each := 1 // sums of a row
	if p.Panels == 0 {
		_ = p.X[:p.W.Cols/2]
	} else {
		each = coupleToken
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
