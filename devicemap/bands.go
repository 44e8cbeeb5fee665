package devicemap

// BandAhead is the size of the window for bands if memory is not scarce, in bytes: eight of the
// largest bands. With four of them, passes of many tokens wait for the disk; a window for more is
// not faster.
const BandAhead = 32 << 20

// BandWindow returns the size of the window through which bands of matrices stream: two of the
// largest band, one that computes and one that is read. If tight is false, it is up to 32 MiB, so
// that more bands are read ahead. largest is the size of the largest band, and all is that of all
// bands together, which the window never exceeds.
func BandWindow(largest, all int64, tight bool) int64 {
	room := 2 * largest
	if !tight {
		room = max(room, min(BandAhead, all/2)) // a window for all bands would keep them in memory
	}
	return min(room, all)
}

// A passage describes how the weights of a unit stream from the disk: some are in memory together
// while the unit computes, others stream in bands.
type passage struct {
	stream int64 // bytes in memory together
	banded int64 // bytes that stream in bands
	band   int64 // the largest band
}

// weigh adds a parameter that streams in bands of at most band bytes, or whole if band is 0.
func (p *passage) weigh(bytes, band int64) {
	if band > 0 {
		p.banded, p.band = p.banded+bytes, max(p.band, band)
	} else {
		p.stream += bytes
	}
}

// addBands adds the bands of o.
func (p *passage) addBands(o passage) {
	p.banded, p.band = p.banded+o.banded, max(p.band, o.band)
}

// window returns the size of the window for the bands.
func (p *passage) window(tight bool) int64 { return BandWindow(p.band, p.banded, tight) }
