package policy

import (
	"cmp"
	"math"
	"slices"
)

// A Layer is a group of segments. A pass requests some of them, once.
type Layer struct {
	Segments int
	Size     int64 // of one segment, in bytes
}

// A Move evicts or loads a segment. ID is the segment's index in its layer plus the number of
// segments in earlier layers.
type Move struct {
	ID    int32
	Evict bool
}

// Stats holds the counters of a cache.
type Stats struct {
	Hits, Misses, Evictions int64
	// Early counts the misses of segments that were admitted before they were requested.
	Early int64
}

// HitRate returns the share of requested segments that were resident, or 0 if none was requested.
func (s Stats) HitRate() float64 { return float64(s.Hits) / float64(max(1, s.Hits+s.Misses)) }

// A Cache decides which segments are resident. It is not safe for concurrent use.
type Cache struct {
	layers   []layer
	layerOf  []int32
	capacity int64
	used     int64
	ahead    int

	resident []int32   // ids, unordered
	worth    []float64 // their value for the current request
	place    []int32   // id → index in resident, or -1
	turn     []turn    // by id
	early    []bool    // by id: admitted, but not requested since
	request  uint32    // number of the current request
	order    order
	moves    []Move
	stats    Stats
}

type layer struct {
	first, count int32
	size         int64
}

// A turn is the position of a segment in a request.
type turn struct {
	request  uint32
	position int32
}

// An order estimates the value of resident segments.
type order interface {
	// request is called before the segments of a request are looked up.
	request(layer int, segments []int32)
	// expect is called before segments of a layer are admitted, which runs next.
	expect(layer int)
	// value returns the value of keeping segment id, below infinity. The segment with the lowest
	// value is evicted.
	value(id int32) float64
}

// New returns an empty cache of capacity bytes. A pass requests layers in the given order. The
// caller uses the segments of a request in order; ahead is how many of them it can load and use
// at the same time. A requested segment is not evicted before ahead-1 later segments of the
// request are loaded. The capacity should hold ahead segments of the largest layer.
func New(layers []Layer, capacity int64, ahead int) *Cache {
	c := newCache(layers, capacity, ahead)
	c.order = newForecast(c)
	return c
}

func newCache(layers []Layer, capacity int64, ahead int) *Cache {
	c := &Cache{capacity: capacity, ahead: max(1, ahead)}
	widest := 0
	for i, l := range layers {
		first := len(c.layerOf)
		c.layers = append(c.layers, layer{int32(first), int32(l.Segments), max(1, l.Size)})
		for range l.Segments {
			c.layerOf = append(c.layerOf, int32(i))
			c.place = append(c.place, -1)
		}
		widest = max(widest, l.Segments)
	}
	c.resident, c.worth = make([]int32, 0, len(c.layerOf)), make([]float64, 0, len(c.layerOf))
	c.turn, c.early = make([]turn, len(c.layerOf)), make([]bool, len(c.layerOf))
	c.moves = make([]Move, 0, 2*widest)
	return c
}

// Request makes segments of a layer resident and returns the required moves, in order. The moves
// are valid until the next call. Segments are numbered from 0 in their layer; no segment may
// occur twice. The caller uses them in this order. A move may evict a segment of the same
// request: the caller executes it when the segment has been used. Request does not allocate. Its
// time is proportional to the segments of the layer, plus the resident segments for each missing
// one.
func (c *Cache) Request(layer int, segments []int32) []Move {
	c.moves = c.moves[:0]
	c.request++
	l := &c.layers[layer]
	for i, s := range segments {
		c.turn[l.first+s] = turn{c.request, int32(i)}
	}
	c.order.request(layer, segments)
	missed := false
	for i, s := range segments {
		id := l.first + s
		switch {
		case c.early[id]:
			c.stats.Misses++
			c.stats.Early++
			c.early[id] = false
		case c.place[id] >= 0:
			c.stats.Hits++
		default:
			c.stats.Misses++
			if !missed {
				c.appraise(int32(i))
				missed = true
			}
			c.load(id, int32(i))
		}
		if done := i - c.ahead + 1; missed && done >= 0 {
			if id := l.first + segments[done]; c.place[id] >= 0 {
				c.worth[c.place[id]] = c.order.value(id)
			}
		}
	}
	return c.moves
}

// Admit makes segments of a layer resident that its next request is predicted to have, the most
// likely first. It returns the moves as Request does. It stops where it would have to evict a
// segment that the last request still needs, or another admitted one. When an admitted segment is
// requested, it counts as a miss.
func (c *Cache) Admit(layer int, segments []int32) []Move {
	c.moves = c.moves[:0]
	c.order.expect(layer)
	c.appraise(-1)
	l := &c.layers[layer]
	for _, s := range segments {
		if at := c.place[l.first+s]; at >= 0 {
			c.worth[at] = math.Inf(1)
		}
	}
	for _, s := range segments {
		id := l.first + s
		if c.place[id] >= 0 {
			continue
		}
		if c.used+l.size > c.capacity && !c.spare(l.size) {
			break
		}
		c.load(id, -1)
		c.early[id] = true
	}
	return c.moves
}

// Fill makes a segment resident if there is room for it, and returns the move as Request does. When it is requested, it
// counts as a hit.
func (c *Cache) Fill(id int32) []Move {
	c.moves = c.moves[:0]
	if c.place[id] >= 0 || c.used+c.layers[c.layerOf[id]].size > c.capacity {
		return nil
	}
	c.load(id, -1)
	return c.moves
}

// Prime tells the cache what an earlier process requested, in order. Call it before the first
// request.
func (c *Cache) Prime(s Step) { c.order.request(s.Layer, s.Segments) }

// Likeliest returns all segments, those that a pass will most likely request first. Among equals
// it alternates between layers.
func (c *Cache) Likeliest() []int32 {
	ids := make([]int32, len(c.layerOf))
	for i := range ids {
		ids[i] = int32(i)
	}
	number := func(id int32) int32 { return id - c.layers[c.layerOf[id]].first }
	f, forecasts := c.order.(*forecast)
	slices.SortFunc(ids, func(a, b int32) int {
		if forecasts && f.use[a] != f.use[b] {
			return cmp.Compare(f.use[b], f.use[a])
		}
		return cmp.Or(cmp.Compare(number(a), number(b)), cmp.Compare(a, b))
	})
	return ids
}

// spare reports whether size bytes of segments can be evicted that are not needed.
func (c *Cache) spare(size int64) bool {
	free := c.capacity - c.used
	for i, id := range c.resident {
		if free >= size {
			break
		}
		if !math.IsInf(c.worth[i], 1) {
			free += c.layers[c.layerOf[id]].size
		}
	}
	return free >= size
}

// appraise sets the values of the resident segments at a position of the current request.
// Segments that the request still needs must stay.
func (c *Cache) appraise(position int32) {
	for i, id := range c.resident {
		if c.worth[i] = c.order.value(id); c.need(id, position) > 0 {
			c.worth[i] = math.Inf(1)
		}
	}
}

// load evicts what segment id needs at a position of the request, and loads it.
func (c *Cache) load(id, position int32) {
	size := c.layers[c.layerOf[id]].size
	for c.used+size > c.capacity && len(c.resident) > 0 {
		c.evict(c.victim(position))
	}
	c.place[id] = int32(len(c.resident))
	c.resident, c.worth = append(c.resident, id), append(c.worth, math.Inf(1))
	c.used += size
	c.moves = append(c.moves, Move{ID: id})
}

// victim returns the resident segment with the lowest value.
func (c *Cache) victim(position int32) int32 {
	best := 0
	for i, v := range c.worth {
		if v < c.worth[best] {
			best = i
		}
	}
	if math.IsInf(c.worth[best], 1) {
		return c.leastNeeded(position)
	}
	return c.resident[best]
}

// leastNeeded returns the segment to evict if the request needs all of them.
func (c *Cache) leastNeeded(position int32) int32 {
	best := c.resident[0]
	for _, id := range c.resident[1:] {
		n, need := c.need(id, position), c.need(best, position)
		if n < need || n == need && c.order.value(id) < c.order.value(best) {
			best = id
		}
	}
	return best
}

// need reports how much the current request at the given position still needs segment id: 0 means
// not at all, 1 that it may be in use, 2 that it is used later.
func (c *Cache) need(id, position int32) int {
	t := c.turn[id]
	switch {
	case t.request != c.request || t.position <= position-int32(c.ahead):
		return 0
	case t.position < position:
		return 1
	}
	return 2
}

func (c *Cache) evict(id int32) {
	c.Drop(id)
	c.stats.Evictions++
	c.moves = append(c.moves, Move{ID: id, Evict: true})
}

// Drop records that segment id is not resident after all, for example because it could not be
// read. It does nothing if the segment is not resident.
func (c *Cache) Drop(id int32) {
	at := c.place[id]
	if at < 0 {
		return
	}
	n := len(c.resident) - 1
	last := c.resident[n]
	c.resident[at], c.worth[at], c.place[last] = last, c.worth[n], at
	c.resident, c.worth = c.resident[:n], c.worth[:n]
	c.place[id], c.early[id] = -1, false
	c.used -= c.layers[c.layerOf[id]].size
}

// Resize changes the capacity and returns the required evictions, which are valid until the next
// call. Segments of the last request are evicted last.
func (c *Cache) Resize(capacity int64) []Move {
	c.moves = c.moves[:0]
	c.capacity = capacity
	c.appraise(-1)
	for c.used > capacity {
		c.evict(c.victim(-1))
	}
	return c.moves
}

// SetAhead changes how many segments the caller can load and use at the same time; see [New].
func (c *Cache) SetAhead(n int) { c.ahead = max(1, n) }

// Resident reports whether segment id is resident, or will be when all moves are executed.
func (c *Cache) Resident(id int32) bool { return c.place[id] >= 0 }

// Stats returns the counters.
func (c *Cache) Stats() Stats { return c.stats }
