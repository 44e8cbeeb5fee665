package track

import (
	"encoding/binary"
	"errors"
	"io"
)

// maxRecord bounds the payloads that readRecord accepts.
const maxRecord = 1 << 30

// readRecord reads one payload. It returns io.EOF at the end, and io.ErrUnexpectedEOF within a
// record.
func readRecord(r io.Reader) ([]byte, error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(head[:])
	if binary.LittleEndian.Uint32(head[8:]) != masked(head[:8]) || n > maxRecord {
		return nil, errors.New("track: the checksum of a record's length is wrong")
	}
	payload, err := io.ReadAll(io.LimitReader(r, int64(n)+4))
	if err == nil && uint64(len(payload)) < n+4 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(payload[n:]) != masked(payload[:n]) {
		return nil, errors.New("track: the checksum of a record is wrong")
	}
	return payload[:n], nil
}
