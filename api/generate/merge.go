package generate

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/heftai/heft/api/wire"
)

// Generations answer the prompts of one client's request, with one [Generation] for each.
// [Generations.Next] returns their deltas in the order in which they arrive.
type Generations struct {
	runs []*Generation
	stop context.CancelFunc
	out  chan part
	wait sync.WaitGroup
}

// A PromptDelta is a [Delta] with the index of its prompt.
type PromptDelta struct {
	PromptIndex int
	Delta
}

type part struct {
	PromptDelta
	err error
}

// StartAll starts all of requests or none. They end when ctx does. The caller must call Close.
func (m *Model) StartAll(ctx context.Context, requests []Request) (*Generations, error) {
	if err := m.roomFor(requests); err != nil {
		return nil, err
	}
	if err := keepBuffers(ctx, requests); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	rs := &Generations{stop: stop}
	for _, r := range requests {
		run, err := m.Start(ctx, r)
		if err != nil {
			rs.Close()
			return nil, err
		}
		rs.runs = append(rs.runs, run)
	}
	if len(rs.runs) == 1 {
		return rs, nil
	}
	rs.out = make(chan part)
	for i, run := range rs.runs {
		rs.wait.Go(func() { rs.pump(ctx, i, run) })
	}
	go func() {
		rs.wait.Wait()
		close(rs.out)
	}()
	return rs, nil
}

// The memory of a request's events until they are received, in bytes; see [engine.Stream].
const (
	bufferBytes = 64 << 10 // maximum in the engine
	eventBytes  = 128      // per token
	scoreBytes  = 72       // per token of a prompt whose log-probabilities are shown
	topBytes    = 16       // per alternative token of either
)

// keepBuffers reserves memory for the answers that the engine buffers until they are received.
func keepBuffers(ctx context.Context, requests []Request) error {
	bytes := 0
	for i := range requests {
		r := &requests[i]
		buffer := bufferBytes
		if each := eventBytes + topBytes*r.TopLogProbs; r.MaxTokens >= 0 && r.MaxTokens < bufferBytes {
			buffer = min(buffer, each*(r.MaxTokens+1)*max(r.N, 1))
		}
		if bytes += buffer; r.PromptLogProbs {
			bytes += len(r.Prompt) * (scoreBytes + topBytes*r.TopPrompt)
		}
	}
	return wire.ClaimOf(ctx).Keep(bytes)
}

// roomFor rejects requests that can never be accepted together. The engine accepts a prompt only if
// the preceding prompts leave a place.
func (m *Model) roomFor(requests []Request) error {
	before, places := 0, m.engine.Places()
	for i, r := range requests {
		if i > 0 && before >= places {
			return wire.Invalidf(r.Param, "Your request has %d prompts, of %d answers each; this server takes %d answers at a time: send fewer together.",
				len(requests), max(r.N, 1), places)
		}
		before += max(r.N, 1)
	}
	return nil
}

// pump sends the deltas of one run to out.
func (rs *Generations) pump(ctx context.Context, i int, run *Generation) {
	for {
		d, err := run.Next(ctx)
		if errors.Is(err, io.EOF) {
			return
		}
		select {
		case rs.out <- part{PromptDelta{i, d}, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// Next waits for the next delta of any generation. It returns io.EOF when all have ended, the first
// error of any, or ctx's error.
func (rs *Generations) Next(ctx context.Context) (PromptDelta, error) {
	if rs.out == nil {
		d, err := rs.runs[0].Next(ctx)
		return PromptDelta{0, d}, err
	}
	select {
	case p, ok := <-rs.out:
		if !ok {
			return PromptDelta{}, io.EOF
		}
		return p.PromptDelta, p.err
	case <-ctx.Done():
		return PromptDelta{}, context.Cause(ctx)
	}
}

// Usage counts the delivered tokens. Call it after Next has returned io.EOF.
func (rs *Generations) Usage() Usage {
	var sum Usage
	for _, r := range rs.runs {
		u := r.Usage()
		sum.Prompt += u.Prompt
		sum.Completion += u.Completion
		sum.Cached += u.Cached
		sum.Reasoning += u.Reasoning
		sum.AcceptedPrediction += u.AcceptedPrediction
		sum.RejectedPrediction += u.RejectedPrediction
	}
	return sum
}

// Close cancels unfinished generations and waits for their goroutines.
func (rs *Generations) Close() {
	rs.stop()
	for _, r := range rs.runs {
		r.Close()
	}
	rs.wait.Wait()
}
