package residency

import (
	"context"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/residency/policy"
)

// primed is the maximum number of earlier requests that fillExperts learns from. They take some
// tens of milliseconds.
const primed = 1 << 19

// ExpectExperts sets the experts that an earlier process requested. Warm reads the most likely
// ones ahead. It ignores a trace of a model with other layers. Call it before Warm and before the
// first pass.
func (s *Store) ExpectExperts(t *policy.Trace) {
	if s.experts == nil || !slices.EqualFunc(t.Layers, s.stackOrder, func(l policy.Layer, st *stack) bool { return l.Segments == len(st.experts) }) {
		return
	}
	steps, work := t.Steps, 0
	for i := len(steps) - 1; i >= 0; i-- {
		if work += t.Layers[steps[i].Layer].Segments; work > primed {
			steps = steps[i+1:]
			break
		}
	}
	for _, step := range steps {
		s.experts.cache.Prime(step)
	}
}

// fillExperts reads experts of the disk tier into free slots, the most likely first, while no
// pass runs. It ends when the slots are full.
func (s *Store) fillExperts(ctx context.Context) {
	if s.experts == nil || s.whole {
		return
	}
	s.prepareExperts(ctx)
	s.experts.fill(ctx, s.whenQuiet(quietFor, busyWaits), func(id int) bool {
		st, e := s.expertOf(id)
		if st.experts[e].device != devicemap.Disk {
			return false
		}
		s.expertLoad(st, e)
		return true
	})
}

// prepareExperts creates the loads of all experts of the disk tier before tokens request them, so that
// tokens allocate nothing. A load takes about 1.5 KiB, which plans count.
func (s *Store) prepareExperts(ctx context.Context) {
	for _, st := range s.stackOrder {
		for e := range st.experts {
			if st.experts[e].device == devicemap.Disk && ctx.Err() == nil {
				s.expertLoad(st, e)
			}
		}
	}
}

// expertOf returns the expert with a load number.
func (s *Store) expertOf(id int) (*stack, int) {
	for _, st := range s.stackOrder {
		if id < st.first+len(st.experts) {
			return st, id - st.first
		}
	}
	panic("residency: no such expert")
}

// load returns the load id if it was created already, or nil.
func (r *expertSlots) load(id int) *load {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loads[id]
}

// setLoad stores a load and returns it. If another one was stored meanwhile, it returns that.
func (r *expertSlots) setLoad(id int, l *load) *load {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loads[id] == nil {
		_, request := r.mover.Depth()
		l.cut(request)
		r.loads[id] = l
	}
	return r.loads[id]
}

// fill reads loads into slots that no load needs, the most likely first and as many at a time as
// the Mover reads, until there is no slot left or ctx ends. It calls quiet before each load, and
// skips loads for which ready returns false.
func (r *expertSlots) fill(ctx context.Context, quiet func(context.Context) error, ready func(id int) bool) {
	r.mu.Lock()
	ids := r.cache.Likeliest()
	r.mu.Unlock()
	depth, _ := r.mover.Depth()
	ended, reading := make(chan struct{}, depth), 0
	for _, id := range ids {
		if !ready(int(id)) {
			continue
		}
		if reading == depth {
			<-ended
			reading--
		}
		if quiet(ctx) != nil {
			break
		}
		started, room := r.fillOne(int(id), ended)
		if !room {
			break
		}
		if started {
			reading++
		}
	}
	for ; reading > 0; reading-- {
		<-ended
	}
}

// fillOne starts to read a load for fill, and signals ended when it is read. started is false if
// the load is already in a slot. room is false if there is no slot left.
func (r *expertSlots) fillOne(id int, ended chan<- struct{}) (started, room bool) {
	r.filling.Lock()
	defer r.filling.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(r.free) == 0 {
		return false, false
	}
	at := r.free[len(r.free)-1]
	s := &r.slots[at]
	if r.where[id] >= 0 || s.busy() {
		return false, true
	}
	moves := r.cache.Fill(int32(id))
	if moves == nil {
		return false, true
	}
	r.assign(moves)
	_, request := r.mover.Depth()
	s.filled = ended
	r.fills.Add(1)
	r.read(id, at, request, LookAhead)
	return true, true
}

// endFill tells fill that its read into s has ended.
func (s *slot) endFill() {
	if s.filled != nil {
		s.filled <- struct{}{}
		s.filled = nil
		s.table.fills.Done()
	}
}

// hurry raises the priority of a read of fill into a slot, because another load needs the slot.
func (r *expertSlots) hurry(at int) {
	if s := &r.slots[at]; s.filled != nil {
		r.mover.raise(&s.transfer, Demand)
	}
}

// withoutFills calls f while fill reads nothing.
func (r *expertSlots) withoutFills(f func()) {
	r.filling.Lock()
	defer r.filling.Unlock()
	r.mu.Lock()
	for at := range r.slots {
		r.hurry(at)
	}
	r.mu.Unlock()
	r.fills.Wait()
	f()
}
