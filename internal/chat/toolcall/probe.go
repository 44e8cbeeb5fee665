package toolcall

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/heftai/heft/internal/chat"
)

// Words in the conversations that are rendered to learn a template's notation. They occur in no
// template.
const (
	probeUser    = "Zquser asks."
	probeContent = "Zqcontent said."
	probeThought = "Zqthought of."
)

// probeTool is the schema of the tools that those conversations have.
const probeTool = `{"type": "function", "function": {"name": "NAME", "description": "Zq.", "parameters": {"type": "object", "properties": {
 "zqa": {"type": "string", "description": "A."}, "zqb": {"type": "string", "description": "B."}, "zqn": {"type": "integer", "description": "N."},
 "zqo": {"type": "object", "description": "O.", "additionalProperties": {"type": "string"}, "properties": {}}, "zql": {"type": "array", "description": "L.", "items": {"type": "string"}},
 "zqt": {"type": "boolean", "description": "T."}}, "required": ["zqa"]}}}`

// probeNames are the functions that are called. They contain letters that markers start with.
var probeNames = [...]string{"zqfirst_name", "zqSecond-arguments", "zqthird"}

// A probeCall is a call of a conversation; arguments are JSON.
type probeCall struct{ name, id, arguments string }

// newProbeCall returns call i. Its id has the form that Mistral's templates require.
func newProbeCall(i int, arguments string) probeCall {
	return probeCall{probeNames[i], "Zqid0000" + string(rune('1'+i)), arguments}
}

// A setting is a form of conversations. Some templates fail with a form that others need.
type setting struct {
	thinking      any  // the switches for reasoning: absent, true or false
	noContent     bool // a message without text has no content, instead of an empty one
	textArguments bool // arguments are JSON in a string
	namedIDs      bool // ids are functions.NAME:INDEX
	noTools       bool // the conversation lists no tools
}

// A prober renders conversations with one template.
type prober struct {
	template *chat.Template
	special  map[string]string
	tools    chat.Value
	setting
}

func newProber(t *chat.Template, special map[string]string) *prober {
	tools := chat.NewList()
	for _, name := range probeNames {
		tool, err := chat.Decode([]byte(strings.Replace(probeTool, "NAME", name, 1)))
		if err != nil {
			panic(err) // a constant of this file
		}
		tools.Items = append(tools.Items, tool)
	}
	p := &prober{template: t, tools: tools, special: map[string]string{"bos_token": "<s>", "eos_token": "</s>"}}
	if len(special) > 0 {
		p.special = special
	}
	return p
}

// message is an answer of the assistant.
func (p *prober) message(content, thought string, calls ...probeCall) chat.Value {
	m := chat.NewDict("role", "assistant", "content", content)
	if p.noContent && content == "" {
		m.Set("content", nil)
	}
	if thought != "" {
		m.Set("reasoning_content", thought)
		m.Set("reasoning", thought) // the only name that Solar's template reads
	}
	list := chat.NewList()
	for _, c := range calls {
		var arguments chat.Value = c.arguments
		if !p.textArguments {
			arguments, _ = chat.Decode([]byte(c.arguments))
		}
		function := chat.NewDict("name", c.name, "arguments", arguments)
		list.Items = append(list.Items, chat.NewDict("id", p.id(c), "type", "function", "function", function))
	}
	if len(calls) > 0 {
		m.Set("tool_calls", list)
	}
	return m
}

func (p *prober) id(c probeCall) string {
	if p.namedIDs {
		return "functions." + c.name + ":" + string(c.id[len(c.id)-1]-1)
	}
	return c.id
}

// render returns the whole text of a conversation that starts with the user's question.
func (p *prober) render(generate bool, answers ...chat.Value) (string, bool) {
	r := chat.Request{
		Messages: append([]chat.Value{chat.NewDict("role", "user", "content", probeUser)}, answers...),
		Tools:    p.tools, AddGenerationPrompt: generate, SpecialTokens: p.special, Now: time.Unix(1.7e9, 0).UTC(),
		Limits: chat.Limits{Steps: 200_000, Alloc: 16 << 20, Output: 64 << 10}, // about ten times what real templates need
	}
	if p.noTools {
		r.Tools = nil
	}
	names, _ := json.Marshal(probeNames)
	r.Kwargs = chat.NewDict("functions", string(names), "datetime", "today") // Firefunction's template needs them
	if p.thinking != nil {
		r.Kwargs.Set("enable_thinking", p.thinking)
		r.Kwargs.Set("thinking", p.thinking)
		r.Kwargs.Set("think_render_option", "all")
	}
	text, err := p.template.Render(r)
	return text, err == nil
}

// tail returns the text after the user's question.
func (p *prober) tail(generate bool, answers ...chat.Value) (string, bool) {
	text, ok := p.render(generate, answers...)
	i := strings.LastIndex(text, probeUser)
	if !ok || i < 0 {
		return "", false
	}
	return text[i+len(probeUser):], true
}

// answers renders answers, which follow the header of the assistant's message.
type answers struct {
	*prober
	header string // the end of the prompt, before the model's text
	opened string // the rest of the end of the prompt, which belongs to the answer
	end    string // the template's text after an answer of text
	frame  string // the template's text before it
}

// newAnswers finds the header that the template writes before answers.
func newAnswers(p *prober) (*answers, bool) {
	prompt, ok := p.tail(true)
	plain, plainOK := p.tail(false, p.message(probeContent, ""))
	calls, callsOK := p.tail(false, p.message("", "", newProbeCall(0, `{"zqa": "zqvalue"}`)))
	if !ok || !plainOK && !callsOK {
		return nil, false
	}
	n := len(prompt)
	if plainOK {
		n = min(n, len(commonPrefix(prompt, plain)))
	}
	if callsOK {
		n = min(n, len(commonPrefix(prompt, calls)))
	}
	a := &answers{prober: p, header: prompt[:n], opened: prompt[n:]}
	if frame, end, ok := strings.Cut(plain[min(n, len(plain)):], probeContent); ok {
		a.frame, a.end = frame, end
	}
	return a, true
}

// answer returns the template's text of an answer, up to the end of the turn.
func (a *answers) answer(content, thought string, calls ...probeCall) (string, bool) {
	text, ok := a.tail(false, a.message(content, thought, calls...))
	if !ok || !strings.HasPrefix(text, a.header) {
		return "", false
	}
	return a.cut(text[len(a.header):]), true
}

// cut removes the text that also ends turns of text from the end of a turn.
func (a *answers) cut(text string) string {
	text = text[:len(text)-len(commonSuffix(text, a.end))]
	said := 0 // the text up to here belongs to the answer
	for _, word := range append(probeNames[:], probeContent, probeThought, "zqvalue") {
		said = max(said, strings.LastIndex(text, word))
	}
	for _, end := range []string{strings.TrimSpace(a.end), a.special["eos_token"]} {
		if i := strings.Index(text[said:], end); end != "" && i >= 0 {
			text = text[:said+i]
		}
	}
	return text
}
