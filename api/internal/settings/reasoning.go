package settings

import "github.com/heftai/heft/api/wire"

// budgetNames are the names of a budget of reasoning in vLLM, llama.cpp, DashScope and NIM.
var budgetNames = []string{"thinking_token_budget", "thinking_budget_tokens", "thinking_budget", "reasoning_budget", "reasoning_budget_tokens", "max_thinking_tokens"}

// ThinkingVariables are the variables of chat templates that turn reasoning on or off.
var ThinkingVariables = []string{"enable_thinking", "thinking"}

// DecodeReasoningBudget reads the maximum number of tokens of reasoning. It reads the names that
// servers use for it, max_tokens of OpenRouter's object reasoning, and budget_tokens of the object
// thinking. These objects may be nil. It returns nil if there is no limit. Different values are an
// error.
func DecodeReasoningBudget(f, reasoning, thinking *wire.Fields) *int {
	first, budget := "", -1
	read := func(in *wire.Fields, name string) {
		n := -1
		if in.Integer(name, &n, -1, 1<<31-1); !in.Has(name) {
			return
		}
		if first != "" && n != budget {
			in.Fail(name, "{} and %s are the same budget, but their values differ.", first)
		}
		first, budget = in.Path(name), n
	}
	for _, name := range budgetNames {
		read(f, name)
	}
	if reasoning != nil {
		read(reasoning, "max_tokens")
	}
	if thinking != nil {
		read(thinking, "budget_tokens")
	}
	if budget < 0 {
		return nil
	}
	return &budget
}
