package residency

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/residency/policy"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/meta"
)

// A stack is a module whose parameters have one slab per expert. Each expert is placed and streamed
// separately.
type stack struct {
	Node
	params  []*meta.Param
	experts []segment
	convert bool // some parameters are converted to the store's format
	first   int  // load number of expert 0
	layer   int  // index among the stacks
	unit    *unitActivity
}

// A slab is the location of a stacked parameter.
type slab struct {
	stack *stack
	param int
}

func (s *Store) addStack(n Node) error {
	st := &stack{Node: n, first: s.expertLoads(), layer: len(s.stackOrder), unit: s.activity[len(s.activity)-1]}
	count := 0
	for _, p := range n.Module.Params {
		if p = p.Resolve(); s.skips(p) {
			continue
		}
		if count != 0 && p.Shape[0] != count {
			return fmt.Errorf("residency: %s.%s has %d experts, want %d as in the stack's other parameters", n.Path, p.Name, p.Shape[0], count)
		}
		count = p.Shape[0]
		st.params = append(st.params, p)
	}
	if st.params == nil {
		return nil
	}
	again := s.convertsAgain && slices.ContainsFunc(st.params, s.quantizer.selects)
	st.experts = make([]segment, count)
	for e := range st.experts {
		g := &st.experts[e]
		g.path, g.stack, g.expert = expertKey(n.Path, e), st, e
	}
	for e := range s.own(n.Module, count) { // others have no tier
		g, err := &st.experts[e], error(nil)
		if g.device, err = s.tier(g.path); err != nil {
			return err
		}
		if again {
			g.device = devicemap.CPU
		}
	}
	for i, p := range st.params {
		s.slabs[p] = slab{st, i}
		st.convert = st.convert || s.converts(p)
		for e := range s.own(n.Module, count) { // whose sizes may differ by some bytes
			s.count(st.experts[e].device, s.quantizer.size(p)*int64(e+1)/int64(count)-s.quantizer.size(p)*int64(e)/int64(count))
			if s.sidecar != nil {
				continue
			}
			if err := s.quantizer.check(p, expertKey(n.Path, e), st.experts[e].device); err != nil {
				return err
			}
		}
	}
	for e := range st.experts {
		st.experts[e].convert = st.convert
	}
	s.stacks[n.Module] = st
	s.stackOrder = append(s.stackOrder, st)
	return nil
}

// own yields the experts of a stack, numbered up to count, that the store manages itself.
func (s *Store) own(stack *meta.Module, count int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for e := range count {
			if (s.away == nil || !s.away(stack, e)) && !yield(e) {
				return
			}
		}
	}
}

// expertLoads returns the number of experts so far, which is the next load number.
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
	if s.whole {
		return 0, 0
	}
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
		for e := range s.own(st.Module, len(st.experts)) {
			if largest = max(largest, s.slotSize(st, e)); s.sidecar == nil || !s.sidecar.somePlain {
				break // all have the same size
			}
		}
	}
	return largest, streamed
}

// slotSize returns the size of a slot for expert e.
func (s *Store) slotSize(st *stack, e int) (size int64) {
	for _, p := range st.params {
		for _, piece := range s.expertPieces(p, e) {
			size += piece.Size + int64(len(piece.Ranges))*(2*blockSize+readGap) // the ends of direct reads, and gaps between them
		}
	}
	return int64(hostmem.Up(int(size), blockSize))
}

// expertPieces returns the pieces of expert e's slab of p, in the sidecar or as stored.
func (s *Store) expertPieces(p *meta.Param, e int) []stored.Piece {
	if s.sidecar != nil && s.quantizer.selects(p) {
		return s.sidecar.pieces[sideKey{p, e}]
	}
	return s.sourcePieces(p, e)
}

// sourcePieces returns the pieces of expert e's slab of p as stored: separate tensors, or a slab
// of a stacked tensor.
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

// WantExperts requests all the given experts of m that are streamed and not in memory, at once.
func (s *Store) WantExperts(m *meta.Module, experts []int32) {
	st := s.stacks[m]
	if st != nil && s.recorder != nil {
		s.recorder.Record(st.layer, experts)
	}
	if st == nil || s.experts == nil {
		return
	}
	s.guesses.judge(st, experts)
	s.requested, s.segments = s.requested[:0], s.segments[:0]
	for _, e := range experts {
		if int(e) < len(st.experts) && st.experts[e].device == devicemap.Disk {
			s.expertLoad(st, int(e))
			s.requested = append(s.requested, st.first+int(e))
			s.segments = append(s.segments, e)
		}
	}
	s.experts.forget(s.requested)
	s.experts.choose(st.layer, s.segments, s.requested)
	s.experts.request(s.requested, Demand)
}

// expertCache returns the policy that decides which experts stay in the given number of slots.
func (s *Store) expertCache(slots int) *policy.Cache {
	var layers []policy.Layer
	for _, st := range s.stackOrder {
		layers = append(layers, policy.Layer{Segments: len(st.experts), Size: 1})
	}
	if s.policy.Experts != nil {
		return s.policy.Experts(layers, int64(slots), policy.Ahead(slots))
	}
	return policy.New(layers, int64(slots), policy.Ahead(slots))
}

// RecordExperts starts to record which experts are requested, on any tier. nil stops it.
func (s *Store) RecordExperts(r *policy.Recorder) { s.recorder = r }

// expertLoad creates the load of expert e before its slot needs it. It is safe for concurrent
// use.
func (s *Store) expertLoad(st *stack, e int) *load {
	id := st.first + e
	if l := s.experts.load(id); l != nil {
		return l
	}
	g := &st.experts[e]
	s.find(g)
	var regions []region
	for i := range g.pieces {
		regions = addRegions(regions, &g.pieces[i])
	}
	l := newLoad(regions, false)
	l.unit = st.unit
	l.jobs = s.loadJobs(regions)
	return s.experts.setLoad(id, l)
}

// HoldExperts waits until at least one of the given experts of m is in memory. It moves the
// experts in memory to the front of the slice, returns their number, and releases the experts
// that it returned before. Experts on the cpu tier are always in memory. Others are held as long
// as a slot remains to read the rest into.
func (s *Store) HoldExperts(m *meta.Module, experts []int32) (int, error) {
	st := s.stacks[m]
	if st == nil {
		return 0, fmt.Errorf("residency: no experts in this module")
	}
	s.releaseExperts()
	for {
		n, err := s.holdLoaded(st, experts)
		if n > 0 || err != nil {
			return n, err
		}
		s.experts.await()
	}
}

// holdLoaded moves the given experts that are in memory to the front, and holds them.
func (s *Store) holdLoaded(st *stack, experts []int32) (int, error) {
	n := 0
	s.later = s.later[:0]
	for _, e := range experts {
		if e < 0 || int(e) >= len(st.experts) {
			return 0, fmt.Errorf("residency: expert %d does not exist in %s, which has %d", e, st.Path, len(st.experts))
		}
		loaded, err := s.holdExpert(st, int(e))
		if err != nil {
			return 0, fmt.Errorf("residency: %s: %w", expertKey(st.Path, int(e)), err)
		}
		if loaded {
			experts[n] = e
			n++
		} else {
			s.later = append(s.later, e)
		}
	}
	copy(experts[n:], s.later)
	if len(s.heldExperts) > 0 {
		s.requested = slices.DeleteFunc(s.requested, func(id int) bool { return slices.Contains(s.heldExperts, id) })
		s.experts.request(s.requested, Demand)
	}
	return n, nil
}

// holdExpert makes expert e of st resident. It returns false if the expert was not read yet.
func (s *Store) holdExpert(st *stack, e int) (bool, error) {
	g := &st.experts[e]
	switch {
	case g.device == "":
		return false, errors.New("another device has the expert")
	case g.device != devicemap.Disk:
		return true, s.useCounted(g)
	case g.place == coming:
		return true, s.arrive(g)
	case s.whole:
		return true, nil
	}
	l, id := s.expertLoad(st, e), st.first+e
	if held := len(s.heldExperts); held > 0 && held == s.experts.size()-1 && s.experts.waiting() > 0 {
		return false, nil // leave a slot to read into
	}
	slot, err := s.experts.hold(id)
	if slot == nil {
		return false, err
	}
	s.heldExperts = append(s.heldExperts, id)
	g.showSlot(slot, l.places)
	return true, nil
}

func (s *Store) releaseExperts() {
	for _, id := range s.heldExperts {
		s.experts.release(id)
	}
	s.heldExperts = s.heldExperts[:0]
}

func (s *Store) expertParts(p *meta.Param, e int) []backend.Part {
	at, ok := s.slabs[p]
	if !ok || e >= len(at.stack.experts) || at.stack.experts[e].place == inFile {
		return nil
	}
	g := &at.stack.experts[e]
	begin, end := g.firstPiece[at.param], g.firstPiece[at.param+1]
	return s.plainParts(g.pieces[begin:end], g.parts[begin:end], &s.plainBlocks)
}
