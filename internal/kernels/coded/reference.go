package coded

import (
	"encoding/binary"
)

// goDecoder is the reference implementation.
type goDecoder struct{}

func (goDecoder) decode(dst []byte, w strip, rows int) {
	at := w.at
	for range rows {
		table := (*[tableBytes]byte)(w.data[at:])
		at += beforeGroups(w.columns)
		for range Groups(w.columns) {
			decodeGroup((*[2 * GroupColumns]byte)(dst), w.data, at, table)
			dst, at = dst[2*GroupColumns:], at+groupBytes
		}
	}
}

// decodeGroup restores the group at a place of a matrix's data.
func decodeGroup(dst *[2 * GroupColumns]byte, data []byte, place int, table *[tableBytes]byte) {
	from := (*[groupBytes]byte)(data[place:])
	codes := *(*[GroupColumns / 2]byte)(from[codesAt:])
	unit := func(i int) []byte {
		return data[place+int(int32(binary.LittleEndian.Uint32(from[codesAt+offsetsAt+4*i:]))):][:unitBytes]
	}
	var high [GroupColumns]byte // in the order of the low bytes
	if codes[0] == mark && codes[rawAt] != 0 {
		for i := range rawUnits {
			copy(high[i*unitBytes:], unit(i))
		}
	} else {
		var second [maskBytes]byte
		if codes[0] == mark {
			record := unit(0)
			second = [maskBytes]byte(record)
			copy(codes[:displacedBytes], record[maskBytes:])
		}
		for i, c := range codes {
			low, upper := i, i+GroupColumns/2
			high[low] = table[c&15|second[low/8]>>(low%8)&1<<4]
			high[upper] = table[c>>4|second[upper/8]>>(upper%8)&1<<4]
		}
	}
	for k := range GroupColumns / 8 {
		at := inOrder(k)
		for i := range 8 {
			dst[2*(8*k+i)], dst[2*(8*k+i)+1] = from[at+i], high[at+i]
		}
	}
}

// inOrder returns the place of columns 8k to 8k+7 among the low bytes of a group.
func inOrder(k int) int {
	half, k := k/8*(GroupColumns/2), k%8
	return half + k%4*16 + k/4*8
}
