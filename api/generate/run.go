package generate

import (
	"context"
	"io"
	"slices"
	"sync/atomic"
	"unicode/utf8"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/text"
)

// Delta is new output of one choice.
type Delta struct {
	Choice int
	// Text is the new text that no longer changes. It may be empty although there are tokens, and
	// it may contain the text of earlier tokens.
	Text   string
	Tokens []Token
	// Reasoning and Calls are the parts of the output that are not content, if Request.Parse is
	// set.
	Reasoning string
	Calls     []Call
	// Prompt has the prompt's tokens, if Request.PromptLogProbs is set. It is in the first delta of
	// every choice. The first token has no log-probability.
	Prompt []Token
	// Finish is set in a choice's last delta. StopString is the stop string that ended the choice,
	// or "".
	Finish     Reason
	StopString string
}

// Token is an id of an answer or a prompt.
type Token struct {
	ID      int32
	LogProb float32   // if requested
	Rank    int32     // of a prompt's token, if requested: 1 for the most likely
	Top     []LogProb // if requested, most likely first
	Offset  int       // in code points, where its text starts in that of its choice or prompt
}

// Usage counts tokens.
type Usage struct {
	Prompt     int
	Completion int // of all choices
	Cached     int // tokens of the prompt whose keys and values were cached
	Reasoning  int // part of Completion
	// Tokens of Request.Prediction that were right, and tokens that were tried and wrong.
	AcceptedPrediction, RejectedPrediction int
}

// A Generation answers one [Request]. Its methods must be called from one goroutine, except Close,
// which ends it early.
type Generation struct {
	model   *Model
	request Request
	stream  *engine.Stream
	choices []choice
	open    int
	usage   Usage
	ready   []Delta // not yet returned

	client *wire.Client // the client that the tokens are counted for
	spent  atomic.Int64 // tokens of the answer that were not yet counted for the client
}

// choice is one answer to a request.
type choice struct {
	model     *Model
	decode    *text.Decoder // nil without a tokenizer
	stop      stopper
	runes     int // decoded
	generated int
	minTokens int // number of tokens before which stop strings are ignored
	finished  bool

	// The following fields are for answers that are parsed.
	format *format
	parser *text.Parser // or nil
	unseen int          // number of tokens that have shown no text yet
	forced bool         // the answer is a call: it has no content
	custom map[string]customTool
	input  *inputReader // of the open call, if it is of a custom tool
}

func newGeneration(m *Model, r Request, s *engine.Stream) *Generation {
	run := &Generation{model: m, request: r, stream: s, choices: make([]choice, r.N), open: r.N}
	run.usage.Prompt = len(r.Prompt)
	for i := range run.choices {
		c := &run.choices[i]
		c.model = m
		c.stop = stopper{stops: r.Stop, include: r.IncludeStop}
		c.minTokens = r.Params.MinTokens
		c.forced = r.calls != nil && r.calls.required
		c.custom = r.custom
		if m.Tokenizer == nil {
			continue
		}
		if r.Parse != nil && m.Chat != nil && m.Chat.Parses(*r.Parse) {
			c.format = m.answers()
			c.parser = m.Chat.NewParser(*r.Parse)
		}
		c.decode = m.decoder(&r, !r.ShowSpecial && c.parser == nil)
	}
	return run
}

// primed is the number of the prompt's last ids that a decoder gets if the text continues the
// prompt.
const primed = 8

// decoder returns the decoder of the answer's ids. A decoder that treats the start of a text
// specially, such as by dropping a space, first gets the end of the prompt.
func (m *Model) decoder(r *Request, skipSpecial bool) *text.Decoder {
	s := m.Tokenizer.NewDecoder(skipSpecial)
	if !r.Continues {
		return s
	}
	clean := true
	for _, id := range r.Prompt[max(len(r.Prompt)-primed, 0):] {
		_, ok, err := s.Next(id)
		clean = err == nil && (ok || m.Tokenizer.IsSpecial(id))
	}
	if !clean { // the prompt ends within a character
		return m.Tokenizer.NewDecoder(skipSpecial)
	}
	return s
}

// Next waits for the next delta. It returns io.EOF when all choices have finished. If ctx ends
// first, it returns ctx's error unchanged. Other errors are of type *wire.Error.
func (r *Generation) Next(ctx context.Context) (Delta, error) {
	for {
		if len(r.ready) > 0 {
			d := r.ready[0]
			r.ready = r.ready[1:]
			return d, nil
		}
		if r.open == 0 {
			return Delta{}, io.EOF
		}
		ev, err := r.stream.Next(ctx)
		if err != nil && ctx.Err() != nil {
			return Delta{}, context.Cause(ctx)
		}
		if err != nil {
			return Delta{}, AsError(err, r.request.Param)
		}
		r.take(ev)
	}
}

// Close cancels the request if it has not ended, and frees its place.
func (r *Generation) Close() {
	r.stream.Close()
	if n := r.spent.Swap(0); n > 0 {
		r.client.Spent(0, int(n))
	}
}

// Usage counts the tokens that were delivered so far.
func (r *Generation) Usage() Usage {
	u := r.usage
	u.Cached = r.stream.Cached()
	u.AcceptedPrediction, u.RejectedPrediction = r.stream.Predicted()
	return u
}

// take converts an event to deltas.
func (r *Generation) take(ev engine.Event) {
	if ev.Prompt != nil {
		prompt := r.promptTokens(ev.Prompt)
		for i := range r.choices {
			r.ready = append(r.ready, Delta{Choice: i, Prompt: prompt})
		}
	}
	if ev.Token == engine.NoToken && ev.Finish == "" {
		return
	}
	c := &r.choices[ev.Choice]
	if c.finished {
		return
	}
	d := Delta{Choice: ev.Choice, Finish: Reason(ev.Finish)}
	stopped := false
	if ev.Token != engine.NoToken {
		d.Tokens = []Token{{ID: ev.Token, LogProb: ev.LogProb, Top: logProbs(ev.Top), Offset: c.runes}}
		c.generated++
		r.usage.Completion++
		r.spent.Add(1)
		stopped = r.decode(c, ev, &d)
	}
	if ev.Finish != "" && !stopped {
		stopped = c.finish(&d)
	}
	if c.parser != nil {
		r.usage.Reasoning += c.thought(&d)
	}
	if stopped {
		d.Finish = FinishStop
		r.stream.Stop(ev.Choice)
	}
	if d.Finish != "" {
		c.finished = true
		r.open--
	}
	r.ready = append(r.ready, d)
}

// decode adds to d the text that the event's token completes. It reports whether a stop string
// ended the text.
func (r *Generation) decode(c *choice, ev engine.Event, d *Delta) bool {
	hidden := ev.Finish == engine.FinishStop && !r.request.IncludeStop
	if c.parser != nil && !r.request.ShowSpecial && c.format.hidden[ev.Token] {
		hidden = true
	}
	if c.decode == nil || hidden {
		return false
	}
	// Text that was already sent cannot be withdrawn: the stream continues after it.
	s, _, _ := c.decode.Next(ev.Token)
	return c.add(d, s)
}

// finish adds the text that was held back.
func (c *choice) finish(d *Delta) bool {
	if c.decode == nil {
		return false
	}
	stopped := c.add(d, c.decode.Flush())
	if !stopped && c.parser != nil {
		stopped = c.parse(d, c.rest(d))
	}
	if !stopped {
		d.Text += c.stop.flush()
	}
	return stopped
}

// rest ends the parser. If a forced call was cut, it drops the text that the parser held back,
// which is markup of the call.
func (c *choice) rest(d *Delta) []text.Event {
	events := c.parser.Finish()
	if c.forced && d.Finish == FinishLength {
		events = slices.DeleteFunc(events, func(e text.Event) bool { return e.Kind == text.ContentEvent })
	}
	return events
}

// add adds decoded text to d.
func (c *choice) add(d *Delta, s string) bool {
	if s == "" {
		return false
	}
	c.runes += utf8.RuneCountInString(s)
	if c.parser != nil {
		return c.parse(d, c.parser.Feed(s))
	}
	return c.say(d, s)
}

// say adds content to d, up to a stop string.
func (c *choice) say(d *Delta, s string) bool {
	if c.generated <= c.minTokens && c.minTokens > 0 {
		d.Text += c.stop.pass(s)
		return false
	}
	out, stopped := c.stop.add(s)
	d.Text += out
	d.StopString = c.stop.found
	return stopped
}

// promptTokens combines the prompt's ids with their log-probabilities and offsets.
func (r *Generation) promptTokens(scores []engine.Scored) []Token {
	out := make([]Token, len(scores))
	var decode *text.Decoder
	if r.model.Tokenizer != nil {
		decode = r.model.Tokenizer.NewDecoder(!r.request.ShowSpecial)
	}
	at := 0
	for i, s := range scores {
		id := r.request.Prompt[i]
		out[i] = Token{ID: id, LogProb: s.LogProb, Rank: s.Rank, Top: logProbs(s.Top), Offset: at}
		if decode != nil {
			text, _, _ := decode.Next(id)
			at += utf8.RuneCountInString(text)
		}
	}
	return out
}
