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

// A Model generates text: a dispatched model with its tokenizer, its chat templates and an engine
// that runs many requests at once. [New] makes one. Its exported fields are not changed after the
// first request; its methods may be called from any goroutine.
type Model struct {
	Name    string    // as requests call it
	Created time.Time // shown in lists of models
	// Adapter is the name of the LoRA adapter that this model is, of the model called Parent; both
	// are "" for one that stands alone.
	Adapter, Parent string

	Config *meta.Config // for the ids that end a text; nil: none are known
	Text

	engine     *engine.Engine
	adapted    engine.NewSequence // of Adapter; nil for one that always has its name
	dispatched *dispatch.Model    // nil in tests
	claimed    []*dispatch.Model
	user       *inuse.User // of claimed
	formatOnce sync.Once
	format     format // see answers

	grammarsOnce sync.Once
	compiled     *grammars // of constraints; shared with adapters
}

// Text is the tokenizer and chat files of a model's folder. The field of a missing file is nil.
type Text struct {
	// Tokenizer may be nil: then prompts are token ids and answers have no text.
	Tokenizer *text.Tokenizer
	// Missing says why Tokenizer is nil; nil if nothing was looked for.
	Missing error
	// Chat has the chat templates and special tokens, and parses answers; nil: then there is no chat.
	Chat *text.Chat
	// Generation has the defaults of sampling; nil: none.
	Generation *meta.GenerationConfig
	// Pooling says how embeddings are made.
	Pooling meta.Pooling
}

func init() {
	holder.Register(func(m any) *engine.Engine { return m.(*Model).engine },
		func(m any, e *engine.Engine) { m.(*Model).engine = e })
}

// Options are settings for [New]. The zero value works.
type Options struct {
	// Name is what requests call the model; "" is the name of its folder.
	Name string
	// Text is the tokenizer and its other files; nil: New reads them from the folder of the
	// model's weights.
	Text *Text
	// ToolCallParser and ReasoningParser name the notations of tool calls and reasoning, see
	// [text.Chat.WithParsers]; "": the chat template tells.
	ToolCallParser, ReasoningParser string
	// MaxBatch is the most sequences that run at once; 0 means 16. MaxQueue is the most that wait
	// beyond those; 0 means 1024, below 0 none. A request beyond both is an error of kind
	// Overloaded.
	MaxBatch, MaxQueue int
	// DraftTokens is how many tokens, guessed from the text so far, a pass verifies for each sequence: 0
	// as many as are measured to be fastest, below 0 none, else at most so many, up to MaxDraftTokens.
	// Answers do not depend on it.
	DraftTokens int
	// Draft is a faster model with the same tokens that guesses them, or the model's own module for
	// multi-token prediction ([meta.NewNext]); see [Text.SameTokens]; nil: guesses come from the
	// text alone. A module reads prompts longer than 64 tokens only if the model has Options.HiddenStates.
	// Like the model, Draft belongs to the engine until [Model.Close]; the caller then closes it.
	Draft *dispatch.Model
	// DraftNext are the modules that follow Draft, if that is the first of several ([meta.NewNexts]). All of them have Options.HiddenStates.
	DraftNext []*dispatch.Model
	// DraftNeeds is the speedup that guesses of Draft must bring, because the model itself is that much slower with Draft
	// in memory ([dispatch.SelfDraft.Needs]). With DraftTokens 0 the engine stops using Draft if its guesses do not bring
	// it. 0 always keeps Draft.
	DraftNeeds float64
	// DraftFailed is called once when the engine stops using Draft: a pass of Draft failed,
	// or its guesses save less than DraftNeeds. nil does nothing.
	DraftFailed func(error)
}

// MaxDraftTokens is the largest value of Options.DraftTokens that has an effect.
const MaxDraftTokens = engine.MaxDraftTokens

// DraftStateBytes returns the memory for the hidden states that the engine keeps of each sequence for the
// draft model m. It is 0 if m needs tokens only.
func DraftStateBytes(m *dispatch.Model) int64 { return 4 * (engine.MaxStates + 1) * int64(m.Joins()) }

// DraftNextBytes returns the memory for the hidden states that the engine passes from one of several draft
// modules to the next. It is 0 for one module.
func DraftNextBytes(modules []*dispatch.Model) int64 {
	if len(modules) < 2 {
		return 0
	}
	const perValue, grown = 4, 4 // the states of a pass and of its sequences, in memory that doubles
	return perValue * grown * engine.MaxRead * int64(modules[0].Joins())
}

// drafts are the models that guess.
func (o *Options) drafts() []*dispatch.Model {
	if o.Draft == nil {
		return nil
	}
	return append([]*dispatch.Model{o.Draft}, o.DraftNext...)
}

// New starts an engine on m, which the caller does not use directly until [Model.Close] has
// returned, except for methods that any goroutine may call. No weight is read. It fails if the
// tokenizer or its other files are broken, a parser is unknown, m is closed, or another Model that is open was made of
// m or of a draft model.
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

// Adapters returns the model's LoRA adapters (dispatch.Options.Adapters) as models of their own, each
// under the adapter's name. They share the engine of m and are closed with it.
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

// Dispatched returns the model that computes. While m is open, only those of its methods may be called that
// any goroutine may call. It is nil for a model that has none, as in tests.
func (m *Model) Dispatched() *dispatch.Model { return m.dispatched }

// Loading returns how far reading ahead of weights is, such as "loading 12 of 40 blocks, 3.0 of 10.0 GiB,
// 28 s left", or "" while none are read ahead. Any goroutine may call it.
func (m *Model) Loading() string {
	if m.dispatched == nil {
		return ""
	}
	if l := m.dispatched.Status().Loading; l.Active() {
		return l.String()
	}
	return ""
}

// Vocab returns the number of token ids. The ids of requests must be below it.
func (m *Model) Vocab() int {
	if m.engine == nil { // see Models.Read
		return 0
	}
	return m.engine.Vocab()
}

// Sequences returns how many sequences run and how many wait. Any goroutine may call it.
func (m *Model) Sequences() (l Sequences) {
	s := m.engine.Stats()
	return Sequences{Running: s.Running, Waiting: s.Waiting}
}

// Sequences counts the sequences of all requests: those with a place in the batch, and those that wait for one.
type Sequences struct{ Running, Waiting int }

// Draining reports whether Shutdown or Close was called: new requests are rejected.
func (m *Model) Draining() bool { return m.engine.Draining() }

// Shutdown rejects new requests and waits until the running ones have ended, or until ctx ends,
// whose error it returns.
func (m *Model) Shutdown(ctx context.Context) error { return m.engine.Shutdown(ctx) }

// Close ends all requests and waits for the engine to stop. The dispatched model stays open. Closing
// that one closes m, too. A further Close does nothing.
func (m *Model) Close() {
	if m.engine != nil {
		m.engine.Close()
	}
	m.unclaim()
}
