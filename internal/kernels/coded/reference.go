package coded

import (
	"encoding/binary"
)

// goDecoder is the reference.
type goDecoder struct{}

func (goDecoder) decode(dst []byte, b band, groups, rows int) {
	for r := range rows {
		table := (*[tableBytes]byte)(b.tables[r*tableBytes:])
		for g := range groups {
			at := r*groups + g
			decodeGroup((*[2 * GroupColumns]byte)(dst[at*2*GroupColumns:]), (*[groupBytes]byte)(b.groups[at*groupBytes:]), table, b.exceptions)
		}
	}
}

// decodeGroup restores a group.
func decodeGroup(dst *[2 * GroupColumns]byte, from *[groupBytes]byte, table *[tableBytes]byte, exceptions []byte) {
	var high [GroupColumns]byte // in the order of the low bytes
	codes, second := *(*[GroupColumns / 2]byte)(from[codesAt:]), [maskBytes]byte{}
	offset := uint32(0)
	if codes[0] == mark {
		offset = binary.LittleEndian.Uint32(from[offsetAt:])
		record := exceptions[offset&^raw:]
		if offset&raw != 0 {
			high = [GroupColumns]byte(record)
		} else {
			second = [maskBytes]byte(record)
			copy(codes[:displacedBytes], record[maskBytes:])
		}
	}
	if offset&raw == 0 {
		for i, c := range codes {
			low, upper := i, i+GroupColumns/2
			high[low] = table[c&15|second[low/8]>>(low%8)&1<<4]
			high[upper] = table[c>>4|second[upper/8]>>(upper%8)&1<<4]
		}
	}
	for k := range GroupColumns / 8 {
		at := place(k)
		for i := range 8 {
			dst[2*(8*k+i)], dst[2*(8*k+i)+1] = from[at+i], high[at+i]
		}
	}
}

// place is where the bytes of columns 8k to 8k+7 are among the low bytes of a group.
func place(k int) int {
	half, k := k/8*(GroupColumns/2), k%8
	return half + k%4*16 + k/4*8
}
