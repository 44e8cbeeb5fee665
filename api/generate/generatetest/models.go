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
	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/tokenizer"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/meta"
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
	plan, options, err := dispatch.Plan(skeleton, dispatch.Options{Threads: 1, KVTokens: 4096}, dispatch.Placement{})
	check(t, err)
	bound, err := dispatch.New(skeleton, checkpoint, plan.Map, options)
	check(t, err)
	t.Cleanup(bound.Close)
	m := WithText(t, demo.Name)
	m.Config = skeleton.Config
	m.Engine = engine.New(engine.ForDispatch(bound), o)
	t.Cleanup(m.Engine.Close)
	return m, bound, plan
}

// Fake is a model whose logits are a hash of its tokens, without text.
func Fake(t testing.TB, fake *enginetest.Model, o engine.Options) *generate.Model {
	t.Helper()
	m := &generate.Model{Name: "fake", Created: Created, Engine: engine.New(fake, o)}
	t.Cleanup(m.Engine.Close)
	return m
}

// WithText is a model without an engine that has the demo's tokenizer, template and
// defaults.
func WithText(t testing.TB, name string) *generate.Model {
	t.Helper()
	files := demo.Files()
	words, err := tokenizer.LoadFS(files, demo.Name)
	check(t, err)
	templates, err := chat.Load(files)
	check(t, err)
	defaults, err := meta.ReadGenerationConfig(read(t, files, "generation_config.json"))
	check(t, err)
	return &generate.Model{Name: name, Created: Created, Tokenizer: words, Chat: templates, Generation: defaults}
}

// Spoken is a fake with the demo's words: quick, and with text.
func Spoken(t testing.TB, fake *enginetest.Model, o engine.Options) *generate.Model {
	t.Helper()
	m := WithText(t, "fake")
	fake.Width = m.Tokenizer.VocabSize()
	m.Engine = engine.New(fake, o)
	t.Cleanup(m.Engine.Close)
	return m
}

// Saying is a model with the demo's words that always answers the given tokens.
func Saying(t testing.TB, fake *enginetest.Model, tokens []int32, o engine.Options) *generate.Model {
	t.Helper()
	m := WithText(t, "fake")
	fake.Width = m.Tokenizer.VocabSize()
	m.Engine = engine.New(&Script{fake, tokens}, o)
	t.Cleanup(m.Engine.Close)
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
	tokens, err := json.Marshal(map[string]string{"bos_token": m.Chat.SpecialTokens["bos_token"], "eos_token": speakerEnd})
	check(t, err)
	m.Chat, err = chat.Load(fstest.MapFS{"chat_template.jinja": {Data: []byte(s.Template)}, "tokenizer_config.json": {Data: tokens}})
	check(t, err)
	m.Tokenizer = wordsWith(t, append(s.Special, speakerEnd))
	script, err := m.Encode(t.Context(), s.Says+speakerEnd, false)
	check(t, err)
	fake := &enginetest.Model{Width: m.Tokenizer.VocabSize(), MaxLen: 4096, Delay: s.Delay}
	m.Engine = engine.New(&Script{fake, script}, o)
	t.Cleanup(m.Engine.Close)
	return m
}

// wordsWith is the demo's tokenizer with more special tokens.
func wordsWith(t testing.TB, special []string) *tokenizer.Tokenizer {
	t.Helper()
	var file map[string]any
	check(t, json.Unmarshal(read(t, demo.Files(), "tokenizer.json"), &file))
	added := file["added_tokens"].([]any)
	next := WithText(t, "").Tokenizer.VocabSize()
	for i, text := range special {
		added = append(added, map[string]any{"id": next + i, "content": text, "special": true,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
	}
	file["added_tokens"] = added
	b, err := json.Marshal(file)
	check(t, err)
	words, err := tokenizer.Parse(b)
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
