package coded

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Encode codes the bfloat16 words of src, rows × cols, at dst, which has rows·RowBytes(cols) bytes.
// Rows may be coded in several calls, of whole bands but the last. It fails with [ErrNoRoom] if the
// exceptions of a band do not fit; dst is undefined then. It allocates nothing.
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

// encodeBand codes a band. It reports false if the exceptions do not fit.
func encodeBand(dst, src []byte, rows, cols int) bool {
	own, head := Groups(cols)*groupBytes, rows*(tableBytes+roomOf(cols))
	tables, groups := dst[:rows*tableBytes], dst[head:]
	x := exceptions{room: dst[rows*tableBytes : head]}
	clear(x.room)
	var index [256]uint8
	for r := range rows {
		row := src[r*cols*2:][:cols*2]
		tableOf((*[tableBytes]byte)(tables[r*tableBytes:]), &index, row)
		for g := range Groups(cols) {
			to := (*[groupBytes]byte)(groups[r*own+g*groupBytes:])
			from := row[g*2*GroupColumns:]
			if len(from) >= 2*GroupColumns {
				if !x.encode(to, (*[2 * GroupColumns]byte)(from), &index) {
					return false
				}
				continue
			}
			var last [2 * GroupColumns]byte
			for i := copy(last[:], from); i < len(last); i += 2 {
				last[i+1] = tables[r*tableBytes] // zeros are rarely in the table, and these are not used
			}
			if !x.encode(to, &last, &index) {
				return false
			}
		}
	}
	return true
}

// none is the index of high bytes that are not in the table.
const none = 0xff

// tableOf makes the table of a row, and the index of each high byte in it.
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

// exceptions are the records of a band.
type exceptions struct {
	room []byte
	used int
}

// encode codes a group. It reports false if it is an exception and there is no room for its record.
func (x *exceptions) encode(to *[groupBytes]byte, from *[2 * GroupColumns]byte, index *[256]uint8) bool {
	var indices [GroupColumns]uint8 // in the order of the low bytes
	all := uint8(0)
	for k := range GroupColumns / 8 {
		at := place(k)
		words, low, high := (*[16]byte)(from[16*k:]), (*[8]byte)(to[at:]), (*[8]byte)(indices[at:])
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
	if all < 16 && codes[0] != mark {
		return true
	}
	record := x.room[x.used:]
	offset := uint32(x.used)
	if slices.Contains(indices[:], none) {
		if len(record) < GroupColumns {
			return false
		}
		for k := range GroupColumns / 8 {
			at := place(k)
			for i := range 8 {
				record[at+i] = from[16*k+2*i+1]
			}
		}
		x.used += GroupColumns
		offset |= raw
	} else {
		if len(record) < maskBytes+displacedBytes {
			return false
		}
		for i, n := range indices {
			record[i/8] |= n >> 4 << (i % 8)
		}
		copy(record[maskBytes:], codes[:displacedBytes])
		x.used += maskBytes + displacedBytes
	}
	clear(codes[:displacedBytes])
	codes[0] = mark
	binary.LittleEndian.PutUint32(to[offsetAt:], offset)
	return true
}
