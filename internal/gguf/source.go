package gguf

import (
	"encoding/binary"
	"io"
)

// A source reads a header from its beginning on. It never reads beyond size, and asks for memory
// only for bytes that the file has.
type source struct {
	r    io.ReaderAt
	size int64 // of what may be read
	file int64 // of the whole file
	buf  []byte
	at   int   // in buf
	next int64 // where the bytes behind buf are in the file
}

const readSize = 1 << 18

// position returns how many bytes were taken.
func (in *source) position() int64 { return in.next - int64(len(in.buf)-in.at) }

// left returns how many bytes there are.
func (in *source) left() int64 { return in.size - in.position() }

// bytes takes n bytes, which are valid until the next call.
func (in *source) bytes(n int, what string) ([]byte, error) {
	if int64(n) > in.left() {
		if in.size < in.file {
			return nil, failf("", "the header is longer than %d bytes", in.size)
		}
		return nil, failf("", "the file is cut: it ends before %s", what)
	}
	if have := len(in.buf) - in.at; have < n {
		want := int(min(int64(max(n, readSize)), in.left()))
		if cap(in.buf) < want {
			grown := make([]byte, have, want)
			copy(grown, in.buf[in.at:])
			in.buf = grown
		} else {
			copy(in.buf[:have], in.buf[in.at:])
			in.buf = in.buf[:have]
		}
		in.at = 0
		more := in.buf[have:want]
		if k, err := in.r.ReadAt(more, in.next); err != nil && !(err == io.EOF && k == len(more)) {
			return nil, err
		}
		in.buf, in.next = in.buf[:want], in.next+int64(len(more))
	}
	b := in.buf[in.at:][:n]
	in.at += n
	return b, nil
}

func (in *source) u32(what string) (uint32, error) {
	b, err := in.bytes(4, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (in *source) u64(what string) (uint64, error) {
	b, err := in.bytes(8, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// text takes a string of at most limit bytes, which are valid until the next call.
func (in *source) text(limit int, what string) ([]byte, error) {
	n, err := in.u64("the length of " + what)
	if err != nil {
		return nil, err
	}
	if n > uint64(limit) || n > uint64(max(in.left(), 0)) {
		return nil, failf("", "%s has %d bytes, want at most %d", what, n, min(int64(limit), in.left()))
	}
	return in.bytes(int(n), what)
}
