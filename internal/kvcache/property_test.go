package kvcache

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// longestPass is the most tokens that the test appends before it commits.
const longestPass = 14

// layouts are the shapes of caches whose sequences are compared with the model.
var layouts = map[string][]LayerShape{
	"all":               {{KWidth: 2, VWidth: 1}, {KWidth: 1, VWidth: 3}},
	"window":            {{KWidth: 2, VWidth: 1, Window: 6}, {KWidth: 1, VWidth: 3, Window: 6}},
	"window of one":     {{KWidth: 1, Window: 1}},
	"alternating":       {{KWidth: 1, VWidth: 1, Window: 5}, {KWidth: 1, VWidth: 1}, {KWidth: 1, VWidth: 1, Window: 5}, {KWidth: 1, VWidth: 1}},
	"uneven":            {{KWidth: 1, VWidth: 2}, {KWidth: 1, VWidth: 2, Window: 9}, {KWidth: 1, VWidth: 2, Window: 9}, {KWidth: 1, VWidth: 2, Window: 9}},
	"two windows":       {{KWidth: 2, VWidth: 1, Window: 3}, {KWidth: 2, VWidth: 1, Window: 8}},
	"windows by widths": {{KWidth: 2, VWidth: 1, Window: 3}, {KWidth: 2, VWidth: 2, Window: 8}},
}

// TestSequencesAgainstModel runs random requests over few tokens, so that prefixes
// meet, in few pages, so that they are evicted.
func TestSequencesAgainstModel(t *testing.T) {
	names := slices.Sorted(maps.Keys(layouts))
	rapid.Check(t, func(t *rapid.T) {
		layers := layouts[rapid.SampledFrom(names).Draw(t, "layout")]
		f := &fleet{c: newCacheOf(t, rapid.IntRange(1, 24).Draw(t, "pages"), layers...)}
		t.Repeat(map[string]func(*rapid.T){
			"start": f.start,
			"grow":  func(t *rapid.T) { f.grow(t, f.pick(t), f.ids(t)) },
			"resize": func(t *rapid.T) {
				n, before := rapid.IntRange(0, 24).Draw(t, "pages"), f.c.Stats()
				got := f.c.Resize(n)
				if want := max(min(n, before.Pages), before.Used); got != want {
					t.Fatalf("Resize(%d) with %+v: %d pages, want %d", n, before, got, want)
				}
			},
			"seal": func(t *rapid.T) { f.pick(t).seq.Seal() },
			"ahead": func(t *rapid.T) {
				_ = f.pick(t).seq.Reserve(rapid.IntRange(0, 60).Draw(t, "n"), longestPass)
			},
			"truncate": f.truncate,
			"free": func(t *rapid.T) {
				r := f.pick(t)
				r.seq.Free()
				f.live = slices.DeleteFunc(f.live, func(x *request) bool { return x == r })
			},
			"": func(t *rapid.T) { checkCache(t, f.c, f.live) },
		})
	})
}

// A fleet is the requests of one cache.
type fleet struct {
	c    *Cache
	live []*request
}

func (*fleet) ids(t *rapid.T) []int32 {
	return rapid.SliceOfN(rapid.Int32Range(0, 1), 1, longestPass).Draw(t, "tokens")
}

func (f *fleet) pick(t *rapid.T) *request {
	if len(f.live) == 0 {
		t.Skip("no request")
	}
	return f.live[rapid.IntRange(0, len(f.live)-1).Draw(t, "request")]
}

func (f *fleet) start(t *rapid.T) {
	r := &request{scope: rapid.Uint64Range(0, 1).Draw(t, "scope")}
	prompt := f.ids(t)
	if len(f.live) > 0 && rapid.Bool().Draw(t, "again") {
		r.scope = f.live[0].scope
		prompt = append(slices.Clone(f.live[0].tokens), prompt[0])
	}
	f.begin(t, r, prompt)
}

// begin starts a request with a prompt.
func (f *fleet) begin(t *rapid.T, r *request, prompt []int32) {
	r.seq = f.c.NewSequence(r.scope)
	f.live = append(f.live, r)
	n := r.seq.Reuse(prompt)
	if n%4 != 0 || n >= len(prompt) {
		t.Fatalf("Reuse of %d tokens attached %d", len(prompt), n)
	}
	if least := f.offered(r.scope, prompt); n < least {
		t.Fatalf("Reuse attached %d of %v, where %d are there", n, prompt, least)
	}
	r.tokens, r.committed = slices.Clone(prompt[:n]), n
	r.check(t, f.c)
	f.grow(t, r, prompt[n:min(len(prompt), n+longestPass)])
}

func (f *fleet) grow(t *rapid.T, r *request, tokens []int32) {
	c, before, room := f.c, len(r.tokens), f.c.Available()
	pass := rapid.IntRange(len(tokens), longestPass).Draw(t, "pass")
	if err := r.seq.Reserve(len(tokens), pass); err != nil {
		need := 0
		for _, table := range r.seq.tables {
			need += max(c.config.PagesFor(before+longestPass+len(tokens))+1-len(table.pages), 1)
		}
		if !errors.Is(err, ErrFull) || need <= room {
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
		if n := r.seq.Truncate(r.seq.Committed()); n != r.committed {
			t.Fatalf("Truncate(%d) left %d tokens", r.committed, n)
		}
		r.tokens = r.tokens[:r.committed]
	}
	if held, most := len(r.held()), c.config.SequencePages(len(r.tokens)+60, longestPass); held > most {
		t.Fatalf("%d tokens hold %d pages; at most %d are planned for", len(r.tokens), held, most)
	}
}

func (f *fleet) truncate(t *rapid.T) {
	r := f.pick(t)
	n := rapid.IntRange(0, len(r.tokens)).Draw(t, "n")
	left := r.seq.Truncate(n)
	if left == 0 && n < r.committed && slices.Max(f.c.layout.windows) > 0 {
		n = 0 // may happen once pages were freed
	}
	if left != n {
		t.Fatalf("Truncate(%d) of %d tokens left %d", n, len(r.tokens), left)
	}
	r.tokens, r.committed = r.tokens[:n], min(r.committed, n)
}

// offered is how much of a prompt some live request holds in registered pages, all that
// the next token sees.
func (f *fleet) offered(scope uint64, prompt []int32) int {
	best := 0
	for _, r := range f.live {
		for n := 1; 4*n < len(prompt) && 4*n <= r.committed && r.scope == scope && slices.Equal(r.tokens[:4*n], prompt[:4*n]); n++ {
			whole := true
			for g, window := range f.c.layout.windows {
				table, first := r.seq.tables[g], 0
				if window > 0 {
					first = firstSeen(4*n, window, 4)
				}
				if whole = whole && first >= table.held; !whole {
					break
				}
				for _, p := range table.pages[first:n] {
					whole = whole && f.c.pages[p].registered
				}
			}
			if whole {
				best = max(best, 4*n)
			}
		}
	}
	return best
}

// TestWindowsHoldBoundedPages generates far beyond a window with the minimum of pages.
func TestWindowsHoldBoundedPages(t *testing.T) {
	for name, layers := range layouts {
		config := Config{Layers: layers, PageTokens: 4}
		const n, pass = 400, 5
		pages := config.SequencePages(n, pass)
		c := newCacheOf(t, pages, layers...)
		s := c.NewSequence(0)
		if err := s.Reserve(n, pass); err != nil {
			t.Fatalf("%s: a whole sequence at its beginning: %v", name, err)
		}
		r := &request{seq: s}
		for i := 0; i < n; {
			step := min(pass, n-i)
			if i > n/2 {
				step = 1
			}
			if err := s.Reserve(step, pass); err != nil {
				t.Fatalf("%s: %d tokens at %d in %d pages: %v", name, step, i, pages, err)
			}
			for range step {
				r.tokens = append(r.tokens, int32(i))
				s.Append(int32(i))
				i++
			}
			r.store(c, i-step)
			s.Commit()
			r.committed = i
			r.check(t, c)
		}
		if got := config.SequenceTokens(pages, pass, n); got != n {
			t.Errorf("%s: %d pages hold %d tokens, not %d", name, pages, got, n)
		}
		if got := config.SharedPages(n, 1, pass); got != pages {
			t.Errorf("%s: %d pages for all tokens in one sequence, not %d", name, got, pages)
		}
		if got, all := config.SharedPages(n, n, pass), len(c.layout.windows)*n/4; got != all {
			t.Errorf("%s: %d pages for as many sequences as tokens, want %d", name, got, all)
		}
		if got := config.SharedTokens(pages, 3, pass, 3*n); config.SharedPages(got, 3, pass) > pages || config.SharedPages(got+1, 3, pass) <= pages && got < 3*n {
			t.Errorf("%s: %d pages hold %d tokens of three sequences", name, pages, got)
		}
		// Without windows all is needed; layers with windows need no more than theirs.
		all := 0
		for _, window := range c.layout.windows {
			if all += n / 4; window > 0 {
				all += (window+pass+3)/4 + 2 - n/4
			}
		}
		if pages != all {
			t.Errorf("%s: %d pages for %d tokens, want %d", name, pages, n, all)
		}
	}
}

// TestReuseWithoutTheBeginning shares the end of a prompt after windowed layers have freed the
// pages of its beginning and other sequences have taken them.
func TestReuseWithoutTheBeginning(t *testing.T) {
	c := newCacheOf(t, 8, LayerShape{KWidth: 1, Window: 5})
	s := c.NewSequence(0)
	var prompt []int32
	for i := range 32 {
		if err := s.Reserve(1, 1); err != nil {
			t.Fatal(err)
		}
		s.Append(int32(i))
		s.Commit()
		prompt = append(prompt, int32(i))
	}
	other := c.NewSequence(0)
	if err := other.Reserve(4*c.Available(), 64); err != nil { // evicts pages without references
		t.Fatal(err)
	}
	again := c.NewSequence(0)
	if n := again.Reuse(prompt[:31]); n != 28 {
		t.Errorf("reused %d tokens, want 28", n)
	}
	if n := c.NewSequence(0).Reuse(prompt[:20]); n != 0 {
		t.Errorf("reused %d tokens of which the keys are gone", n)
	}
	if n := again.Truncate(24); n != 0 || again.Len() != 0 {
		t.Errorf("Truncate kept %d tokens whose window was freed", n)
	}
}

// TestLayouts says which layers share pages.
func TestLayouts(t *testing.T) {
	of := func(windows ...int) []LayerShape {
		var layers []LayerShape
		for _, w := range windows {
			layers = append(layers, LayerShape{KWidth: 8, VWidth: 8, Window: w})
		}
		return layers
	}
	wide := of(0, 4)
	wide[1].KWidth = 16
	for name, test := range map[string]struct {
		layers  []LayerShape
		windows []int
		slots   int
	}{
		"no windows":        {of(0, 0, 0), []int{0}, 3},
		"one window":        {of(4, 4), []int{4}, 2},
		"alternating":       {of(4, 0, 4, 0), []int{0, 4}, 2},
		"five to one":       {of(4, 4, 4, 4, 4, 0, 4, 4, 4, 4, 4, 0), []int{0, 4, 4, 4, 4, 4}, 2},
		"uneven":            {of(4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 0, 0), []int{0, 4, 4, 4, 4, 4, 4}, 2},
		"ten of 62":         {of(slices.Concat(slices.Repeat([]int{4, 4, 4, 4, 4, 0}, 10), []int{4, 4})...), []int{0, 4, 4, 4, 4, 4, 4}, 10},
		"of two widths":     {wide, []int{0}, 2},
		"two windows apart": {of(4, 8), []int{4, 8}, 1},
	} {
		l := Config{Layers: test.layers}.layout()
		if !slices.Equal(l.windows, test.windows) || len(l.slots) != test.slots {
			t.Errorf("%s: groups %v of %d layers, want %v of %d", name, l.windows, len(l.slots), test.windows, test.slots)
		}
		seen := map[place]bool{}
		for i, at := range l.places {
			if seen[at] || at.slot >= len(l.slots) || at.group >= len(l.windows) {
				t.Errorf("%s: layer %d at %+v", name, i, at)
			}
			if w := l.windows[at.group]; w != test.layers[i].Window && len(l.windows) > 1 {
				t.Errorf("%s: layer %d of window %d in a group of %d", name, i, test.layers[i].Window, w)
			}
			seen[at] = true
		}
	}
}
