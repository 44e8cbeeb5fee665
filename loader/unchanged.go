package loader

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/internal/hostmem"
)

// A file in use is watched by its stamp: inode, size and modification time. A stamp that differs
// does not prove that the contents do: touch, a backup tool or a restore change only the time.
// The whole contents are therefore hashed once in the background, while the stamp is the one at
// the opening, and hashed again when the stamp differs. Samples would be faster, but miss a
// partial overwrite.
//
// Before the first hash is complete, a new stamp is accepted if the system reports that only the
// file's attributes were changed. Otherwise it counts as a change, because the old bytes are
// gone. Hashes are stored for later processes, see [Checkpoint.KeepHashes], so that this only
// happens in the first one.
//
// Equal contents now do not prove that they were equal all the time: a file may have been
// overwritten and restored between two checks. [File.Epoch] counts the times that a new stamp was
// accepted; data that was read while it changed must be read again.

// contents is what is known about a file's contents.
type contents struct {
	mu       sync.Mutex // guards the fields below
	file     *os.File   // the file that was hashed; nil before
	sum      uint64
	hashed   hostmem.Stamp                 // stamp when it was hashed
	drop     bool                          // the file does not stay in the page cache while it is hashed
	accepted atomic.Pointer[hostmem.Stamp] // a later stamp with the same contents
	epoch    atomic.Uint64
	writes   atomic.Pointer[hostmem.Writes] // since the file was opened; nil if not supported
	unhashed atomic.Bool                    // accepted by what writes says
}

// hashed is the size of one read.
const hashed = 1 << 20

var hashTable = crc32.MakeTable(crc32.Castagnoli)

func (c *contents) close() {
	c.writes.Load().Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file != nil {
		_ = c.file.Close() // opened for reading
		c.file = nil
	}
}

// HashFiles reads and hashes the contents of all files, so that [File.Unchanged] can distinguish
// a new modification time from new contents. It takes as long as reading the files and uses 1 MiB
// of memory. If drop is set, it leaves nothing in the page cache. It calls pace before each read
// of 1 MiB; pace may wait, for example while requests need the disk. nil never waits. HashFiles
// skips files that have changed already, and files whose hash is known; see
// [Checkpoint.KeepHashes]. It returns the error of ctx or pace, or an *Error.
func (c *Checkpoint) HashFiles(ctx context.Context, drop bool, pace func(context.Context) error) error {
	if pace == nil {
		pace = context.Context.Err
	}
	for _, f := range c.files {
		hashed, err := f.remember(ctx, drop, pace)
		if err != nil {
			return err
		}
		if hashed && c.hashes != "" {
			c.keepHashes() // so that the work of a short run is not lost
		}
	}
	return nil
}

// remember hashes the file unless its hash is known. It reports whether it did.
func (f *File) remember(ctx context.Context, drop bool, pace func(context.Context) error) (done bool, err error) {
	if f.inMemory() || f.contents.known() {
		return false, nil
	}
	file, err := os.Open(f.Path)
	if err != nil {
		return false, &Error{File: f.Path, Reason: "cannot be opened", Err: unpath(err)}
	}
	before, err := hostmem.StampOf(file)
	if accepted := f.contents.accepted.Load(); err != nil || before != f.identity().stamp && (accepted == nil || before != *accepted) {
		return false, file.Close() // another file has the name, or there are no stamps
	}
	sum, err := hashOf(ctx, file, drop, pace)
	if err == nil {
		var after hostmem.Stamp
		if after, err = hostmem.StampOf(file); err == nil && after != before {
			return false, file.Close()
		}
	}
	if err != nil {
		_ = file.Close() // the error tells more
		return false, err
	}
	f.contents.mu.Lock()
	defer f.contents.mu.Unlock()
	if f.contents.file != nil || f.contents.unhashed.Load() && f.contents.written() {
		return false, file.Close()
	}
	f.contents.file, f.contents.sum, f.contents.drop, f.contents.hashed = file, sum, drop, before
	f.contents.unhashed.Store(false)
	return true, nil
}

// known reports whether the contents have a hash.
func (c *contents) known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.file != nil
}

// written reports whether the file may have been written to since it was opened.
func (c *contents) written() bool {
	written, _ := c.writes.Load().Changes()
	return written
}

// hashOf hashes a whole file: two checksums with different polynomials. All processes compute the
// same hash.
func hashOf(ctx context.Context, file *os.File, drop bool, pace func(context.Context) error) (uint64, error) {
	var first, second uint32
	buf := make([]byte, hashed)
	if drop {
		hostmem.ReadNoAhead(file) // pages that are read ahead would stay in the page cache
	}
	for off := int64(0); ; {
		if err := pace(ctx); err != nil {
			return 0, err
		}
		n, err := file.ReadAt(buf, off)
		first = crc32.Update(first, hashTable, buf[:n])
		second = crc32.Update(second, crc32.IEEETable, buf[:n])
		if drop {
			hostmem.DropCache(file, off, int64(n))
		}
		off += int64(n)
		if err == io.EOF {
			return uint64(first)<<32 | uint64(second), nil
		}
		if err != nil {
			return 0, &Error{File: file.Name(), Reason: "cannot be read", Err: unpath(err)}
		}
	}
}

// Unchanged returns an *Error if the contents of the open file have changed since it was opened,
// even if its size has not. A new file of the same name does not matter.
//
// Usually it only compares the file's stamp, its size and times, and does not allocate. If the
// stamp is new and [Checkpoint.HashFiles] has hashed the file, it reads the whole file and
// compares the hash. Without a hash it returns an error, unless the system reports that only
// attributes of the file have changed.
func (f *File) Unchanged() error {
	if f.inMemory() {
		return nil
	}
	now, err := f.now()
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return f.Verify()
	case err != nil:
		return &Error{File: f.Path, Reason: "cannot be examined", Err: unpath(err)}
	case now == f.identity().stamp:
		return nil
	case !now.SameFile(f.identity().stamp): // found by name, because nothing is mapped
		return f.Verify()
	}
	if accepted := f.contents.accepted.Load(); accepted != nil && *accepted == now && (!f.contents.unhashed.Load() || !f.contents.written()) {
		return nil
	}
	return f.compare(now)
}

// Accept takes the present contents as those at the opening. Call it after writing to the file
// yourself.
func (f *File) Accept() {
	if now, err := f.now(); err == nil {
		f.contents.accepted.Store(&now)
	}
}

// compare accepts a new stamp if the contents are those at the opening.
func (f *File) compare(now hostmem.Stamp) error {
	c := &f.contents
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Size() != f.Size {
		return f.changed(now.Size())
	}
	if c.file == nil {
		if !c.touched(now) {
			return f.changed(now.Size())
		}
		return nil
	}
	const tries = 3 // for a file that is being written to
	for range tries {
		if accepted := c.accepted.Load(); accepted != nil && *accepted == now {
			return nil // another goroutine has compared it
		}
		sum, err := hashOf(context.Background(), c.file, c.drop, context.Context.Err)
		if err != nil {
			return err
		}
		if sum != c.sum {
			return f.changed(now.Size())
		}
		after, err := f.now()
		if err != nil {
			return &Error{File: f.Path, Reason: "cannot be examined", Err: unpath(err)}
		}
		if after == now {
			c.accepted.Store(&now)
			c.epoch.Add(1)
			return nil
		}
		now = after
	}
	return f.changed(now.Size())
}

// touched accepts a new stamp of a file without a hash if only its attributes were changed. The
// system's event follows the new stamp after some microseconds. The caller holds c.mu.
func (c *contents) touched(now hostmem.Stamp) bool {
	if accepted := c.accepted.Load(); accepted != nil && *accepted == now {
		return !c.written()
	}
	const tries, pause = 5, time.Millisecond
	for range tries {
		written, touched := c.writes.Load().Changes()
		switch {
		case written:
			return false
		case touched:
			c.unhashed.Store(true)
			c.accepted.Store(&now)
			c.epoch.Add(1)
			return true
		}
		time.Sleep(pause)
	}
	return false
}

// Epoch returns the number of times that [File.Unchanged] found a new stamp but the same
// contents. Data that was read between two successful calls of Unchanged is valid if Epoch was
// the same before and after.
func (f *File) Epoch() uint64 { return f.contents.epoch.Load() }

// ReadUnchanged calls read, which reads bytes of the file in place or by other means. If the file
// was written to meanwhile, even with the same contents, it calls read again. It returns read's
// error, or that of [File.Unchanged].
func (f *File) ReadUnchanged(read func() error) error {
	for {
		epoch := f.Epoch()
		if err := read(); err != nil {
			return err
		}
		if err := f.Unchanged(); err != nil {
			return err
		}
		if f.Epoch() == epoch {
			return nil
		}
	}
}

// Epoch returns the sum of the files' [File.Epoch].
func (c *Checkpoint) Epoch() (n uint64) {
	for _, f := range c.files {
		n += f.Epoch()
	}
	return n
}
