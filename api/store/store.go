// Package store stores objects that a server keeps between requests, such as responses that clients
// retrieve later. Objects have names. They are stored up to a limit of bytes, in memory or in the
// files of a folder. The least recently used objects are dropped for new ones.
//
// Each object belongs to an owner, the hash of a client's API key; other owners cannot read it.
// Names of files are hashes of owner and id, so that no text of a client is part of a path.
package store

import (
	"container/list"
	"crypto/sha256"
	"errors"
	"sync"
)

// Errors of a Store.
var (
	// ErrNotFound means that the object was never stored, was deleted or dropped, or is damaged.
	ErrNotFound = errors.New("store: no such object")
	// ErrTooLarge means that an object exceeds the limit of the store.
	ErrTooLarge = errors.New("store: the object is larger than the store's limit")
	// ErrFull means that bytes that may not be dropped leave no room.
	ErrFull = errors.New("store: the store is full")
)

const (
	// entryBytes is the memory of an object in addition to its value.
	entryBytes = 256
	// maxObjects is the maximum number of objects of a store.
	maxObjects = 1 << 15
)

// A Store keeps objects. It is safe for concurrent use.
type Store struct {
	dir   string // of the files; "" if the store is in memory
	count func(bytes int64)

	mu     sync.Mutex
	limit  int64
	used   int64     // bytes of all objects, and reserved ones
	kept   int64     // reserved bytes
	held   int64     // bytes in memory
	recent list.List // of *object, the least recently used first
	at     map[key]*list.Element
}

// key is the hash of an owner and an id.
type key [16]byte

type object struct {
	key   key
	size  int64
	value []byte // nil if it is in a file
}

// NewMemory returns a store in memory. count, if not nil, is called with each change of the bytes
// that it takes, which may be negative.
func NewMemory(limit int64, count func(bytes int64)) *Store {
	if count == nil {
		count = func(int64) {}
	}
	return &Store{limit: limit, count: count, at: map[key]*list.Element{}}
}

// Folder returns the folder of the files, or "" if the store is in memory. Subfolders whose names
// have more than two letters may be used by other packages, which count their files with Reserve.
func (s *Store) Folder() string { return s.dir }

// Limit returns the limit in bytes.
func (s *Store) Limit() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

// Reserve counts n more bytes against the limit, or fewer if n is negative. These bytes are not an
// object and are never dropped. Objects are dropped to make room for them. It returns ErrFull if
// they still do not fit.
func (s *Store) Reserve(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 && s.kept+n > s.limit {
		return ErrFull
	}
	s.keep(n)
	return nil
}

// Found is Reserve for n bytes that an earlier process has left. They may exceed the limit.
func (s *Store) Found(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(n)
}

// keep counts n bytes that are never dropped. The caller holds s.mu.
func (s *Store) keep(n int64) {
	s.kept += n
	s.used += n
	s.shrink()
}

// InMemory reports whether the objects are lost when the process ends.
func (s *Store) InMemory() bool { return s.dir == "" }

// Put stores value under id, and replaces the owner's previous object of that id. The caller must
// not change value afterwards. When Put returns, the object is in memory, or on disk, where it
// survives a crash of the process or the machine. Put returns ErrTooLarge, or an error if the file
// cannot be written.
func (s *Store) Put(owner, id string, value []byte) error {
	k := keyOf(owner, id)
	size := s.cost(len(value))
	s.mu.Lock()
	fits := size <= s.limit-s.kept
	s.mu.Unlock()
	if !fits {
		return ErrTooLarge
	}
	o := &object{key: k, size: size, value: value}
	if s.dir != "" {
		if err := s.write(k, value); err != nil {
			return err
		}
		o.value = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(k)
	s.add(o)
	s.shrink()
	return nil
}

// Get returns an object, which the caller must not change. Before it reads the object's file, it
// calls reserve to reserve memory of the object's size; nil reserves none. It returns ErrNotFound,
// or reserve's error.
func (s *Store) Get(owner, id string, reserve func(bytes int) error) ([]byte, error) {
	k := keyOf(owner, id)
	s.mu.Lock()
	e := s.at[k]
	var value []byte
	if e != nil {
		s.recent.MoveToBack(e)
		value = e.Value.(*object).value
	}
	s.mu.Unlock()
	if s.dir == "" {
		if e == nil {
			return nil, ErrNotFound
		}
		return value, nil
	}
	value, err := s.read(k, reserve)
	if errors.Is(err, ErrNotFound) {
		s.mu.Lock()
		s.forget(k)
		s.mu.Unlock()
	}
	return value, err
}

// Delete removes an object. It returns ErrNotFound, or an error if the file cannot be removed.
func (s *Store) Delete(owner, id string) error {
	k := keyOf(owner, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.at[k]
	s.forget(k)
	if s.dir != "" {
		return s.remove(k)
	}
	if !found {
		return ErrNotFound
	}
	return nil
}

// Resize changes the limit and drops what exceeds it.
func (s *Store) Resize(limit int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = limit
	s.shrink()
}

// cost returns the bytes that a value of n bytes counts against the limit.
func (s *Store) cost(n int) int64 {
	const block = 4096 // of a file system
	if s.dir != "" {
		return int64(n+headerBytes+block-1) / block * block
	}
	return int64(n) + entryBytes
}

// add makes o the most recently used object. The caller holds s.mu.
func (s *Store) add(o *object) {
	s.at[o.key] = s.recent.PushBack(o)
	s.used += o.size
	s.hold(int64(entryBytes + len(o.value)))
}

// forget removes an object from s, but not its file. The caller holds s.mu.
func (s *Store) forget(k key) {
	e := s.at[k]
	if e == nil {
		return
	}
	o, _ := s.recent.Remove(e).(*object)
	delete(s.at, k)
	s.used -= o.size
	s.hold(-int64(entryBytes + len(o.value)))
}

// shrink drops objects until the rest is within the limit. The caller holds s.mu.
func (s *Store) shrink() {
	for s.recent.Len() > 0 && (s.used > s.limit || s.recent.Len() > maxObjects) {
		o, _ := s.recent.Front().Value.(*object)
		s.forget(o.key)
		if s.dir != "" {
			_ = s.remove(o.key) // if the file cannot be removed, the next start finds it
		}
	}
}

func (s *Store) hold(n int64) {
	s.held += n
	s.count(n)
}

func keyOf(owner, id string) key {
	sum := sha256.Sum256([]byte(owner + "\x00" + id))
	return key(sum[:len(key{})])
}
