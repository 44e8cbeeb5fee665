package model

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/backend/record"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/nn"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// headLogits bounds the logits that a loss holds at a time, in elements. It is large enough that
// repacking the head's weights for each chunk of rows takes little of the time.
const headLogits = 22 << 20

// sessions is a model's pool of sessions.
type sessions struct {
	mu      sync.Mutex
	free    []*session // that no pass uses
	lent    int
	retired bool // the model is gone
}

// retire closes the pooled sessions and those that are returned later.
func (s *sessions) retire() {
	s.mu.Lock()
	s.retired = true
	s.mu.Unlock()
	_ = s.close()
}

// lease is a session in use by a pass.
type lease struct {
	*session
	all   *sessions
	ended sync.Once
}

// end returns the session to the pool.
func (l *lease) end() {
	l.ended.Do(func() {
		l.weights.early = nil
		l.weights.release()
		l.all.mu.Lock()
		defer l.all.mu.Unlock()
		l.all.lent--
		if l.all.retired {
			_ = l.close()
			return
		}
		l.all.free = append(l.all.free, l.session)
	})
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

// session is the memory and the threads of one pass at a time.
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
	pages    [3]int // what kv was made for: pages, their length, memories
	memories []view.Tensor
	input    nn.Input
}

// enter takes a session for a batch from the pool, or makes one.
func (m *Model) enter(tp *tensor.Tape, b Batch, l *layout, way nn.Way) (*lease, error) {
	s, err := m.free(tp)
	if err != nil {
		return nil, err
	}
	taken := &lease{session: s, all: m.sessions}
	err = s.weights.acquire()
	if err == nil {
		err = s.fit(b, l, way, m.spec.Vocab)
	}
	if err != nil {
		taken.end()
		return nil, err
	}
	return taken, nil
}

// free takes a pooled session that suits a tape.
func (m *Model) free(tp *tensor.Tape) (*session, error) {
	all := m.sessions
	all.mu.Lock()
	defer all.mu.Unlock()
	for i := len(all.free) - 1; i >= 0; i-- {
		s := all.free[i]
		if s.threads == tp.Threads() && s.kernels == tp.Kernels() {
			all.free = append(all.free[:i], all.free[i+1:]...)
			all.lent++
			return s, nil
		}
	}
	if all.lent > 0 {
		runtime.GC() // abandoned passes return their sessions when they are collected
	}
	s := &session{program: m.program, threads: tp.Threads(), kernels: tp.Kernels(), weights: newWeights(m.parameters)}
	var err error
	if s.backend, err = cpu.New(cpu.Options{Threads: s.threads, Variant: s.kernels}); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	s.recorder = record.New(s.backend, s.weights)
	all.lent++
	return s, nil
}

func (s *session) close() error {
	if s.training != nil {
		s.training.Close()
	}
	return s.recorder.Close()
}

// fit makes room for a batch and fills in the program's inputs.
func (s *session) fit(b Batch, l *layout, way nn.Way, vocab int) (err error) {
	most := len(b.IDs) // padding included, so that batches of one shape take the same memory
	limits := nn.Limits{Rows: most, Outputs: min(max(headLogits/max(vocab, 1), 32), most)}
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
	s.input = nn.Input{Tokens: make([]int32, rows), Lengths: make([]int32, rows), Positions: l.positions, KV: s.kv}
	group := nn.Group{Slots: make([]int32, 0, rows)}
	for i := range rows {
		s.input.Tokens[i], s.input.Lengths[i] = int32(b.IDs[l.id(i)]), int32(l.extent)
	}
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
	}
	s.input.Groups = []nn.Group{group}
	return nil
}

// makeKV lays out pages of a KV cache: separate memory per layer if apart is set, else one memory for
// all layers.
func (s *session) makeKV(pages, length int, apart bool) error {
	shapes := s.program.KV()
	n := min(1, len(shapes))
	if apart {
		n = len(shapes)
	}
	if s.pages == [3]int{pages, length, n} {
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
		in := s.memories[min(i, n-1)]
		k := pagesOf(in, 0, pages, length, l.KWidth)
		v := k
		if l.VWidth > 0 {
			v = pagesOf(in, pages*length*l.KWidth, pages, length, l.VWidth)
		}
		s.kv[i].KV = backend.KV{K: k, V: v, PageTokens: length}
	}
	s.pages = [3]int{pages, length, n}
	return nil
}

// pagesOf returns a view [pages, tokens, width] of memory, starting at an element.
func pagesOf(t view.Tensor, from, pages, tokens, width int) view.Tensor {
	t = t.Slice(from, from+pages*tokens*width)
	t.Rank, t.Stride, t.Dims = 3, 0, [view.MaxRank]int{pages, tokens, width}
	return t
}
