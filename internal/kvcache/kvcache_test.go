package kvcache

import (
	"errors"
	"testing"

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

// Discard fills memory that nothing may read.
func (h *heap) Discard(t tensor.Tensor) {
	for i := range t.Data[:t.Bytes()] {
		t.Data[i] = 0xa5
	}
}

func (h *heap) Copy(dst, src tensor.Tensor) error {
	if h.fail != nil {
		return h.fail
	}
	copy(dst.Data[:dst.Bytes()], src.Data[:src.Bytes()])
	return nil
}

func newCache(t require, pages int) *Cache {
	return newCacheOf(t, pages, LayerShape{KWidth: 2, VWidth: 1}, LayerShape{KWidth: 1, VWidth: 3})
}

func newCacheOf(t require, pages int, layers ...LayerShape) *Cache {
	t.Helper()
	c, err := New(&heap{}, Config{Layers: layers, DType: meta.Float32, PageTokens: 4, Pages: pages})
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

// store writes the values of a pass, from token n on.
func (r *request) store(c *Cache, n int) {
	slots := make([]int32, len(r.tokens)-n)
	for l, kv := range c.Layers() {
		r.seq.Slots(kv.Group, slots, n)
		for i, slot := range slots {
			v := value(r.scope, r.tokens[:n+i+1])
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

// check reads the values of r's committed tokens and compares them.
func (r *request) check(t require, c *Cache) {
	t.Helper()
	if r.seq.Len() != len(r.tokens) || r.seq.Committed() != r.committed {
		t.Fatalf("length %d, committed %d; want %d, %d", r.seq.Len(), r.seq.Committed(), len(r.tokens), r.committed)
	}
	for l, kv := range c.Layers() {
		from := 0
		if window := c.config.Layers[l].Window; window > 0 { // the positions that the next token sees
			from = max(0, r.committed-window+1)
		}
		slots := make([]int32, r.committed-from)
		r.seq.Slots(kv.Group, slots, from)
		for i, slot := range slots {
			v := value(r.scope, r.tokens[:from+i+1])
			for side, x := range []tensor.Tensor{kv.K, kv.V} {
				width := x.Dims[2]
				for j, got := range x.F32()[int(slot)*width:][:width] {
					if got != v+float32(l+side+j) {
						t.Fatalf("token %d of %v, layer %d: another token's keys", from+i, r.tokens, l)
					}
				}
			}
		}
	}
}

// held are the pages of all groups that r has.
func (r *request) held() []int32 {
	var pages []int32
	for _, t := range r.seq.tables {
		pages = append(pages, t.pages[t.held:]...)
	}
	return pages
}

func checkCache(t require, c *Cache, live []*request) {
	t.Helper()
	refs := make([]int32, len(c.pages))
	for _, r := range live {
		for _, p := range r.held() {
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
		} else if c.pages[p].registered {
			cached++
		}
	}
	free := 0
	for p := c.free.first; p != none; p = c.pages[p].next {
		free++
	}
	s := c.Stats()
	if s.Pages != len(c.pages) || s.Used != used || s.Cached != cached || c.Available() != free || free != len(c.pages)-used-len(c.withheld) {
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
		if p.registered {
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

func TestReuseCountsTokens(t *testing.T) {
	c := newCache(t, 8)
	a := c.NewSequence(0)
	prompt := []int32{1, 2, 3, 4, 5, 6, 7, 8}
	if n := a.Reuse(prompt); n != 0 {
		t.Fatalf("an empty cache gave %d tokens", n)
	}
	if err := a.Reserve(8, 8); err != nil {
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
		if err := s.Reserve(8, 8); err != nil {
			t.Fatal(err)
		}
		s.Append(token, token, token, token, token, token, token, token)
		s.Commit()
		s.Free()
	}
	fill(1)
	fill(2)
	s := c.NewSequence(0)
	if err := s.Reserve(1, 1); err != nil {
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
	if err := c.NewSequence(0).Reserve(13, 13); !errors.Is(err, ErrFull) {
		t.Fatalf("Reserve beyond the cache: %v", err)
	}
}

func TestACopyThatFailsLeavesTheSequence(t *testing.T) {
	memory := &heap{}
	c, err := New(memory, Config{Layers: []LayerShape{{KWidth: 1, VWidth: 1}, {KWidth: 2}}, DType: meta.BFloat16, PageTokens: 4, Pages: 4})
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.NewSequence(0), c.NewSequence(0)
	if err := a.Reserve(5, 5); err != nil {
		t.Fatal(err)
	}
	a.Append(1, 2, 3, 4, 5)
	a.Commit()
	b.Reuse([]int32{1, 2, 3, 4, 9})
	b.Truncate(2)
	memory.fail = errors.New("device lost")
	if err := b.Reserve(1, 1); !errors.Is(err, memory.fail) {
		t.Fatalf("Reserve = %v", err)
	}
	if b.Len() != 2 || b.Pages(0)[0] != a.Pages(0)[0] || c.Available() != 2 {
		t.Fatalf("after a failed copy: length %d, pages %v, %d free", b.Len(), b.Pages(0), c.Available())
	}
	memory.fail = nil
	if err := b.Reserve(1, 1); err != nil || b.Pages(0)[0] == a.Pages(0)[0] {
		t.Fatalf("Reserve = %v, pages %v beside %v", err, b.Pages(0), a.Pages(0))
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
	if err := s.Reserve(3, 3); err != nil {
		t.Fatal(err)
	}
	if n := s.Append(1, 2, 3, 4, 5); n != 4 {
		t.Fatalf("appended %d tokens to a page of 4", n)
	}
}

func TestConfig(t *testing.T) {
	c := Config{Layers: []LayerShape{{KWidth: 64, VWidth: 32}, {KWidth: 64, VWidth: 32}}, DType: meta.BFloat16, Pages: 3}
	if got := c.BytesPerToken(); got != 2*2*96 {
		t.Errorf("BytesPerToken = %d", got)
	}
	if got := c.PageBytes(); got != 16*2*2*96 {
		t.Errorf("PageBytes = %d", got)
	}
	if got := c.PagesFor(33); got != 3 {
		t.Errorf("PagesFor(33) = %d", got)
	}
	// Blocks of 32 take 34 bytes, and each head has its own.
	c = Config{Layers: []LayerShape{{KWidth: 64, VWidth: 64, Heads: 2}, {KWidth: 160, VWidth: 80, Heads: 2}, {KWidth: 576}}, DType: meta.Int8, Pages: 3}
	if got, want := c.BytesPerToken(), int64(34*(2+2)+34*(2*3+2*2)+34*18); got != want {
		t.Errorf("BytesPerToken of q8_0 = %d, want %d", got, want)
	}
	memory := &heap{}
	cache, err := New(memory, c)
	if err != nil {
		t.Fatal(err)
	}
	if kv := cache.Layers()[1]; kv.Heads != 2 || kv.K.Dims[2] != 34*6 || kv.V.Dims[2] != 34*4 {
		t.Errorf("layer of q8_0 is %v and %v of %d heads", kv.K.Shape(), kv.V.Shape(), kv.Heads)
	}
	cache.Close()
	for name, bad := range map[string]Config{
		"no pages":      {DType: meta.Float32},
		"negative page": {DType: meta.Float32, Pages: 1, PageTokens: -1},
		"no dtype":      {Pages: 1},
		"integers":      {Pages: 1, DType: meta.Int16},
		"no keys":       {Pages: 1, DType: meta.Float32, Layers: []LayerShape{{VWidth: 1}}},
		"half a head":   {Pages: 1, DType: meta.Float32, Layers: []LayerShape{{KWidth: 3, VWidth: 4, Heads: 2}}},
		"window":        {Pages: 1, DType: meta.Float32, Layers: []LayerShape{{KWidth: 1, Window: -1}}},
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
		if s.Reserve(len(prompt)-n, len(prompt)) != nil {
			t.Fatal("full")
		}
		s.Append(prompt[n:]...)
		s.Commit()
		for range 40 {
			token++
			if s.Reserve(1, 1) != nil {
				t.Fatal("full")
			}
			s.Append(token)
			s.Slots(0, slots, s.Len()-1)
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
	c, err := New(&heap{}, Config{Layers: []LayerShape{{KWidth: 64, VWidth: 64}}, DType: meta.BFloat16, Pages: 256})
	if err != nil {
		b.Fatal(err)
	}
	s := c.NewSequence(0)
	for b.Loop() {
		if s.Len() == 4000 {
			s.Truncate(0)
		}
		if err := s.Reserve(1, 1); err != nil {
			b.Fatal(err)
		}
		s.Append(int32(s.Len()))
		s.Commit()
	}
}
