package qgemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// A rowRun is a group of rows of an interleaved matrix that a kernel computes at once: whole
// bands, or lanes of one band.
type rowRun struct {
	rows   int
	bands  int    // number of whole bands; 0 for lanes
	height int    // number of rows in the band of the lanes
	lane   int    // the first lane
	w      []byte // from the first block on
}

// rowRunOf returns the rows among row, row+step, … that a kernel computes at once, with their
// blocks from column col on.
func rowRunOf(p *quant.Packed, row, step, col, rows, blocks int) rowRun {
	at, height, lane := p.Band(row, col)
	size := p.Packing.BlockBytes()
	if bands := rows / quant.InterleavedRows; step == 1 && lane == 0 && bands > 0 {
		return rowRun{rows: bands * quant.InterleavedRows, bands: bands, w: p.Codes[at : at+(bands-1)*apart(p)+blocks*quant.InterleavedRows*size]}
	}
	return rowRun{rows: min(rows, mat.CeilDiv(height-lane, step)), height: height, lane: lane, w: p.Codes[at : at+blocks*height*size]}
}

// apart returns the distance in bytes between whole bands.
func apart(p *quant.Packed) int {
	return p.Width / quant.BlockColumns * quant.InterleavedRows * p.Packing.BlockBytes()
}
