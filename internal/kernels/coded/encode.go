package coded

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Encode codes the bfloat16 words of src, rows × cols, at dst, which has rows·RowBytes(cols)
// bytes. Rows may be coded in several calls; all calls except the last must have whole bands. It
// fails with [ErrNoRoom] if the exceptions of a band do not fit; then the contents of dst are
// undefined. It does not allocate.
func Encode(dst, src []byte, rows, cols int) error {
	each := RowBytes(cols)
	dst, src = dst[:rows*each], src[:rows*cols*2]
	for first := 0; first < rows; first += BandRows {
		high := min(BandRows, rows-first)
		if !encodeBand(dst[first*each:][:high*each], src[first*cols*2:][:high*cols*2], high, cols) {
			return ErrNoRoom
		}
	}
	return nil
}

// encodeBand codes a band. It returns false if the exceptions do not fit.
func encodeBand(dst, src []byte, rows, cols int) bool {
	each, before := RowBytes(cols), beforeGroups(cols)
	x := exceptions{band: dst, rows: rows, each: each, own: unitsOf(cols)}
	for r := range rows {
		clear(dst[r*each+tableBytes:][:before-tableBytes])
	}
	var index [256]uint8
	for r := range rows {
		row, table := src[r*cols*2:][:cols*2], (*[tableBytes]byte)(dst[r*each:])
		tableOf(table, &index, row)
		for g := range Groups(cols) {
			at, from := r*each+before+g*groupBytes, row[g*2*GroupColumns:]
			var last [2 * GroupColumns]byte
			if len(from) < 2*GroupColumns {
				for i := copy(last[:], from); i < len(last); i += 2 {
					last[i+1] = table[0] // zeros are rarely in the table, and these are not used
				}
				from = last[:]
			}
			if !x.encode(at, (*[2 * GroupColumns]byte)(from), &index) {
				return false
			}
		}
	}
	return true
}

// none marks high bytes that are not in the table.
const none = 0xff

// tableOf computes the table of a row and the index of each high byte in it.
func tableOf(table *[tableBytes]byte, index *[256]uint8, row []byte) {
	var counts, others [256]uint32
	for ; len(row) >= 8; row = row[8:] {
		v := binary.LittleEndian.Uint64(row)
		counts[v>>8&0xff]++
		others[v>>24&0xff]++
		counts[v>>40&0xff]++
		others[v>>56]++
	}
	for i := 1; i < len(row); i += 2 {
		counts[row[i]]++
	}
	var list [256]uint64
	used := list[:0]
	for b := range counts {
		index[b] = none
		if n := counts[b] + others[b]; n > 0 {
			used = append(used, uint64(n)<<8|uint64(b))
		}
	}
	slices.SortFunc(used, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(b>>8, a>>8), cmp.Compare(a, b))
	})
	clear(table[:])
	for i, v := range used[:min(len(used), tableBytes)] {
		table[i], index[byte(v)] = byte(v), uint8(i)
	}
}

// exceptions holds the records of a band, in the units of its rows. Each row has own units and
// each bytes.
type exceptions struct {
	band            []byte
	rows, each, own int
	used            int // number of units used
}

// add makes the group at byte at of the band an exception with n units. It returns false if there
// are not enough units.
func (x *exceptions) add(at, n int) (units [rawUnits][]byte, ok bool) {
	if x.used+n > x.rows*x.own {
		return units, false
	}
	codes := x.band[at+codesAt:]
	clear(codes[:offsetsAt+4*n])
	codes[0] = mark
	for i := range n {
		unit := x.used/x.own*x.each + tableBytes + x.used%x.own*unitBytes
		binary.LittleEndian.PutUint32(codes[offsetsAt+4*i:], uint32(int32(unit-at)))
		units[i] = x.band[unit:][:unitBytes]
		x.used++
	}
	return units, true
}

// encode codes the group at byte at of the band. It returns false if the group is an exception and there is
// no room for its record.
func (x *exceptions) encode(at int, from *[2 * GroupColumns]byte, index *[256]uint8) bool {
	to := (*[groupBytes]byte)(x.band[at:])
	var indices [GroupColumns]uint8 // in the order of the low bytes
	all := uint8(0)
	for k := range GroupColumns / 8 {
		place := inOrder(k)
		words, low, high := (*[16]byte)(from[16*k:]), (*[8]byte)(to[place:]), (*[8]byte)(indices[place:])
		for i := range 8 {
			low[i] = words[2*i]
			n := index[words[2*i+1]]
			high[i] = n
			all |= n
		}
	}
	codes := to[codesAt:]
	for i := range codes {
		codes[i] = indices[i]&15 | indices[i+GroupColumns/2]<<4
	}
	switch {
	case all < 16 && codes[0] != mark:
		return true
	case slices.Contains(indices[:], none):
		return x.raw(at, from)
	}
	displaced := [displacedBytes]byte(codes)
	units, ok := x.add(at, 1)
	if !ok {
		return false
	}
	for i, n := range indices {
		units[0][i/8] |= n >> 4 << (i % 8)
	}
	copy(units[0][maskBytes:], displaced[:])
	return true
}

// raw stores all high bytes of the group at byte at of the band. It returns false if there is no room.
func (x *exceptions) raw(at int, from *[2 * GroupColumns]byte) bool {
	units, ok := x.add(at, rawUnits)
	if !ok {
		return false
	}
	x.band[at+codesAt+rawAt] = 1
	var high [rawUnits * unitBytes]byte
	for k := range GroupColumns / 8 {
		for i := range 8 {
			high[inOrder(k)+i] = from[16*k+2*i+1]
		}
	}
	for i, unit := range units {
		copy(unit, high[i*unitBytes:])
	}
	return true
}
