package toolcall

// aliases maps the names of vLLM's --tool-call-parser and --reasoning-parser to families, so that
// vLLM's command lines work here.
var aliases = map[string]string{
	"llama3_json": "llama", "llama4_json": "llama", "llama4_pythonic": "llama-pythonic", "pythonic": "llama-pythonic",
	"qwen3": "hermes", "qwen3_coder": "qwen-coder", "qwen3_xml": "qwen-coder",
	"deepseek_r1": "deepseek-v3", "deepseek_v3": "deepseek-v3", "deepseek_v31": "deepseek-v3.1", "deepseek_v32": "deepseek-dsml",
	"kimi_k2": "kimi-k2", "glm45": "glm", "glm47": "glm", "minimax": "tool-calls", "minimax_m2": "minimax-m2",
	"openai": "harmony", "openai_gptoss": "harmony", "seed_oss": "seed-oss", "gigachat3": "gigachat",
	"hunyuan_a13b": "tool-calls",
}

// canonical returns the family's own name for vLLM's name. It returns other names unchanged.
func canonical(name string) string {
	if own, ok := aliases[name]; ok {
		return own
	}
	return name
}
