package policy

import (
	"math"
	"slices"
)

// A Kind names an eviction policy.
type Kind string

// The eviction policies. Forecast is the policy of [New]. LRU evicts the least recently used
// segment. Belady evicts the segment that is requested last in the future, which bounds the hits
// of any policy.
const (
	Forecast Kind = "forecast"
	LRU      Kind = "lru"
	Belady   Kind = "belady"
)

// Kinds lists the kinds.
func Kinds() []Kind { return []Kind{LRU, Forecast, Belady} }

// Replay counts the hits of a trace in an initially empty cache of capacity bytes. ahead is as in
// [New].
func Replay(t *Trace, kind Kind, capacity int64, ahead int) Stats {
	return replay(t, kind, capacity, ahead, 0, math.MaxInt)
}

// replay counts the hits of steps with at most most segments, from step first on.
func replay(t *Trace, kind Kind, capacity int64, ahead, first, most int) (counted Stats) {
	c := newCache(t.Layers, capacity, ahead)
	switch kind {
	case LRU:
		c.order = &recency{cache: c, used: make([]float64, len(c.layerOf))}
	case Belady:
		c.order = newFuture(c, t)
	default:
		c.order = newForecast(c)
	}
	for i, s := range t.Steps {
		before := c.stats
		c.Request(s.Layer, s.Segments)
		if i >= first && len(s.Segments) <= most {
			counted.Hits += c.stats.Hits - before.Hits
			counted.Misses += c.stats.Misses - before.Misses
			counted.Evictions += c.stats.Evictions - before.Evictions
		}
	}
	return counted
}

// Ahead returns the number of segments that a cache with the given number of slots should let be
// used or loaded at the same time. These segments take room from segments that are needed later,
// so a small cache has few.
func Ahead(slots int) int { return min(max(slots/8, 2), 8) }

// Steady returns the hit rate of single tokens in a filled cache with the given number of slots
// for segments of any layer. It skips prompts and the first quarter of the trace.
func Steady(t *Trace, kind Kind, slots int) float64 {
	sameSize := &Trace{Steps: t.Steps}
	for _, l := range t.Layers {
		sameSize.Layers = append(sameSize.Layers, Layer{Segments: l.Segments, Size: 1})
	}
	return replay(sameSize, kind, int64(max(slots, 2)), Ahead(slots), len(t.Steps)/4, t.selected()).HitRate()
}

// A Point is the hit rate of a cache with room for a share of all segments.
type Point struct {
	Share float64 `json:"share"`
	Hits  float64 `json:"hits"`
}

const (
	// curveStep is the ratio of adjacent shares of a curve. Hit rates between them are
	// interpolated.
	curveStep = 1.25
	// fewSegments is the number of segments up to which every number has a point.
	fewSegments = 32
)

// Measure sets the trace's curve, from a share of 1/500 to all. It replays the trace about 30
// times.
func (t *Trace) Measure() {
	t.Curve = nil
	n := t.segments()
	for slots := n; slots > max(1, n/500); {
		t.Curve = append(t.Curve, Point{float64(slots) / float64(n), Steady(t, Forecast, slots)})
		if n <= fewSegments {
			slots--
		} else {
			slots = min(slots-1, int(float64(slots)/curveStep))
		}
	}
	slices.Reverse(t.Curve)
}

// Hits interpolates the curve, which Measure has set.
func (t *Trace) Hits(share float64) float64 {
	before := Point{}
	for _, p := range t.Curve {
		if share <= p.Share {
			return before.Hits + (p.Hits-before.Hits)*(share-before.Share)/(p.Share-before.Share)
		}
		before = p
	}
	return before.Hits
}

// segments returns the number of all segments.
func (t *Trace) segments() (n int) {
	for _, l := range t.Layers {
		n += l.Segments
	}
	return n
}

// selected returns the number of segments of a layer that one token requests: the minimum over
// all requests.
func (t *Trace) selected() int {
	least := math.MaxInt
	for _, s := range t.Steps {
		if len(s.Segments) > 0 {
			least = min(least, len(s.Segments))
		}
	}
	return least
}

// recency is the order of LRU.
type recency struct {
	cache *Cache
	used  []float64
	clock float64
}

func (r *recency) request(layer int, segments []int32) {
	for _, s := range segments {
		r.clock++
		r.used[r.cache.layers[layer].first+s] = r.clock
	}
}

func (r *recency) expect(int) {}

func (r *recency) value(id int32) float64 { return r.used[id] }

// future is the order of Belady.
type future struct {
	cache *Cache
	steps [][]int32 // by id: the steps that request it, from the current one on
	step  int32
}

func newFuture(c *Cache, t *Trace) *future {
	f := &future{cache: c, steps: make([][]int32, len(c.layerOf))}
	for i, s := range t.Steps {
		for _, e := range s.Segments {
			id := c.layers[s.Layer].first + e
			f.steps[id] = append(f.steps[id], int32(i))
		}
	}
	return f
}

func (f *future) request(layer int, segments []int32) {
	for _, s := range segments {
		id := f.cache.layers[layer].first + s
		f.steps[id] = f.steps[id][1:]
	}
	f.step++
}

func (f *future) expect(int) {}

func (f *future) value(id int32) float64 {
	if len(f.steps[id]) == 0 {
		return math.Inf(-1)
	}
	return -float64(f.steps[id][0])
}
