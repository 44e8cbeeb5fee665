package residency

import (
	"encoding/binary"
	"hash/crc32"
)

// tiles describes how a matrix of the sidecar is split into tiles. A tile is a range of rows that
// are converted together and have one checksum. A band of rows is whole tiles, so that it can be
// verified by itself.
type tiles struct {
	firstSum   int   // index in the file of the first tile's checksum
	count      int   // number of tiles
	tileRows   int   // rows of a tile; the last tile may have fewer
	rowBytes   int64 // converted
	matrixRows int
}

// newTiles splits a matrix of the given rows and converted bytes into tiles of tileRows rows. Its
// checksums begin at index firstSum.
func newTiles(rows, tileRows int, bytes int64, firstSum int) tiles {
	if rows == 0 {
		return tiles{firstSum: firstSum, count: 1, tileRows: 1}
	}
	t := tiles{firstSum: firstSum, tileRows: min(tileRows, rows), rowBytes: bytes / int64(rows), matrixRows: rows}
	t.count = (rows + t.tileRows - 1) / t.tileRows
	return t
}

// tileBytes returns the size of a tile. The last tile may be smaller.
func (t *tiles) tileBytes() int64 { return int64(t.tileRows) * t.rowBytes }

// covering returns the tiles [first, end) that cover size bytes from begin on.
func (t *tiles) covering(begin, size int64) (first, end int) {
	each := max(t.tileBytes(), 1)
	return int(begin / each), min(t.count, max(int((begin+size+each-1)/each), 1))
}

// checksums returns the checksums of consecutive tiles with the bytes data.
func (t *tiles) checksums(data []byte) (sums []uint32) {
	each := int(max(t.tileBytes(), 1))
	for len(data) > each {
		sums, data = append(sums, crc32.Checksum(data[:each], sideTable)), data[each:]
	}
	return append(sums, crc32.Checksum(data, sideTable))
}

// firstDamaged returns the first tile whose bytes do not match its checksum, or -1. data has the
// bytes of consecutive tiles from tile first on, and sums has all checksums of the file.
func (t *tiles) firstDamaged(data, sums []byte, first int) int {
	each := int(max(t.tileBytes(), 1))
	for k := first; ; k++ {
		n := min(each, len(data))
		if crc32.Checksum(data[:n], sideTable) != binary.LittleEndian.Uint32(sums[4*(t.firstSum+k):]) {
			return k
		}
		if data = data[n:]; len(data) == 0 {
			return -1
		}
	}
}

// plainSum marks a matrix that is used as stored, because an exact format does not make it
// smaller. It is the checksum of all of its tiles. Their bytes in the file are not used.
const plainSum = 0xa5a5a5a5

// markedPlain reports whether the file's checksums mark the matrix as plain. A coded matrix that happens
// to have these checksums is used as stored too, with the same results.
func (t *tiles) markedPlain(sums []byte) bool {
	for k := range t.count {
		if binary.LittleEndian.Uint32(sums[4*(t.firstSum+k):]) != plainSum {
			return false
		}
	}
	return true
}
