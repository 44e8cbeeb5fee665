package kvcache

import (
	"testing"

	"github.com/heftai/heft/internal/kvstore"
)

// slowStore is a store whose reads wait for the test.
type slowStore struct {
	*kvstore.Store
	began, goOn chan struct{}
}

func (s *slowStore) Get(key kvstore.Key, depth int, value []byte) bool {
	s.began <- struct{}{}
	<-s.goOn
	return s.Store.Get(key, depth, value)
}

// restorable is a cache with a slow store that has 10 pages of a prompt.
func restorable(t *testing.T, pages int) (*Cache, *slowStore, []int32) {
	t.Helper()
	store, prompt := openStore(t, t.TempDir()), ids(42)
	first := backedCache(t, numbered(store, 1), 32)
	prompted(t, first, prompt)
	first.Close()
	b := numbered(store, 1)
	slow := &slowStore{store, make(chan struct{}), make(chan struct{})}
	b.Store = slow
	return backedCache(t, b, pages), slow, prompt
}

// TestASlowStoreDoesNotHoldUpOtherSequences: while a page is read, the cache serves others.
func TestASlowStoreDoesNotHoldUpOtherSequences(t *testing.T) {
	c, slow, prompt := restorable(t, 32)
	defer c.Close()
	ready := make(chan struct{})
	r := &request{seq: c.NewSequence(0)}
	if !r.seq.Restore(prompt, 64, func() { close(ready) }) {
		t.Fatal("nothing is read")
	}
	for i := range 10 {
		<-slow.began
		other := &request{seq: c.NewSequence(uint64(i + 1))}
		f := &fleet{c: c, live: []*request{other}}
		if err := other.seq.Reserve(9, 64); err != nil {
			t.Fatal(err)
		}
		other.seq.Append(ids(9)...)
		other.tokens = ids(9)
		other.store(c, 0)
		other.seq.Commit()
		other.committed = 9
		f.live[0].seq.Free()
		select {
		case <-ready:
			t.Fatalf("ready before page %d was read", i)
		default:
		}
		slow.goOn <- struct{}{}
	}
	<-ready
	if n := r.seq.Reuse(prompt); n != 40 {
		t.Errorf("reused %d tokens, want 40", n)
	}
	r.tokens, r.committed = prompt[:40], 40
	checkCache(t, c, []*request{r})
	r.seq.Free()
	if c.Available() != 32 {
		t.Errorf("%d pages are free, want all 32", c.Available())
	}
}

// TestAFreedSequenceIsNotRestored: Free does not wait for the store, and leaves no page behind.
func TestAFreedSequenceIsNotRestored(t *testing.T) {
	c, slow, prompt := restorable(t, 32)
	s := c.NewSequence(0)
	if !s.Restore(prompt, 64, func() { t.Error("a cancelled restoration is ready") }) {
		t.Fatal("nothing is read")
	}
	<-slow.began
	slow.goOn <- struct{}{} // a page is there
	<-slow.began
	s.Free()
	if c.Available() != 31 {
		t.Errorf("%d pages are free, want 31 but for the one that is being read", c.Available())
	}
	slow.goOn <- struct{}{}
	again := c.NewSequence(0)
	if !again.Restore(prompt, 64, nil) { // the goroutine has dropped its page before it takes the next one
		t.Fatal("nothing is read")
	}
	for range 8 {
		<-slow.began
		slow.goOn <- struct{}{}
	}
	if n := again.Reuse(prompt); n != 40 {
		t.Errorf("reused %d tokens, want 40: 8 more pages", n)
	}
	again.Free()
	if c.Available() != 32 {
		t.Errorf("%d pages are free, want 32", c.Available())
	}
	c.Close()
}

// TestRestorationsTakeTurns: a short prompt does not wait for a long one.
func TestRestorationsTakeTurns(t *testing.T) {
	c, slow, prompt := restorable(t, 32)
	defer c.Close()
	long, short := c.NewSequence(0), c.NewSequence(0)
	var order []string
	done := make(chan struct{}, 2)
	long.Restore(prompt, 64, func() { order = append(order, "long"); done <- struct{}{} })
	<-slow.began
	short.Restore(prompt[:9], 64, func() { order = append(order, "short"); done <- struct{}{} })
	slow.goOn <- struct{}{}
	for n := 0; n < 2; {
		select {
		case <-slow.began:
			slow.goOn <- struct{}{}
		case <-done:
			n++
		}
	}
	if order[0] != "short" {
		t.Errorf("got %v", order)
	}
	if n, m := long.Reuse(prompt), short.Reuse(prompt[:9]); n != 40 || m != 8 {
		t.Errorf("reused %d and %d tokens, want 40 and 8", n, m)
	}
	long.Free()
	short.Free()
}

// TestAPromptWithoutRoomIsNotRestored: pages are read only for a prompt that fits now.
func TestAPromptWithoutRoomIsNotRestored(t *testing.T) {
	c, _, prompt := restorable(t, 12)
	defer c.Close()
	prompted(t, c, []int32{9, 9, 9, 9, 9})
	s := c.NewSequence(0)
	if s.Restore(prompt, 64, nil) || s.Reuse(prompt) != 0 || c.Available() != 10 {
		t.Errorf("pages are read for a prompt of 11 pages while %d are free", c.Available())
	}
}
