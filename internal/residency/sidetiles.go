package residency

import (
	"encoding/binary"
	"hash/crc32"
	"sync/atomic"

	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// tiles are those of a matrix of the sidecar: rows that are converted together, with a checksum of their
// bytes. A band of rows is whole tiles, so that its bytes can be verified without the rest.
type tiles struct {
	first int   // index of its first checksum in the file
	count int   // of tiles
	rows  int   // of a tile; the last one may have fewer
	each  int64 // bytes of a row
	all   int   // rows of the matrix
}

// newTiles returns the tiles of a matrix of so many rows and bytes, of which groups of rows are converted
// together, with checksums from first on.
func newTiles(rows, group int, bytes int64, first int) tiles {
	if rows == 0 {
		return tiles{first: first, count: 1, rows: 1}
	}
	t := tiles{first: first, rows: min(group, rows), each: bytes / int64(rows), all: rows}
	t.count = (rows + t.rows - 1) / t.rows
	return t
}

// bytes is the size of a tile but the last.
func (t *tiles) bytes() int64 { return int64(t.rows) * t.each }

// of returns the tiles [first, end) that size bytes from begin on consist of.
func (t *tiles) of(begin, size int64) (first, end int) {
	each := max(t.bytes(), 1)
	return int(begin / each), min(t.count, max(int((begin+size+each-1)/each), 1))
}

// sums returns the checksums of tiles whose bytes are data.
func (t *tiles) sums(data []byte) (sums []uint32) {
	each := int(max(t.bytes(), 1))
	for len(data) > each {
		sums, data = append(sums, crc32.Checksum(data[:each], sideTable)), data[each:]
	}
	return append(sums, crc32.Checksum(data, sideTable))
}

// differs returns the first of the tiles from first on whose checksum is not that of its bytes, or -1.
// data are the bytes of some tiles, sums the file's checksums.
func (t *tiles) differs(data, sums []byte, first int) int {
	each := int(max(t.bytes(), 1))
	for k := first; ; k++ {
		n := min(each, len(data))
		if crc32.Checksum(data[:n], sideTable) != binary.LittleEndian.Uint32(sums[4*(t.first+k):]) {
			return k
		}
		if data = data[n:]; len(data) == 0 {
			return -1
		}
	}
}

// plainSum is the checksum of all tiles of a matrix that is used as stored, because an exact format does
// not make it smaller. The file has no bytes for it.
const plainSum = 0xa5a5a5a5

// markedPlain reports whether the file's checksums mark the matrix as one that is used as stored. A coded
// matrix that happens to have these checksums is used as stored, too, with the same answers.
func (t *tiles) markedPlain(sums []byte) bool {
	for k := range t.count {
		if binary.LittleEndian.Uint32(sums[4*(t.first+k):]) != plainSum {
			return false
		}
	}
	return true
}

// A sideJob is one matrix to convert, or to verify.
type sideJob struct {
	tiles
	name     string
	param    *meta.Param
	source   stored.Piece
	target   *loader.Tensor
	done     atomic.Bool     // all of it is in the file and intact
	plain    atomic.Bool     // it is used as stored
	unkept   atomic.Bool     // a late file could not take it: it is converted where it is used
	verified []atomic.Uint32 // bits of tiles that are intact; nil during the first start
	left     atomic.Int32    // tiles that are not verified
}

// leave notes that the file cannot take the matrix.
func (j *sideJob) leave(exact bool) {
	if exact {
		j.plain.Store(true)
	} else {
		j.unkept.Store(true)
	}
}

// intact reports whether tiles [first, end) are known to be intact.
func (j *sideJob) intact(first, end int) bool {
	if j.done.Load() {
		return true
	}
	for k := first; k < end; k++ {
		if j.verified == nil || j.verified[k/32].Load()>>(k%32)&1 == 0 {
			return false
		}
	}
	return true
}

// mark notes that tiles [first, end) are intact.
func (j *sideJob) mark(first, end int) {
	if j.verified == nil {
		return
	}
	for k := first; k < end; k++ {
		bit := uint32(1) << (k % 32)
		if j.verified[k/32].Or(bit)&bit == 0 && j.left.Add(-1) == 0 {
			j.done.Store(true)
		}
	}
}

// A sideRange is the bytes of a matrix of the sidecar that a load reads; none if the job is nil.
type sideRange struct {
	*sideJob
	begin, size int64
	lines       int   // the range is so many parts of equal size
	pitch       int64 // from the beginning of a line to that of the next one
}

// line returns line i of the range, 0 for all of a range without lines.
func (r *sideRange) line(i int) sideRange {
	size := r.size / int64(max(r.lines, 1))
	return sideRange{sideJob: r.sideJob, begin: r.begin + int64(i)*r.pitch, size: size}
}

// ready reports whether the bytes are in the file and intact.
func (r *sideRange) ready() bool {
	if r.sideJob == nil || r.sideJob.done.Load() {
		return true
	}
	for i := range max(r.lines, 1) {
		l := r.line(i)
		if r.verified == nil || !r.intact(r.tiles.of(l.begin, l.size)) {
			return false
		}
	}
	return true
}
