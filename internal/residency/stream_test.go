package residency

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A patternReader fills load i with bytes of value i.
type patternReader struct {
	ids   map[*load]byte
	fail  func(i byte) error
	reads atomic.Int64
	bytes atomic.Int64
}

func (r *patternReader) prepare(*load) error        { return nil }
func (r *patternReader) finish(*load, []byte) error { return nil }

func (r *patternReader) read(l *load, piece int, b []byte) error {
	r.reads.Add(1)
	if r.fail != nil {
		if err := r.fail(r.ids[l]); err != nil {
			return err
		}
	}
	p := l.pieces[piece]
	for i := p.begin; i < p.end; i++ {
		b[i] = r.ids[l]
	}
	r.bytes.Add(p.end - p.begin)
	return nil
}

// newTestStream has groups of the given sizes, by unit.
func newTestStream(t *testing.T, window int, sizes [][]int64, fail func(i byte) error) (*stream, *patternReader) {
	t.Helper()
	r := &patternReader{ids: map[*load]byte{}, fail: fail}
	units := make([][]*load, len(sizes))
	for i, unit := range sizes {
		for _, n := range unit {
			l := &load{slot: n, request: 7}
			for at := int64(0); at < n; at += 7 {
				l.pieces = append(l.pieces, piece{0, at, min(at+7, n)})
			}
			r.ids[l] = byte(len(r.ids) + 1)
			units[i] = append(units[i], l)
		}
	}
	m := new(Mover)
	m.request = 7
	m.open()
	s := newStream(units, make([]byte, window), m, r)
	t.Cleanup(func() {
		s.close()
		m.close()
	})
	return s, r
}

// runUnit uses the groups of unit i in the given order, and checks all of them at the end.
func runUnit(t *testing.T, s *stream, i int, order []int) error {
	t.Helper()
	if err := s.begin(i); err != nil {
		return err
	}
	defer s.release(i)
	held := map[int][]byte{}
	for _, k := range order {
		b, err := s.hold(s.first[i] + k)
		if err != nil {
			return err
		}
		held[s.first[i]+k] = b
	}
	for k, b := range held {
		if int64(len(b)) != s.groups[k].slot {
			t.Fatalf("group %d has %d bytes, want %d", k, len(b), s.groups[k].slot)
		}
		for _, v := range b {
			if int(v) != k+1 {
				t.Fatalf("unit %d: group %d holds %d", i, k, v)
			}
		}
	}
	return nil
}

// TestHeldGroupsHaveTheirOwnBytes: a group has its own bytes while it is held, for random sizes, windows from the
// minimum up, orders of use, jumps, slow reads and reads that fail.
func TestHeldGroupsHaveTheirOwnBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(150) {
			r := rand.New(rand.NewPCG(seed, 9))
			var sizes [][]int64
			largest, all := int64(0), int64(0)
			for range 1 + r.IntN(6) {
				var unit []int64
				sum := int64(0)
				for range r.IntN(5) {
					unit = append(unit, 1+r.Int64N(40))
					sum += unit[len(unit)-1]
				}
				sizes, largest, all = append(sizes, unit), max(largest, sum), all+sum
			}
			if all == 0 {
				continue
			}
			window := largest + r.Int64N(all-largest+20)
			broken := errors.New("broken")
			var fails atomic.Bool
			s, _ := newTestStream(t, int(window), sizes, func(i byte) error {
				time.Sleep(time.Duration(i%5) * time.Millisecond)
				if fails.Load() && i%3 == 0 {
					return broken
				}
				return nil
			})
			for pass := range 6 {
				fails.Store(pass == 3)
				for i := range sizes {
					err := runUnit(t, s, i, r.Perm(len(sizes[i])))
					if err != nil && (pass < 3 || pass > 3) || err != nil && !errors.Is(err, broken) {
						t.Fatalf("seed %d, pass %d, unit %d of %v in %d: %v", seed, pass, i, sizes, window, err)
					}
					if err != nil || pass == 4 && r.IntN(3) == 0 {
						break // the next pass begins anew
					}
				}
			}
		}
	})
}

// TestStreamReadsEachGroupOnceAPass: nothing that was read ahead is thrown away, and a window that has
// room for all reads all once.
func TestStreamReadsEachGroupOnceAPass(t *testing.T) {
	sizes := [][]int64{{10, 3}, {20, 5, 5}, {}, {12}, {30}}
	for window, want := range map[int]int64{30: 20 * 85, 40: 20 * 85, 70: 20 * 85, 85: 85} {
		s, r := newTestStream(t, window, sizes, nil)
		for range 20 {
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
		s.close()
		if n := r.bytes.Load(); n < want || n > want+int64(window) {
			t.Errorf("a window of %d: %d bytes read in 20 passes, want %d and what is read ahead", window, n, want)
		}
	}
}

// TestComputingBeginsWithTheFirstMatrix: a unit ran when all of its weights were there.
func TestComputingBeginsWithTheFirstMatrix(t *testing.T) {
	gate := make(chan struct{})
	s, _ := newTestStream(t, 20, [][]int64{{5, 5, 5}}, func(i byte) error {
		if i == 3 {
			<-gate
		}
		return nil
	})
	if err := s.begin(0); err != nil {
		t.Fatal(err)
	}
	for k := range 2 {
		if _, err := s.hold(k); err != nil {
			t.Fatal(err)
		}
	}
	close(gate)
	if _, err := s.hold(2); err != nil {
		t.Fatal(err)
	}
	s.release(0)
}

func TestGroupsOfNeighbours(t *testing.T) {
	const big = 2 << 20
	at := func(path string, off, size int64) []region { return []region{{path: path, off: off, size: size}} }
	all := []located{
		locate(0, at("a", 0, 100)),         // a norm before a matrix
		locate(1, at("a", 8<<20, 100)),     // alone
		locate(2, at("a", 100, big)),       // its matrix
		locate(3, at("a", 100+big, big)),   // the next one
		locate(4, at("b", 0, 50)),          // alone
		locate(5, at("a", 100+2*big, 200)), // behind it
	}
	var got [][]int
	for _, g := range groupWants(all) {
		var wants []int
		for _, l := range g {
			wants = append(wants, l.want)
		}
		got = append(got, wants)
	}
	want := [][]int{{0, 2}, {1, 4}, {3, 5}}
	if len(got) != len(want) {
		t.Fatalf("groups %v, want %v", got, want)
	}
	for i := range want {
		if len(got[i]) != 2 || got[i][0] != want[i][0] || got[i][1] != want[i][1] {
			t.Errorf("groups %v, want %v", got, want)
		}
	}
}
