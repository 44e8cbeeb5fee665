package generate

import (
	"sync"
	"time"

	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/chat/toolcall"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/tokenizer"
	"github.com/heftai/heft/meta"
)

// Model is what answers requests: an engine and what turns text into its ids and back. It
// is not changed after the first request; its methods may be called from any goroutine.
type Model struct {
	Name    string    // as requests call it
	Created time.Time // shown in lists of models
	Engine  *engine.Engine
	// Adapter is what Engine calls the adapter that this model is, of the model called
	// Parent; both are "" for one that stands alone.
	Adapter, Parent string

	Config *meta.Config // for the ids that end a text; nil: none are known
	// Tokenizer may be nil: then prompts are token ids and answers have no text.
	Tokenizer *tokenizer.Tokenizer
	// Chat has the chat templates and the special tokens; nil: then there is no chat.
	Chat *chat.Set
	// Family is how the model writes reasoning and calls of tools; nil: what the
	// template tells, see the function Family.
	Family *toolcall.Family
	// Generation has the defaults of sampling; nil: none.
	Generation *meta.GenerationConfig
	// Pooling says how embeddings are made.
	Pooling meta.Pooling

	formatOnce sync.Once
	format     format // see answers
}
