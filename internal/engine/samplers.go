package engine

import (
	"sync"
	"sync/atomic"

	"github.com/heftai/heft/internal/sample"
)

// maxSamplers limits the threads that choose tokens. Each has a sampler with 20 bytes per id of the
// vocabulary.
const maxSamplers = 4

// samplers choose the next tokens of many choices at once. All methods but work belong to the
// engine's goroutine.
type samplers struct {
	first *sample.Sampler      // of the engine's goroutine
	rest  []*sample.Sampler    // of the other threads
	wake  chan *sample.Sampler // for each thread that helps with draws
	draws []draw               // of this pass
	next  atomic.Int64         // index of the first draw that no thread has begun
	busy  sync.WaitGroup       // threads that help
}

// A draw is the next token of a choice, to be chosen from logits.
type draw struct {
	choice *choice
	step   sample.Step
	logits []float32
}

// drawn is a chosen token.
type drawn struct {
	done bool
	id   int32
	err  error
}

// start creates a sampler for each thread of model, up to maxSamplers.
func (s *samplers) start(model Model) {
	k := kernelsOf(model)
	s.first = sample.New(model.Vocab(), k.Variant)
	s.wake = make(chan *sample.Sampler)
	for range min(k.Threads, maxSamplers) - 1 {
		s.rest = append(s.rest, sample.New(model.Vocab(), k.Variant))
		go func() {
			for one := range s.wake {
				s.work(one)
				s.busy.Done()
			}
		}()
	}
}

// close ends the threads.
func (s *samplers) close() { close(s.wake) }

// run chooses the tokens of all draws. Two draws are worth a thread.
func (s *samplers) run() {
	s.next.Store(0)
	for _, one := range s.rest[:min(len(s.rest), max(0, len(s.draws)/2-1))] {
		s.busy.Add(1)
		s.wake <- one
	}
	s.work(s.first)
	s.busy.Wait()
	clear(s.draws) // of requests that may end
}

func (s *samplers) work(one *sample.Sampler) {
	for i := s.next.Add(1) - 1; i < int64(len(s.draws)); i = s.next.Add(1) - 1 {
		d := &s.draws[i]
		id, err := one.Next(&d.choice.stream.request.Params, &d.choice.src, d.step, d.logits)
		d.choice.drawn = drawn{true, id, err}
	}
}

// drawAll chooses the next tokens of a pass with many choices on several threads. Tokens do not
// depend on the number of threads, because each choice has its own source of random numbers.
// Choices with guessed tokens choose later; see verify.
func (e *Engine) drawAll(logits Logits) {
	if len(e.samplers.rest) == 0 {
		return
	}
	e.samplers.draws = e.samplers.draws[:0]
	for i, c := range e.planned {
		if c.ended || c.stream.request.Embed != PoolNone || c.taken > 0 || !c.reached(e.rows[i]) || len(c.tokens) >= c.max {
			continue
		}
		if count, values := logits.Row(i); count > 0 && len(values) == count*e.vocab {
			e.samplers.draws = append(e.samplers.draws, draw{c, c.choosable(), values[len(values)-e.vocab:]})
		}
	}
	e.samplers.run()
}

// draw returns the token that drawAll has chosen for c, or chooses one.
func (e *Engine) draw(c *choice, logits []float32) (int32, error) {
	if d := c.drawn; d.done {
		c.drawn = drawn{}
		return d.id, d.err
	}
	return e.samplers.first.Next(&c.stream.request.Params, &c.src, c.choosable(), logits)
}
