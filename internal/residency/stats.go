package residency

import (
	"sync/atomic"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/residency/policy"
)

// Stats holds the counters of a store.
type Stats struct {
	TierBytes map[devicemap.Device]int64 // size of the weights on each tier
	ReadBytes int64                      // bytes read from the disk tier so far
	Stall     time.Duration              // time that passes have waited for weights of the disk tier
	Experts   policy.Stats               // requests for experts of the disk tier
	CPU, Disk TierStats
	Mover     MoverStats // of all stores that share it
	Depth     int        // maximum number of reads in flight
}

// TierStats counts hits and misses of the weights of a tier. On the disk tier, a hit is a unit or
// an expert that was still in memory, and a miss is one that was read. On the cpu tier, a hit is
// a parameter or an expert in the store's own memory, and a miss is one that was used in the
// file's mapping or converted again.
type TierStats struct {
	policy.Stats
	Stall time.Duration // time that passes have waited
}

// counts are the counters of the cpu tier.
type counts struct {
	hits, misses, evictions, stalled atomic.Int64

	bytes atomic.Int64 // of cpu-tier weights that units have used

	used, uncopied, read int64 // by the running unit
}

// use counts the use of a parameter or an expert by the running unit.
func (c *counts) use(copied bool) {
	c.used++
	if !copied {
		c.uncopied++
	}
}

// publish adds the counts of the running unit.
func (c *counts) publish() {
	c.hits.Add(c.used - c.uncopied)
	c.misses.Add(c.uncopied)
	c.bytes.Add(c.read)
	c.used, c.uncopied, c.read = 0, 0, 0
}

func (c *counts) stall(d time.Duration) {
	if d > 0 {
		c.stalled.Add(int64(d))
	}
}

// ReadBytes returns the bytes read from the disk tier so far. It is safe for concurrent use.
func (s *Store) ReadBytes() int64 { return s.bytesRead.Load() }

// ExpertStats returns the requests for experts of the disk tier so far. It does not allocate.
func (s *Store) ExpertStats() policy.Stats {
	if s.experts == nil {
		return policy.Stats{}
	}
	return s.experts.cached()
}

// Stats returns the counters. It is safe for concurrent use.
func (s *Store) Stats() Stats {
	c := &s.counts
	out := Stats{TierBytes: s.tiers, ReadBytes: s.bytesRead.Load(), CPU: TierStats{
		policy.Stats{Hits: c.hits.Load(), Misses: c.misses.Load(), Evictions: c.evictions.Load()}, time.Duration(c.stalled.Load())}}
	add := func(n policy.Stats, stall time.Duration) {
		out.Disk.Stall += stall
		out.Disk.Hits, out.Disk.Misses, out.Disk.Evictions = out.Disk.Hits+n.Hits, out.Disk.Misses+n.Misses, out.Disk.Evictions+n.Evictions
	}
	for _, st := range s.streams {
		add(st.stats())
	}
	if s.experts != nil {
		out.Experts = s.experts.cached()
		add(out.Experts, s.experts.stalled())
	}
	out.Stall, out.Mover = out.Disk.Stall, s.mover.Stats()
	out.Depth, _ = s.mover.Depth()
	return out
}

// PassReads describes what a pass reads through the streams of the disk tier if no weight is
// still in memory. It excludes experts.
type PassReads struct {
	Bytes int64
	Gaps  int64 // maximum part of Bytes that lies between regions that are read together
	Ahead int64 // maximum that is read ahead for the next pass
}

// PassReads must not be called during a pass.
func (s *Store) PassReads() (out PassReads) {
	for _, st := range s.streams {
		out.Ahead += int64(len(st.window))
		for _, g := range st.groups {
			out.Bytes += g.load.read
			out.Gaps += int64(len(g.places)-len(g.extents)) * readGap
		}
	}
	return out
}
