package residency

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/meta"
)

// A stack is a module whose parameters have one slab per expert. Each expert is placed and streamed
// separately.
type stack struct {
	Node
	params  []*meta.Param
	experts []expert
	convert bool // some parameters are converted to the store's format
	first   int  // ring id of expert 0
}

// An expert is one slab of each parameter of its stack. It is looked up at first use.
type expert struct {
	device devicemap.Device
	known  bool
	pieces []stored.Piece
	parts  [][]backend.Part // by parameter

	promoted atomic.Pointer[promotion] // set by the promoter
	taken    bool                      // parts refer to the promoted or the converted copy

	converted atomic.Pointer[conversion]
}

// A slab is the location of a stacked parameter.
type slab struct {
	stack *stack
	param int
}

func (s *Store) addStack(n Node) error {
	st := &stack{Node: n, first: s.expertLoads()}
	count := 0
	for _, p := range n.Module.Params {
		p = p.Resolve()
		if count != 0 && p.Shape[0] != count {
			return fmt.Errorf("residency: %s.%s has %d experts, want %d as in the stack's other parameters", n.Path, p.Name, p.Shape[0], count)
		}
		count = p.Shape[0]
		st.params = append(st.params, p)
	}
	st.experts = make([]expert, count)
	for e := range st.experts {
		var err error
		if st.experts[e].device, err = s.tier(expertKey(n.Path, e)); err != nil {
			return err
		}
	}
	for i, p := range st.params {
		s.slabs[p] = slab{st, i}
		st.convert = st.convert || s.converts(p)
		for e := range st.experts {
			s.tiers[st.experts[e].device] += s.quantizer.size(p) / int64(count)
			if s.sidecar != nil {
				continue
			}
			if err := s.quantizer.check(p, expertKey(n.Path, e), st.experts[e].device); err != nil {
				return err
			}
		}
	}
	s.stacks[n.Module] = st
	s.stackOrder = append(s.stackOrder, st)
	return nil
}

// expertLoads returns the number of experts so far, which is the next ring id.
func (s *Store) expertLoads() int {
	n := 0
	for _, st := range s.stackOrder {
		n += len(st.experts)
	}
	return n
}

// largestExpert returns the slot size for the largest streamed expert, and the number of streamed
// experts.
func (s *Store) largestExpert() (largest int64, streamed int) {
	for _, st := range s.stackOrder {
		n := 0
		for e := range st.experts {
			if st.experts[e].device == devicemap.Disk {
				n++
			}
		}
		if n == 0 {
			continue
		}
		streamed += n
		var size int64
		for _, p := range st.params {
			for _, piece := range s.expertPieces(p, 0) {
				size += piece.Size + int64(len(piece.Ranges))*(2*blockSize+readGap) // the ends of direct reads, and gaps between them
			}
		}
		largest = max(largest, int64(hostmem.Up(int(size), blockSize)))
	}
	return largest, streamed
}

// know finds the pieces of expert e.
func (s *Store) know(st *stack, e int) *expert {
	x := &st.experts[e]
	if x.known {
		return x
	}
	x.parts = make([][]backend.Part, len(st.params))
	for i, param := range st.params {
		for _, p := range s.expertPieces(param, e) {
			x.pieces = append(x.pieces, p)
			x.parts[i] = append(x.parts[i], p.Part)
		}
	}
	x.known = true
	return x
}

// expertPieces returns the pieces of expert e's slab of p: those of the sidecar, or as stored.
func (s *Store) expertPieces(p *meta.Param, e int) []stored.Piece {
	if s.sidecar != nil && s.quantizer.takes(p) {
		return s.sidecar.pieces[sideKey{p, e}]
	}
	return s.sourcePieces(p, e)
}

// sourcePieces returns the pieces of expert e's slab of p as stored: separate tensors, or a slab of
// a stacked tensor.
func (s *Store) sourcePieces(p *meta.Param, e int) []stored.Piece {
	var out []stored.Piece
	for _, part := range s.binding.ExpertTensors(p, e) {
		out = append(out, stored.New(part))
	}
	if out == nil {
		for _, part := range s.binding.Tensors(p) {
			out = append(out, stored.New(part).Slab(e))
		}
	}
	return out
}

// WantExperts prefetches the streamed ones among experts of m, in order.
func (s *Store) WantExperts(m *meta.Module, experts []int32) {
	st := s.stacks[m]
	if st == nil || s.experts == nil {
		return
	}
	s.expertWishes = s.expertWishes[:0]
	for _, e := range experts {
		if int(e) < len(st.experts) && st.experts[e].device == devicemap.Disk {
			s.prepare(st, int(e))
			s.expertWishes = append(s.expertWishes, st.first+int(e))
		}
	}
	s.wanted = s.expertWishes
	s.experts.wish(s.wanted)
}

// prepare makes the load of expert e before the reader needs it.
func (s *Store) prepare(st *stack, e int) *load {
	id := st.first + e
	if l := s.experts.loads[id]; l != nil {
		return l
	}
	x := s.know(st, e)
	var regions []region
	for i := range x.pieces {
		regions = addRegions(regions, &x.pieces[i])
	}
	l := newLoad(regions)
	l.jobs = s.loadJobs(regions)
	s.experts.loads[id] = l
	return s.experts.loads[id]
}

// HoldExperts makes the first n of experts of m resident and releases the experts held before. If
// they are on the cpu tier, n is all of them; otherwise n is the number of experts read so far, at
// least one, while the reader continues with the next ones.
func (s *Store) HoldExperts(m *meta.Module, experts []int32) (int, error) {
	st := s.stacks[m]
	s.releaseExperts()
	n := 0
	for n < len(experts) {
		e := int(experts[n])
		if st == nil || e < 0 || e >= len(st.experts) {
			return 0, fmt.Errorf("residency: expert %d does not exist in this stack", e)
		}
		ok, err := s.holdExpert(st, e, n == 0)
		if err != nil && n == 0 {
			return 0, err
		}
		if err != nil || !ok { // perhaps the next time, when it is the first
			break
		}
		n++
	}
	if len(s.heldExperts) > 0 {
		s.wanted = after(s.wanted, s.heldExperts[len(s.heldExperts)-1])
		s.experts.wish(s.wanted)
	}
	return n, nil
}

// holdExpert makes expert e of st resident. Without wait it reports false if the expert is not yet
// read.
func (s *Store) holdExpert(st *stack, e int, wait bool) (bool, error) {
	x := s.know(st, e)
	if x.device != devicemap.Disk {
		return true, s.expertInMemory(st, x, e)
	}
	l, id := s.prepare(st, e), st.first+e
	if !wait && len(s.heldExperts)+1 >= len(s.experts.slots) { // leaves one slot for the reader
		return false, nil
	}
	slot, err := s.experts.hold(id, wait)
	if err != nil {
		return false, fmt.Errorf("residency: %s: %w", expertKey(st.Path, e), err)
	}
	if slot == nil {
		return false, nil
	}
	s.heldExperts = append(s.heldExperts, id)
	k, at := 0, 0
	for i := range x.parts {
		for j := range x.parts[i] {
			inSlot(&x.pieces[k], &x.parts[i][j], slot, l.places[at:])
			at += len(x.pieces[k].Ranges)
			k++
		}
	}
	return true, nil
}

// expertInMemory sets the parts of x, expert e of st, to its bytes in memory.
func (s *Store) expertInMemory(st *stack, x *expert, e int) error {
	if err := s.takeUpExpert(st, x, e); err != nil {
		return err
	}
	k := 0
	for i := range x.parts {
		for j := range x.parts[i] {
			if part := &x.parts[i][j]; part.Data == nil {
				if err := s.makePieces(context.Background(), x.pieces[k:k+1]); err != nil {
					return err
				}
				if err := x.pieces[k].InPlace(part); err != nil {
					return err
				}
			}
			k++
		}
	}
	return nil
}

// takeUpExpert sets the parts of x, expert e of st, to a promoted copy if there is one, or to the
// converted copy, which it makes if needed.
func (s *Store) takeUpExpert(st *stack, x *expert, e int) error {
	if x.taken {
		return nil
	}
	if st.convert {
		made, err := s.convertExpert(context.Background(), st, e)
		if err != nil {
			return err
		}
		for k := range made.parts {
			if made.parts[k].Data != nil {
				*x.part(k) = made.parts[k]
			}
		}
		x.taken = true
	} else if made := x.promoted.Load(); made != nil {
		made.takeUp(x.pieces, x.part)
		x.taken = true
	}
	return nil
}

// part returns the part of piece k.
func (x *expert) part(k int) *backend.Part {
	for i := range x.parts {
		if k < len(x.parts[i]) {
			return &x.parts[i][k]
		}
		k -= len(x.parts[i])
	}
	return nil
}

// after returns the wishes that follow id, or all of them if id is not among them.
func after(wishes []int, id int) []int {
	for i, w := range wishes {
		if w == id {
			return wishes[i+1:]
		}
	}
	return wishes
}

func (s *Store) releaseExperts() {
	for _, id := range s.heldExperts {
		s.experts.release(id)
	}
	s.heldExperts = s.heldExperts[:0]
}

func (s *Store) expertParts(p *meta.Param, e int) []backend.Part {
	at, ok := s.slabs[p]
	if !ok || e >= len(at.stack.experts) || at.stack.experts[e].parts == nil {
		return nil
	}
	return at.stack.experts[e].parts[at.param]
}
