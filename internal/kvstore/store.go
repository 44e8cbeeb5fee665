package kvstore

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/internal/atomicfile"
)

// A Key names a value: an ID that cannot be guessed or produced twice, and one of its parts.
type Key struct {
	ID   [sha256.Size]byte
	Part int32
}

// A Source has the values that it offers.
type Source interface {
	// Value returns the value of a key, valid until the next call, or false if it is gone. Only the
	// store's goroutine calls it.
	Value(key Key) ([]byte, bool)
}

// Options configure a Store.
type Options struct {
	Limit int64 // bytes of all values, at least 1
	// Warn is called with a message and pairs of names and values, as slog.Warn is. It is called from
	// any goroutine. nil ignores them.
	Warn func(message string, args ...any)

	now  func() time.Time // in tests
	step func(at string)  // in tests: called on the way of a write
}

// Stats counts what a store did since it was opened.
type Stats struct {
	Hits, Misses  int64 // values that were read, and those that were looked up and absent
	Damaged       int64 // files that were ignored and removed because they failed a check
	ReadBytes     int64
	Written       int64 // values
	WrittenBytes  int64
	Dropped       int64 // values that were offered and not written: a full queue, gone, or an error
	Evicted       int64 // values that this process evicted
	Bytes, Limit  int64 // size of all values in the folder, and its limit
	QueuedOffers  int64 // offers that wait
	WritesBlocked bool  // the folder cannot be locked: nothing is written
}

// A Store is a folder of values. All methods are safe for concurrent use.
type Store struct {
	dir     string
	options Options
	secret  [sha256.Size]byte
	queue   chan offer
	ctx     context.Context
	cancel  context.CancelFunc
	ended   chan struct{}

	busy    sync.Mutex // held while a source's value is in use
	blocked atomic.Bool
	warned  sync.Map // messages of errors that were reported

	hits, misses, damaged, readBytes, written, writtenBytes, dropped, evicted, bytes atomic.Int64
}

// offer is a value to write, or with done a point in the queue.
type offer struct {
	key   Key
	depth int32
	from  Source
	done  chan struct{}
}

const (
	// queued is the most offers that wait. An offer takes 64 bytes.
	queued = 8192
	// lowWater is the part of the limit, in tenths, to which eviction goes down.
	lowWater = 9
)

// Open opens the store in dir, which it creates if it is missing. It fails if dir cannot be used.
// It reads no value. Close ends its goroutine.
func Open(dir string, o Options) (*Store, error) {
	if o.Limit < 1 {
		return nil, fmt.Errorf("kvstore: got a limit of %d bytes, want at least 1", o.Limit)
	}
	if o.Warn == nil {
		o.Warn = func(string, ...any) {}
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.step == nil {
		o.step = func(string) {}
	}
	s := &Store{dir: dir, options: o, queue: make(chan offer, queued), ended: make(chan struct{})}
	if err := os.MkdirAll(filepath.Join(dir, pagesDir), 0o700); err != nil {
		return nil, fmt.Errorf("kvstore: %w", err)
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o022 != 0 && checksModes {
		o.Warn("other users may write to the folder of the KV store; use chmod 700", "folder", dir)
	}
	if err := s.findSecret(); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.run()
	return s, nil
}

// Derive returns a secret for what a context says, the same in each process that uses the folder.
func (s *Store) Derive(context []byte) [sha256.Size]byte {
	h := hmac.New(sha256.New, s.secret[:])
	h.Write([]byte("context\x00"))
	h.Write(context)
	return [sha256.Size]byte(h.Sum(nil))
}

// Offer queues the value of key for writing, or, if the folder has it, notes its use. Values of lower
// depth are evicted later than others of the same time. Offer never waits and allocates nothing: it
// drops the value if the queue is full. The caller calls Forget before the source goes away.
func (s *Store) Offer(key Key, depth int, from Source) {
	select {
	case s.queue <- offer{key: key, depth: int32(depth), from: from}:
	default:
		s.dropped.Add(1)
	}
}

// Forget waits until the store does not use a source. The source must return no value from now on.
func (s *Store) Forget(Source) {
	s.busy.Lock()
	defer s.busy.Unlock()
}

// Flush waits until what was offered is written or dropped. It returns ctx's error if that ends first.
func (s *Store) Flush(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case s.queue <- offer{done: done}:
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
	case <-s.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Close ends writing. It drops what waits: call Flush before. Get works on.
func (s *Store) Close() {
	s.cancel()
	<-s.ended
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	if n, ok := s.readUsage(); ok {
		s.bytes.Store(n)
	}
	return Stats{Hits: s.hits.Load(), Misses: s.misses.Load(), Damaged: s.damaged.Load(), ReadBytes: s.readBytes.Load(),
		Written: s.written.Load(), WrittenBytes: s.writtenBytes.Load(), Dropped: s.dropped.Load(), Evicted: s.evicted.Load(),
		Bytes: s.bytes.Load(), Limit: s.options.Limit, QueuedOffers: int64(len(s.queue)), WritesBlocked: s.blocked.Load()}
}

// warnOnce reports an error of a kind, once for each text.
func (s *Store) warnOnce(message string, err error) {
	reason := err.Error()
	var at *os.PathError
	if errors.As(err, &at) {
		reason = at.Err.Error() // paths differ from file to file
	}
	if _, again := s.warned.LoadOrStore(message+reason, true); !again {
		if atomicfile.IsFull(err) {
			err = fmt.Errorf("%w: free space on this disk; until then nothing more is kept", err)
		}
		s.options.Warn(message, "folder", s.dir, "reason", err)
	}
}
