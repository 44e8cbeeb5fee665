package openai

import (
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/settings"
	"github.com/heftai/heft/api/wire"
)

// reasoningOptions control the model's reasoning as variables of the chat template.
type reasoningOptions struct {
	effort string // "": not set
	on     *bool  // nil: the template decides
}

// decodeReasoning reads the budget of reasoning and the other fields about it except
// reasoning_effort: OpenRouter's object reasoning, whose effort may replace that field, and those
// of decodeThinking.
func (q *chatRequest) decodeReasoning(f *wire.Fields) (r reasoningOptions) {
	o, ok := f.Object("reasoning")
	if !ok {
		o = nil
	}
	thinking, said := f.Object("thinking")
	if !said {
		thinking = nil
	}
	q.ReasoningBudget = settings.DecodeReasoningBudget(f, o, thinking)
	r.on = decodeThinking(f, o, thinking)
	if !ok {
		return r
	}
	hidden := false
	if o.Bool("exclude", &hidden); hidden {
		q.thought = false
	}
	o.String("effort", &r.effort)
	var other string
	if f.String("reasoning_effort", &other); other != "" && r.effort != "" && other != r.effort && f.Err() == nil {
		o.Fail("effort", "{} and 'reasoning_effort' are the same setting, but their values differ.")
	}
	return r
}

// decodeThinking reads whether the model reasons: enable_thinking of DashScope and SGLang, type of
// the object thinking of DeepSeek, GLM and Kimi, or enabled of OpenRouter's object reasoning. The
// objects may be nil.
func decodeThinking(f, reasoning, thinking *wire.Fields) (on *bool) {
	read := func(in *wire.Fields, name string, v bool) {
		if on != nil && *on != v && f.Err() == nil {
			in.Fail(name, "{} contradicts another field about whether the model reasons.")
		}
		on = &v
	}
	flag := func(in *wire.Fields, name string) {
		v := false
		if in.Has(name) {
			in.Bool(name, &v)
			read(in, name, v)
		}
	}
	flag(f, "enable_thinking")
	if reasoning != nil {
		flag(reasoning, "enabled")
	}
	if thinking == nil {
		return on
	}
	kind := ""
	switch thinking.String("type", &kind); kind {
	case "":
	case "enabled", "adaptive", "auto":
		read(thinking, "type", true)
	case "disabled":
		read(thinking, "type", false)
	default:
		thinking.Fail("type", "Invalid value for {}: expected \"enabled\", \"disabled\", \"adaptive\" or \"auto\".")
	}
	return on
}

// apply sets the template variables that the request does not set itself.
func (r *reasoningOptions) apply(c *generate.Conversation) {
	set := func(name string, v any) {
		if _, given := c.Arguments[name]; given {
			return
		}
		if c.Arguments == nil {
			c.Arguments = map[string]any{}
		}
		c.Arguments[name] = v
	}
	if r.effort != "" {
		set("reasoning_effort", r.effort)
	}
	if r.on != nil {
		for _, name := range settings.ThinkingVariables {
			set(name, *r.on)
		}
	}
}
