package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/holder"
	"github.com/heftai/heft/internal/inuse"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/text"
)

// A Model generates text. It is a dispatched model with its tokenizer, its chat templates and an
// engine that runs many requests at once. [New] makes one. Do not change its exported fields after
// the first request. Its methods are safe for concurrent use.
type Model struct {
	Name    string    // name in requests
	Created time.Time // shown in lists of models
	// Adapter is the name of the LoRA adapter that this model runs on the model called Parent. Both
	// are "" for a base model.
	Adapter, Parent string

	Config *meta.Config // has the ids that end a text; nil: none are known
	Text

	engine     *engine.Engine
	adapted    engine.NewSequence // of Adapter; nil for an adapter that is always attached
	dispatched *dispatch.Model    // nil in tests
	claimed    []*dispatch.Model
	user       *inuse.User // use of claimed
	formatOnce sync.Once
	format     format // see answers

	grammarsOnce sync.Once
	compiled     *grammars // grammars of constraints; shared with adapters
}

// Text holds the tokenizer and the chat files of a model's folder. The field of a missing file is
// nil.
type Text struct {
	// Tokenizer may be nil. Prompts are then token ids, and answers have no text.
	Tokenizer *text.Tokenizer
	// Missing says why Tokenizer is nil. It is nil if no tokenizer was looked for.
	Missing error
	// Chat has the chat templates and special tokens, and parses answers. If it is nil, the model
	// cannot chat.
	Chat *text.Chat
	// Generation has the default sampling parameters; nil means none.
	Generation *meta.GenerationConfig
	// Pooling says how embeddings are computed from hidden states.
	Pooling meta.Pooling
}

func init() {
	holder.Register(func(m any) *engine.Engine { return m.(*Model).engine },
		func(m any, e *engine.Engine) { m.(*Model).engine = e })
}

// Options are the options of [New]. The zero value works.
type Options struct {
	// Name is the model's name in requests; "" means the name of its folder.
	Name string
	// Text has the tokenizer and its other files. If it is nil, New reads them from the folder of
	// the model's weights.
	Text *Text
	// ToolCallParser and ReasoningParser name the notations of tool calls and reasoning; see
	// [text.Chat.WithParsers]. If they are "", they are derived from the chat template.
	ToolCallParser, ReasoningParser string
	// MaxBatch is the maximum number of running sequences; 0 means 64. MaxQueue is the maximum
	// number of sequences that wait in addition; 0 means 1024, a negative value none. A request
	// that exceeds both fails with kind Overloaded.
	MaxBatch, MaxQueue int
	// DraftTokens is the maximum number of guessed tokens that a pass verifies for each sequence.
	// Guesses come from the text so far, or from Draft. 0 means the number that is measured to be
	// fastest, a negative value none. Values above MaxDraftTokens mean MaxDraftTokens. Answers do
	// not depend on it.
	DraftTokens int
	// Draft is a faster model with the same tokens for speculative decoding, or the model's own
	// module for multi-token prediction ([meta.NewNext]); see [Text.SameTokens]. If it is nil,
	// guesses come from the text alone. A module reads prompts longer than 64 tokens only if the
	// model has Options.HiddenStates. Like the model, Draft belongs to the engine until
	// [Model.Close]; the caller closes it afterwards.
	Draft *dispatch.Model
	// DraftNext has the modules that follow Draft if Draft is the first of several
	// ([meta.NewNexts]). All of them must have Options.HiddenStates.
	DraftNext []*dispatch.Model
	// DraftNeeds is the minimum speedup that the guesses of Draft must bring, because the model
	// itself is slower with Draft in memory ([dispatch.SelfDraft.Needs]). If DraftTokens is 0 and
	// the speedup is smaller, the engine stops using Draft. 0 means that Draft is always kept.
	DraftNeeds float64
	// DraftFailed is called once when the engine stops using Draft, because a pass of Draft failed
	// or its speedup is below DraftNeeds. It may be nil.
	DraftFailed func(error)
}

// MaxDraftTokens is the largest effective value of Options.DraftTokens.
const MaxDraftTokens = engine.MaxDraftTokens

// DraftStateBytes returns the memory of the hidden states that the engine keeps of each sequence
// for the draft model m. It is 0 if m needs only tokens.
func DraftStateBytes(m *dispatch.Model) int64 { return 4 * (engine.MaxStates + 1) * int64(m.Joins()) }

// DraftNextBytes returns the memory of the hidden states that the engine passes from one of several
// draft modules to the next. It is 0 for one module.
func DraftNextBytes(modules []*dispatch.Model) int64 {
	if len(modules) < 2 {
		return 0
	}
	const perValue, grown = 4, 4 // the states of a pass and of its sequences, in slices that double
	return perValue * grown * engine.MaxRead * int64(modules[0].Joins())
}

// drafts returns Draft and DraftNext.
func (o *Options) drafts() []*dispatch.Model {
	if o.Draft == nil {
		return nil
	}
	return append([]*dispatch.Model{o.Draft}, o.DraftNext...)
}

// New starts an engine on m. Until [Model.Close] has returned, the caller may only use those
// methods of m that are safe for concurrent use. New reads no weights. It fails if the tokenizer or
// its other files are invalid, a parser is unknown, m is closed, or an open Model uses m or a draft
// model.
func New(m *dispatch.Model, o Options) (*Model, error) {
	if m == nil || m.Checkpoint() == nil {
		return nil, errors.New("generate: new: got a nil model, or one that dispatch has not opened")
	}
	if _, err := m.NewAdaptedSequence(""); err != nil {
		return nil, fmt.Errorf("generate: new: %w", err)
	}
	if o.Draft == nil && len(o.DraftNext) > 0 || slices.Contains(o.DraftNext, nil) {
		return nil, errors.New("generate: new: Options.DraftNext: got no Draft, or a nil model")
	}
	files := m.Checkpoint().FS()
	if o.Name == "" {
		o.Name = m.Checkpoint().Name()
	}
	if err := text.CheckParsers(o.ToolCallParser, o.ReasoningParser); err != nil {
		return nil, fmt.Errorf("generate: new: %w", err)
	}
	if o.Text == nil {
		t, err := ReadText(o.Name, files)
		if err != nil {
			return nil, err
		}
		o.Text = &t
	}
	g := &Model{Name: o.Name, Created: modified(files, "config.json"), Config: m.Skeleton().Config, Text: *o.Text, dispatched: m, compiled: newGrammars()}
	if g.Chat != nil {
		var err error
		if g.Chat, err = g.Chat.WithParsers(o.ToolCallParser, o.ReasoningParser); err != nil {
			return nil, err
		}
	}
	if err := g.claim(append([]*dispatch.Model{m}, o.drafts()...)...); err != nil {
		return nil, err
	}
	e := engine.Options{MaxBatch: o.MaxBatch, MaxQueue: o.MaxQueue, DraftTokens: o.DraftTokens, DraftNeeds: o.DraftNeeds}
	e.DraftFailed = func(err error) {
		g.release(o.drafts()...) // the callback may close them
		if o.DraftFailed != nil {
			o.DraftFailed(err)
		}
	}
	var modules []engine.Model
	for _, d := range o.drafts() {
		modules = append(modules, engine.ForDispatch(d))
	}
	if len(modules) > 0 {
		e.Draft = engine.Chain(modules...)
	}
	g.engine = engine.New(engine.ForDispatch(m), e)
	return g, nil
}

// Adapters returns the model's LoRA adapters (dispatch.Options.Adapters) as models, each under the
// adapter's name. They share the engine of m and are closed with it.
func (m *Model) Adapters() []*Model {
	if m.dispatched == nil {
		return nil
	}
	var list []*Model
	for _, a := range m.dispatched.Adapters() {
		list = append(list, m.adapter(a.Name, modifiedAt(a.Dir)))
	}
	return list
}

// Dispatched returns the dispatched model. While m is open, only those of its methods may be called
// that are safe for concurrent use. It is nil in tests.
func (m *Model) Dispatched() *dispatch.Model { return m.dispatched }

// Loading returns the progress of reading weights ahead, such as "loading 12 of 40 blocks, 3.0 of
// 10.0 GiB, 28 s left", or "" if no weights are being read ahead. It is safe for concurrent use.
func (m *Model) Loading() string {
	if m.dispatched == nil {
		return ""
	}
	if l := m.dispatched.Status().Loading; l.Active() {
		return l.String()
	}
	return ""
}

// Vocab returns the number of token ids. The ids of requests must be smaller.
func (m *Model) Vocab() int {
	if m.engine == nil { // see Models.Read
		return 0
	}
	return m.engine.Vocab()
}

// Sequences returns the numbers of running and waiting sequences. It is safe for concurrent use.
func (m *Model) Sequences() (l Sequences) {
	s := m.engine.Stats()
	return Sequences{Running: s.Running, Waiting: s.Waiting}
}

// Sequences counts the sequences of all requests. Running ones have a place in the batch, and
// Waiting ones wait for a place.
type Sequences struct{ Running, Waiting int }

// Draining reports whether Shutdown or Close was called, so that new requests are rejected.
func (m *Model) Draining() bool { return m.engine.Draining() }

// Shutdown rejects new requests and waits until all running requests have ended. If ctx ends
// earlier, it returns ctx's error.
func (m *Model) Shutdown(ctx context.Context) error { return m.engine.Shutdown(ctx) }

// Close ends all requests and waits for the engine to stop. The dispatched model stays open;
// closing it also closes m. Further calls do nothing.
func (m *Model) Close() {
	if m.engine != nil {
		m.engine.Close()
	}
	m.unclaim()
}
