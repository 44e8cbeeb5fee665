package residency

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heftai/heft/internal/hostmem"
)

// newKeeping is like newTestStream, with an arena for groups that are kept.
func newKeeping(t *testing.T, window int, sizes [][]int64, fail func(i byte) error) (*stream, *patternReader, *hostmem.Ledger) {
	t.Helper()
	s, r := newTestStream(t, window, sizes, fail)
	l := new(hostmem.Ledger)
	s.keep.arena = &hostmem.Arena{Ledger: l}
	return s, r, l
}

// runAll runs all units in order.
func runAll(t *testing.T, s *stream, sizes [][]int64) {
	t.Helper()
	for i := range sizes {
		order := make([]int, len(sizes[i]))
		for k := range order {
			order[k] = k
		}
		if err := runUnit(t, s, i, order); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeptGroupsAreNotReadAgain: spare memory was not used for streamed weights. A pass must read
// only what exceeds the budget, and the kept groups are spread over the units.
func TestKeptGroupsAreNotReadAgain(t *testing.T) {
	sizes := [][]int64{{10, 3}, {10, 3}, {10, 3}, {10, 3}, {}}
	for budget, want := range map[int64]int64{0: 52, 9: 43, 12: 42, 20: 32, 45: 9, 52: 0, 90: 0} {
		s, r, l := newKeeping(t, 20, sizes, nil)
		rest := s.setBudget(budget)
		if want := max(0, budget-52); rest != want {
			t.Errorf("a budget of %d: %d bytes are left, want %d", budget, rest, want)
		}
		for range 2 {
			runAll(t, s, sizes)
		}
		before := r.bytes.Load()
		const passes = 10
		for range passes {
			runAll(t, s, sizes)
		}
		s.close()
		if n := r.bytes.Load() - before; n < passes*want-20 || n > passes*want+20 {
			t.Errorf("a budget of %d: %d bytes read in %d passes, want %d each", budget, n, passes, want)
		}
		if l.Total() != 0 {
			t.Errorf("%d bytes are held after close", l.Total())
		}
	}
	s, _, _ := newKeeping(t, 20, sizes, nil)
	s.setBudget(20)
	runAll(t, s, sizes)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, unit := range []int{0, 2} {
		if g := s.groups[s.first[unit]]; !g.chosen {
			t.Errorf("the first matrix of unit %d is not kept: the kept ones are not spread", unit)
		}
	}
}

// TestKeptGroupsReturnTheirMemoryAtOnce: a lower budget frees memory before setBudget returns,
// except for the unit that runs.
func TestKeptGroupsReturnTheirMemoryAtOnce(t *testing.T) {
	sizes := [][]int64{{10, 3}, {10, 3}, {10, 3}, {10, 3}}
	s, _, _ := newKeeping(t, 13, sizes, nil)
	s.setBudget(52)
	for range 2 {
		runAll(t, s, sizes)
	}
	if err := s.begin(1); err != nil {
		t.Fatal(err)
	}
	held, err := s.hold(s.first[1])
	if err != nil {
		t.Fatal(err)
	}
	s.setBudget(0)
	if n := s.keep.held; n != 13 {
		t.Errorf("%d bytes are kept with a budget of 0 while a unit of 13 runs", n)
	}
	if held[0] != 3 {
		t.Errorf("a group that is held has changed to %d", held[0])
	}
	s.release(1)
	if n := s.keep.held; n != 0 {
		t.Errorf("%d bytes are kept after the unit has run", n)
	}
	runAll(t, s, sizes)
}

// TestAnyBudgetKeepsTheBytes: over random sizes, windows, budgets that change at any moment, orders of
// use, jumps and reads that fail, a group that is held has its own bytes, and no unit waits for ever.
func TestAnyBudgetKeepsTheBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(200) {
			r := rand.New(rand.NewPCG(seed, 14))
			var sizes [][]int64
			largest, all := int64(0), int64(1)
			for range 1 + r.IntN(7) {
				var unit []int64
				sum := int64(0)
				for range 1 + r.IntN(4) {
					unit = append(unit, 1+r.Int64N(40))
					sum += unit[len(unit)-1]
				}
				sizes, largest, all = append(sizes, unit), max(largest, sum), all+sum
			}
			broken := errors.New("broken")
			var fails atomic.Bool
			s, _, l := newKeeping(t, int(largest+r.Int64N(all-largest+1)), sizes, func(i byte) error {
				time.Sleep(time.Duration(i%5) * time.Millisecond)
				if fails.Load() && i%3 == 0 {
					return broken
				}
				return nil
			})
			budgets := rand.New(rand.NewPCG(seed, 15))
			stop, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(budgets.IntN(12)) * time.Millisecond):
						s.setBudget(budgets.Int64N(all + 10))
					}
				}
			}()
			for pass := range 8 {
				fails.Store(pass == 3)
				for i := range sizes {
					err := runUnit(t, s, i, r.Perm(len(sizes[i])))
					if err != nil && (pass != 3 || !errors.Is(err, broken)) {
						t.Fatalf("seed %d, pass %d, unit %d of %v: %v", seed, pass, i, sizes, err)
					}
					if err != nil || pass == 4 && r.IntN(3) == 0 {
						break // the next pass begins anew
					}
				}
			}
			close(stop)
			<-ended
			s.close()
			if l.Total() != 0 {
				t.Fatalf("seed %d: %d bytes are held after close", seed, l.Total())
			}
		}
	})
}
