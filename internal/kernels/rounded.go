package kernels

// Pairs is a matrix of activations rounded to bfloat16, two in a word. Row i starts at
// word i·Stride.
type Pairs struct {
	V      []uint32
	Stride int
}

// The shapes of packs and panels. A panel holds 16 tokens, a pack 16 rows of weights, and
// both are filled up with zeros to whole blocks of k.
const (
	PanelTokens = 16
	PackRows    = 16
	BlockK      = 32
)

// PanelWords is the length in words of a panel or a pack of n elements a row.
func PanelWords(n int) int { return ceil(n, BlockK) * BlockK / 2 * PanelTokens }

// PairWords is the length in words of a row of n elements in [Pairs].
func PairWords(n int) int { return ceil(n, 2) }

// rounder is what a variant that multiplies bfloat16 by bfloat16 implements. Bounds have
// been checked.
type rounder interface {
	tilesRows() bool
	narrow(dst []uint32, src []float32)
	mulPairs(y Floats, w Weights, x Pairs, rows, tokens, n int)
	packTokens(dst []uint32, x Floats, tokens, n int)
	packRows(dst []uint32, w Weights, rows, n int)
	packer
	tile(c Floats, w []uint32, ws int, x []uint32, xs, blocks, couples int, add bool)
	tileRows(c []float32, w Weights, x []uint32, xs, panels, rows, blocks int, f Fetch)
	tilePack(c Floats, w, x []uint32, xs, panels, blocks int, add bool)
	tileOne(y []float32, w Weights, x []uint32, rows, blocks int)
	turn(y, c Floats, bias []float32, rows, tokens int)
	// of attention
	softmax(p []uint32, c Floats, keys, base int, by float32, o *Online, whole bool)
	scaleLanes(x Floats, rows int, by *[PanelTokens]float32)
	packTurned(dst []uint32, apart int, w, next Weights, cols int) (finite bool)
	couple(c Floats, w []uint32, ws int, x []uint32, xs, blocks, groups int, add bool)
	narrowRows(dst []byte, apart int, w []byte, stride, rows, blocks int)
}

// Rounds reports whether s has the kernels for rounded activations: Narrow, MulPairs,
// PackTokens, PackWeights, Tile and Turn. Sums are float32 in them. Numbers too small to
// be normal count as zero.
func (s *Set) Rounds() bool { return s.rounder != nil }

// TilesRows reports whether s has TileRows, TilePack and TileOne.
func (s *Set) TilesRows() bool { return s.Rounds() && s.rounder.tilesRows() }

// Narrow rounds src to bfloat16, two in a word.
func (s *Set) Narrow(dst []uint32, src []float32) {
	if len(src) > 0 {
		s.rounder.narrow(dst[:PairWords(len(src))], src)
	}
}

// MulPairs is Mul of bfloat16 weights and rounded activations. Lane l of 16 adds the products
// 2l and 2l+1 (mod 32) of a row; the lanes are added in halves.
func (s *Set) MulPairs(y Floats, w Weights, x Pairs, rows, tokens, n int) {
	if rows <= 0 || tokens <= 0 {
		return
	}
	y.check(tokens, rows)
	w.check(rows, n)
	_ = x.V[:(tokens-1)*x.Stride+PairWords(n)]
	s.rounder.mulPairs(y, w, x, rows, tokens, n)
}

// PackTokens rounds up to 16 rows of x into a panel: for each pair of k the pairs of all
// tokens. With fewer the rest is zeros; tokens may be 0.
func (s *Set) PackTokens(dst []uint32, x Floats, tokens, n int) {
	if tokens > 0 {
		x.check(tokens, n)
	}
	s.rounder.packTokens(dst[:PanelWords(n)], x, tokens, n)
}

// PackWeights copies up to 16 rows of bfloat16 weights into a pack: for each block of 32
// k the rows' pairs. With fewer the rest is zeros; rows may be 0.
func (s *Set) PackWeights(dst []uint32, w Weights, rows, n int) {
	if rows > 0 {
		w.check(rows, n)
	}
	s.rounder.packRows(dst[:PanelWords(n)], w, rows, n)
}

// Tile computes c[r][t] for the 32 rows of two packs, which begin ws words apart, and 32 ·
// couples tokens, whose panels begin xs words apart, over blocks of 32 k from where w and
// x begin. With add it goes on from what c has: each element is one sum in ascending
// order of the blocks, whatever the calls it is cut into.
func (s *Set) Tile(c Floats, w []uint32, ws int, x []uint32, xs, blocks, couples int, add bool) {
	if blocks <= 0 || couples <= 0 {
		return
	}
	c.check(2*PackRows, 2*PanelTokens*couples)
	_ = w[:ws+blocks*BlockK/2*PackRows]
	_ = x[:(2*couples-1)*xs+blocks*BlockK/2*PanelTokens]
	s.rounder.tile(c, w, ws, x, xs, blocks, couples, add)
}

// Fetch is what a kernel asks of memory while it computes: of what Next begins with, as much as it has
// weights itself, so many quarters behind those that are done.
type Fetch struct {
	Next           []byte
	Done, Quarters int
}

// CoupleTokens is how many tokens pass weights together, and the sums of a row in [Set.TileRows].
const CoupleTokens = 2 * PanelTokens

// TileRows computes c[r][t] for rows of bfloat16 weights as they lie, a multiple of 16, and one or
// two panels of tokens, which begin xs words apart. Rows of c have CoupleTokens sums. Its sums have
// the bits of Tile. Weights that no cache holds should have been fetched by the call before.
func (s *Set) TileRows(c []float32, w Weights, x []uint32, xs, panels, rows, blocks int, f Fetch) {
	if rows <= 0 || panels <= 0 || blocks <= 0 {
		return
	}
	w.check(rows, blocks*BlockK)
	_ = x[:(panels-1)*xs+blocks*BlockK/2*PanelTokens]
	s.rounder.tileRows(c[:rows*CoupleTokens], w, x, xs, panels, rows, blocks, f)
}

// TilePack is Tile for the 16 rows of a pack and one or two panels.
func (s *Set) TilePack(c Floats, w, x []uint32, xs, panels, blocks int, add bool) {
	if panels <= 0 || blocks <= 0 {
		return
	}
	c.check(PackRows, PanelTokens*panels)
	_ = w[:blocks*BlockK/2*PackRows]
	_ = x[:(panels-1)*xs+blocks*BlockK/2*PanelTokens]
	s.rounder.tilePack(c, w, x, xs, panels, blocks, add)
}

// TileOne computes y[r] for rows of bfloat16 weights as they lie and one token, a row of Pairs, over
// blocks of 32 k. Its sums have the bits of Tile.
func (s *Set) TileOne(y []float32, w Weights, x []uint32, rows, blocks int) {
	if rows <= 0 || blocks <= 0 {
		return
	}
	w.check(rows, blocks*BlockK)
	s.rounder.tileOne(y[:rows], w, x[:blocks*BlockK/2], rows, blocks)
}

// Turn sets y[t][r] = c[r][t] + bias[r] for up to 16 rows; bias may be nil. c has 16 rows
// of tokens filled up to a multiple of 16.
func (s *Set) Turn(y, c Floats, bias []float32, rows, tokens int) {
	if rows <= 0 || tokens <= 0 {
		return
	}
	y.check(tokens, rows)
	c.check(PackRows, ceil(tokens, PanelTokens)*PanelTokens)
	if bias != nil {
		bias = bias[:rows]
	}
	s.rounder.turn(y, c, bias, rows, tokens)
}
