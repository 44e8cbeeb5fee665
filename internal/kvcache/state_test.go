package kvcache

import (
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/meta"
	"pgregory.net/rapid"
)

// newStateCache is a cache of a model with states of 20 and 30 elements, each of which takes several
// pages.
func newStateCache(t require, pages, slots int, b *Backing) *Cache {
	t.Helper()
	c, err := New(&heap{}, Config{Layers: []LayerShape{{KWidth: 2, VWidth: 1}, {KWidth: 1, VWidth: 3}}, DType: meta.Float32, PageTokens: 4,
		Pages: pages, States: []int{20, 30}, StateSlots: slots, Backing: b})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return c
}

// fill writes the state after tokens, as a pass does.
func (r *request) fill(c *Cache, slot int32, tokens []int32) {
	for i, t := range c.States() {
		row := t.Row(int(slot))
		for j := range row {
			row[j] = value(r.scope, tokens) + float32(i+j)
		}
	}
}

// holds reports whether a slot has the state after tokens.
func (r *request) holds(c *Cache, slot int32, tokens []int32) bool {
	for i, t := range c.States() {
		for j, v := range t.Row(int(slot)) {
			if v != value(r.scope, tokens)+float32(i+j) {
				return false
			}
		}
	}
	return true
}

// pass runs one pass over n more tokens; if it fails, the slots that it writes hold anything.
func (r *request) pass(t *rapid.T, c *Cache, n int, fails bool) {
	if r.seq.Reserve(n, n) != nil {
		return
	}
	for range n {
		r.tokens = append(r.tokens, rapid.Int32Range(0, 1).Draw(t, "token"))
	}
	r.seq.Append(r.tokens[r.committed:]...)
	span := r.seq.State(n == 1)
	r.checkSpan(t, c, span, n)
	r.fill(c, span.To, r.tokens)
	if span.SaveAfter > 0 {
		r.fill(c, span.Save, r.tokens[:r.committed+span.SaveAfter])
	}
	if fails {
		r.fill(c, span.To, nil)
		if left := r.seq.Truncate(r.seq.Committed()); left != r.committed {
			t.Fatalf("%d tokens are left after a failed pass, want %d", left, r.committed)
		}
		r.tokens = r.tokens[:r.committed]
		return
	}
	r.store(c, r.committed)
	r.seq.Commit()
	r.committed = len(r.tokens)
}

func (r *request) checkSpan(t *rapid.T, c *Cache, span backend.StateSpan, n int) {
	switch {
	case span.Rows != n || span.To < 0 || span.To == span.From:
		t.Fatalf("span %+v of %d tokens", span, n)
	case span.From < 0 && r.committed > 0, span.From >= 0 && !r.holds(c, span.From, r.tokens[:r.committed]):
		t.Fatalf("slot %d does not have the state after %d tokens", span.From, r.committed)
	case span.SaveAfter > 0 && (span.Save == span.To || span.Save == span.From || span.SaveAfter >= n):
		t.Fatalf("span %+v saves into a slot in use", span)
	}
}

// TestStatesAreThoseOfTheirTokens runs random requests on a small cache: whatever passes, fails, is
// cut, freed, reused and evicted, each pass reads the state after the tokens that are committed.
func TestStatesAreThoseOfTheirTokens(t *testing.T) {
	reused := 0
	for range 20 { // a fault needs several steps in a certain order
		rapid.Check(t, func(t *rapid.T) { reused += runStates(t, anyStateCache(t, nil), func() {}) })
	}
	if reused == 0 {
		t.Error("no prefix was reused")
	}
}

func anyStateCache(t *rapid.T, b *Backing) *Cache {
	return newStateCache(t, rapid.IntRange(16, 60).Draw(t, "pages"), rapid.IntRange(4, 12).Draw(t, "slots"), b)
}

// runStates runs the requests on one cache, and returns how many tokens were reused. It calls pause now
// and then.
func runStates(t *rapid.T, c *Cache, pause func()) (reused int) {
	var live []*request
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		i := rapid.IntRange(-1, len(live)-1).Draw(t, "request")
		if i < 0 {
			r := &request{seq: c.NewSequence(0)}
			prompt := rapid.SliceOfN(rapid.Int32Range(0, 1), 1, 20).Draw(t, "prompt")
			n := r.seq.Reuse(prompt)
			reused += n
			r.tokens, r.committed = append(r.tokens, prompt[:n]...), n
			live = append(live, r)
			continue
		}
		r := live[i]
		switch rapid.SampledFrom([]string{"pass", "pass", "token", "token", "fails", "truncate", "free", "resize", "pause"}).Draw(t, "step") {
		case "pass":
			r.pass(t, c, rapid.IntRange(1, 11).Draw(t, "n"), false)
		case "token":
			r.pass(t, c, 1, false)
		case "fails":
			r.pass(t, c, rapid.IntRange(1, 11).Draw(t, "n"), true)
		case "truncate":
			n := rapid.IntRange(0, r.committed).Draw(t, "n")
			left := r.seq.Truncate(n)
			if left > n {
				t.Fatalf("%d tokens are left of %d", left, n)
			}
			r.tokens, r.committed = r.tokens[:left], left
		case "free":
			r.seq.Free()
			live = append(live[:i], live[i+1:]...)
		case "pause":
			pause()
		case "resize":
			c.Resize(rapid.IntRange(0, 60).Draw(t, "usable"))
		}
		checkStates(t, c)
	}
	for _, r := range live {
		r.seq.Free()
	}
	c.Resize(c.config.Pages)
	checkStates(t, c)
	if st := c.Stats(); st.Used != 0 || c.Available() != c.config.Pages {
		t.Fatalf("pages are lost: %+v, %d available", st, c.Available())
	}
	return reused
}

// checkStates holds that states own their pages alone, and that the counters count.
func checkStates(t *rapid.T, c *Cache) {
	owners, free := map[int32]stateID{}, map[stateID]bool{}
	for _, id := range c.freeStates {
		free[id] = true
	}
	for i := range c.states {
		s, id := &c.states[i], stateID(i+1)
		if free[id] != (s.refs == 0 && !s.registered) || len(s.pages) != 0 && len(s.pages) != c.statePages || free[id] != (len(s.pages) == 0) {
			t.Fatalf("state %d: %+v, free %v", id, s, free[id])
		}
		if s.registered && c.snapshots[s.content] != id {
			t.Fatalf("state %d cannot be found", id)
		}
		for _, p := range s.pages {
			if owners[p] != 0 {
				t.Fatalf("page %d pays for states %d and %d", p, owners[p], id)
			}
			owners[p] = id
			if (c.pages[p].refs > 0) != (s.refs > 0) || (c.pages[p].state == id) != s.registered {
				t.Fatalf("page %d of state %d: %+v", p, id, c.pages[p])
			}
		}
	}
	cached := 0
	for p := c.free.first; p != none; p = c.pages[p].next {
		if c.pages[p].kept() {
			cached++
		}
	}
	if cached != c.stats.Cached {
		t.Fatalf("%d pages are cached, the statistics say %d", cached, c.stats.Cached)
	}
}

// TestALongAnswerLeavesOneSnapshot: generated tokens must not fill the cache with snapshots.
func TestALongAnswerLeavesOneSnapshot(t *testing.T) {
	c := newStateCache(t, 200, 40, nil)
	s := c.NewSequence(0)
	prompt := make([]int32, 10)
	for n := range 60 {
		tokens := []int32{int32(n)}
		if n == 0 {
			tokens = prompt
		}
		if err := s.Reserve(len(tokens), len(tokens)); err != nil {
			t.Fatal(err)
		}
		s.Append(tokens...)
		s.State(n > 0)
		s.Commit()
	}
	if n := len(c.snapshots); n != 2 {
		t.Errorf("got %d snapshots, want those after the prompt and in the answer", n)
	}
	s.Free()
	if again := c.NewSequence(0); again.Reuse(prompt) != 8 {
		t.Error("the prompt is not found again")
	}
}

// TestStatesWithoutKeys: a model may have nothing but states.
func TestStatesWithoutKeys(t *testing.T) {
	c, err := New(&heap{}, Config{DType: meta.Float32, Pages: 8, States: []int{3 * leastPage / 4}, StateSlots: 4})
	if err != nil {
		t.Fatal(err)
	}
	if n := c.Config().SequencePages(100, 100); n != 7+2*3 {
		t.Errorf("a sequence of 100 tokens takes %d pages, want 7 and twice 3", n)
	}
	s := c.NewSequence(0)
	if err := s.Reserve(20, 20); err != nil {
		t.Fatal(err)
	}
	s.Append(make([]int32, 20)...)
	s.Commit()
	if err := s.Reserve(1, 1); err != nil {
		t.Error(err)
	}
}

// TestTruncateIntoTheLastPass: a pass that guessed is undone to its beginning, not to a snapshot, time
// and again, and the state that was read stays as it is.
func TestTruncateIntoTheLastPass(t *testing.T) {
	c := newStateCache(t, 200, 40, nil)
	s := c.NewSequence(0)
	at := 0
	var from int32
	for i, n := range []int{10, 3, 2, 2, 1} {
		if err := s.Reserve(n, n); err != nil {
			t.Fatal(err)
		}
		s.Append(make([]int32, n)...)
		span := s.State(i > 0)
		if i == 3 && span.From != from {
			t.Errorf("after Truncate the pass reads slot %d, want %d as before", span.From, from)
		}
		from = span.From
		s.Commit()
		if at += n; n == 2 {
			if left := s.Truncate(at - 1); left != at-2 {
				t.Fatalf("%d tokens are left, want %d", left, at-2)
			}
			at -= 2
		}
	}
	if s.Committed() != 14 {
		t.Errorf("%d tokens, want 14", s.Committed())
	}
}
