package folder

import (
	"fmt"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/gguf"
)

// wordPiece makes a tokenizer like BERT's.
func (v *vocabulary) wordPiece() (object, error) {
	if v.meta[ggml+"token_type"] == nil {
		return nil, &gguf.Error{Key: ggml + "token_type", Reason: "the key is missing: convert the model again with a current llama.cpp"}
	}
	v = v.marked()
	unknown, err := v.role("[UNK]", "unknown")
	if err != nil {
		return nil, err
	}
	cls, err := v.role("[CLS]", "bos", "cls")
	if err != nil {
		return nil, err
	}
	sep, err := v.role("[SEP]", "seperator", "eos") // as llama.cpp spells it
	if err != nil {
		return nil, err
	}
	lower, stated, err := v.meta.Bool(ggml + "normalizer.lowercase")
	if err != nil {
		return nil, err
	}
	lower = lower || !stated
	accents, stated, err := v.meta.Bool(ggml + "normalizer.strip_accents")
	if err != nil {
		return nil, err
	}
	if !stated {
		accents = lower
	}
	sequence := func(name string, typeID int) object { return object{"Sequence": object{"id": name, "type_id": typeID}} }
	special := func(id, typeID int) object {
		return object{"SpecialToken": object{"id": v.tokens[id], "type_id": typeID}}
	}
	ends := object{}
	for _, id := range []int{cls, sep} {
		ends[v.tokens[id]] = object{"id": v.tokens[id], "ids": []int{id}, "tokens": []string{v.tokens[id]}}
	}
	single := []object{special(cls, 0), sequence("A", 0), special(sep, 0)}
	return object{
		"version": "1.0", "added_tokens": v.added(),
		"normalizer":     object{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": accents, "lowercase": lower},
		"pre_tokenizer":  object{"type": "BertPreTokenizer"},
		"post_processor": object{"type": "TemplateProcessing", "single": single, "pair": append(slices.Clone(single), sequence("B", 1), special(sep, 1)), "special_tokens": ends},
		"decoder":        object{"type": "WordPiece", "prefix": "##", "cleanup": true},
		"model":          object{"type": "WordPiece", "unk_token": v.tokens[unknown], "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": v.ids()},
	}, nil
}

// role returns the id of the first of the named special tokens that the file states, or of the token with the usual text.
func (v *vocabulary) role(usual string, names ...string) (int, error) {
	for _, name := range names {
		if id, _, ok, err := v.special(name); err != nil || ok {
			return id, err
		}
	}
	if id := slices.Index(v.tokens, usual); id >= 0 {
		return id, nil
	}
	return 0, &gguf.Error{Key: ggml + names[0] + "_token_id", Reason: fmt.Sprintf("the key is missing, and there is no token %s", usual)}
}

// marked returns v with the pieces that BERT's tokenizer has: ## before those that continue a word. In the file, those that
// begin a word have ▁ before them.
func (v *vocabulary) marked() *vocabulary {
	w := *v
	w.tokens = slices.Clone(v.tokens)
	for id, token := range v.tokens {
		switch rest, begins := strings.CutPrefix(token, "▁"); {
		case v.types[id] == tokenControl:
		case begins:
			w.tokens[id] = rest
		default:
			w.tokens[id] = "##" + token
		}
	}
	return &w
}
