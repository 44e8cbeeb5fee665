package policy

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// shares are the parts of all segments that fit into memory in the tests.
var shares = []float64{0.04, 0.1, 0.25, 0.5}

// TestHitsOfRoutings compares the hit rates of forecast with those of LRU and Belady, in percent. The
// gains are the measured values less 2 points.
func TestHitsOfRoutings(t *testing.T) {
	gains := map[string][4]float64{ // over LRU, by share
		"random":                {2, 7, 0, 0},
		"popular":               {16, 35, 13, 3},
		"repeating":             {13, 40, 0, 0},
		"popular and repeating": {15, 5, 3, 1},
		"topics":                {13, 32, 6, 0},
		"batch of 8":            {6, 18, 41, 8},
	}
	for _, r := range routings() {
		trace := r.trace(2)
		for i, share := range shares {
			var hits [3]float64
			for k, kind := range Kinds() {
				hits[k] = 100 * Replay(trace, kind, r.slots(share), 2).HitRate()
			}
			t.Logf("%-22s %3.0f %% in memory: LRU %5.1f, forecast %5.1f, Belady %5.1f", r.name, 100*share, hits[0], hits[1], hits[2])
			if gain := hits[1] - hits[0]; gain < gains[r.name][i] {
				t.Errorf("%s with %.0f %% in memory: %.1f points more hits than LRU, want %.0f", r.name, 100*share, gain, gains[r.name][i])
			}
			if hits[1] > hits[2] {
				t.Errorf("%s: %.1f %% hits, more than Belady's %.1f %%", r.name, hits[1], hits[2])
			}
		}
	}
}

// fixed is a forecast whose weights are not fitted.
type fixed struct{ *forecast }

func (f fixed) request(layer int, segments []int32) {
	f.gram, f.cross = [features][features]float64{}, [features]float64{}
	f.forecast.request(layer, segments)
}

// TestFittedWeightsMatchTheBestFixedOnes shows why the weights are fitted: of fixed weights each is
// bad for some routing.
func TestFittedWeightsMatchTheBestFixedOnes(t *testing.T) {
	defer func(old [features]float64) { initial = old }(initial)
	weights := [][features]float64{{0, 0, 0, 1}, {0, 0, 0.5, 0.5}, {0, 0.3, 0, 0.7}, {0.5, 0.1, 0.1, 0.3}}
	worst := make([]float64, len(weights))
	for _, r := range routings() {
		trace := r.trace(2)
		for _, share := range shares {
			fitted := 100 * Replay(trace, Forecast, r.slots(share), 2).HitRate()
			var hits []float64
			for _, w := range weights {
				c := newCache(trace.Layers, r.slots(share), 2)
				old := initial
				initial = w
				c.order = fixed{newForecast(c)}
				for _, s := range trace.Steps {
					c.Request(s.Layer, s.Segments)
				}
				initial = old
				hits = append(hits, 100*c.Stats().HitRate())
			}
			best := slices.Max(hits)
			t.Logf("%-22s %3.0f %% in memory: fitted %5.1f, fixed %5.1f", r.name, 100*share, fitted, hits)
			if fitted < best-2 {
				t.Errorf("%s with %.0f %% in memory: %.1f %% hits, and %.1f %% with fixed weights", r.name, 100*share, fitted, best)
			}
			for i := range hits {
				worst[i] = max(worst[i], best-hits[i])
			}
		}
	}
	t.Logf("points that fixed weights lose at worst: %.1f", worst)
	if least := slices.Min(worst); least < 4 {
		t.Errorf("one set of fixed weights loses only %.1f points: fitting is not needed", least)
	}
}

// TestHitsBelowTheWorkingSet is the scan that least recently used has no hits in.
func TestHitsBelowTheWorkingSet(t *testing.T) {
	for _, r := range routings() {
		if r.prompt > 0 || r.batch > 1 {
			continue
		}
		trace := r.trace(3)
		set := workingSet(trace)
		last := 0.0
		for _, slots := range []int64{set / 8, set / 4, set / 2, set - 1} {
			if lru := Replay(trace, LRU, slots, 2).Hits; lru != 0 && slots <= set/2 {
				t.Fatalf("%s: LRU has %d hits with %d slots: this is no scan", r.name, lru, slots)
			}
			s := Replay(trace, Forecast, slots, 2)
			// With random routing no more can be expected than the share of segments that fits.
			if rate, want := s.HitRate(), 0.7*float64(slots-2)/float64(r.layers*r.experts); rate <= last || rate < want {
				t.Errorf("%s: %.1f %% hits with %d of %d slots, want more than %.1f %%", r.name, 100*rate, slots, set, 100*max(last, want))
			} else {
				last = rate
			}
		}
	}
}

// TestMovesAreConsistent executes the moves of random requests and checks which segments are resident.
func TestMovesAreConsistent(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 50 {
		layers := make([]Layer, 1+rng.IntN(4))
		for i := range layers {
			layers[i] = Layer{Segments: 1 + rng.IntN(12), Size: 1 + rng.Int64N(3)}
		}
		m := newMemory(t, layers, 6+rng.Int64N(30))
		for range 200 {
			layer := rng.IntN(len(layers))
			m.request(layer, subset(rng, layers[layer].Segments))
			if rng.IntN(3) == 0 {
				next := (layer + 1) % len(layers)
				m.admit(next, subset(rng, layers[next].Segments))
			}
			if rng.IntN(10) == 0 {
				m.capacity = 6 + rng.Int64N(30)
				m.execute(m.cache.Resize(m.capacity))
			}
			if rng.IntN(10) == 0 {
				id := rng.Int32N(int32(len(m.cache.place)))
				m.cache.Drop(id)
				delete(m.held, id)
				delete(m.early, id)
			}
			m.check()
		}
	}
}

// A memory executes moves.
type memory struct {
	*testing.T
	layers   []Layer
	capacity int64
	cache    *Cache
	held     map[int32]int64 // id → size
	early    map[int32]bool  // admitted, and not requested since
	last     []int32         // ids of the last request
	want     Stats
}

func newMemory(t *testing.T, layers []Layer, capacity int64) *memory {
	return &memory{T: t, layers: layers, capacity: capacity, cache: New(layers, capacity, 2), held: map[int32]int64{}, early: map[int32]bool{}}
}

// request uses segments one after the other, each with one more that is being loaded.
func (m *memory) request(layer int, segments []int32) {
	m.Helper()
	first := int32(0)
	for _, l := range m.layers[:layer] {
		first += int32(l.Segments)
	}
	moves := slices.Clone(m.cache.Request(layer, segments))
	m.last = m.last[:0]
	for _, s := range segments {
		m.last = append(m.last, first+s)
	}
	for i, s := range segments {
		id := first + s
		if _, in := m.held[id]; in {
			if m.early[id] {
				m.want.Misses++
				m.want.Early++
			} else {
				m.want.Hits++
			}
			delete(m.early, id)
			continue
		}
		n := slices.Index(moves, Move{ID: id}) + 1
		for _, move := range moves[:n] {
			needed := slices.Contains(segments[max(0, i-1):], move.ID-first)
			if move.Evict && needed && m.unneeded(first, segments[max(0, i-1):]) {
				m.Fatalf("a segment that is still needed is evicted for segment %d of the request", i)
			}
			m.execute([]Move{move})
		}
		if moves = moves[n:]; m.held[id] == 0 {
			m.Fatalf("segment %d is not loaded", id)
		}
		m.want.Misses++
	}
	if len(moves) > 0 {
		m.Fatalf("moves %v after the last segment", moves)
	}
}

// admit admits segments of a layer. None of the last request's and none of these may be evicted for them.
func (m *memory) admit(layer int, segments []int32) {
	m.Helper()
	first := int32(0)
	for _, l := range m.layers[:layer] {
		first += int32(l.Segments)
	}
	for _, move := range slices.Clone(m.cache.Admit(layer, segments)) {
		if move.Evict && (slices.Contains(m.last, move.ID) || slices.Contains(segments, move.ID-first)) {
			m.Fatalf("segment %d is evicted, which is needed", move.ID)
		}
		m.execute([]Move{move})
		if !move.Evict {
			m.early[move.ID] = true
		}
	}
}

// unneeded reports whether some resident segment is none of a layer's segments.
func (m *memory) unneeded(first int32, segments []int32) bool {
	for id := range m.held {
		if !slices.Contains(segments, id-first) {
			return true
		}
	}
	return false
}

func (m *memory) execute(moves []Move) {
	m.Helper()
	for _, move := range moves {
		if _, in := m.held[move.ID]; in != move.Evict {
			m.Fatalf("move %+v with the segment resident: %v", move, in)
		}
		if move.Evict {
			delete(m.held, move.ID)
			delete(m.early, move.ID)
			m.want.Evictions++
			continue
		}
		m.held[move.ID] = m.layers[m.cache.layerOf[move.ID]].Size
	}
}

func (m *memory) check() {
	m.Helper()
	sum := int64(0)
	for id := range m.cache.place {
		size, in := m.held[int32(id)]
		if sum += size; in != m.cache.Resident(int32(id)) {
			m.Fatalf("segment %d: resident %v, want %v", id, !in, in)
		}
	}
	if sum > m.capacity {
		m.Fatalf("%d bytes are resident, want at most %d", sum, m.capacity)
	}
	if got := m.cache.Stats(); got != m.want {
		m.Fatalf("counted %+v, want %+v", got, m.want)
	}
}

func subset(rng *rand.Rand, n int) []int32 {
	var list []int32
	for i := range n {
		if rng.IntN(3) == 0 {
			list = append(list, int32(i))
		}
	}
	return list
}

func TestRequestAllocatesNothing(t *testing.T) {
	r := routings()[1]
	trace := r.trace(5)
	c := New(trace.Layers, 40, 2)
	step := 0
	if n := testing.AllocsPerRun(300, func() {
		c.Request(trace.Steps[step].Layer, trace.Steps[step].Segments)
		step++
	}); n != 0 {
		t.Errorf("%v allocations per request", n)
	}
}

// TestLayersOfOneSegment: dense layers among layers of experts are needed by every pass.
func TestLayersOfOneSegment(t *testing.T) {
	layers := []Layer{{1, 4}, {32, 1}, {1, 4}, {32, 1}}
	c := New(layers, 16, 2)
	rng := rand.New(rand.NewPCG(6, 6))
	for pass := range 50 {
		for layer := range layers {
			want := []int32{0}
			if layer%2 == 1 {
				want = subset(rng, 32)
			}
			if moves := c.Request(layer, want); layer%2 == 0 && pass > 0 && len(moves) > 0 {
				t.Fatalf("pass %d evicted the dense layer %d", pass, layer)
			}
		}
	}
}

// BenchmarkRequest is a pass of a model with 60 layers of 384 experts of which 2400 fit.
func BenchmarkRequest(b *testing.B) {
	r := routing{name: "trillion", layers: 60, experts: 384, topK: 8, skew: 0.6, repeat: 0.25, tokens: 20}
	trace := r.trace(1)
	c := New(trace.Layers, 2400, 4)
	for i := 0; b.Loop(); i++ {
		for layer := range r.layers {
			s := &trace.Steps[i%r.tokens*r.layers+layer]
			c.Request(s.Layer, s.Segments)
		}
	}
	b.ReportMetric(100*c.Stats().HitRate(), "%hits")
}

func TestFillEvictsNothingAndItsLoadsAreHits(t *testing.T) {
	c := New([]Layer{{Segments: 3, Size: 1}, {Segments: 3, Size: 2}}, 4, 1)
	c.Request(0, []int32{1})
	for _, f := range []struct {
		id   int32
		room bool
	}{{1, false}, {3, true}, {4, false}, {0, true}, {2, false}} {
		moves := c.Fill(f.id)
		if want := 1; f.room && (len(moves) != want || moves[0] != (Move{ID: f.id})) || !f.room && moves != nil {
			t.Errorf("filling %d: moves %v, want one: %v", f.id, moves, f.room)
		}
	}
	c.Request(1, []int32{0})
	if s := c.Stats(); s != (Stats{Hits: 1, Misses: 1}) {
		t.Errorf("%+v, want a hit of what was filled and no eviction", s)
	}
}

func TestTheLikeliestSegmentsAreThoseRequestedMost(t *testing.T) {
	c := New([]Layer{{Segments: 3, Size: 1}, {Segments: 2, Size: 1}}, 3, 1)
	if got := c.Likeliest(); !slices.Equal(got, []int32{0, 3, 1, 4, 2}) {
		t.Errorf("%v before any request, want a few of each layer: 0, 3, 1, 4, 2", got)
	}
	for i := range 30 {
		c.Prime(Step{Layer: 0, Segments: []int32{2}})
		if c.Prime(Step{Layer: 1, Segments: []int32{1}}); i%3 == 0 {
			c.Prime(Step{Layer: 1, Segments: []int32{0}})
		}
	}
	if got := c.Likeliest(); got[0] != 2 || !slices.Equal(got[1:3], []int32{4, 3}) {
		t.Errorf("%v, want 2, 4, 3 first", got)
	}
	if s := c.Stats(); s != (Stats{}) {
		t.Errorf("%+v after priming, want nothing", s)
	}
}
