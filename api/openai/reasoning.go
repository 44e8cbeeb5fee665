package openai

import (
	"github.com/heftai/heft/api/internal/settings"
	"github.com/heftai/heft/api/wire"
)

// decodeReasoning reads the budget of reasoning and OpenRouter's object reasoning. It returns the object's effort,
// "" if there is none.
func (q *chatRequest) decodeReasoning(f *wire.Fields) (effort string) {
	o, ok := f.Object("reasoning")
	if q.ReasoningBudget = settings.DecodeReasoningBudget(f, o); !ok {
		return ""
	}
	hidden := false
	if o.Bool("exclude", &hidden); hidden {
		q.thought = false
	}
	o.Refuse([]wire.Unsupported{{Field: "enabled", Reason: "use chat_template_kwargs, as the chat template has them.", Off: []string{"true"}}})
	o.String("effort", &effort)
	var other string
	if f.String("reasoning_effort", &other); other != "" && effort != "" && other != effort && f.Err() == nil {
		o.Fail("effort", "{} and 'reasoning_effort' are the same setting, but their values differ.")
	}
	return effort
}
