package devicemap

import "slices"

// A Band says how a matrix streams from the disk in bands of rows.
type Band struct {
	// Bytes is the size of the largest band.
	Bytes int64
	// Always says that a pass reads the matrix once in any case. Other matrices are read once for
	// each tile of a pass if they stream in bands: see [Plan.ByMatrix].
	Always bool
}

// bandAheadBytes is the room that bands have to read ahead where it is not scarce.
const bandAheadBytes = 32 << 20

// BandWindow returns the room that bands stream through: the largest one computes while others are
// read. all are the bytes of all of them. tight is the smallest room that works.
func BandWindow(largest, all int64, tight bool) int64 {
	room := 2 * largest
	if !tight {
		room = max(room, min(bandAheadBytes, all/2)) // a window for all would keep them
	}
	return min(room, all)
}

// A passage is how the weights of a unit stream from the disk: some are in memory together while the
// unit computes, the others pass in bands.
type passage struct {
	stream int64 // bytes in memory together
	banded int64 // bytes that pass in bands
	band   int64 // the largest band
}

func (p *passage) weigh(bytes int64, b Band, byMatrix bool) {
	if b.Bytes > 0 && (b.Always || byMatrix) {
		p.banded, p.band = p.banded+bytes, max(p.band, b.Bytes)
	} else {
		p.stream += bytes
	}
}

// addBands adds what passes in bands.
func (p *passage) addBands(o passage) {
	p.banded, p.band = p.banded+o.banded, max(p.band, o.band)
}

// window returns the room for what passes in bands.
func (p *passage) window(tight bool) int64 { return BandWindow(p.band, p.banded, tight) }

// streamByMatrix makes units stream matrix by matrix.
func streamByMatrix(units []unit) {
	for i := range units {
		u := &units[i]
		u.passage = u.byMatrix
		u.matrices = slices.Clone(u.matrices)
		for k := range u.matrices {
			u.matrices[k].passage = u.matrices[k].byMatrix
		}
	}
}
