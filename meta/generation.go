package meta

import (
	"fmt"
	"io/fs"

	"github.com/heftai/heft/internal/smallfile"
)

// A GenerationConfig is a parsed generation_config.json: the sampling defaults chosen by a
// model's authors. If the file lacks a field, its pointer is nil or its list is empty.
type GenerationConfig struct {
	BOS, Pad int // -1 if the file has none
	EOS      []int

	DoSample          *bool
	Temperature       *float64
	TopK              *int // 0: no limit
	TopP              *float64
	MinP              *float64
	TypicalP          *float64
	RepetitionPenalty *float64
	NoRepeatNgram     *int

	MaxLength, MinLength       *int // of prompt and answer
	MaxNewTokens, MinNewTokens *int // of the answer
	SuppressTokens             []int
	StopStrings                []string
}

// ReadGenerationConfig parses the contents of a generation_config.json. Errors are of
// type [*ConfigError].
func ReadGenerationConfig(data []byte) (*GenerationConfig, error) {
	f, err := readFields("generation_config.json", data)
	if err != nil {
		return nil, err
	}
	g := &GenerationConfig{
		BOS: f.token("bos_token_id", -1),
		Pad: f.token("pad_token_id", -1),
		EOS: f.tokens("eos_token_id"),

		Temperature:       f.within("temperature", 0, maxSize),
		TopP:              f.within("top_p", 0, 1),
		MinP:              f.within("min_p", 0, 1),
		TypicalP:          f.within("typical_p", 0, 1),
		RepetitionPenalty: f.within("repetition_penalty", 0, maxSize),
		NoRepeatNgram:     f.optional("no_repeat_ngram_size"),

		MaxLength:      f.optional("max_length"),
		MinLength:      f.optional("min_length"),
		MaxNewTokens:   f.optional("max_new_tokens"),
		MinNewTokens:   f.optional("min_new_tokens"),
		SuppressTokens: f.tokens("suppress_tokens"),
	}
	if f.has("do_sample") {
		sample := f.bool("do_sample", false)
		g.DoSample = &sample
	}
	if f.has("top_k") { // -1 and 0 both turn it off
		k := max(f.count("top_k", 0, -1, maxSize), 0)
		g.TopK = &k
	}
	if g.RepetitionPenalty != nil && *g.RepetitionPenalty == 0 {
		f.fail("repetition_penalty", "0 is not above 0")
	}
	if s, ok := f.values["stop_strings"].(string); ok {
		g.StopStrings = []string{s}
	} else {
		g.StopStrings = f.texts("stop_strings")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return g, nil
}

// ReadGenerationConfigFile reads the generation_config.json at path.
func ReadGenerationConfigFile(path string) (*GenerationConfig, error) {
	data, err := smallfile.Read(path, smallfile.Config)
	if err != nil {
		return nil, fmt.Errorf("meta: %w", err)
	}
	return ReadGenerationConfig(data)
}

// ReadGenerationConfigFS reads the generation_config.json at the root of fsys. Without such a file
// the error wraps fs.ErrNotExist.
func ReadGenerationConfigFS(fsys fs.FS) (*GenerationConfig, error) {
	data, err := smallfile.ReadFS(fsys, "generation_config.json", smallfile.Config)
	if err != nil {
		return nil, fmt.Errorf("meta: %w", err)
	}
	return ReadGenerationConfig(data)
}

// within returns a number within [lo, hi], or nil.
func (f *fields) within(name string, lo, hi float64) *float64 {
	if !f.has(name) {
		return nil
	}
	x := f.float(name, lo)
	if x < lo || x > hi {
		f.fail(name, "%v is not within %v and %v", x, lo, hi)
	}
	return &x
}

// optional returns an integer of at least 0, or nil.
func (f *fields) optional(name string) *int {
	if !f.has(name) {
		return nil
	}
	n := f.count(name, 0, 0, 1<<31-1)
	return &n
}
