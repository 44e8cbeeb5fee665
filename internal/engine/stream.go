package engine

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/internal/sample"
)

// Stream is a submitted request. Next must be called by one goroutine at a time; Stop and Close
// are safe for concurrent use. Events that were not read are buffered, up to bufferBytes. A
// stream with a full buffer is stalled: the engine generates no more for it until its reader
// takes the events, and gives its places in the batch to waiting requests. A reader that no
// longer reads must call Close or cancel the context of Submit.
type Stream struct {
	engine             *Engine
	client             *client
	request            Request
	choices            []choice
	submit             time.Time
	cached             atomic.Int64
	accepted, rejected atomic.Int64 // tokens of the prediction
	unhook             func() bool  // detaches from the context of Submit
	open               int          // choices that have not ended; used only by the engine
	longest            int          // tokens of the longest choice that has ended; used only by the engine
	scores             []Scored     // of the prompt; used only by the engine
	arena              []sample.LogProb
	canceled           atomic.Bool
	stalled            atomic.Bool // the buffer is full; written by the engine under mu

	mu      sync.Mutex
	pending []Event // written by the engine, not yet taken
	bytes   int     // of pending
	err     error   // set when everything has ended: io.EOF or the error
	ready   chan struct{}

	batch []Event // taken by the reader
	next  int
}

func newStream(e *Engine, r Request) *Stream {
	r.N = max(r.N, 1)
	s := &Stream{engine: e, request: r, submit: time.Now(), open: r.N,
		choices: make([]choice, r.N), ready: make(chan struct{}, 1)}
	for i := range s.choices {
		s.choices[i].init(s, i, e.limit)
	}
	if r.PromptLogProbs {
		s.scores = make([]Scored, len(r.Prompt))
	}
	return s
}

// Next waits for the next event. It returns io.EOF when every choice has ended, the error that
// ended the request, or ctx's error. It skips events of stopped choices.
func (s *Stream) Next(ctx context.Context) (Event, error) {
	for {
		for s.next < len(s.batch) {
			ev := s.batch[s.next]
			s.next++
			if !s.choices[ev.Choice].stopped.Load() {
				return ev, nil
			}
		}
		s.next = 0
		s.mu.Lock()
		s.batch, s.pending, s.bytes = s.pending, s.batch[:0], 0
		goOn := s.stalled.Swap(false)
		err := s.err
		s.mu.Unlock()
		if goOn {
			s.engine.wakeUp()
		}
		if len(s.batch) > 0 {
			continue
		}
		if err != nil {
			return Event{}, err
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}

// Stop ends one choice because its text is complete. The choice finishes with "stop", and its
// slot is free before the next step.
func (s *Stream) Stop(choice int) {
	if choice < 0 || choice >= len(s.choices) {
		return
	}
	c := &s.choices[choice]
	s.engine.mu.Lock()
	c.stopped.Store(true)
	s.engine.drop(c)
	s.engine.mu.Unlock()
	s.engine.wakeUp()
}

// Close cancels the request if it has not ended. Next then returns the buffered events and after
// them ErrStopped. Close may be called more than once.
func (s *Stream) Close() { s.cancel() }

// Cached returns the number of prompt tokens that were not computed because their keys and values
// were cached. It is known once the first event was read.
func (s *Stream) Cached() int { return int(s.cached.Load()) }

// Predicted returns how many tokens of the request's prediction were verified and right, and how
// many were wrong. It is final once the stream has ended.
func (s *Stream) Predicted() (accepted, rejected int) {
	return int(s.accepted.Load()), int(s.rejected.Load())
}

// cancel ends all choices.
func (s *Stream) cancel() {
	s.engine.mu.Lock()
	s.canceled.Store(true)
	for i := range s.choices {
		s.engine.drop(&s.choices[i])
	}
	s.engine.mu.Unlock()
	s.engine.wakeUp()
}

// bufferBytes is the maximum size of the events that a stream buffers. A reader on a busy machine
// lags by less, and a thousand unread streams take less than 100 MiB.
const bufferBytes = 64 << 10

// emit passes an event to the reader.
func (s *Stream) emit(ev Event) {
	s.mu.Lock()
	s.pending = append(s.pending, ev)
	if s.bytes += ev.bytes(); s.bytes >= bufferBytes {
		s.stalled.Store(true)
	}
	s.mu.Unlock()
	s.notify()
}

// left records that a choice has ended. The last choice, or an error, ends s.
func (s *Stream) left(err error) {
	s.open--
	switch {
	case err != nil:
		s.finish(err)
	case s.open == 0:
		s.finish(done)
	}
}

// finish marks the end of the events.
func (s *Stream) finish(err error) {
	s.unhook()
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.mu.Unlock()
	s.notify()
}

func (s *Stream) notify() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// done is the result of a stream whose last choice has ended.
var done = io.EOF

// top returns memory for n log-probabilities of an event. It is cut from blocks, one allocation
// for many tokens.
func (s *Stream) top(n int) []sample.LogProb {
	const block = 32
	if cap(s.arena)-len(s.arena) < n {
		s.arena = make([]sample.LogProb, 0, n*block)
	}
	at := len(s.arena)
	s.arena = s.arena[:at+n]
	return s.arena[at : at : at+n]
}

// bytes returns the approximate memory of ev.
func (ev *Event) bytes() int {
	const event, scored, logProb = 128, 32, 8
	n := event + len(ev.Top)*logProb + len(ev.Embedding)*4
	for i := range ev.Prompt {
		n += scored + len(ev.Prompt[i].Top)*logProb
	}
	return n
}
