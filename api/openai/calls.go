package openai

import "github.com/heftai/heft/api/generate"

// toolCall is a call in a message.
type toolCall struct {
	ID       string      `json:"id"`
	Type     string      `json:"type"`
	Function *function   `json:"function,omitzero"`
	Custom   *customCall `json:"custom,omitzero"` // instead of a function
}

type function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON
}

// customCall is a call of a custom tool.
type customCall struct {
	Name  string `json:"name"`
	Input string `json:"input"`
}

// Samples implements schema.Sampler.
func (toolCall) Samples() []any {
	return []any{toolCall{Type: typeFunction, Function: &function{}}, toolCall{Type: typeCustom, Custom: &customCall{}}}
}

// toolCallDelta is new output of a call. Only the first delta of a call has id, type and name.
type toolCallDelta struct {
	Index    int            `json:"index"`
	ID       string         `json:"id,omitzero"`
	Type     string         `json:"type,omitzero"`
	Function *functionDelta `json:"function,omitzero"`
	Custom   *customDelta   `json:"custom,omitzero"`
}

type customDelta struct {
	Name  string `json:"name,omitzero"`
	Input string `json:"input"`
}

type functionDelta struct {
	Name      string `json:"name,omitzero"`
	Arguments string `json:"arguments"`
}

const (
	typeFunction = "function"
	typeCustom   = "custom"
)

// addCall adds a piece of a call to calls.
func addCall(calls []toolCall, c generate.Call) []toolCall {
	if c.Name != "" {
		begun := toolCall{Type: typeFunction, Function: &function{Name: c.Name}}
		if c.Custom {
			begun = toolCall{Type: typeCustom, Custom: &customCall{Name: c.Name}}
		}
		calls = append(calls, begun)
	}
	last := &calls[len(calls)-1]
	if c.ID != "" {
		last.ID = c.ID
	}
	if c.Custom {
		last.Custom.Input += c.Arguments
	} else {
		last.Function.Arguments += c.Arguments
	}
	return calls
}

// callDeltas converts pieces of calls to deltas. If the model writes its id after the call's first
// piece, the call keeps the id that the server made.
func callDeltas(pieces []generate.Call) []toolCallDelta {
	var out []toolCallDelta
	for _, c := range pieces {
		d, kind := toolCallDelta{Index: c.Index}, typeFunction
		if c.Custom {
			d.Custom, kind = &customDelta{c.Name, c.Arguments}, typeCustom
		} else {
			d.Function = &functionDelta{c.Name, c.Arguments}
		}
		if c.Name != "" {
			d.ID, d.Type = c.ID, kind
		}
		if c.Name != "" || c.Arguments != "" {
			out = append(out, d)
		}
	}
	return out
}

// withoutMore drops the pieces of all calls except the first.
func withoutMore(pieces []generate.Call) []generate.Call {
	for i, c := range pieces {
		if c.Index > 0 {
			return pieces[:i]
		}
	}
	return pieces
}

// outcome says how an answer's calls affect its finish_reason.
type outcome struct{ called, broken bool }

func (o *outcome) add(pieces []generate.Call) {
	for _, c := range pieces {
		o.called = true
		o.broken = o.broken || c.Broken
	}
}

// finishCalls is the finish_reason of an answer with calls.
const finishCalls = "tool_calls"

// reason returns the finish_reason. If a call is broken, it is not tool_calls, so that clients do
// not execute the calls.
func (o outcome) reason(engine string) string {
	if engine == "stop" && o.called && !o.broken {
		return finishCalls
	}
	return engine
}
