package generate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/bits"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/jsonschema"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/text"
)

// argumentSchemas have what notations without JSON may get wrong: strings that look like other values
// or like markup, types that are open, and values within values. Names are in alphabetical order.
var argumentSchemas = []string{
	`{"type":"object","properties":{"a":{"type":"string"},"b":{"enum":["7","true","a<b","x\"y","</parameter>","'","\\n"]},"c":{"type":"integer","minimum":-3,"maximum":90}},"required":["a","b","c"],"additionalProperties":false}`,
	`{"type":"object","properties":{"d":{"type":["string","null"],"maxLength":5},"e":{"anyOf":[{"type":"number"},{"type":"string","pattern":"^[0-9]{2}$"},{"type":"boolean"}]},"f":{"type":"boolean"}},"required":["d","e"],"additionalProperties":false}`,
	`{"type":"object","properties":{"g":{"type":"array","items":{"type":"string","maxLength":4},"maxItems":2},"h":{"type":"object","properties":{"i-j":{"enum":["<","\"",null,true]},"k":{"type":"string","minLength":1,"maxLength":6}},"required":["k"],"additionalProperties":false},"l":{"const":"42"}},"required":["g","h","l"],"additionalProperties":false}`,
	`{"type":"object","properties":{"m":{},"n":{"$ref":"#/$defs/n"}},"required":["n"],"$defs":{"n":{"type":"string","maxLength":3}},"additionalProperties":{"type":"integer"}}`,
	`{"type":"object","properties":{}}`,
}

// markers are what tokenizers have as special tokens.
var markers = regexp.MustCompile(`<\|[^|<>]*\|>|<｜[^｜<>]*｜>|\[/?TOOL_CALLS\]|<\|[a-z_"]+\|?>|<[a-z_]+\|>|</?think>`)

// templateModel is a model with a golden template, whose markers are special tokens or text.
func templateModel(t *testing.T, template []byte, special bool) *Model {
	t.Helper()
	words, err := ReadText(demo.Name, demo.Files())
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	data, err := fs.ReadFile(demo.Files(), "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	added := file["added_tokens"].([]any)
	known := map[string]bool{}
	for _, content := range append(markers.FindAllString(string(template), -1), "<|over|>") {
		if !known[content] && (special || content == "<|over|>") {
			known[content] = true
			added = append(added, map[string]any{"id": words.Tokenizer.VocabSize() + len(known) - 1, "content": content, "special": true,
				"single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
		}
	}
	file["added_tokens"] = added
	if data, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	m := &Model{Name: "golden"}
	if m.Tokenizer, err = text.ParseTokenizer(data); err != nil {
		t.Fatal(err)
	}
	m.Chat, err = text.ReadChat(fstest.MapFS{"chat_template.jinja": {Data: template},
		"tokenizer_config.json": {Data: []byte(`{"bos_token": "<s>", "eos_token": "<|over|>"}`)}}, m.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	m.engine = engine.New(&enginetest.Model{Width: m.Tokenizer.VocabSize(), MaxLen: 1 << 16}, engine.Options{})
	t.Cleanup(m.engine.Close)
	return m
}

// forcedCalls is a conversation with tools that have argumentSchemas.
func forcedCalls(choice ToolChoice, named string, single, strict bool) Conversation {
	c := Conversation{ToolChoice: choice, Tool: named, SingleCall: single, Strict: map[string]bool{}}
	for i, schema := range argumentSchemas {
		name := fmt.Sprint("tool_", i)
		c.Tools = append(c.Tools, text.Tool{Name: name, Description: "d", Parameters: json.RawMessage(schema)})
		c.Strict[name] = strict
	}
	c.AddGenerationPrompt = true
	c.Messages = []text.Message{{Role: "user", Content: "hi"}}
	c.Arguments = map[string]any{"functions": "[]", "datetime": "today"}
	return c
}

// TestGoldenTemplatesForceCalls: with every golden template whose model can call tools, calls can be
// forced, and the output of a random model is read back as calls whose arguments satisfy their
// schemas. It logs the templates without calls.
func TestGoldenTemplatesForceCalls(t *testing.T) {
	count := 0
	for _, path := range golden.Glob(t, "text/templates/files/*.jinja") {
		template, err := golden.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".jinja"), func(t *testing.T) {
			m := templateModel(t, template, true)
			if !m.Chat.ParsesCalls() {
				t.Logf("the template has no calls")
				return
			}
			count++
			checkForcedCalls(t, m)
			checkForcedCalls(t, templateModel(t, template, false))
		})
	}
	golden.Count(t, "text/templates (forced calls)", count)
}

func checkForcedCalls(t *testing.T, m *Model) {
	t.Helper()
	ended := 0
	for k, c := range []struct {
		c     Conversation
		least int
	}{
		{forcedCalls(ToolsRequired, "", false, false), 1},
		{forcedCalls(ToolsRequired, "tool_2", false, false), 1},
		{forcedCalls(ToolsRequired, "", true, true), 1},
		{forcedCalls(ToolsAuto, "", true, true), 0},
	} {
		r := &Request{}
		if err := m.Converse(t.Context(), c.c, r); err != nil { // the template wants other tools
			r.Parse = &text.ParseOptions{Tools: c.c.Tools}
			if err := m.forceCalls(&c.c, r); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Constrain(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(2) {
			answer, over := randomAnswer(t, m, r, rand.New(rand.NewPCG(seed, uint64(k))))
			if !over {
				continue
			}
			ended++
			checkCallsOf(t, m, r, &c.c, answer, c.least)
		}
	}
	if ended < 2 {
		t.Errorf("only %d answers ended", ended)
	}
}

// randomAnswer is a text that the grammar of r allows. It tends to its end.
func randomAnswer(t *testing.T, m *Model, r *Request, rng *rand.Rand) (answer string, ended bool) {
	t.Helper()
	over, _ := m.Tokenizer.ID("<|over|>")
	match := r.compiled.grammar.NewMatcher([]int32{over})
	f := m.frameOf(r)
	ends := []string{`"`, ">", f.Inside}
	if n, ok := m.Chat.CallNotation(); ok && n.Arguments != nil {
		a := n.Arguments
		ends = append(ends, a.End, a.Quote)
		for _, name := range []string{"b", "e", "h", "n"} { // a text may not end where it looks like ending
			ends = append(ends, strings.ReplaceAll(a.End, text.KeyMark, name), a.Plain.Next+name+a.Plain.Key, a.Plain.Next+" "+name+a.Plain.Key)
		}
		for _, end := range slices.Concat(a.Plain.Ends, a.Plain.Lines) {
			ends = append(ends, end, "\n"+end)
		}
	}
	var ids []int32
	allowed := func(id int32) bool { mask := match.Mask(); return mask[id>>6]>>(id&63)&1 != 0 }
	accept := func(id int32) {
		if err := match.Accept(id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for len(ids) < 1500 {
		if allowed(over) {
			return m.Tokenizer.Decode(ids, false), true
		}
		if rng.IntN(6) == 0 {
			end, err := m.Tokenizer.Encode(ends[rng.IntN(len(ends))], text.EncodeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range end {
				if !allowed(id) {
					break
				}
				accept(id)
			}
			continue
		}
		mask := match.Mask()
		n := 0
		for _, w := range mask {
			n += bits.OnesCount64(w)
		}
		if n == 0 {
			t.Fatalf("nothing may follow %q", m.Tokenizer.Decode(ids, false))
		}
		accept(pick(mask, rng.IntN(n)))
	}
	return "", false
}

// pick is id n of a mask.
func pick(mask []uint64, n int) int32 {
	for i, w := range mask {
		for ; w != 0; w &= w - 1 {
			if n == 0 {
				return int32(i<<6 + bits.TrailingZeros64(w))
			}
			n--
		}
	}
	return -1
}

// checkCallsOf parses an answer and checks its calls.
func checkCallsOf(t *testing.T, m *Model, r *Request, c *Conversation, answer string, least int) {
	t.Helper()
	parsed := m.Chat.Parse(answer, *r.Parse)
	var names, arguments []string
	for _, call := range parsed.ToolCalls {
		names, arguments = append(names, call.Name), append(arguments, string(call.Arguments))
	}
	if len(names) < least || c.SingleCall && len(names) > 1 {
		t.Fatalf("%d calls in %q (content %q)", len(names), answer, parsed.Content)
	}
	for i, name := range names {
		var tool text.Tool
		for _, candidate := range c.Tools {
			if candidate.Name == name {
				tool = candidate
			}
		}
		if tool.Name == "" || c.Tool != "" && c.Tool != name {
			t.Fatalf("call of %q in %q", name, answer)
		}
		if !holds(t, m.compiled.lib, tool.Parameters, arguments[i]) {
			t.Fatalf("%s does not satisfy %s\nanswer: %q", arguments[i], tool.Parameters, answer)
		}
	}
}

// holds reports whether arguments satisfy a schema whose properties are in alphabetical order.
func holds(t *testing.T, lib *grammar.Library, schema []byte, arguments string) bool {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(arguments))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return false
	}
	g, err := jsonschema.Compile(lib, schema)
	if err != nil {
		t.Fatal(err)
	}
	if g.Match(arguments) {
		return true
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return g.Match(strings.TrimSpace(b.String()))
}

// recipientTemplate ends prompts with a marker behind which an answer names whom it is for: all, or a tool.
const recipientTemplate = `{%- for t in tools or [] %}{{ t.function.name }}: {{ t.function.parameters | tojson }}
{% endfor %}{% for m in messages %}[{{ m.role }}]
{% if m.role == 'assistant' %}{% if m.content %}>>>all
{{ m.content }}{% endif %}{% for c in m.tool_calls or [] %}>>>{{ c.function.name }}
{{ c.function.arguments | tojson }}{% endfor %}{% else %}{{ m.content }}{% endif %}<|over|>
{% endfor %}{% if add_generation_prompt %}[assistant]
>>>{% endif %}`

// TestCallsWithoutABeginningPanicked: a constraint that allows text and calls panicked where nothing stands
// before the name of the first call, because the prompt ends with the marker.
func TestCallsWithoutABeginningPanicked(t *testing.T) {
	for _, special := range []bool{true, false} {
		m := templateModel(t, []byte(recipientTemplate), special)
		n, known := m.Chat.CallNotation()
		if !known || n.Before != "" {
			t.Fatalf("the notation is %+v, want one without a beginning", n)
		}
		checkForcedCalls(t, m)
	}
}

// TestUnseenTemplatesForceCalls: so do templates whose notations are learned.
func TestUnseenTemplatesForceCalls(t *testing.T) {
	paths, err := filepath.Glob("../../internal/chat/toolcall/testdata/unseen/*.jinja")
	if err != nil || len(paths) < 85 {
		t.Fatalf("%d templates, %v", len(paths), err)
	}
	for _, path := range paths {
		template, err := golden.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".jinja"), func(t *testing.T) {
			m := templateModel(t, template, true)
			if _, known := m.Chat.CallNotation(); !known {
				t.Fatal("the notation is not known")
			}
			checkForcedCalls(t, m)
		})
	}
}
