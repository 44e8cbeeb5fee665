package devicemap

// bandAheadBytes is the room that bands stream through where memory is not scarce: eight of the largest.
// With four of them the disk waits for passes of many tokens; a room for more is not faster.
const bandAheadBytes = 32 << 20

// BandWindow returns the bytes of the room that bands of matrices stream through: two of the largest band, one that
// computes and one that is read. If tight is false, the room is up to 32 MiB, so that more bands are read ahead.
// largest is the size of the largest band and all that of all bands together; the room never exceeds all.
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

// weigh adds a parameter that streams in bands of at most so many bytes, or whole if that is 0.
func (p *passage) weigh(bytes, band int64) {
	if band > 0 {
		p.banded, p.band = p.banded+bytes, max(p.band, band)
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
