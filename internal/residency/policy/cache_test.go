package policy

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// shares are the parts of all segments that fit into memory in the tests.
var shares = []float64{0.04, 0.1, 0.25, 0.5}

// TestHitsOfRoutings compares the hit rates of forecast with those of LRU and Belady, in percent. The
// gains are what was measured less 2 points.
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

// TestMovesAreConsistent executes the moves of random requests and checks what is resident.
func TestMovesAreConsistent(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 50 {
		layers := make([]Layer, 1+rng.IntN(4))
		for i := range layers {
			layers[i] = Layer{Segments: 1 + rng.IntN(12), Size: 1 + rng.Int64N(3)}
		}
		const ahead = 2
		capacity := int64(3*ahead) + rng.Int64N(30)
		c := New(layers, capacity, ahead)
		held := map[int32]int64{} // id → size
		sum := func() (n int64) {
			for _, size := range held {
				n += size
			}
			return n
		}
		var hits, misses, evictions int64
		for range 200 {
			layer := rng.IntN(len(layers))
			wanted := subset(rng, layers[layer].Segments)
			first := int32(0)
			for _, l := range layers[:layer] {
				first += int32(l.Segments)
			}
			moves := slices.Clone(c.Request(layer, wanted))
			position := -1 // of the last load in the request
			for i, s := range wanted {
				id := first + s
				for _, in := held[id]; !in; _, in = held[id] {
					m := moves[0]
					moves = moves[1:]
					if !m.Evict {
						if m.ID != id {
							t.Fatalf("segment %d is loaded before %d, which is used before it", m.ID, id)
						}
						held[id] = layers[layer].Size
						misses++
						position = i
						continue
					}
					if _, in := held[m.ID]; !in {
						t.Fatalf("segment %d is evicted and was not resident", m.ID)
					}
					if at := slices.Index(wanted, m.ID-first); at >= 0 && at > i-ahead && at < i && len(held) > len(wanted) {
						t.Fatalf("segment %d of the request is evicted for segment %d", at, i)
					}
					delete(held, m.ID)
					evictions++
				}
				if position != i {
					hits++
				}
				if sum() > capacity {
					t.Fatalf("%d bytes are resident, want at most %d", sum(), capacity)
				}
			}
			if len(moves) > 0 {
				t.Fatalf("moves %v after the last segment", moves)
			}
			if rng.IntN(10) == 0 {
				capacity = int64(3*ahead) + rng.Int64N(30)
				for _, m := range c.Resize(capacity) {
					delete(held, m.ID)
					evictions++
				}
			}
			if rng.IntN(10) == 0 {
				id := rng.Int32N(int32(len(c.place)))
				c.Drop(id)
				delete(held, id)
			}
			for id := range c.place {
				if _, in := held[int32(id)]; in != c.Resident(int32(id)) {
					t.Fatalf("segment %d: resident %v, want %v", id, !in, in)
				}
			}
		}
		if got, want := c.Stats(), (Stats{hits, misses, evictions}); got != want {
			t.Fatalf("counted %+v, want %+v", got, want)
		}
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

// TestLayersOfOneSegment are dense layers beside experts: every pass needs them.
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
