package folder

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/gguf"
)

// endTexts are tokens that end an answer in the models that have them. Those with false do not where the file says that
// they are normal tokens: texts of some models have them.
var endTexts = map[string]bool{
	"<|eot_id|>": true, "<|im_end|>": true, "<|end|>": true, "<|return|>": true, "<|call|>": true, "<|calls|>": true, "<|flush|>": true,
	"<end_of_turn>": true, "<turn|>": true, "<|tool_response>": true, "<|endoftext|>": true, "<|end_of_text|>": true, "<|eom_id|>": true,
	"<end_of_utterance>": true, "<｜end▁of▁sentence｜>": true, "[e~[": true,
	"<EOT>": false, "_<EOT>": false, "[EOT]": false, "[EOS]": false, "<eos>": false, "</s>": false,
}

// A continuation is a token of endTexts that does not end an answer in a model that has all of the others.
type continuation struct {
	text   string
	others []string
}

var continuations = []continuation{
	{"<|end|>", []string{"<|return|>", "<|call|>"}}, // Harmony's messages end, and the next one follows
	{"<|end|>", []string{"<|calls|>", "<|flush|>"}},
	{"</s>", []string{"<|tool_response>"}},
}

// vocabulary is what all tokenizers have. It does not change after readVocabulary, so the files of a folder share one.
type vocabulary struct {
	meta   gguf.Metadata
	kind   string
	tokens []string
	types  []int64
	// ends are tokens that end answers by their text; continues are texts of others, which do not.
	ends      []int
	continues []string
}

// readVocabulary reads the tokens and their types. Tokens without a type are normal ones, and those that end answers are
// control tokens, as llama.cpp takes them.
func readVocabulary(m gguf.Metadata) (*vocabulary, error) {
	v := &vocabulary{meta: m}
	var err error
	if v.kind, _, err = m.Text(ggml + "model"); err != nil {
		return nil, err
	}
	if v.tokens, err = m.Texts(ggml + "tokens"); err != nil {
		return nil, err
	}
	types, err := m.Ints(ggml + "token_type")
	if err != nil {
		return nil, err
	}
	if types != nil && len(types) != len(v.tokens) {
		return nil, &gguf.Error{Key: ggml + "token_type", Reason: fmt.Sprintf("got %d types for %d tokens", len(types), len(v.tokens))}
	}
	if v.types = slices.Clone(types); types == nil {
		v.types = slices.Repeat([]int64{tokenNormal}, len(v.tokens))
	}
	v.findEnds()
	return v, nil
}

// findEnds finds the tokens that end answers, and makes them control tokens.
func (v *vocabulary) findEnds() {
	found := map[string]bool{}
	for id, token := range v.tokens {
		if always, ends := endTexts[token]; ends && (always || v.types[id] != tokenNormal) {
			found[token] = true
		}
	}
	for _, c := range continuations {
		if !slices.ContainsFunc(c.others, func(other string) bool { return !found[other] }) {
			v.continues = append(v.continues, c.text)
			delete(found, c.text)
		}
	}
	for id, token := range v.tokens {
		if found[token] {
			v.ends = append(v.ends, id)
			if v.types[id] == tokenNormal {
				v.types[id] = tokenControl
			}
		}
	}
}

// usualIDs are the special tokens of SentencePiece models that do not state them.
var usualIDs = map[string]int64{"unknown": 0, "bos": 1, "eos": 2}

// special returns the id and the text of a special token such as "bos". ok is false where there is none.
func (v *vocabulary) special(name string) (id int, token string, ok bool, err error) {
	n, ok, err := v.meta.Int(ggml + name + "_token_id")
	if err != nil {
		return 0, "", false, err
	}
	if !ok && v.kind == "llama" {
		n, ok = usualIDs[name]
	}
	if !ok || n < 0 || n >= int64(len(v.tokens)) { // 2^32 - 1 is written for none
		return 0, "", false, nil
	}
	return int(n), v.tokens[n], true, nil
}

// generationConfig makes generation_config.json: the tokens that end an answer, and those that never occur in one.
func generationConfig(v *vocabulary) ([]byte, error) {
	c, ends := object{}, []int{}
	for _, name := range []string{"eos", "eot", "eom"} {
		id, token, ok, err := v.special(name)
		if err != nil {
			return nil, err
		}
		if ok && !slices.Contains(v.continues, token) && !slices.Contains(ends, id) {
			ends = append(ends, id)
		}
	}
	for _, id := range v.ends {
		if !slices.Contains(ends, id) {
			ends = append(ends, id)
		}
	}
	if len(ends) > 0 {
		c["eos_token_id"] = ends
	}
	if id, _, ok, err := v.special("bos"); err != nil {
		return nil, err
	} else if ok {
		c["bos_token_id"] = id
	}
	never, err := v.meta.Ints(ggml + "suppress_tokens")
	if err != nil {
		return nil, err
	}
	if len(never) > 0 {
		c["suppress_tokens"] = never
	}
	return json.Marshal(c)
}
