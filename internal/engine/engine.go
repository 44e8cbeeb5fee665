package engine

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/dispatch"
)

// Options are the limits of an Engine. The zero value of each field means its default.
type Options struct {
	MaxBatch       int  // maximum number of running choices; 0 means 64 or MaxBatchTokens, whichever is less; at most the model's limit
	MaxBatchTokens int  // tokens per step, at least MaxBatch; 0 means the model's limit, or 2048 if it has none
	ChunkTokens    int  // prompt tokens of a step in which others decode; 0 means 512, or no limit if the model amortises
	MaxLogitRows   int  // rows of logits per step, at least MaxBatch; 0 means 64, at most the model's limit
	MaxQueue       int  // choices that may wait in addition to running ones; 0 means 1024, a negative value none
	OneByOne       bool // also compute tokens forced by a constraint one per pass; answers are the same
	// DraftTokens is the maximum number of guessed tokens that a pass verifies for each choice. 0
	// means the number that is measured to be fastest, and a negative value none. Answers do not
	// depend on it.
	DraftTokens int
	// Draft is a smaller or faster model with the same vocabulary for speculative decoding. It
	// guesses tokens where the text does not repeat itself. nil means none. The engine's
	// goroutine owns it.
	Draft Model
	// DraftNeeds is the minimum speedup that the guesses of Draft must bring. It accounts for the
	// model having less memory, and being slower, with Draft; 0 means no minimum. If the speedup
	// is smaller, and DraftTokens is 0, the engine drops Draft.
	DraftNeeds float64
	// DraftFailed is called once when the engine drops Draft, with the reason: the error of a
	// pass, or ErrDraftSlow.
	DraftFailed func(error)
	Observer    Observer
}

func (o Options) withDefaults(most Limits) Options {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&o.MaxBatch, min(64, orAny(o.MaxBatchTokens)))
	set(&o.MaxBatchTokens, most.Tokens)
	set(&o.MaxBatchTokens, 2048)
	if most.Streaming {
		set(&o.ChunkTokens, math.MaxInt)
	}
	set(&o.ChunkTokens, 512)
	set(&o.MaxLogitRows, 64)
	set(&o.MaxQueue, 1024)
	bound := func(v *int, least, most int) {
		*v = max(*v, least)
		*v = min(*v, most)
	}
	bound(&o.MaxBatch, 1, min(orAny(most.Sequences), orAny(most.Tokens), orAny(most.LogitRows)))
	bound(&o.MaxBatchTokens, o.MaxBatch, orAny(most.Tokens))
	bound(&o.MaxLogitRows, o.MaxBatch, orAny(most.LogitRows))
	o.ChunkTokens = max(o.ChunkTokens, 1)
	o.MaxQueue = max(o.MaxQueue, 0)
	return o
}

func orAny(limit int) int {
	if limit <= 0 {
		return math.MaxInt
	}
	return limit
}

// Engine runs requests on a model. It is safe for concurrent use.
type Engine struct {
	model     Model
	options   Options
	observers observers
	limit     int // maximum tokens of one choice
	vocab     int

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wake   chan struct{}
	exited chan struct{}

	mu         sync.Mutex
	inbox      []*Stream // submitted, but not received by the goroutine yet
	open       int       // choices of accepted requests that have not ended
	clients    map[string]*client
	background int // the part of open that belongs to background requests
	draining   bool
	closed     bool
	live       int // choices of the running pass that a reader waits for
	step       context.Context
	cancelStep context.CancelFunc
	stats      Stats
	counted    [len(reasons)]int64
	service    time.Duration // average time of a choice in the batch

	// Used only by the engine's goroutine:
	fixed          func(draft bool) time.Duration // durations of passes for tests; nil: measured
	samplers       samplers
	running        []*choice // oldest first
	waiting        []*choice // oldest first
	ticket         uint64
	places         uint64    // places assigned so far
	freed          bool      // pages became free since the last admission failed
	blocked        bool      // an admission failed for lack of pages
	prompts        []*choice // those of running with more than one token to compute
	planned        []*choice
	names          []string // of adapters, see adapters
	rows           []Row
	received       []*Stream
	totals         totals
	drafts         drafts
	drafter        drafter
	page           int // tokens per page, or of the context if there are no pages
	restored       chan struct{}
	restoreStarted bool          // a prefix has started to be read since the last pass
	passed         time.Duration // duration of the last pass
	sharing        bool          // the model shares the memory of adapters

	adapterRoom atomic.Bool // another model may have freed some
}

// kernelsOf returns the threads and the kernel variant of model, or 0 and "" if they are unknown.
func kernelsOf(model Model) dispatch.Kernels {
	if m, ok := model.(interface{ Kernels() dispatch.Kernels }); ok {
		return m.Kernels()
	}
	return dispatch.Kernels{}
}

// New starts an engine on model. The caller must not use model until Close has returned.
func New(model Model, options Options) *Engine {
	e := &Engine{model: model, options: options.withDefaults(model.Limits()), vocab: model.Vocab(),
		clients: map[string]*client{}, wake: make(chan struct{}, 1), restored: make(chan struct{}, 1), exited: make(chan struct{})}
	e.samplers.start(model)
	kv := model.KV()
	e.drafter = newDrafter(options.Draft)
	e.limit = model.Context()
	if e.page = kv.PageTokens; e.page == 0 {
		e.page = e.limit
	}
	held := kv.Capacity
	if held == 0 {
		held = kv.Pages * kv.PageTokens
	}
	if held > 0 {
		e.limit = min(e.limit, held)
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.step, e.cancelStep = context.WithCancel(e.ctx)
	e.publish(kv)
	e.followAdapters()
	if options.Observer != nil {
		e.Observe(options.Observer)
	}
	go e.run()
	return e
}

// Limit returns the maximum number of tokens of a prompt and its continuation: the model's
// context, or the capacity of the pages if that is less.
func (e *Engine) Limit() int { return e.limit }

// Places returns the maximum number of running and waiting choices. Submit rejects more.
func (e *Engine) Places() int { return e.options.MaxBatch + e.options.MaxQueue }

// Slots returns the maximum number of running choices.
func (e *Engine) Slots() int { return e.options.MaxBatch }

// Submit queues a request. The request ends when ctx does. Submit returns a *RequestError or a
// *ContextError for a request that can never run, an *OverloadedError if the queue is full,
// ErrDraining, ErrClosed, or ctx's error.
func (e *Engine) Submit(ctx context.Context, r Request) (*Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := r.check(e.vocab, e.limit); err != nil {
		return nil, err
	}
	if r.Adapter != "" && r.Adapted == nil {
		var err error
		if r.Adapted, err = e.Adapted(r.Adapter); err != nil {
			return nil, err
		}
	}
	s := newStream(e, r)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.draining:
		return nil, ErrDraining
	case e.closed:
		return nil, ErrClosed
	}
	s.client = e.clientOf(r.clientName())
	if e.full(s.client, r.Background) {
		e.left(s.client, 0)
		return nil, e.overloaded()
	}
	e.open += r.choices()
	s.client.open += r.choices()
	if r.Background {
		e.background += r.choices()
	}
	e.inbox = append(e.inbox, s)
	s.unhook = context.AfterFunc(ctx, s.cancel)
	e.wakeUp()
	return s, nil
}

func (r *Request) choices() int { return max(r.N, 1) }

// overloaded returns an OverloadedError. It estimates when a slot will be free from the average
// time of a choice.
func (e *Engine) overloaded() error {
	waiting := max(e.open-e.options.MaxBatch, 0)
	wait := e.service * time.Duration(waiting+1) / time.Duration(e.options.MaxBatch)
	seconds := (wait + time.Second - 1) / time.Second
	return &OverloadedError{waiting, min(max(seconds, 1), 300) * time.Second}
}

// Shutdown rejects new requests and waits until all accepted requests have ended and the engine
// has stopped. If ctx ends earlier, it returns ctx's error. Close stops at once.
func (e *Engine) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	e.draining = true
	e.mu.Unlock()
	e.wakeUp()
	select {
	case <-e.exited:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends all requests with ErrClosed and waits for the engine to stop.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.wakeUp()
	<-e.exited
}

func (e *Engine) wakeUp() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// run is the engine's goroutine, which owns its state.
func (e *Engine) run() {
	defer close(e.exited)
	defer e.samplers.close()
	defer e.cancel()
	for e.ctx.Err() == nil {
		e.receive()
		e.reap()
		e.attachRestored()
		e.admit()
		e.waitForRestores()
		if e.plan() {
			e.announce()
			e.forward()
			e.reap()
			e.publish(e.model.KV())
			continue
		}
		if e.freed {
			continue // pages that others wait for
		}
		e.reap()
		e.publish(e.model.KV())
		if e.finished() {
			break
		}
		select {
		case <-e.wake:
		case <-e.ctx.Done():
		}
	}
	e.abort()
}

// finished reports whether a drain is complete. If so, the engine is closed.
func (e *Engine) finished() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.draining || len(e.inbox) > 0 || len(e.running)+len(e.waiting) > 0 {
		return false
	}
	e.closed = true
	return true
}

// receive moves submitted requests to the waiting choices.
func (e *Engine) receive() {
	e.mu.Lock()
	e.received = append(e.received[:0], e.inbox...)
	clear(e.inbox)
	e.inbox = e.inbox[:0]
	e.mu.Unlock()
	for _, s := range e.received {
		for i := range s.choices {
			c := &s.choices[i]
			c.since = s.submit
			e.number(c)
			e.insert(&e.waiting, c)
		}
	}
	clear(e.received)
}

// number makes c the youngest choice. Background choices stay after all others.
func (e *Engine) number(c *choice) {
	e.ticket++
	c.ticket = e.ticket
	if c.stream.request.Background {
		c.ticket |= behind
	}
}

// behind is added to the tickets of background choices, so that they are younger than all others.
const behind = 1 << 63

// abort ends all requests when the engine stops.
func (e *Engine) abort() {
	e.receive()
	for _, list := range [][]*choice{e.running, e.waiting} {
		for _, c := range list {
			e.end(c, FinishAbort, ErrClosed)
		}
	}
	e.running, e.waiting = nil, nil
	e.publish(e.model.KV())
}
