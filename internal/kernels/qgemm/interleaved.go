package qgemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// A stretch is some rows of a matrix in bands that a kernel takes at once: whole bands, or lanes of
// one.
type stretch struct {
	rows   int
	bands  int    // whole ones; 0 for lanes
	height int    // of the band whose lanes they are
	lane   int    // the first
	w      []byte // from the first block on
}

// stretchOf is what a kernel takes at once of rows row, row+step, … and blocks from column col on.
func stretchOf(p *quant.Packed, row, step, col, rows, blocks int) stretch {
	at, height, lane := p.Band(row, col)
	size := p.Packing.BlockBytes()
	if bands := rows / quant.InterleavedRows; step == 1 && lane == 0 && bands > 0 {
		return stretch{rows: bands * quant.InterleavedRows, bands: bands, w: p.Codes[at : at+(bands-1)*apart(p)+blocks*quant.InterleavedRows*size]}
	}
	return stretch{rows: min(rows, mat.CeilDiv(height-lane, step)), height: height, lane: lane, w: p.Codes[at : at+blocks*height*size]}
}

// apart is how far whole bands are from each other.
func apart(p *quant.Packed) int {
	return p.Width / quant.BlockColumns * quant.InterleavedRows * p.Packing.BlockBytes()
}
