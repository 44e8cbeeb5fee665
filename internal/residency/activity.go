package residency

import (
	"sync/atomic"

	"github.com/heftai/heft/devicemap"
)

// A unitActivity counts the activity of one unit. Passes and readers add to it; any goroutine may
// read it.
type unitActivity struct {
	tiers map[devicemap.Device]int64 // size of its weights on each tier; fixed when New returns
	runs  atomic.Int64
	read  atomic.Int64 // bytes read from the disk tier
}

// readFromDisk adds n bytes. It does nothing on a nil receiver.
func (a *unitActivity) readFromDisk(n int64) {
	if a != nil {
		a.read.Add(n)
	}
}

// UnitActivity is the activity of a unit since New.
type UnitActivity struct {
	Runs int64 // passes that have acquired it
	Read int64 // bytes of its weights that were read from the disk tier
}

// count adds weights to the unit that New assigns to tiers.
func (s *Store) count(d devicemap.Device, size int64) {
	s.tiers[d] += size
	a := s.activity[len(s.activity)-1]
	if a.tiers == nil {
		a.tiers = map[devicemap.Device]int64{}
	}
	a.tiers[d] += size
}

// UnitTiers returns the bytes of unit i on each tier. A weight that several units share is
// counted in the first of them. The caller must not change the map.
func (s *Store) UnitTiers(i int) map[devicemap.Device]int64 { return s.activity[i].tiers }

// Activity appends the activity of each unit to a. It also returns the bytes of cpu-tier weights
// that passes have used, and the bytes that were read from the disk tier. It is safe for
// concurrent use.
func (s *Store) Activity(a []UnitActivity) (units []UnitActivity, memory, disk int64) {
	for _, u := range s.activity {
		a = append(a, UnitActivity{Runs: u.runs.Load(), Read: u.read.Load()})
	}
	return a, s.counts.bytes.Load(), s.bytesRead.Load()
}
