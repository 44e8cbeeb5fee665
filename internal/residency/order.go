package residency

import "slices"

// An order is the order in which units are acquired, repeated cyclically. A unit may occur
// several times: training acquires blocks forwards and then backwards.
type order struct {
	loads  [][]*load // of each unit
	visits []int     // units in order
	visit  int       // index of the last acquired unit, -1 before the first
}

func newOrder(loads [][]*load) order {
	o := order{loads: loads, visits: make([]int, len(loads)), visit: -1}
	for i := range o.visits {
		o.visits[i] = i
	}
	return o
}

// Order sets the order in which units will be acquired from now on, repeated cyclically. The
// default is the order given to New. The disk tier is read ahead in this order. Units may be
// acquired in another order, but then wait for the disk. A new order drops data that was read
// ahead; an unchanged order costs nothing. No unit may be acquired.
func (s *Store) Order(units []int) {
	o := &s.order
	if s.stream == nil || slices.Equal(o.visits, units) {
		return
	}
	o.visits, o.visit = slices.Clone(units), -1
	var loads [][]*load
	seen := make([]bool, len(o.loads))
	for _, i := range units {
		list := o.loads[i]
		if seen[i] {
			list = slices.Clone(list)
			for k, l := range list { // the pieces of a load belong to one group
				again := *l
				again.pieces, again.request = nil, 0
				list[k] = &again
			}
		}
		seen[i] = true
		loads = append(loads, list)
	}
	s.stream.reorder(loads)
}

// enter returns the position of unit i in the order, searched from the last one on. It returns
// false if the order has no such unit.
func (o *order) enter(i int) (int, bool) {
	n := len(o.visits)
	for k := range n {
		if at := (o.visit + 1 + k) % n; o.visits[at] == i {
			o.visit = at
			return at, true
		}
	}
	return 0, false
}

// reorder drops all groups and continues with others.
func (s *stream) reorder(units [][]*load) {
	s.drain()
	s.restart(units, s.window)
}

// drain drops all groups. Nothing is read until restart.
func (s *stream) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
	s.jump()
	for s.count > 0 && !s.closed {
		s.starved = true
		s.sleep()
	}
}

// restart continues a drained stream with other groups and another window.
func (s *stream) restart(units [][]*load, window []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused = false; !s.closed {
		s.window = window
		s.setUnits(units)
	}
}
