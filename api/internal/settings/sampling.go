package settings

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/text"
)

// MaxStops is the maximum number of stop strings of a request.
const MaxStops = 64

// DecodeSampling reads the sampling parameters and the stop conditions into r. The defaults are
// those of m. Without a seed in the request the seed is random.
func DecodeSampling(f *wire.Fields, m *generate.Model, r *generate.Request) {
	r.N, r.Seed = 1, rand.Uint64()
	r.Params, r.MaxTokens = m.Defaults()
	decodeParams(f, &r.Params)
	decodeSeed(f, &r.Seed)
	f.Like("stop", new(string), []string{})
	DecodeStop(f, &r.Stop)
	vocab := m.Vocab()
	decodeBias(f, vocab, &r.Params.Bias)
	f.IDs("stop_token_ids", &r.Params.Stop, vocab)
	f.IDs("allowed_token_ids", &r.Params.Allow, vocab)
	decodeBadWords(f, m, &r.Params.BadWords)
	f.Bool("ignore_eos", &r.IgnoreEOS)
	decodeSalt(f, &r.Salt)
	f.Bool("include_stop_str_in_output", &r.IncludeStop)
	skip := true
	f.Bool("skip_special_tokens", &skip)
	r.ShowSpecial = !skip
}

// decodeSalt reads cache_salt, which separates cached prefixes.
func decodeSalt(f *wire.Fields, to *string) {
	if f.String("cache_salt", to); f.Has("cache_salt") && *to == "" {
		f.Fail("cache_salt", "Invalid value for {}: it must be a string that is not empty.")
	}
}

func decodeParams(f *wire.Fields, p *generate.Params) {
	f.Number("temperature", &p.Temperature, 0, 2)
	f.Number("top_p", &p.TopP, 0, 1)
	f.Integer("top_k", &p.TopK, -1, math.MaxInt32)
	f.Number("min_p", &p.MinP, 0, 1)
	f.Number("presence_penalty", &p.PresencePenalty, -2, 2)
	f.Number("frequency_penalty", &p.FrequencyPenalty, -2, 2)
	f.Number("repetition_penalty", &p.RepetitionPenalty, 0, 100)
	f.Integer("min_tokens", &p.MinTokens, 0, math.MaxInt32)
	if _, given := f.Raw("top_p"); given && p.TopP == 0 {
		p.TopP, p.TopK = 1, 1 // the most likely token only
	}
	if _, given := f.Raw("repetition_penalty"); given && p.RepetitionPenalty == 0 {
		f.Fail("repetition_penalty", "Invalid value for 'repetition_penalty': it must be above 0.")
	}
}

// decodeSeed reads an integer, which may be negative.
func decodeSeed(f *wire.Fields, to *uint64) {
	f.Like("seed", new(int64))
	raw, ok := f.Raw("seed")
	if !ok {
		return
	}
	if v, err := strconv.ParseUint(string(raw), 10, 64); err == nil {
		*to = v
		return
	}
	v, err := wire.WholeNumber(raw)
	if errors.Is(err, wire.ErrNumberTooLarge) {
		f.Fail("seed", "Invalid value for 'seed': %.40s does not fit 64 bits.", raw)
		return
	}
	if err != nil {
		f.WrongType("seed", "an integer")
		return
	}
	*to = uint64(v)
}

// DecodeStop reads stop, a string or a list of them.
func DecodeStop(f *wire.Fields, to *[]string) {
	raw, ok := f.Raw("stop")
	if !ok {
		return
	}
	var one string
	var list []string
	if json.Unmarshal(raw, &one) == nil {
		list = []string{one}
	} else if json.Unmarshal(raw, &list) != nil {
		f.WrongType("stop", "a string or a list of strings")
		return
	}
	if len(list) > MaxStops {
		f.Fail("stop", "Invalid value for {}: %d strings, at most %d are allowed.", len(list), MaxStops)
	}
	if slices.Contains(list, "") {
		f.Fail("stop", "Invalid value for {}: a stop string cannot be empty.")
	}
	*to = list
}

// Bounds of bad_words.
const (
	maxBadWords     = 128
	maxBadWordBytes = 16 << 10 // total of all texts
)

// decodeBadWords reads texts that must not be generated. As in vLLM, each text is forbidden at the
// start of a word and within one, in the tokens that the tokenizer encodes it to. The same text in
// other tokens is not forbidden.
func decodeBadWords(f *wire.Fields, m *generate.Model, to *[][]int32) {
	f.Like("bad_words", []string{})
	raw, ok := f.Raw("bad_words")
	if !ok {
		return
	}
	var words []*string
	if json.Unmarshal(raw, &words) != nil || slices.Contains(words, nil) {
		f.WrongType("bad_words", "a list of strings")
		return
	}
	if len(words) == 0 {
		return
	}
	if len(words) > maxBadWords || len(raw) > maxBadWordBytes {
		f.Fail("bad_words", "Invalid value for {}: at most %d strings of %d bytes together are allowed.", maxBadWords, maxBadWordBytes)
		return
	}
	if m.Tokenizer == nil {
		f.Fail("bad_words", "The model %s has no tokenizer: {} is not supported; use logit_bias.", m.Name)
		return
	}
	for _, word := range words {
		plain := strings.TrimLeft(*word, " ")
		if plain == "" {
			f.Fail("bad_words", "Invalid value for {}: a string has no text.")
			return
		}
		within, err := m.Tokenizer.Encode(plain, text.EncodeOptions{})
		if err != nil {
			f.FailWith(generate.AsError(err, "bad_words"))
			return
		}
		*to = append(*to, within)
		begins, err := m.Tokenizer.Encode(" "+plain, text.EncodeOptions{})
		if err != nil {
			f.FailWith(generate.AsError(err, "bad_words"))
			return
		}
		if len(begins) == len(within) && begins[0] != within[0] {
			*to = append(*to, begins)
		}
	}
}

// decodeBias reads {"ID": bias}. The order of ids does not matter, because each occurs once.
func decodeBias(f *wire.Fields, vocab int, to *[]generate.Bias) {
	f.Like("logit_bias", map[string]float64{})
	raw, ok := f.Raw("logit_bias")
	if !ok {
		return
	}
	var byID map[string]float64
	if json.Unmarshal(raw, &byID) != nil {
		f.WrongType("logit_bias", "an object of token ids and numbers")
		return
	}
	for text, v := range byID {
		id, err := strconv.ParseInt(text, 10, 32)
		if err != nil || id < 0 || int(id) >= vocab {
			f.Fail("logit_bias", "Invalid key in 'logit_bias': %q is not one of the %d token ids.", text, vocab)
			return
		}
		if v < -100 || v > 100 {
			f.Fail("logit_bias", "Invalid value in 'logit_bias': %v is not between -100 and 100.", v)
			return
		}
		*to = append(*to, generate.Bias{ID: int32(id), Value: float32(v)})
	}
	slices.SortFunc(*to, func(a, b generate.Bias) int { return int(a.ID) - int(b.ID) })
}
