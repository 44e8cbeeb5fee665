package data

import (
	"encoding/binary"
	"fmt"
)

// hybrid decodes n numbers of so many bits from runs of equal numbers and groups of packed ones. It allocates n, however
// long the runs say they are.
func hybrid(b []byte, n, width int) ([]uint32, error) {
	out := make([]uint32, 0, n)
	for len(out) < n {
		head, size := binary.Uvarint(b)
		if size <= 0 {
			return nil, errShort
		}
		b = b[size:]
		if head&1 == 0 {
			bytes := (width + 7) / 8
			if len(b) < bytes {
				return nil, errShort
			}
			value := uint32(0)
			for i := range bytes {
				value |= uint32(b[i]) << (8 * i)
			}
			b = b[bytes:]
			if head>>1 == 0 {
				return nil, fmt.Errorf("got an empty run")
			}
			for range min(head>>1, uint64(n-len(out))) {
				out = append(out, value)
			}
			continue
		}
		count := min(head>>1*8, uint64(n-len(out)))
		if head>>1 > uint64(len(b))*8 || count*uint64(width) > uint64(len(b))*8 || count == 0 {
			return nil, errShort
		}
		for i := range int(count) {
			out = append(out, uint32(bitsAt(b, i*width, width)))
		}
		b = b[min(uint64(len(b)), head>>1*uint64(width)):]
	}
	return out, nil
}

// bitsAt returns width bits from bit at on, the lowest first.
func bitsAt(b []byte, at, width int) (v uint64) {
	for i := 0; i < width; {
		bit := (at + i) % 8
		n := min(8-bit, width-i)
		v |= uint64(b[(at+i)/8]>>bit&(1<<n-1)) << i
		i += n
	}
	return v
}

// deltas decodes n numbers of which each is the one before and a difference, and returns what follows them.
func deltas(b []byte, n int) (out []int64, rest []byte, err error) {
	var head [4]uint64 // values of a block, parts of a block, values in all, the first one
	for i := range head {
		size := 0
		if head[i], size = binary.Uvarint(b); size <= 0 {
			return nil, nil, errShort
		}
		b = b[size:]
	}
	block, parts, total := head[0], head[1], head[2]
	if parts == 0 || block%parts != 0 || block/parts%8 != 0 || block > 1<<20 || parts > block || total < uint64(n) || total > parquetValues {
		return nil, nil, fmt.Errorf("got %d deltas in blocks of %d in %d parts, want %d", total, block, parts, n)
	}
	each := int(block / parts)
	last := zigzag(head[3])
	if total > 0 {
		out = append(make([]int64, 0, min(int(total), 8*len(b)+1)), last)
	}
	for len(out) < int(total) {
		least, size := binary.Uvarint(b)
		if size <= 0 || len(b)-size < int(parts) {
			return nil, nil, errShort
		}
		widths := b[size : size+int(parts)]
		b = b[size+int(parts):]
		for _, w := range widths {
			if len(out) == int(total) {
				break
			}
			if w > 64 || len(b) < each/8*int(w) {
				return nil, nil, errShort
			}
			for i := range min(each, int(total)-len(out)) {
				last += zigzag(least) + int64(bitsAt(b, i*int(w), int(w)))
				out = append(out, last)
			}
			b = b[each/8*int(w):]
		}
	}
	return out[:n], b, nil
}

// deltaLengths decodes n texts behind their lengths.
func deltaLengths(b []byte, n int) ([][]byte, error) {
	lengths, b, err := deltas(b, n)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, n)
	for i, size := range lengths {
		if size < 0 || size > int64(len(b)) {
			return nil, errShort
		}
		out[i], b = b[:size:size], b[size:]
	}
	return out, nil
}

// deltaBytes decodes n texts that begin as the ones before.
func deltaBytes(b []byte, n int) ([][]byte, error) {
	prefixes, b, err := deltas(b, n)
	if err != nil {
		return nil, err
	}
	out, err := deltaLengths(b, n)
	if err != nil {
		return nil, err
	}
	all := int64(0)
	for i, size := range prefixes {
		if size == 0 {
			continue
		}
		if i == 0 || size < 0 || size > int64(len(out[i-1])) {
			return nil, fmt.Errorf("got a prefix of %d bytes of a text before", size)
		}
		if all += size; all > parquetPage {
			return nil, fmt.Errorf("got texts of more than %d bytes", parquetPage)
		}
		out[i] = append(append(make([]byte, 0, int(size)+len(out[i])), out[i-1][:size]...), out[i]...)
	}
	return out, nil
}
