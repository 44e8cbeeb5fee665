package residency

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// training is the order of a step: forwards, the head, and backwards to the first unit.
func training(units, first int) []int {
	var order []int
	for i := range units {
		order = append(order, i)
	}
	for i := units - 2; i >= first; i-- {
		order = append(order, i)
	}
	return order
}

// TestAStepReadsOneSweepEachWay walks units forwards and backwards. Each streamed byte is read once
// per sweep, and read-ahead works in both directions.
func TestAStepReadsOneSweepEachWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const units, size, steps = 6, 70, 4
		order := training(units, 1)
		var sizes [][]int64
		for range order {
			sizes = append(sizes, []int64{size / 2, size / 2})
		}
		s, r := newTestStream(t, 2*size, sizes, func(byte) error {
			time.Sleep(time.Millisecond)
			return nil
		})
		var waited time.Duration
		for step := range steps {
			for at := range order {
				if err := runUnit(t, s, at, []int{0, 1}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				time.Sleep(20 * time.Millisecond) // computes longer than the next unit takes to read
			}
			if _, stall := s.stats(); step == 0 {
				waited = stall
			} else if stall != waited {
				t.Errorf("step %d waited for %v: units were not read ahead", step, stall-waited)
			}
		}
		want := int64(steps*len(order)*size) + 2*size // the window holds the next step's first units
		if n := r.bytes.Load(); n != want {
			t.Errorf("read %d bytes in %d steps of %d, want %d", n, steps, len(order)*size, want)
		}
	})
}

// TestReorderDropsWhatWasReadAhead: a new order began while reads for the old one were in flight.
// Groups behind one that ended at that moment stayed in the window, which waited for them forever.
func TestReorderDropsWhatWasReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sizes := [][]int64{{20}, {20, 20}, {20}, {20}}
		s, _ := newTestStream(t, 70, sizes, func(i byte) error {
			time.Sleep(time.Duration(i%3) * time.Millisecond)
			return nil
		})
		var loads [][]*load
		for u := range sizes {
			loads = append(loads, nil)
			for _, g := range s.groups[s.first[u]:s.first[u+1]] {
				loads[u] = append(loads[u], g.load)
			}
		}
		for pause := range 12 {
			if err := runUnit(t, s, pause%4, []int{0}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(pause) * 500 * time.Microsecond)
			s.reorder(loads)
			if s.count != 0 {
				t.Fatalf("%d groups are in the window of a new order", s.count)
			}
		}
	})
}

func TestOrderFindsTheNextPlaceOfAUnit(t *testing.T) {
	o := order{visits: training(4, 1), visit: -1} // 0 1 2 3 2 1
	var got []int
	for _, unit := range []int{0, 1, 2, 3, 2, 1, 0, 1, 0, 0, 3, 2, 1} {
		at, ok := o.enter(unit)
		if !ok {
			t.Fatal(unit)
		}
		got = append(got, at)
	}
	if want := []int{0, 1, 2, 3, 4, 5, 0, 1, 0, 0, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("got places %v, want %v", got, want)
	}
	if _, ok := o.enter(4); ok {
		t.Error("a unit that is not in the order has a place")
	}
}
