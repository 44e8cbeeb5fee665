package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
)

// words encodes special tokens as one token each and other text rune by rune.
type words struct{}

var special = regexp.MustCompile(`<[|｜/]?[\w▁:-]+[|｜]?>|\[/?[A-Z_]+\]|.|\n`)

func (words) Encode(text string, _ bool) (ids []int32, spans [][2]int, err error) {
	at := 0
	for _, w := range special.FindAllString(text, -1) {
		n := len([]rune(w))
		ids, spans = append(ids, int32(len(ids))), append(spans, [2]int{at, at + n})
		at += n
	}
	return ids, spans, nil
}

// learnedText returns the learned parts of a chat.
func learnedText(t *testing.T, tok *Tokenizer, messages, tools string, o TextOptions) ([]string, error) {
	t.Helper()
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(messages), &list); err != nil {
		t.Fatal(err)
	}
	var raw json.RawMessage
	if tools != "" {
		raw = json.RawMessage(tools)
	}
	full, _, err := render(tok, list, raw)
	if err != nil {
		return nil, err
	}
	s, err := TokenizeChat(words{}, tok, list, raw, o)
	if err != nil {
		return nil, err
	}
	var parts []string
	text, in := special.FindAllString(full, -1), false
	for i := range s.IDs {
		if s.Labels[i] == IgnoreLabel {
			in = false
			continue
		}
		if !in {
			parts = append(parts, "")
		}
		in = true
		parts[len(parts)-1] += text[i]
	}
	return parts, nil
}

// templateTokenizer makes a Tokenizer of a chat template with its special tokens.
func templateTokenizer(t *testing.T, template string, tokens map[string]string) *Tokenizer {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(golden.Module(t), "testdata", "golden", "text", "tokenizers", "tiny-llama3like", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(tokens)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := OpenTokenizerFS("m", fstest.MapFS{"tokenizer.json": {Data: b}, "chat_template.jinja": {Data: []byte(template)}, "tokenizer_config.json": {Data: config}})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

const (
	twoTurns = `[{"role":"user","content":"First?"},{"role":"assistant","content":"Answer one."},
		{"role":"user","content":"Second?"},{"role":"assistant","content":"Answer two."}]`
	twoThoughts = `[{"role":"user","content":"First?"},{"role":"assistant","reasoning_content":"Hmm one.","content":"Answer one."},
		{"role":"user","content":"Second?"},{"role":"assistant","reasoning_content":"Hmm two.","content":"Answer two."}]`
	inlineThoughts = `[{"role":"user","content":"First?"},{"role":"assistant","content":"<think>\nHmm one.\n</think>\n\nAnswer one."},
		{"role":"user","content":"Second?"},{"role":"assistant","content":"<think>\nHmm two.\n</think>\n\nAnswer two."}]`
	callsATool = `[{"role":"user","content":"First?"},
		{"role":"assistant","content":"","tool_calls":[{"id":"abcdefghi","type":"function","function":{"name":"look","arguments":{"at":"Rome"}}}]},
		{"role":"tool","tool_call_id":"abcdefghi","name":"look","content":"Sunny."},{"role":"assistant","content":"Answer one."},
		{"role":"user","content":"Second?"},{"role":"assistant","content":"Answer two."}]`
)

// goldenTemplate opens a template of the fixtures.
func goldenTemplate(t *testing.T, name string) *Tokenizer {
	t.Helper()
	source, err := golden.Read(golden.Path(t, "text/templates/files", name+".jinja"))
	if err != nil {
		t.Fatal(err)
	}
	var cases struct {
		Tokens map[string]string `json:"special_tokens"`
	}
	golden.JSON(t, golden.Path(t, "text/templates/cases", name+".json"), &cases)
	return templateTokenizer(t, string(source), cases.Tokens)
}

// TestChatsOfSeveralTurnsWereRefused: templates that render earlier answers in another way than the
// last one (Qwen3, gpt-oss, Phi-3.5, Nemotron) could not be trained on without LastAnswer.
func TestChatsOfSeveralTurnsWereRefused(t *testing.T) {
	for _, c := range []struct {
		template, messages string
		want               []string
	}{
		{"Qwen-Qwen3-0.6B", twoTurns, []string{"Answer one.<|im_end|>\n", "<think>\n\n</think>\n\nAnswer two.<|im_end|>\n"}},
		{"Qwen-Qwen3-0.6B", twoThoughts, []string{"Answer one.<|im_end|>\n", "<think>\nHmm two.\n</think>\n\nAnswer two.<|im_end|>\n"}},
		{"Qwen-Qwen3-0.6B", inlineThoughts, []string{"Answer one.<|im_end|>\n", "<think>\nHmm two.\n</think>\n\nAnswer two.<|im_end|>\n"}},
		{"Qwen-Qwen3-0.6B", callsATool, []string{"<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"Rome\"}}\n</tool_call><|im_end|>\n",
			"Answer one.<|im_end|>\n", "<think>\n\n</think>\n\nAnswer two.<|im_end|>\n"}},
		{"Qwen-QwQ-32B", callsATool, []string{"<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"Rome\"}}\n</tool_call><|im_end|>\n",
			"Answer one.<|im_end|>\n", "Answer two.<|im_end|>\n"}},
		{"openai-gpt-oss-120b", twoTurns, []string{"<|channel|>final<|message|>Answer one.<|end|>", "<|channel|>final<|message|>Answer two.<|return|>"}},
		{"openai-gpt-oss-120b", twoThoughts, []string{"<|channel|>final<|message|>Answer one.<|end|>",
			"<|channel|>analysis<|message|>Hmm two.<|end|><|start|>assistant<|channel|>final<|message|>Answer two.<|return|>"}},
		{"openai-gpt-oss-120b", callsATool, []string{" to=functions.look<|channel|>commentary json<|message|>{\"at\": \"Rome\"}<|call|>",
			"<|channel|>final<|message|>Answer one.<|end|>", "<|channel|>final<|message|>Answer two.<|return|>"}},
		{"microsoft-Phi-3.5-mini-instruct", twoTurns, []string{"Answer one.<|end|>\n", "Answer two.<|end|>\n<|endoftext|>"}},
		{"NVIDIA-Nemotron-Nano-v2", inlineThoughts, []string{"Answer one.\n<SPECIAL_12>\n", "<think>\nHmm two.\n</think>\n\nAnswer two.\n<SPECIAL_12>\n"}},
		{"meta-llama-Llama-3.2-3B-Instruct", twoTurns, []string{"Answer one.<|eot_id|>", "Answer two.<|eot_id|>"}},
	} {
		_, err := golden.Read(golden.Path(t, "text/templates/files", c.template+".jinja"))
		testenv.Need(t, "golden", !errors.Is(err, fs.ErrNotExist), "no published chat templates")
		tok := goldenTemplate(t, c.template)
		got, err := learnedText(t, tok, c.messages, "", TextOptions{})
		if err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
			t.Errorf("%s: %s: %q, %v; want %q", c.template, c.messages, got, err, c.want)
		}
		if got, err = learnedText(t, tok, c.messages, "", TextOptions{LastAnswer: true}); err != nil || len(got) != 1 || got[0] != c.want[len(c.want)-1] {
			t.Errorf("%s: last answer of %s: %q, %v", c.template, c.messages, got, err)
		}
	}
}

// TestEveryTemplateLearnsItsAnswers: whatever a template does, answers are learned, and users' and
// tools' messages are not. Templates that reject a conversation fail with their own message.
func TestEveryTemplateLearnsItsAnswers(t *testing.T) {
	rejected := map[string]int{ // with their reasons in transformers, too
		"CohereForAI-c4ai-command-r-plus-tool_use": 4, "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": 4, "fireworks-ai-llama-3-firefunction-v2": 4, // need tools
		"google-gemma-2-2b-it": 1, "Kimi-K2-Instruct": 1,
	}
	counts := map[string]int{"retrieval-notes": 4} // of words, backwards: it writes other things about an answer than its text
	for _, path := range golden.Glob(t, "text/templates/files/*.jinja") {
		name := strings.TrimSuffix(filepath.Base(path), ".jinja")
		tok := goldenTemplate(t, name)
		failed, unstable := 0, 0
		for _, messages := range []string{twoTurns, twoThoughts, inlineThoughts, callsATool} {
			got, err := learnedText(t, tok, messages, "", TextOptions{})
			if err != nil {
				if failed++; errors.Is(err, ErrUnstable) {
					failed, unstable = failed-1, unstable+1
				}
				continue
			}
			all := strings.Join(got, "|")
			if len(got) < 2 || !strings.Contains(got[len(got)-2], "Answer one.") || !strings.Contains(got[len(got)-1], "Answer two.") {
				t.Errorf("%s: learned %q of %s", name, got, messages)
			}
			if strings.Contains(all, "First?") || strings.Contains(all, "Second?") || strings.Contains(all, "Sunny") || strings.Contains(all, "Heft") {
				t.Errorf("%s: learned too much of %s: %q", name, messages, got)
			}
		}
		if failed != rejected[name] || unstable != counts[name] {
			t.Errorf("%s: %d conversations rejected and %d not located, want %d and %d", name, failed, unstable, rejected[name], counts[name])
		}
	}
}

// TestGenerationBlocks: a template that marks its answers determines the learned tokens.
func TestGenerationBlocks(t *testing.T) {
	const template = `{%- for m in messages %}{% if m.role == "assistant" %}<a>{% generation %}{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}` +
		`{% endgeneration %}{% generation %}{{ m.content | trim }}{% endgeneration %}</a>{% else %}<u>{{ m.content }}</u>{% endif %}{% endfor %}`
	tok := templateTokenizer(t, template, map[string]string{})
	got, err := learnedText(t, tok, twoThoughts, "", TextOptions{})
	if err != nil || fmt.Sprintf("%q", got) != `["(Hmm one.)Answer one." "(Hmm two.)Answer two."]` {
		t.Errorf("%q, %v", got, err)
	}
	if got, err = learnedText(t, tok, twoThoughts, "", TextOptions{LastAnswer: true}); err != nil || fmt.Sprintf("%q", got) != `["(Hmm two.)Answer two."]` {
		t.Errorf("last answer: %q, %v", got, err)
	}
	inMacro := `{%- macro say(m) %}{% generation %}{{ m.content }}{% endgeneration %}{% endmacro %}` +
		`{%- for m in messages %}{% if m.role == "assistant" %}<a>{{ say(m) }}</a>{% else %}<u>{{ m.content }}</u>{% endif %}{% endfor %}`
	if got, err = learnedText(t, templateTokenizer(t, inMacro, map[string]string{}), twoTurns, "", TextOptions{}); err != nil || len(got) != 2 || !strings.Contains(got[0], "Answer one.") {
		t.Errorf("in a macro: %q, %v", got, err)
	}
}
