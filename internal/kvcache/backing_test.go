package kvcache

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/kvstore"
	"github.com/heftai/heft/meta"
	"pgregory.net/rapid"
)

func openStore(t *testing.T, dir string) *kvstore.Store {
	t.Helper()
	s, err := kvstore.Open(dir, kvstore.Options{Limit: 1 << 30, Warn: func(message string, args ...any) { t.Log(message, args) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// numbered is a backing with a secret of its own.
func numbered(s *kvstore.Store, n int) *Backing {
	var secret [32]byte
	binary.LittleEndian.PutUint64(secret[:], uint64(n))
	return &Backing{Store: s, Secret: secret, Memory: &heap{}}
}

func flush(t require, s *kvstore.Store) {
	if err := s.Flush(context.Background()); err != nil {
		t.Fatalf("flush: %v", err)
	}
}

// TestPagesOfABackingAreThoseOfTheirTokens runs random requests on two caches of one store, which are too
// small for all pages: a page that either reads has the keys of its tokens.
func TestPagesOfABackingAreThoseOfTheirTokens(t *testing.T) {
	store := openStore(t, t.TempDir())
	names := slices.Sorted(maps.Keys(layouts))
	run := 0
	for range 3 {
		rapid.Check(t, func(t *rapid.T) {
			run++
			layers := layouts[rapid.SampledFrom(names).Draw(t, "layout")]
			var fleets [2]*fleet
			for i := range fleets {
				c, err := New(&heap{}, Config{Layers: layers, DType: meta.Float32, PageTokens: 4,
					Pages: rapid.IntRange(4, 24).Draw(t, "pages"), Backing: numbered(store, run)})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				fleets[i] = &fleet{c: c}
			}
			which := func(t *rapid.T) *fleet { return fleets[rapid.IntRange(0, 1).Draw(t, "cache")] }
			t.Repeat(map[string]func(*rapid.T){
				"start": func(t *rapid.T) { which(t).start(t) },
				"grow":  func(t *rapid.T) { f := which(t); f.grow(t, f.pick(t), f.ids(t)) },
				"elsewhere": func(t *rapid.T) { // the prompt of one cache in the other
					r := fleets[0].pick(t)
					flush(t, store)
					fleets[1].begin(t, &request{scope: r.scope}, append(slices.Clone(r.tokens), 0))
				},
				"free": func(t *rapid.T) {
					f := which(t)
					r := f.pick(t)
					r.seq.Free()
					f.live = slices.DeleteFunc(f.live, func(x *request) bool { return x == r })
				},
				"": func(t *rapid.T) {
					for _, f := range fleets {
						checkCache(t, f.c, f.live)
					}
				},
			})
		})
	}
	if store.Stats().Hits == 0 {
		t.Error("no page was read from the store")
	}
}

// TestStatesOfABackingAreThoseOfTheirTokens is the same for states.
func TestStatesOfABackingAreThoseOfTheirTokens(t *testing.T) {
	store := openStore(t, t.TempDir())
	run := 0
	for range 3 {
		rapid.Check(t, func(t *rapid.T) {
			run++
			for range 2 { // a cache, and one after a restart
				c := anyStateCache(t, numbered(store, run))
				runStates(t, c, func() { flush(t, store) })
				c.Close()
			}
		})
	}
	if store.Stats().Hits == 0 {
		t.Error("no state was read from the store")
	}
}

// prompted commits a prompt in a new sequence of a cache and returns it.
func prompted(t *testing.T, c *Cache, prompt []int32) *request {
	t.Helper()
	r := &request{seq: c.NewSequence(0)}
	n := r.seq.Reuse(prompt)
	if err := r.seq.Reserve(len(prompt)-n, len(prompt)); err != nil {
		t.Fatal(err)
	}
	r.seq.Append(prompt[n:]...)
	r.tokens = slices.Clone(prompt)
	r.store(c, n)
	r.seq.Commit()
	r.committed = n
	return r
}

func backedCache(t *testing.T, b *Backing, pages int) *Cache {
	t.Helper()
	c, err := New(&heap{}, Config{Layers: layouts["all"], DType: meta.Float32, PageTokens: 4, Pages: pages, Backing: b})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ids(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// TestADamagedPageEndsThePrefix: pages before the damaged one are reused, the others are not.
func TestADamagedPageEndsThePrefix(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir)
	prompt := ids(42)
	first := backedCache(t, numbered(store, 1), 32)
	r := prompted(t, first, prompt)
	at := r.seq.contents[3]
	first.Close()
	name := hex.EncodeToString(at[:])
	if err := os.Truncate(filepath.Join(dir, "pages", name[:2], name[2:]+"-0.kv"), 300); err != nil {
		t.Fatal(err)
	}
	c := backedCache(t, numbered(store, 1), 32)
	again := &request{seq: c.NewSequence(0)}
	if n := again.seq.Reuse(prompt); n != 12 {
		t.Errorf("reused %d tokens, want the 12 before the damaged page", n)
	}
}

// TestASmallCacheLoadsWhatFits: pages that do not fit are computed, and those that sequences hold stay.
func TestASmallCacheLoadsWhatFits(t *testing.T) {
	store := openStore(t, t.TempDir())
	prompt := ids(42)
	first := backedCache(t, numbered(store, 1), 32)
	prompted(t, first, prompt)
	first.Close()
	c := backedCache(t, numbered(store, 1), 12)
	other := prompted(t, c, []int32{9, 9, 9, 9, 9, 9, 9, 9, 9})
	r := &request{seq: c.NewSequence(0)}
	if s := r.seq.Stored(prompt); s != 40 {
		t.Errorf("the store has %d tokens, want 40", s)
	}
	n := r.seq.Reuse(prompt)
	if n != 36 || c.Available() != 0 {
		t.Errorf("reused %d tokens, want 36 in the 9 pages that were free; %d are free", n, c.Available())
	}
	if m := other.seq.Committed(); m != 9 {
		t.Errorf("the other sequence has %d tokens", m)
	}
}

// TestOnlyEqualCachesSharePages: caches with different secrets or layouts share no pages.
func TestOnlyEqualCachesSharePages(t *testing.T) {
	store := openStore(t, t.TempDir())
	prompt := ids(42)
	first := backedCache(t, numbered(store, 1), 32)
	prompted(t, first, prompt)
	first.Close()
	if c := backedCache(t, numbered(store, 2), 32); c.NewSequence(0).Reuse(prompt) != 0 {
		t.Error("a cache of another secret shares pages")
	}
	c, err := New(&heap{}, Config{Layers: layouts["all"], DType: meta.BFloat16, PageTokens: 4, Pages: 32, Backing: numbered(store, 1)})
	if err != nil || c.NewSequence(0).Reuse(prompt) != 0 {
		t.Errorf("a cache of another dtype shares pages (%v)", err)
	}
	same := backedCache(t, numbered(store, 1), 32)
	salted := same.NewSequence(0)
	salted.Salt([32]byte{1})
	if salted.Reuse(prompt) != 0 || same.NewSequence(1).Reuse(prompt) != 0 || same.NewSequence(0).Reuse(prompt) != 40 {
		t.Error("salt and scope do not separate sequences")
	}
}
