package residency

import (
	"bytes"
	"hash/crc32"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/stored"
)

// plainMark begins a matrix of the sidecar that is used as stored, because an exact format does not make
// it smaller. No converted matrix begins so: the first table of a coded one has different bytes.
var plainMark = bytes.Repeat([]byte{0xa5}, 16)

// markPlain writes the mark and zeros in place of a matrix of so many bytes, and returns their checksum.
func (s *sideFile) markPlain(offset, size int64) (sum uint32, err error) {
	part := make([]byte, min(size, convertedBytes))
	copy(part, plainMark)
	for at := int64(0); at < size; at += int64(len(part)) {
		n := min(int64(len(part)), size-at)
		sum = crc32.Update(sum, sideTable, part[:n])
		if err := s.write(part[:n], offset+at); err != nil {
			return 0, err
		}
		if at == 0 {
			clear(part[:min(n, int64(len(plainMark)))])
		}
	}
	return sum, nil
}

// plainParts returns parts of pieces, with those of matrices that the sidecar marks as plain taken from
// the checkpoint's mapping, or nil if that fails; Err says why. It allocates only when it meets such a matrix.
func (s *Store) plainParts(pieces []stored.Piece, parts []backend.Part) []backend.Part {
	if s.sidecar == nil {
		return parts
	}
	for k := range pieces {
		j := s.sidecar.jobs[pieces[k].Ranges[0].Tensor]
		if j == nil || !j.plain.Load() {
			continue
		}
		part := j.source.NewPart()
		if err := j.source.InPlace(&part); err != nil {
			s.failed = err
			return nil
		}
		parts[k] = part
	}
	return parts
}
