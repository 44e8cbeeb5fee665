package folder

// A preTokenizer is how the texts of a byte-level tokenizer are split, by tokenizer.ggml.pre.
type preTokenizer struct {
	patterns     []string // one after another, each on the parts of those before it
	nfc          bool     // texts are normalised first
	ignoreMerges bool     // a part that is a token stays one
	ranked       bool     // all pairs that make a token are merged, in the order of ids, whatever the list of merges
	bos          bool     // unless tokenizer.ggml.add_bos_token tells
	spaced       bool     // texts are UTF-8 with ▁ for spaces, without byte-level coding; no patterns
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
	patternMarks    = `[\p{P}\$\+<=>\^~\|]+`
	patternQwen35   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternSeed     = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternMiniCPM  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternExaone   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`
	patternKimi     = `[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// patternCased is DeepSeek LLM's: letters that have cases, of the scripts that it lists.
	patternCased = "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386" +
		"\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf" +
		"\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4" +
		"\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-" +
		"\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2" +
		"\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-" +
		"\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+"
	patternBailing = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
	patternJais2   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|` +
		`\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`
	patternYoutu = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// patternAsian is AFMoE's: characters of scripts without spaces between words.
	patternAsian = "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff" +
		"\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
	patternWords = ` ?[^(\s|.,!?…。，、।۔،)]+`
)

var (
	preGPT2   = preTokenizer{patterns: []string{patternGPT2}}
	preDigits = preTokenizer{patterns: []string{patternDigit, patternGPT2}}
	preLLaMA  = preTokenizer{patterns: []string{patternLLaMA}, ignoreMerges: true, bos: true}
	preQwen   = preTokenizer{patterns: []string{patternQwen}, nfc: true}
	preGPT4o  = preTokenizer{patterns: []string{patternGPT4o}}
	preDeep   = preTokenizer{patterns: []string{`\p{N}{1,3}`, `[一-龥぀-ゟ゠-ヿ]+`, patternDeepSeek}}
	preAya    = preTokenizer{patterns: []string{`\d{1,3}(?=(?:\d{3})*\b)`, patternGPT4o}}
	preWords  = preTokenizer{patterns: []string{patternWords}}
	preGLM    = preTokenizer{patterns: []string{patternLLaMA}, ignoreMerges: true}
	preLing   = preTokenizer{patterns: []string{patternBailing}}
	preSpaced = preTokenizer{spaced: true}
)

// preTokenizers is the table of the names that llama.cpp has for the tokenizers it knows.
var preTokenizers = map[string]preTokenizer{
	"gpt-2": preGPT2, "phi-2": preGPT2, "jais": preGPT2, "mpt": preGPT2, "olmo": preGPT2, "trillion": preGPT2,
	"granite-docling": preGPT2, "jina-es": preGPT2, "jina-de": preGPT2, "gigachat": preGPT2,
	"exaone4": preGPT2, "a.x-4.0": preGPT2, "mellum": preGPT2, "jina-v2-es": preGPT2, "jina-v2-de": preGPT2, "modern-bert": preGPT2,
	"starcoder": preDigits, "refact": preDigits, "command-r": preDigits, "smollm": preDigits, "codeshell": preDigits,
	"exaone": preDigits, "minerva-7b": preDigits, "mellum2": preDigits,
	"llama3": preLLaMA, "llama-v3": preLLaMA, "llama-bpe": preLLaMA, "falcon3": preLLaMA, "falcon-h1": preLLaMA,
	"pixtral": preLLaMA, "midm-2.0": preLLaMA, "lfm2": preLLaMA, "jina-v5-nano": preLLaMA,
	"dbrx":      {patterns: []string{patternLLaMA}},
	"smaug-bpe": {patterns: []string{patternLLaMA}},
	"glm4":      preGLM, "glm5": preGLM,
	"chatglm-bpe": {patterns: []string{patternLLaMA}},
	"qwen2":       preQwen, "deepseek-r1-qwen": preQwen, "megrez": preQwen, "kormo": preQwen, "f2llmv2": preQwen,
	"stablelm2":  {patterns: []string{patternQwen}},
	"hunyuan":    {patterns: []string{patternQwen}},
	"solar-open": {patterns: []string{patternQwen}}, "grok-2": {patterns: []string{patternQwen}},
	"qwen35": {patterns: []string{patternQwen35}, nfc: true},
	"gpt-4o": preGPT4o, "minimax-m2": preGPT4o, "kanana2": preGPT4o, "talkie": preGPT4o, "llama4": {patterns: []string{patternGPT4o}, ignoreMerges: true},
	"tekken":      {patterns: []string{patternTekken}, ignoreMerges: true, bos: true},
	"deepseek-v3": preDeep, "hunyuan-dense": preDeep, "joyai-llm": preDeep, "hy_v4": preDeep,
	"deepseek-llm": {patterns: []string{
		`[\r\n]`, patternCased, "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", `\s+$`, `[一-龥ࠀ-一가-퟿]+`, `\p{N}`,
	}},
	"kimi-k2":    {patterns: []string{patternKimi}, ignoreMerges: true, ranked: true},
	"seed-coder": {patterns: []string{patternSeed}},
	"minicpm5":   {patterns: []string{`\p{N}{1,3}`, patternMiniCPM}, ignoreMerges: true},
	"exaone-moe": {patterns: []string{patternExaone}},
	"tiny_aya":   preAya, "cohere2moe": preAya,
	"deepseek-coder": {patterns: []string{
		`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, `[一-龥ࠀ-一가-퟿]+`, `\p{N}`,
	}},
	"falcon":     {patterns: []string{patternFalcon, patternGPT2, `[0-9][0-9][0-9]`}},
	"default":    {patterns: []string{patternMarks, patternGPT2, `\p{N}+`, `[0-9][0-9][0-9]`}},
	"bailingmoe": preLing, "bailingmoe2": preLing, "llada-moe": preLing,
	"superbpe": {patterns: []string{`\p{N}+`, `(?=(\d{3})+(?!\d))`}},
	"jais-2":   {patterns: []string{patternJais2}},
	"laguna":   {patterns: []string{`[^\n]+|[\n]+`, patternQwen}},
	"youtu": {patterns: []string{
		`[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+`, patternYoutu,
	}, ignoreMerges: true},
	"afmoe":  {patterns: []string{`\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))`, patternAsian, patternDeepSeek}},
	"gemma4": {spaced: true, bos: true}, "sarvam-moe": preSpaced,
	"bloom": preWords, "poro-chat": preWords, "gpt3-finnish": preWords,
	"viking": {patterns: []string{patternWords, patternDigit}},
}
