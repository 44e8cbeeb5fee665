package keys

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/heftai/heft/api/internal/reload"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/smallfile"
)

// A Set holds the keys of a file. It is safe for concurrent use.
type Set struct {
	path string
	now  func() time.Time

	mu    sync.RWMutex
	keys  []*Key
	usage map[string]*usage // by name; names that left the file are kept, so that they keep their usage if they come back
	seen  reload.Version
}

// A Key is one key of a Set. Its limits are those of the file when the Key was found.
type Key struct {
	sum    [sha256.Size]byte
	limits entry
	usage  *usage
	client wire.Client
}

// maxFile is the maximum size of a file in bytes.
const maxFile = 64 << 20

// Open reads a file of keys. It fails if an entry is invalid. The error contains no key.
func Open(path string) (*Set, error) {
	s := &Set{path: path, now: time.Now, usage: map[string]*usage{}}
	return s, s.Reload()
}

// Reload reads the file again. If it fails, the keys do not change.
func (s *Set) Reload() error {
	seen := s.version()
	list, err := s.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = seen
	if err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	s.keys = nil
	for _, e := range list {
		s.keys = append(s.keys, s.key(e))
	}
	return nil
}

func (s *Set) read() ([]entry, error) {
	b, err := smallfile.Read(s.path, maxFile)
	if err != nil {
		return nil, err
	}
	list, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path, err)
	}
	return list, nil
}

// version returns the version of the file. It is zero if there is none.
func (s *Set) version() (v reload.Version) {
	if info, err := os.Stat(s.path); err == nil {
		v = reload.VersionOf(info)
	}
	return v
}

// key returns the key of an entry. The caller holds mu.
func (s *Set) key(e entry) *Key {
	u := s.usage[e.Name]
	if u == nil {
		u = &usage{now: s.now}
		s.usage[e.Name] = u
	}
	u.limit(&e)
	k := &Key{sum: e.sum(), limits: e, usage: u}
	e.Key, k.limits.Key = "", "" // the hash is enough
	k.client = wire.Client{ID: hex.EncodeToString(k.sum[:]), Name: e.Name, Admin: e.Admin, Models: e.Models, Spend: u.spend}
	return k
}

// Watch reloads the file when it changes, until ctx ends. It checks after each period and logs the
// result.
func (s *Set) Watch(ctx context.Context, period time.Duration) {
	reload.Watch(ctx, period, s.changed, s.ReloadAndLog)
}

// changed reports whether the file has changed since the last Reload.
func (s *Set) changed() bool {
	v := s.version()
	s.mu.RLock()
	defer s.mu.RUnlock()
	return v != s.seen
}

// ReloadAndLog calls Reload and logs the result.
func (s *Set) ReloadAndLog() {
	if err := s.Reload(); err != nil {
		slog.Error("the API keys stay as they were", "reason", err)
		return
	}
	slog.Info("the API keys were read again", "count", s.Len())
}

// Len returns the number of keys.
func (s *Set) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.keys)
}

// Find returns the key with one of the given texts, or nil. Its time does not depend on which key
// matches.
func (s *Set) Find(given []string) *Key {
	s.mu.RLock()
	keys := s.keys
	s.mu.RUnlock()
	var found *Key
	for _, text := range given {
		sum := sha256.Sum256([]byte(text))
		for _, k := range keys {
			if subtle.ConstantTimeCompare(sum[:], k.sum[:]) == 1 {
				found = k
			}
		}
	}
	return found
}

// Owner returns the key whose client has the given id, or nil.
func (s *Set) Owner(id string) *Key {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, k := range s.keys {
		if k.client.ID == id {
			return k
		}
	}
	return nil
}

// Client returns the client of the key's requests.
func (k *Key) Client() *wire.Client { return &k.client }

// Usage is the usage of a key since the start.
type Usage struct {
	Name                     string
	Running                  int
	Requests, Rejected       int64
	PromptTokens, Completion int64
}

// Usage returns the usage of all keys, sorted by name.
func (s *Set) Usage() (list []Usage) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, u := range s.usage {
		list = append(list, u.counts(name))
	}
	slices.SortFunc(list, func(a, b Usage) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list
}
