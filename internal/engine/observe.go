package engine

import (
	"slices"
	"sync/atomic"
	"time"
)

// Observer receives events for histograms. It is called from the engine's goroutine between passes
// and must not block.
type Observer interface {
	// Queued is called once per choice, with its time from Submit to a slot.
	Queued(time.Duration)
	// FirstToken is called once per choice, with its time from Submit.
	FirstToken(time.Duration)
	// NextToken is called for every further token, with the time since the previous token.
	NextToken(time.Duration)
	// Step is called after every pass.
	Step(StepStats)
	// Finished is called once per choice.
	Finished(ChoiceStats)
}

// StepStats describes one pass.
type StepStats struct {
	Rows            int
	PromptTokens    int // computed, including recomputed ones
	GeneratedTokens int // chosen from the logits of the pass
	Duration        time.Duration
}

// ChoiceStats describes a choice that has ended. The time of a stage that it did not reach is 0.
type ChoiceStats struct {
	Reason    Reason
	Prompt    int // tokens
	Cached    int // tokens of the prompt whose cached keys and values were reused
	Generated int
	MaxTokens int           // maximum number of generated tokens
	Total     time.Duration // since Submit
	Queue     time.Duration // until it got a slot
	Prefill   time.Duration // from there to the first token
	Decode    time.Duration // from there to the last
	// For the whole request, in the stats of its last choice; otherwise 0.
	Choices          int
	LongestGenerated int // tokens of its longest choice
}

// Stats is a snapshot, taken after the last pass, or before the current one if choices have come or
// gone since.
type Stats struct {
	Running int // choices in the batch
	Waiting int // choices without a slot
	// The names of adapters that choices in the batch use, and those of choices without a slot,
	// sorted.
	RunningAdapters, WaitingAdapters []string
	// Totals since the start. PromptTokens counts computed tokens, including recomputed ones.
	// KV.Hits counts reused ones.
	PromptTokens    int64
	GeneratedTokens int64
	Preemptions     int64
	// Drafts counts the passes of a choice that verified guessed tokens. DraftTokens counts these
	// tokens, and AcceptedTokens those that were right.
	Drafts, DraftTokens, AcceptedTokens int64
	Finished                            map[Reason]int64
	KV                                  KV
}

// totals are the counters of the engine's goroutine.
type totals struct {
	prompt, generated, preemptions int64
	drafts, drafted, accepted      int64
	finished                       [len(reasons)]int64
}

var reasons = [...]Reason{FinishStop, FinishLength, FinishAbort, FinishError}

// Stats returns the current state.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	for _, stream := range e.inbox {
		s.Waiting += len(stream.choices)
	}
	s.Finished = make(map[Reason]int64, len(reasons))
	for i, r := range reasons {
		s.Finished[r] = e.counted[i]
	}
	return s
}

// announce publishes the state before a pass, which may take minutes, if choices have come or
// gone since it was last published.
func (e *Engine) announce() {
	e.mu.Lock()
	same := e.stats.Running == len(e.running) && e.stats.Waiting == len(e.waiting)
	e.mu.Unlock()
	if !same {
		e.publish(e.model.KV())
	}
}

// publish makes the state visible to Stats.
func (e *Engine) publish(kv KV) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := &e.totals
	e.stats = Stats{Running: len(e.running), Waiting: len(e.waiting), KV: kv,
		RunningAdapters: e.adapters(e.running, e.stats.RunningAdapters),
		WaitingAdapters: e.adapters(e.waiting, e.stats.WaitingAdapters),
		PromptTokens:    t.prompt, GeneratedTokens: t.generated, Preemptions: t.preemptions,
		Drafts: t.drafts, DraftTokens: t.drafted, AcceptedTokens: t.accepted}
	e.counted = t.finished
}

// account records that c has ended.
func (e *Engine) account(c *choice, why Reason) {
	now := time.Now()
	st := ChoiceStats{Reason: why, Prompt: c.prompt, Generated: c.generated(),
		Total: now.Sub(c.stream.submit), Queue: c.queued, Cached: c.reused, MaxTokens: c.max - c.prompt}
	s := c.stream
	s.longest = max(s.longest, st.Generated)
	if s.open == 1 { // the others have left
		st.Choices, st.LongestGenerated = len(s.choices), s.longest
	}
	if !c.last.IsZero() {
		st.Prefill = c.first.Sub(c.admitted)
		st.Decode = c.last.Sub(c.first)
	}
	for i, r := range reasons {
		if r == why {
			e.totals.finished[i]++
		}
	}
	e.mu.Lock()
	e.open--
	e.left(s.client, 1)
	if s.request.Background {
		e.background--
	}
	if !c.admitted.IsZero() {
		if d := now.Sub(c.admitted); e.service == 0 {
			e.service = d
		} else {
			e.service += (d - e.service) / 8
		}
	}
	e.mu.Unlock()
	e.observers.Finished(st)
}

// observers calls each of a list of observers. Observers may be added while the engine runs.
type observers struct{ list atomic.Pointer[[]Observer] }

// Observe adds an observer. It receives events from now on.
func (e *Engine) Observe(o Observer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := append(slices.Clone(e.observers.all()), o)
	e.observers.list.Store(&list)
}

func (l *observers) all() []Observer {
	if list := l.list.Load(); list != nil {
		return *list
	}
	return nil
}

func (l *observers) Queued(d time.Duration) {
	for _, o := range l.all() {
		o.Queued(d)
	}
}

func (l *observers) FirstToken(d time.Duration) {
	for _, o := range l.all() {
		o.FirstToken(d)
	}
}

func (l *observers) NextToken(d time.Duration) {
	for _, o := range l.all() {
		o.NextToken(d)
	}
}

func (l *observers) Step(s StepStats) {
	for _, o := range l.all() {
		o.Step(s)
	}
}

func (l *observers) Finished(s ChoiceStats) {
	for _, o := range l.all() {
		o.Finished(s)
	}
}
