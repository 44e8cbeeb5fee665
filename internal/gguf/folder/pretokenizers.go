package folder

// A preTokenizer is how the texts of a byte-level tokenizer are split, by tokenizer.ggml.pre.
type preTokenizer struct {
	patterns     []string // one after another, each on the parts of those before it
	nfc          bool     // texts are normalised first
	ignoreMerges bool     // a part that is a token stays one
	bos          bool     // unless tokenizer.ggml.add_bos_token tells
}

const (
	patternGPT2  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternDigit = `\p{N}`
	patternLLaMA = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternGPT4o = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|` +
		`\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternDeepSeek = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
	patternFalcon   = "[\\p{P}\\$\\+<=>\\^~\\|`]+"
	patternWords    = ` ?[^(\s|.,!?…。，、।۔،)]+`
)

var (
	preGPT2   = preTokenizer{patterns: []string{patternGPT2}}
	preDigits = preTokenizer{patterns: []string{patternDigit, patternGPT2}}
	preLLaMA  = preTokenizer{patterns: []string{patternLLaMA}, ignoreMerges: true, bos: true}
	preQwen   = preTokenizer{patterns: []string{patternQwen}, nfc: true}
	preWords  = preTokenizer{patterns: []string{patternWords}}
)

// preTokenizers is the table of the names that llama.cpp has for the tokenizers it knows.
var preTokenizers = map[string]preTokenizer{
	"gpt-2": preGPT2, "phi-2": preGPT2, "jais": preGPT2, "mpt": preGPT2, "olmo": preGPT2, "trillion": preGPT2,
	"granite-docling": preGPT2, "jina-es": preGPT2, "jina-de": preGPT2, "gigachat": preGPT2,
	"starcoder": preDigits, "refact": preDigits, "command-r": preDigits, "smollm": preDigits, "codeshell": preDigits,
	"exaone": preDigits, "minerva-7b": preDigits,
	"llama3": preLLaMA, "llama-v3": preLLaMA, "llama-bpe": preLLaMA, "falcon3": preLLaMA, "falcon-h1": preLLaMA,
	"pixtral": preLLaMA, "midm-2.0": preLLaMA, "lfm2": preLLaMA,
	"dbrx":        {patterns: []string{patternLLaMA}},
	"smaug-bpe":   {patterns: []string{patternLLaMA}},
	"glm4":        {patterns: []string{patternLLaMA}},
	"chatglm-bpe": {patterns: []string{patternLLaMA}},
	"qwen2":       preQwen, "deepseek-r1-qwen": preQwen, "megrez": preQwen, "kormo": preQwen,
	"stablelm2": {patterns: []string{patternQwen}},
	"hunyuan":   {patterns: []string{patternQwen}},
	"gpt-4o":    {patterns: []string{patternGPT4o}}, "llama4": {patterns: []string{patternGPT4o}, ignoreMerges: true},
	"tekken":      {patterns: []string{patternTekken}, ignoreMerges: true, bos: true},
	"deepseek-v3": {patterns: []string{`\p{N}{1,3}`, `[一-龥぀-ゟ゠-ヿ]+`, patternDeepSeek}},
	"deepseek-coder": {patterns: []string{
		`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, `[一-龥ࠀ-一가-퟿]+`, `\p{N}`,
	}},
	"falcon": {patterns: []string{patternFalcon, patternGPT2, `[0-9][0-9][0-9]`}},
	"bloom":  preWords, "poro-chat": preWords, "gpt3-finnish": preWords,
	"viking": {patterns: []string{patternWords, patternDigit}},
}
