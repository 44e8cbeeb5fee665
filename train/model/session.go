package model

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"weak"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/backend/record"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/nn"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// headLogits limits the logits that a loss holds at a time, in elements. With this many, repacking
// the head's weights for each chunk of rows costs little time.
const headLogits = 22 << 20

// Limits of the sessions held by passes that wait for Backward: of one tape, and of all tapes. One
// more pass takes the session of the oldest pass, which Backward then runs again. Passes without
// Backward therefore do not accumulate memory, no matter when they are garbage-collected.
const tapeSessions, allSessions = 2, 8

// sessions is a model's pool of sessions.
type sessions struct {
	mu      sync.Mutex
	free    []*session // not in use
	lent    []*lease   // oldest first
	retired bool       // the model is gone
}

// retire closes the pooled sessions, and those returned later.
func (s *sessions) retire() {
	s.mu.Lock()
	s.retired = true
	s.mu.Unlock()
	_ = s.close()
}

// lease is a session in use by a pass.
type lease struct {
	*session
	all  *sessions
	tape weak.Pointer[tensor.Tape]
	idle bool // the pass waits for Backward
	over bool // another pass has taken the session
}

// end returns the session to the pool.
func (l *lease) end() {
	l.all.mu.Lock()
	over := l.over
	l.over = true
	l.all.mu.Unlock()
	if !over {
		l.giveBack()
	}
}

func (l *lease) giveBack() {
	l.weights.early = nil
	l.weights.release()
	l.backend.KeepPacked(view.Tensor{})
	if l.between != nil {
		l.between.clear()
	}
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.all.lent = slices.DeleteFunc(l.all.lent, func(x *lease) bool { return x == l })
	if l.all.retired {
		_ = l.close()
		return
	}
	l.all.free = append(l.all.free, l.session)
}

// rest records that the pass waits for Backward.
func (l *lease) rest() {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.idle = true
}

// wake reports whether the pass still has its session. If so, no other pass can take it.
func (l *lease) wake() bool {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.idle = false
	return !l.over
}

// surplus ends the oldest lease whose session a pass of tape may take, or returns nil. The caller
// must hold s.mu.
func (s *sessions) surplus(tape weak.Pointer[tensor.Tape]) *lease {
	var mine, idle []*lease
	for _, l := range s.lent {
		if !l.idle || l.over {
			continue
		}
		if idle = append(idle, l); l.tape == tape {
			mine = append(mine, l)
		}
	}
	switch {
	case len(mine) >= tapeSessions:
		idle = mine
	case len(idle) < allSessions:
		return nil
	}
	idle[0].over = true
	return idle[0]
}

// close closes the free sessions.
func (s *sessions) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, x := range s.free {
		errs = append(errs, x.close())
	}
	s.free = nil
	return errors.Join(errs...)
}

// session is the memory and the threads of a pass. One pass at a time uses it.
type session struct {
	program  *nn.Program
	threads  int
	kernels  string
	backend  *cpu.Backend
	recorder *record.Recorder
	weights  *weights
	training *nn.Training
	limits   nn.Limits

	kv       []kvcache.Layer
	pages    [3]int // of kv: number of pages, their length, memories
	apart    bool   // of kv: separate memory per layer
	memories []view.Tensor
	input    nn.Input
	between  *between // of a group; nil before the first one
	packed   view.Tensor
}

// enter takes a session for a pass from the pool, or creates one.
func (m *Model) enter(tp *tensor.Tape, tokens []int32, l *layout, way nn.Way) (*lease, error) {
	tape := weak.Make(tp)
	s, err := m.free(tp, tape)
	if err != nil {
		return nil, err
	}
	taken := &lease{session: s, all: m.sessions, tape: tape}
	m.sessions.mu.Lock()
	m.sessions.lent = append(m.sessions.lent, taken)
	m.sessions.mu.Unlock()
	err = s.weights.acquire()
	if err == nil {
		err = s.fit(tokens, l, way, m.outputs())
	}
	if err != nil {
		taken.end()
		return nil, err
	}
	return taken, nil
}

// free returns a session that suits a tape: a pooled one, that of a surplus pass, or a new one.
func (m *Model) free(tp *tensor.Tape, tape weak.Pointer[tensor.Tape]) (*session, error) {
	for {
		s, surplus := m.sessions.take(tp, tape)
		if s != nil {
			return s, nil
		}
		if surplus == nil {
			break
		}
		surplus.giveBack()
	}
	s := &session{program: m.program, threads: tp.Threads(), kernels: tp.Kernels(), weights: newWeights(m.parameters)}
	var err error
	if s.backend, err = cpu.New(cpu.Options{Threads: s.threads, Variant: s.kernels}); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	s.recorder = record.New(s.backend, s.weights)
	return s, nil
}

// take removes a pooled session that suits a tape, or otherwise returns a surplus lease.
func (s *sessions) take(tp *tensor.Tape, tape weak.Pointer[tensor.Tape]) (*session, *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.free) - 1; i >= 0; i-- {
		if x := s.free[i]; x.threads == tp.Threads() && x.kernels == tp.Kernels() {
			s.free = slices.Delete(s.free, i, i+1)
			return x, nil
		}
	}
	return nil, s.surplus(tape)
}

func (s *session) close() error {
	if s.between != nil {
		s.between.store.Close()
	}
	if s.training != nil {
		s.training.Close()
	}
	if !s.packed.IsZero() {
		s.backend.Free(s.packed)
	}
	return s.recorder.Close()
}

// fit makes room for a batch and sets the program's inputs. tokens are the ids of the rows. outputs
// is the number of rows that have logits at a time.
func (s *session) fit(tokens []int32, l *layout, way nn.Way, outputs int) (err error) {
	most := l.ids // padding included, so that batches of one shape take the same memory
	limits := nn.Limits{Rows: most, Outputs: min(outputs, most)}
	if s.training == nil || limits.Rows > s.limits.Rows || limits.Outputs > s.limits.Outputs {
		if s.training != nil {
			s.training.Close()
		}
		if s.training, err = s.program.NewTraining(s.recorder, s.weights, limits); err != nil {
			return fmt.Errorf("model: %w", err)
		}
		s.limits = limits
	}
	pageTokens, pages := l.pages()
	if err := s.makeKV(pages, pageTokens, way == nn.Remember); err != nil {
		return err
	}
	rows := l.count()
	s.input = nn.Input{Tokens: tokens, Lengths: slices.Repeat([]int32{int32(l.extent)}, rows), Positions: l.positions, KV: s.kv}
	group := nn.Group{Slots: make([]int32, 0, rows)}
	first := 0
	for _, t := range l.texts {
		span := backend.Span{First: t.first, Rows: t.rows}
		for i := range (t.rows + pageTokens - 1) / pageTokens {
			span.Pages = append(span.Pages, int32(first+i))
		}
		for i := range t.rows {
			group.Slots = append(group.Slots, int32(first*pageTokens+i))
		}
		first += len(span.Pages)
		group.Spans = append(group.Spans, span)
		s.input.StateSpans = append(s.input.StateSpans, backend.StateSpan{First: t.first, Rows: t.rows, From: -1, To: -1})
	}
	s.input.Groups = []nn.Group{group}
	s.input.States = make([]view.Tensor, len(s.program.States())) // no state is kept after a text
	return nil
}

// makeKV allocates pages of a KV cache. If apart is set, each layer has separate memory. Otherwise
// all units share one memory, with a part for each layer of a unit, and layers that later units
// read have separate memory.
func (s *session) makeKV(pages, length int, apart bool) error {
	shapes := s.program.KV()
	places, n := make([]int, len(shapes)), 0
	for _, u := range s.program.Units {
		for i, layer := range u.Layers {
			places[layer] = i
			n = max(n, i+1)
		}
	}
	if apart {
		n = 0
	}
	for i := range places {
		if apart || s.program.Shared(i) {
			places[i] = n
			n++
		}
	}
	if s.pages == [3]int{pages, length, n} && s.apart == apart {
		return nil
	}
	most := 0
	for _, l := range shapes {
		most = max(most, pages*length*(l.KWidth+l.VWidth))
	}
	s.pages = [3]int{}
	if len(s.memories) < n || n > 0 && s.memories[0].Elements() < most {
		for _, t := range s.memories {
			s.recorder.Free(t)
		}
		s.memories = nil
	}
	for len(s.memories) < n {
		t, err := s.recorder.New(meta.Float32, most)
		if err != nil {
			return fmt.Errorf("model: KV cache: %w", err)
		}
		s.memories = append(s.memories, t)
	}
	s.kv = make([]kvcache.Layer, len(shapes))
	for i, l := range shapes {
		in := s.memories[places[i]]
		k := pagesOf(in, 0, pages, length, l.KWidth)
		v := k
		if l.VWidth > 0 {
			v = pagesOf(in, pages*length*l.KWidth, pages, length, l.VWidth)
		}
		s.kv[i].KV = backend.KV{K: k, V: v, PageTokens: length}
	}
	s.pages, s.apart = [3]int{pages, length, n}, apart
	return nil
}

// pagesOf returns a view [pages, tokens, width] of memory, starting at an element.
func pagesOf(t view.Tensor, from, pages, tokens, width int) view.Tensor {
	t = t.Slice(from, from+pages*tokens*width)
	t.Rank, t.Stride, t.Dims = 3, 0, [view.MaxRank]int{pages, tokens, width}
	return t
}
