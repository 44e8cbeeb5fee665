package sharded

import (
	"fmt"
	"maps"
	"slices"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/optim"
)

// Gather collects the whole state on all ranks, for the next call of [Optimizer.State].
func (s *Optimizer) Gather() error {
	state := s.Optimizer.(optim.Stateful).State()
	if s.group.Comm.Size() == 1 {
		s.gathered = &state
		return nil
	}
	if s.Whole() {
		return s.gatherWhole(state)
	}
	if d := s.keeps(); d != nil {
		return s.gatherKept(d, state)
	}
	for i := range state.Params {
		x := s.shards[i]
		whole := map[string][]float32{}
		for name, part := range state.Params[i].Slots {
			whole[name] = part
		}
		// A rank without a part of this parameter has no slots for it, or empty ones.
		all, err := collective.AllGather(s.ctx, s.group.Comm, shardState{x.Lo, state.Params[i].Step, whole})
		if err != nil {
			return fmt.Errorf("train: state of the optimizer: %w", err)
		}
		state.Params[i] = join(all, x.Param.Len())
	}
	s.gathered = &state
	return nil
}

// gatherWhole is Gather for ranks in one process: each rank gets the memory of the rank that
// holds the state of a parameter. No rank may step before the state was used.
func (s *Optimizer) gatherWhole(state optim.OptimizerState) error {
	all, err := collective.Exchange(s.ctx, s.group.Comm, state.Params)
	if err != nil {
		return fmt.Errorf("train: state of the optimizer: %w", err)
	}
	joined := make([]optim.ParamState, len(state.Params))
	for i := range joined {
		joined[i] = all[s.group.Owner(s.shards[i].Param)][i]
	}
	state.Params = joined
	s.gathered = &state
	return collective.Settle(s.group.Comm)
}

// gatherKept is Gather for state outside memory. Rank 0 stores the whole state outside memory
// too. The ranks exchange one piece of a slot at a time.
func (s *Optimizer) gatherKept(d *optim.Descent, state optim.OptimizerState) error {
	if s.whole == nil {
		s.whole = make([]map[string]optim.Pieces, len(s.shards))
	}
	for i := range state.Params {
		p, err := s.gatherParam(d, i, state.Params[i])
		if err != nil {
			return fmt.Errorf("train: state of the optimizer: parameter %d: %w", i, err)
		}
		state.Params[i] = p
	}
	s.gathered = &state
	return nil
}

// keptState describes a rank's state of a parameter: its pieces by slot.
type keptState struct {
	Lo     int
	Step   int64
	Pieces map[string]int
}

func (s *Optimizer) gatherParam(d *optim.Descent, i int, own optim.ParamState) (optim.ParamState, error) {
	x, comm := s.shards[i], s.group.Comm
	mine := keptState{Lo: x.Lo, Step: own.Step, Pieces: map[string]int{}}
	for name, k := range own.Kept {
		mine.Pieces[name] = len(k)
	}
	all, err := collective.AllGather(s.ctx, comm, mine)
	if err != nil {
		return own, err
	}
	out, most := optim.ParamState{}, map[string]int{}
	for _, r := range all {
		out.Step = max(out.Step, r.Step)
		for name, n := range r.Pieces {
			most[name] = max(most[name], n)
		}
	}
	if comm.Rank() == 0 && len(most) > 0 && s.whole[i] == nil {
		s.whole[i] = map[string]optim.Pieces{}
	}
	for _, name := range slices.Sorted(maps.Keys(most)) {
		if comm.Rank() == 0 && s.whole[i][name] == nil {
			s.whole[i][name] = d.NewPieces(name, x.Param.Len())
		}
		at := x.Lo
		for k := range most[name] {
			n, err := s.gatherPiece(s.whole[i][name], own.Kept[name], k, at)
			if err != nil {
				return own, err
			}
			at += n
		}
	}
	out.Kept = s.whole[i]
	return out, nil
}

// piece is a piece of a slot with the index of its first element in the whole slot.
type piece struct {
	At     int
	Values []float32
}

// gatherPiece exchanges piece k of a slot, which rank 0 stores in whole. It returns the length of
// the piece.
func (s *Optimizer) gatherPiece(whole, own optim.Pieces, k, at int) (n int, err error) {
	var values []float32
	if k < len(own) {
		n = own[k].Len()
		if values, err = own[k].Acquire(false); err != nil {
			return n, err
		}
	}
	all, err := collective.AllGather(s.ctx, s.group.Comm, piece{at, values})
	if k < len(own) {
		if e := own[k].Release(false); err == nil {
			err = e
		}
	}
	for _, p := range all {
		if whole == nil || err != nil {
			break
		}
		err = whole.Put(p.At, p.Values)
	}
	return n, err
}

// shardState is a rank's state of one parameter.
type shardState struct {
	Lo    int
	Step  int64
	Slots map[string][]float32
}

func join(all []shardState, n int) optim.ParamState {
	p := optim.ParamState{Slots: map[string][]float32{}}
	for _, x := range all {
		p.Step = max(p.Step, x.Step)
		for name, part := range x.Slots {
			if p.Slots[name] == nil {
				p.Slots[name] = make([]float32, n)
			}
			copy(p.Slots[name][x.Lo:], part)
		}
	}
	return p
}

// State returns the whole state on the first call after Gather, and otherwise the state of this
// rank's shards.
func (s *Optimizer) State() optim.OptimizerState {
	if s.gathered != nil {
		state := *s.gathered
		s.gathered = nil
		return state
	}
	return s.ShardState()
}

// ShardState returns the state of this rank's shards.
func (s *Optimizer) ShardState() optim.OptimizerState {
	return s.Optimizer.(optim.Stateful).State()
}

// LoadState restores this rank's part of a whole state.
func (s *Optimizer) LoadState(state optim.OptimizerState) error {
	part := state
	part.Params = nil
	for i, p := range state.Params {
		if i >= len(s.shards) {
			return fmt.Errorf("train: load state: got %d parameters, want %d", len(state.Params), len(s.shards))
		}
		x := s.shards[i]
		if x.Whole() {
			if x.Len() == 0 && x.Param.Len() > 0 { // another rank holds it
				p = optim.ParamState{Step: p.Step}
			}
			part.Params = append(part.Params, p)
			continue
		}
		for _, name := range p.Names() {
			if n := p.Len(name); n != x.Param.Len() {
				return fmt.Errorf("train: load state: parameter %d: %s has %d elements, want %d", i, name, n, x.Param.Len())
			}
		}
		own, err := partOf(p, x.Lo, x.Hi)
		if err != nil {
			return fmt.Errorf("train: load state: parameter %d: %w", i, err)
		}
		part.Params = append(part.Params, own)
	}
	return s.Optimizer.(optim.Stateful).LoadState(part)
}

// partOf returns elements lo to hi of the state of one parameter.
func partOf(p optim.ParamState, lo, hi int) (optim.ParamState, error) {
	part := optim.ParamState{Step: p.Step, Slots: map[string][]float32{}}
	for _, name := range p.Names() {
		if whole, ok := p.Slots[name]; ok {
			part.Slots[name] = whole[lo:hi]
			continue
		}
		x := make([]float32, hi-lo)
		err := p.Each(name, func(at int, values []float32) error {
			if from, to := max(at, lo), min(at+len(values), hi); from < to {
				copy(x[from-lo:], values[from-at:to-at])
			}
			return nil
		})
		if err != nil {
			return part, err
		}
		part.Slots[name] = x
	}
	return part, nil
}

// LoadShardState restores a state of this rank's shards.
func (s *Optimizer) LoadShardState(state optim.OptimizerState) error {
	return s.Optimizer.(optim.Stateful).LoadState(state)
}
