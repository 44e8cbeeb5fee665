package kvcache

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// heap is backend.Memory on the Go heap.
type heap struct {
	live int
	fail error // of Copy
}

var _ backend.Memory = (*heap)(nil)

func (*heap) Device() devicemap.Device { return devicemap.CPU }
func (*heap) Sync() error              { return nil }
func (*heap) Close() error             { return nil }
func (h *heap) Free(tensor.Tensor)     { h.live-- }

func (h *heap) New(d meta.DType, dims ...int) (tensor.Tensor, error) {
	h.live++
	return tensor.Of(make([]byte, d.Bytes(meta.Elements(dims))), d, dims...)
}

func (h *heap) Copy(dst, src tensor.Tensor) error {
	if h.fail != nil {
		return h.fail
	}
	copy(dst.Data[:dst.Bytes()], src.Data[:src.Bytes()])
	return nil
}

func newCache(t require, pages int) *Cache {
	c, err := New(&heap{}, Config{
		Layers: []LayerShape{{KWidth: 2, VWidth: 1}, {KWidth: 1, VWidth: 3}},
		DType:  meta.Float32, PageTokens: 4, Pages: pages,
	})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return c
}

// require is what testing.T and rapid.T have in common.
type require interface {
	Fatalf(format string, args ...any)
	Helper()
}

// A request is the naive model of a sequence: its tokens.
type request struct {
	seq       *Sequence
	scope     uint64
	tokens    []int32
	committed int
}

// value stands for the keys that a model would compute: it depends on all tokens so
// far, and on the scope.
func value(scope uint64, tokens []int32) float32 {
	v := uint32(scope) + 7
	for _, t := range tokens {
		v = v*31 + uint32(t) + 1
	}
	return float32(v & 0xfffff)
}

// store writes what a pass would, from token n on.
func (r *request) store(c *Cache, n int) {
	slots := make([]int32, len(r.tokens)-n)
	r.seq.Slots(slots, n)
	for i, slot := range slots {
		v := value(r.scope, r.tokens[:n+i+1])
		for l, kv := range c.Layers() {
			for side, x := range []tensor.Tensor{kv.K, kv.V} {
				width := x.Dims[2]
				row := x.F32()[int(slot)*width:][:width]
				for j := range row {
					row[j] = v + float32(l+side+j)
				}
			}
		}
	}
}

// check reads back what the committed tokens of r should have.
func (r *request) check(t require, c *Cache) {
	t.Helper()
	if r.seq.Len() != len(r.tokens) || r.seq.Committed() != r.committed {
		t.Fatalf("length %d, committed %d; want %d, %d", r.seq.Len(), r.seq.Committed(), len(r.tokens), r.committed)
	}
	slots := make([]int32, r.committed)
	r.seq.Slots(slots, 0)
	for i, slot := range slots {
		v := value(r.scope, r.tokens[:i+1])
		for l, kv := range c.Layers() {
			for side, x := range []tensor.Tensor{kv.K, kv.V} {
				width := x.Dims[2]
				for j, got := range x.F32()[int(slot)*width:][:width] {
					if got != v+float32(l+side+j) {
						t.Fatalf("token %d of %v, layer %d: another token's keys", i, r.tokens, l)
					}
				}
			}
		}
	}
}

func checkCache(t require, c *Cache, live []*request) {
	t.Helper()
	refs := make([]int32, len(c.pages))
	for _, r := range live {
		for _, p := range r.seq.Pages() {
			refs[p]++
		}
	}
	used, cached := 0, 0
	for p, want := range refs {
		if c.pages[p].refs != want {
			t.Fatalf("page %d has %d references, want %d", p, c.pages[p].refs, want)
		}
		if want > 0 {
			used++
		} else if c.pages[p].serial != 0 {
			cached++
		}
	}
	free := 0
	for p := c.free.first; p != none; p = c.pages[p].next {
		free++
	}
	s := c.Stats()
	if s.Pages != len(c.pages) || s.Used != used || s.Cached != cached || c.Available() != free || free != len(c.pages)-used {
		t.Fatalf("stats %+v, available %d; used %d, cached %d, free %d", s, c.Available(), used, cached, free)
	}
	listed := 0
	for _, head := range c.buckets {
		for p := head; p != none; p = c.pages[p].chain {
			listed++
		}
	}
	registered := 0
	for _, p := range c.pages {
		if p.serial != 0 {
			registered++
		}
	}
	if listed != registered {
		t.Fatalf("%d pages in the table, %d registered", listed, registered)
	}
	for _, r := range live {
		r.check(t, c)
	}
}

// TestSequencesAgainstModel runs random requests over few tokens, so that prefixes
// meet, in few pages, so that they are evicted.
func TestSequencesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCache(t, rapid.IntRange(1, 12).Draw(t, "pages"))
		var live []*request
		ids := rapid.SliceOfN(rapid.Int32Range(0, 1), 1, 14)
		pick := func(t *rapid.T) *request {
			if len(live) == 0 {
				t.Skip("no request")
			}
			return live[rapid.IntRange(0, len(live)-1).Draw(t, "request")]
		}
		grow := func(t *rapid.T, r *request, tokens []int32) {
			before, room := len(r.tokens), c.Available()
			if err := r.seq.Reserve(len(tokens)); err != nil {
				if !errors.Is(err, ErrFull) || c.config.PagesFor(before+len(tokens))-len(r.seq.Pages())+1 <= room {
					t.Fatalf("Reserve(%d) at %d with %d pages free: %v", len(tokens), before, room, err)
				}
				return
			}
			if n := r.seq.Append(tokens...); n != len(tokens) {
				t.Fatalf("appended %d of %d", n, len(tokens))
			}
			r.tokens = append(r.tokens, tokens...)
			r.store(c, before)
			if rapid.Bool().Draw(t, "commit") {
				r.seq.Commit()
				r.committed = len(r.tokens)
			} else { // the pass failed
				r.seq.Truncate(r.seq.Committed())
				r.tokens = r.tokens[:r.committed]
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				r := &request{scope: rapid.Uint64Range(0, 1).Draw(t, "scope")}
				r.seq = c.NewSequence(r.scope)
				live = append(live, r)
				prompt := ids.Draw(t, "prompt")
				n := r.seq.Reuse(prompt)
				if n%4 != 0 || n >= len(prompt) {
					t.Fatalf("Reuse of %d tokens attached %d", len(prompt), n)
				}
				if least := offered(c, live, r.scope, prompt); n < least {
					t.Fatalf("Reuse attached %d of %v, where %d are there", n, prompt, least)
				}
				r.tokens, r.committed = slices.Clone(prompt[:n]), n
				r.check(t, c)
				grow(t, r, prompt[n:])
			},
			"grow": func(t *rapid.T) { grow(t, pick(t), ids.Draw(t, "tokens")) },
			"seal": func(t *rapid.T) { pick(t).seq.Seal() },
			"truncate": func(t *rapid.T) {
				r := pick(t)
				n := rapid.IntRange(0, len(r.tokens)).Draw(t, "n")
				r.seq.Truncate(n)
				r.tokens, r.committed = r.tokens[:n], min(r.committed, n)
			},
			"free": func(t *rapid.T) {
				r := pick(t)
				r.seq.Free()
				live = slices.DeleteFunc(live, func(x *request) bool { return x == r })
			},
			"": func(t *rapid.T) { checkCache(t, c, live) },
		})
	})
}

// offered is how much of a prompt live requests hold in registered pages.
func offered(c *Cache, live []*request, scope uint64, prompt []int32) int {
	best := 0
	for _, r := range live {
		n, parent := 0, uint64(0)
		for n+4 < len(prompt) && n+4 <= r.committed && r.scope == scope && slices.Equal(r.tokens[n:n+4], prompt[n:n+4]) {
			p := c.pages[r.seq.Pages()[n/4]]
			if p.serial == 0 || p.parent != parent {
				break
			}
			n, parent = n+4, p.serial
		}
		best = max(best, n)
	}
	return best
}

func TestReuseCountsTokens(t *testing.T) {
	c := newCache(t, 8)
	a := c.NewSequence(0)
	prompt := []int32{1, 2, 3, 4, 5, 6, 7, 8}
	if n := a.Reuse(prompt); n != 0 {
		t.Fatalf("an empty cache gave %d tokens", n)
	}
	if err := a.Reserve(8); err != nil {
		t.Fatal(err)
	}
	a.Append(prompt...)
	b := c.NewSequence(0)
	if n := b.Reuse(prompt); n != 0 {
		t.Fatalf("pages were offered before they were committed: %d tokens", n)
	}
	a.Commit()
	a.Free()
	if s := c.Stats(); s.Used != 0 || s.Cached != 2 || c.Available() != 8 {
		t.Fatalf("after Free: %+v, %d available", s, c.Available())
	}
	// The whole prompt is cached, but its last token must be computed.
	if n := b.Reuse(prompt); n != 4 {
		t.Fatalf("Reuse = %d, want 4", n)
	}
	other := c.NewSequence(1)
	if n := other.Reuse(prompt); n != 0 {
		t.Fatalf("another scope shared %d tokens", n)
	}
	if s := c.Stats(); s.Queries != 32 || s.Hits != 4 {
		t.Fatalf("queries %d, hits %d; want 32, 4", s.Queries, s.Hits)
	}
}

func TestEvictsTheOldestFirst(t *testing.T) {
	c := newCache(t, 4)
	fill := func(token int32) {
		s := c.NewSequence(0)
		if err := s.Reserve(8); err != nil {
			t.Fatal(err)
		}
		s.Append(token, token, token, token, token, token, token, token)
		s.Commit()
		s.Free()
	}
	fill(1)
	fill(2)
	s := c.NewSequence(0)
	if err := s.Reserve(1); err != nil {
		t.Fatal(err)
	}
	// The end of the older prompt went, its beginning stayed.
	probe := func(token int32) int {
		x := c.NewSequence(0)
		defer x.Free()
		return x.Reuse([]int32{token, token, token, token, token, token, token, token, token})
	}
	if one, two := probe(1), probe(2); one != 4 || two != 8 {
		t.Fatalf("left of the older %d tokens, of the newer %d; want 4, 8", one, two)
	}
	if err := c.NewSequence(0).Reserve(13); !errors.Is(err, ErrFull) {
		t.Fatalf("Reserve beyond the cache: %v", err)
	}
}

func TestACopyThatFailsLeavesTheSequence(t *testing.T) {
	memory := &heap{}
	c, err := New(memory, Config{Layers: []LayerShape{{1, 1}, {2, 0}}, DType: meta.BFloat16, PageTokens: 4, Pages: 4})
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.NewSequence(0), c.NewSequence(0)
	if err := a.Reserve(5); err != nil {
		t.Fatal(err)
	}
	a.Append(1, 2, 3, 4, 5)
	a.Commit()
	b.Reuse([]int32{1, 2, 3, 4, 9})
	b.Truncate(2)
	memory.fail = errors.New("device lost")
	if err := b.Reserve(1); !errors.Is(err, memory.fail) {
		t.Fatalf("Reserve = %v", err)
	}
	if b.Len() != 2 || b.Pages()[0] != a.Pages()[0] || c.Available() != 2 {
		t.Fatalf("after a failed copy: length %d, pages %v, %d free", b.Len(), b.Pages(), c.Available())
	}
	memory.fail = nil
	if err := b.Reserve(1); err != nil || b.Pages()[0] == a.Pages()[0] {
		t.Fatalf("Reserve = %v, pages %v beside %v", err, b.Pages(), a.Pages())
	}
	c.Close()
	if memory.live != 0 {
		t.Fatalf("%d tensors left", memory.live)
	}
}

func TestAppendTakesOnlyWhatIsReserved(t *testing.T) {
	c := newCache(t, 4)
	s := c.NewSequence(0)
	if n := s.Append(1); n != 0 {
		t.Fatalf("appended %d tokens without a page", n)
	}
	if err := s.Reserve(3); err != nil {
		t.Fatal(err)
	}
	if n := s.Append(1, 2, 3, 4, 5); n != 4 {
		t.Fatalf("appended %d tokens to a page of 4", n)
	}
}

func TestConfig(t *testing.T) {
	c := Config{Layers: []LayerShape{{64, 32}, {64, 32}}, DType: meta.BFloat16, Pages: 3}
	if got := c.BytesPerToken(); got != 2*2*96 {
		t.Errorf("BytesPerToken = %d", got)
	}
	if got := c.PageBytes(); got != 16*2*2*96 {
		t.Errorf("PageBytes = %d", got)
	}
	if got := c.PagesFor(33); got != 3 {
		t.Errorf("PagesFor(33) = %d", got)
	}
	for name, bad := range map[string]Config{
		"no pages":      {DType: meta.Float32},
		"negative page": {DType: meta.Float32, Pages: 1, PageTokens: -1},
		"no dtype":      {Pages: 1},
		"integers":      {Pages: 1, DType: meta.Int8},
		"no keys":       {Pages: 1, DType: meta.Float32, Layers: []LayerShape{{0, 1}}},
		"too many":      {Pages: 1 << 30, DType: meta.Float32},
	} {
		if _, err := New(&heap{}, bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	c := newCache(t, 16)
	prompt := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	slots := make([]int32, 1)
	var token int32
	round := func() {
		s := c.NewSequence(0)
		n := s.Reuse(prompt)
		if s.Reserve(len(prompt)-n) != nil {
			t.Fatal("full")
		}
		s.Append(prompt[n:]...)
		s.Commit()
		for range 40 {
			token++
			if s.Reserve(1) != nil {
				t.Fatal("full")
			}
			s.Append(token)
			s.Slots(slots, s.Len()-1)
			s.Commit()
		}
		s.Free()
	}
	round()
	if n := testing.AllocsPerRun(10, round); n != 0 {
		t.Errorf("%v allocations for 40 tokens", n)
	}
}

func BenchmarkToken(b *testing.B) {
	c, err := New(&heap{}, Config{Layers: []LayerShape{{64, 64}}, DType: meta.BFloat16, Pages: 256})
	if err != nil {
		b.Fatal(err)
	}
	s := c.NewSequence(0)
	for b.Loop() {
		if s.Len() == 4000 {
			s.Truncate(0)
		}
		if err := s.Reserve(1); err != nil {
			b.Fatal(err)
		}
		s.Append(int32(s.Len()))
		s.Commit()
	}
}
