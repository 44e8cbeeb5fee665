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

// A file that is served is watched by its stamp: inode, size and modification time. A stamp that
// differs is no proof that the contents do: touch, a backup tool or a restore change the time
// alone. So the whole contents are hashed in the background once, while the stamp is the one of
// the opening, and hashed again when the stamp differs. Samples would be faster, but miss a partial
// overwrite. Until the first hash is complete a new stamp is accepted if the system says that the
// file's attributes were changed and that nothing was written to it, and else counts as a change: the
// bytes that were there are gone, and nothing is known of those that were not read. Hashes are kept for
// later processes, see [Checkpoint.KeepHashes], so that this is so in the first one only.
//
// Equal contents now do not prove that they were equal all the time: a file may have been
// overwritten and restored between two looks. [File.Epoch] counts the times that a new stamp was
// accepted: what was read while it moved must be read again.

// contents is what is known of a file's contents.
type contents struct {
	mu       sync.Mutex // guards what follows
	file     *os.File   // that was hashed; nil before
	sum      uint64
	hashed   hostmem.Stamp                 // that the file had then
	drop     bool                          // the file does not stay in the page cache
	accepted atomic.Pointer[hostmem.Stamp] // a later stamp with the same contents
	epoch    atomic.Uint64
	writes   atomic.Pointer[hostmem.Writes] // since the file was opened; nil if the system cannot tell
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

// HashFiles reads and hashes the contents of all files, so that [File.Unchanged] can tell a new
// modification time from new contents. It takes as long as reading the files, keeps 1 MiB in
// memory, and with drop leaves nothing in the page cache. It calls pace before each read of 1 MiB,
// which may wait, for example while requests need the disk; nil never waits. It skips files that have
// changed already, and files whose hash is known; see [Checkpoint.KeepHashes]. The error is that of ctx
// or pace, or an *Error.
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
			c.keepHashes() // so that a start that ends early is not in vain
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
		return false, file.Close() // another file has the name, or the system has no stamps
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

// hashOf hashes a whole file: two checksums with different polynomials, which all processes compute alike.
func hashOf(ctx context.Context, file *os.File, drop bool, pace func(context.Context) error) (uint64, error) {
	var first, second uint32
	buf := make([]byte, hashed)
	if drop {
		hostmem.ReadNoAhead(file) // what was read ahead would stay
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

// Unchanged returns an *Error if the contents of the open file have changed since it was opened, even if its
// size has not. A new file of the same name does not matter.
//
// Usually it compares only the file's stamp, its size and times, and allocates nothing. If the stamp is new and
// [Checkpoint.HashFiles] has hashed the file, it reads the whole file and compares the hash. Without a hash it
// returns an error, unless the system reports that only attributes of the file have changed.
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
	case !now.SameFile(f.identity().stamp): // found by its name, as nothing is mapped
		return f.Verify()
	}
	if accepted := f.contents.accepted.Load(); accepted != nil && *accepted == now && (!f.contents.unhashed.Load() || !f.contents.written()) {
		return nil
	}
	return f.compare(now)
}

// Accept takes the present contents as those of the opening: the caller has written to the file.
func (f *File) Accept() {
	if now, err := f.now(); err == nil {
		f.contents.accepted.Store(&now)
	}
}

// compare accepts a new stamp if the contents are those of the opening.
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
	const tries = 3 // of a file that is being written to
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

// touched accepts a new stamp of a file that was not hashed if its attributes were changed and it was
// not written to. An event follows the new stamp after some microseconds. c.mu is held.
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

// Epoch returns how often [File.Unchanged] found a new stamp but the same contents. Data that was read between
// two successful calls of Unchanged is valid if Epoch was the same before and after.
func (f *File) Epoch() uint64 { return f.contents.epoch.Load() }

// ReadUnchanged calls read, which reads bytes of the file in place or by other means. It calls read again if the
// file was written to meanwhile, though with the same contents. It returns read's error, or that of
// [File.Unchanged].
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
