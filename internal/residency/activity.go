package residency

import (
	"sync/atomic"

	"github.com/heftai/heft/devicemap"
)

// A unitActivity counts what one unit does. Passes and readers add to it, anything may read it.
type unitActivity struct {
	tiers map[devicemap.Device]int64 // size of its weights on each tier; fixed when New returns
	runs  atomic.Int64
	read  atomic.Int64 // bytes read from the disk tier
}

// readFromDisk counts n bytes. A nil receiver counts nothing.
func (a *unitActivity) readFromDisk(n int64) {
	if a != nil {
		a.read.Add(n)
	}
}

// UnitActivity is what a unit has done since New.
type UnitActivity struct {
	Runs int64 // passes that have acquired it
	Read int64 // bytes of its weights that were read from the disk tier
}

// count adds weights of the unit that is sorted to a tier.
func (s *Store) count(d devicemap.Device, size int64) {
	s.tiers[d] += size
	a := s.activity[len(s.activity)-1]
	if a.tiers == nil {
		a.tiers = map[devicemap.Device]int64{}
	}
	a.tiers[d] += size
}

// UnitTiers returns the bytes of unit i on each tier. A weight that several units share counts for the
// first of them. The caller must not change the map.
func (s *Store) UnitTiers(i int) map[devicemap.Device]int64 { return s.activity[i].tiers }

// Activity appends what each unit has done to a, and returns how many bytes of weights of the cpu tier
// passes have used, and how many bytes were read from the disk tier. Any goroutine may call it.
func (s *Store) Activity(a []UnitActivity) (units []UnitActivity, memory, disk int64) {
	for _, u := range s.activity {
		a = append(a, UnitActivity{Runs: u.runs.Load(), Read: u.read.Load()})
	}
	return a, s.counts.bytes.Load(), s.bytesRead.Load()
}
