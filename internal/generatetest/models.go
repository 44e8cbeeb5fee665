// Package generatetest makes models for tests of the HTTP layer: the embedded demo, which
// is real from weights to chat template, and fakes whose every token is known beforehand.
package generatetest

import (
	"encoding/json"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/engine/holder"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/text"
)

// Created is when all models of this package were made.
var Created = time.Unix(1_700_000_000, 0)

// Demo is the embedded model on the cpu tier, with its plan. All is closed when the test
// ends.
func Demo(t testing.TB, o engine.Options) (*generate.Model, *dispatch.Model, devicemap.Plan) {
	t.Helper()
	skeleton, checkpoint, err := loader.OpenModelFS(demo.Name, demo.Files())
	check(t, err)
	t.Cleanup(func() { _ = checkpoint.Close() })
	plan, options, err := dispatch.Plan(skeleton, dispatch.Options{Threads: 1, KVTokens: 4096})
	check(t, err)
	bound, err := dispatch.New(skeleton, checkpoint, plan.Map, options)
	check(t, err)
	t.Cleanup(bound.Close)
	m := WithText(t, demo.Name)
	m.Config = skeleton.Config
	run(t, m, engine.ForDispatch(bound), o)
	return m, bound, plan
}

// run gives m an engine until the test ends.
func run(t testing.TB, m *generate.Model, on engine.Model, o engine.Options) {
	e := engine.New(on, o)
	t.Cleanup(e.Close)
	holder.SetEngine(m, e)
}

// Engine is the engine of a model of this package.
func Engine(m *generate.Model) *engine.Engine { return holder.Engine(m) }

// Fake is a model whose logits are a hash of its tokens, without text.
func Fake(t testing.TB, fake *enginetest.Model, o engine.Options) *generate.Model {
	t.Helper()
	m := &generate.Model{Name: "fake", Created: Created}
	run(t, m, fake, o)
	return m
}

// WithText is a model without an engine that has the demo's tokenizer, template and
// defaults.
func WithText(t testing.TB, name string) *generate.Model {
	t.Helper()
	words, err := generate.ReadText(demo.Name, demo.Files())
	check(t, err)
	words.Pooling = meta.Pooling{}
	return &generate.Model{Name: name, Created: Created, Text: words}
}

// Spoken is a fake with the demo's words: quick, and with text.
func Spoken(t testing.TB, fake *enginetest.Model, o engine.Options) *generate.Model {
	t.Helper()
	m := WithText(t, "fake")
	fake.Width = m.Tokenizer.VocabSize()
	run(t, m, fake, o)
	return m
}

// Saying is a model with the demo's words that always answers the given tokens.
func Saying(t testing.TB, fake *enginetest.Model, tokens []int32, o engine.Options) *generate.Model {
	t.Helper()
	m := WithText(t, "fake")
	fake.Width = m.Tokenizer.VocabSize()
	run(t, m, &Script{fake, tokens}, o)
	return m
}

// A Speaker is a model that says one thing, with a chat template and special tokens of its
// own beside the demo's words.
type Speaker struct {
	Template string
	Special  []string      // more special tokens
	Says     string        // then the text ends
	Delay    time.Duration // of a pass
}

// speakerEnd ends what a Speaker says.
const speakerEnd = "<|over|>"

// Speaking is a model that always answers what s says.
func Speaking(t testing.TB, s Speaker, o engine.Options) *generate.Model {
	t.Helper()
	m := WithText(t, "fake")
	m.Generation = nil
	tokens, err := json.Marshal(map[string]string{"bos_token": m.Chat.SpecialToken("bos_token"), "eos_token": speakerEnd})
	check(t, err)
	m.Tokenizer = wordsWith(t, append(s.Special, speakerEnd))
	m.Chat, err = text.ReadChat(fstest.MapFS{"chat_template.jinja": {Data: []byte(s.Template)}, "tokenizer_config.json": {Data: tokens}}, m.Tokenizer)
	check(t, err)
	script, err := m.Encode(t.Context(), s.Says+speakerEnd, false)
	check(t, err)
	fake := &enginetest.Model{Width: m.Tokenizer.VocabSize(), MaxLen: 4096, Delay: s.Delay}
	run(t, m, &Script{fake, script}, o)
	return m
}

// wordsWith is the demo's tokenizer with more special tokens.
func wordsWith(t testing.TB, special []string) *text.Tokenizer {
	t.Helper()
	var file map[string]any
	check(t, json.Unmarshal(read(t, demo.Files(), "tokenizer.json"), &file))
	added := file["added_tokens"].([]any)
	next := WithText(t, "").Tokenizer.VocabSize()
	for i, content := range special {
		added = append(added, map[string]any{"id": next + i, "content": content, "special": true,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
	}
	file["added_tokens"] = added
	b, err := json.Marshal(file)
	check(t, err)
	words, err := text.ParseTokenizer(b)
	check(t, err)
	return words
}

func read(t testing.TB, files fs.FS, name string) []byte {
	t.Helper()
	b, err := fs.ReadFile(files, name)
	check(t, err)
	return b
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
