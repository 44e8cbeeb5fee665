// Package samples stores the samples of a data set in a file, so that they need not be made again
// or held in memory.
//
// A [Writer] appends samples, and a [File] reads them by index. [Open] checks the whole file. It
// returns an error if a byte has changed, if the file is incomplete, or if its key differs, which
// means that it was made from something else. [OpenWritten] skips the check for a file that this
// process wrote. The package knows samples only through a [Codec].
package samples

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"

	"github.com/heftai/heft/internal/atomicfile"
)

// Codec encodes samples of type S.
type Codec[S any] interface {
	Append(b []byte, s S) []byte
	Decode(b []byte) (S, error)
}

// A file consists of the magic, the length of the key, the key, the samples, the offset of the
// end of each sample, the info, and a footer: the number of samples, the length of the info, and
// a checksum of all bytes before it.
const (
	magic      = "heft samples 1\n"
	footerSize = 8 + 8 + 4
)

var table = crc32.MakeTable(crc32.Castagnoli)

// Writer writes a file. It holds eight bytes of each sample in memory.
type Writer[S any] struct {
	file  *atomicfile.File
	out   *bufio.Writer
	sum   hash.Hash32
	codec Codec[S]
	ends  []uint64
	b     []byte
}

// Create starts a file that replaces the one at path when it is committed.
func Create[S any](path, key string, c Codec[S]) (*Writer[S], error) {
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, fmt.Errorf("samples: %w", err)
	}
	w := &Writer[S]{file: f, sum: crc32.New(table), codec: c}
	w.out = bufio.NewWriterSize(io.MultiWriter(f, w.sum), 1<<16)
	_, err = w.out.Write(head(key))
	if err != nil {
		w.Discard()
		return nil, fmt.Errorf("samples: %w", err)
	}
	return w, nil
}

func head(key string) []byte {
	return append(binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(key))), key...)
}

// Add appends a sample.
func (w *Writer[S]) Add(s S) error {
	w.b = w.codec.Append(w.b[:0], s)
	last := uint64(0)
	if n := len(w.ends); n > 0 {
		last = w.ends[n-1]
	}
	w.ends = append(w.ends, last+uint64(len(w.b)))
	if _, err := w.out.Write(w.b); err != nil {
		return fmt.Errorf("samples: %w", err)
	}
	return nil
}

// Commit completes the file with info and renames it to its path.
func (w *Writer[S]) Commit(info []byte) error {
	defer w.Discard()
	var b [8]byte
	for _, end := range w.ends {
		binary.LittleEndian.PutUint64(b[:], end)
		_, _ = w.out.Write(b[:]) // Flush returns its error
	}
	_, _ = w.out.Write(info)
	err := w.out.Flush()
	if err == nil {
		footer := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(len(w.ends))), uint64(len(info)))
		_, _ = w.sum.Write(footer) // which never fails
		_, err = w.file.Write(binary.LittleEndian.AppendUint32(footer, w.sum.Sum32()))
	}
	if err == nil {
		err = w.file.Commit()
	}
	if err != nil {
		return fmt.Errorf("samples: %w", err)
	}
	return nil
}

// Discard removes the file unless it was committed.
func (w *Writer[S]) Discard() { w.file.Discard() }

// File is a file of samples. It is safe for concurrent use.
type File[S any] struct {
	Info []byte

	f            *os.File
	codec        Codec[S]
	count        int
	first, index int64 // offsets
}

var (
	// ErrDamaged means that a file has changed since it was written.
	ErrDamaged = errors.New("the file is damaged")
	// ErrOther means that a file has another key.
	ErrOther = errors.New("the file was made from something else")
)

// Open opens a file and reads it once to check it.
func Open[S any](path, key string, c Codec[S]) (*File[S], error) { return open(path, key, c, true) }

// OpenWritten opens a file that this process has just written, without checking it.
func OpenWritten[S any](path, key string, c Codec[S]) (*File[S], error) {
	return open(path, key, c, false)
}

func open[S any](path, key string, c Codec[S], whole bool) (*File[S], error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("samples: %w", err)
	}
	r := &File[S]{f: f, codec: c}
	if err := r.check(key, whole); err != nil {
		f.Close()
		return nil, fmt.Errorf("samples: %s: %w", path, err)
	}
	return r, nil
}

// check finds the parts of the file. If whole is set, it checks all bytes.
func (r *File[S]) check(key string, whole bool) error {
	info, err := r.f.Stat()
	if err != nil {
		return err
	}
	body := info.Size() - footerSize
	if body < 0 {
		return ErrDamaged
	}
	footer := make([]byte, footerSize)
	if _, err := r.f.ReadAt(footer, body); err != nil {
		return err
	}
	if whole {
		sum := crc32.New(table)
		if _, err := io.Copy(sum, io.NewSectionReader(r.f, 0, info.Size()-4)); err != nil {
			return err
		}
		if sum.Sum32() != binary.LittleEndian.Uint32(footer[16:]) {
			return ErrDamaged
		}
	}
	begin := head(key)
	found := make([]byte, len(begin))
	if _, err := r.f.ReadAt(found, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if body < int64(len(begin)) || string(found) != string(begin) {
		return ErrOther
	}
	count, length := binary.LittleEndian.Uint64(footer), binary.LittleEndian.Uint64(footer[8:])
	if room := uint64(body) - uint64(len(begin)); count > room/8 || length > room-8*count {
		return ErrDamaged
	}
	r.count, r.first, r.index = int(count), int64(len(begin)), body-int64(length)-8*int64(count)
	r.Info = make([]byte, length)
	_, err = r.f.ReadAt(r.Info, body-int64(length))
	return err
}

// Len returns the number of samples.
func (r *File[S]) Len() int { return r.count }

// Close closes the file.
func (r *File[S]) Close() error { return r.f.Close() }

// At reads sample i.
func (r *File[S]) At(i int) (s S, err error) {
	if i < 0 || i >= r.count {
		return s, fmt.Errorf("samples: got sample %d, want 0 to %d", i, r.count-1)
	}
	var b [16]byte // the ends of the previous sample and of this one
	at, from := r.index+8*int64(i-1), b[:]
	if i == 0 {
		at, from = r.index, b[8:]
	}
	if _, err := r.f.ReadAt(from, at); err != nil {
		return s, fmt.Errorf("samples: %s: %w", r.f.Name(), err)
	}
	begin, end := int64(binary.LittleEndian.Uint64(b[:])), int64(binary.LittleEndian.Uint64(b[8:]))
	if begin < 0 || end < begin || end > r.index-r.first {
		return s, fmt.Errorf("samples: %s: sample %d: %w", r.f.Name(), i, ErrDamaged)
	}
	sample := make([]byte, end-begin)
	if _, err := r.f.ReadAt(sample, r.first+begin); err != nil {
		return s, fmt.Errorf("samples: %s: %w", r.f.Name(), err)
	}
	if s, err = r.codec.Decode(sample); err != nil {
		return s, fmt.Errorf("samples: %s: sample %d: %w", r.f.Name(), i, err)
	}
	return s, nil
}
