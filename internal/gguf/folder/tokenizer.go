package folder

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/gguf"
)

// The kinds of tokens in tokenizer.ggml.token_type.
const (
	tokenNormal      = 1
	tokenUnknown     = 2
	tokenControl     = 3
	tokenUserDefined = 4
)

const ggml = "tokenizer.ggml."

// tokenizerFile makes tokenizer.json. It fails with fs.ErrNotExist for a file without a vocabulary.
func tokenizerFile(v *vocabulary) ([]byte, error) {
	if len(v.tokens) == 0 { // the model can still be used with token ids
		return nil, fmt.Errorf("%w: the GGUF file has no %stokens", fs.ErrNotExist, ggml)
	}
	var file object
	var err error
	switch v.kind {
	case "gpt2":
		file, err = v.byteLevel()
	case "llama":
		file, err = v.sentencePiece()
	case "gemma4":
		file, err = v.spaced(preTokenizers[v.kind])
	case "bert":
		file, err = v.wordPiece()
	default:
		err = &gguf.Error{Key: ggml + "model", Reason: fmt.Sprintf("tokenizer %.40q is not supported (supported: gpt2, llama, gemma4, bert)", v.kind)}
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(file)
}

// file is the part of tokenizer.json that all tokenizers share.
func (v *vocabulary) file(model object, addBOS bool) (object, error) {
	post, err := v.template(addBOS)
	if err != nil {
		return nil, err
	}
	return object{"version": "1.0", "added_tokens": v.added(), "post_processor": post, "model": model}, nil
}

// ids are the tokens with their ids. If a token stands twice, the first id counts.
func (v *vocabulary) ids() map[string]int {
	ids := make(map[string]int, len(v.tokens))
	for id, token := range v.tokens {
		if _, twice := ids[token]; !twice {
			ids[token] = id
		}
	}
	return ids
}

// added lists the tokens that are found in texts before the model sees them.
func (v *vocabulary) added() []object {
	list := []object{}
	for id, t := range v.types {
		if (t == tokenControl || t == tokenUserDefined || t == tokenUnknown) && v.tokens[id] != "" {
			list = append(list, object{
				"id": id, "content": v.tokens[id], "special": t != tokenUserDefined,
				"single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
			})
		}
	}
	return list
}

// template puts the tokens around a text that the metadata asks for; nil where it asks for none.
func (v *vocabulary) template(addBOS bool) (any, error) {
	single := []object{{"Sequence": object{"id": "A", "type_id": 0}}}
	pair := []object{{"Sequence": object{"id": "B", "type_id": 1}}}
	special := object{}
	for _, end := range []struct {
		name string
		add  bool
	}{{"bos", addBOS}, {"eos", false}} {
		add, stated, err := v.meta.Bool(ggml + "add_" + end.name + "_token")
		if err != nil {
			return nil, err
		}
		if stated {
			end.add = add
		}
		id, token, ok, err := v.special(end.name)
		if err != nil {
			return nil, err
		}
		if !end.add || !ok {
			continue
		}
		special[token] = object{"id": token, "ids": []int{id}, "tokens": []string{token}}
		piece := func(typeID int) object { return object{"SpecialToken": object{"id": token, "type_id": typeID}} }
		if end.name == "bos" {
			single, pair = slices.Insert(single, 0, piece(0)), slices.Insert(pair, 0, piece(1))
		} else {
			single, pair = append(single, piece(0)), append(pair, piece(1))
		}
	}
	if len(special) == 0 {
		return nil, nil
	}
	return object{"type": "TemplateProcessing", "single": single, "pair": append(slices.Clone(single), pair...), "special_tokens": special}, nil
}

// byteLevel makes a tokenizer like GPT-2's.
func (v *vocabulary) byteLevel() (object, error) {
	name, ok, err := v.meta.Text(ggml + "pre")
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, &gguf.Error{Key: ggml + "pre", Reason: "the key is missing, so it is unknown how texts are split: convert the model again with a current llama.cpp"}
	}
	pre, ok := preTokenizers[name]
	if !ok {
		return nil, &gguf.Error{Key: ggml + "pre", Reason: fmt.Sprintf("%.60q is not supported: it is unknown how its texts are split", name)}
	}
	if pre.spaced {
		return v.spaced(pre)
	}
	merges, err := v.merges()
	if err != nil {
		return nil, err
	}
	ids := v.ids()
	if pre.ranked {
		ranks := make([]float64, len(v.tokens))
		for id := range ranks {
			ranks[id] = -float64(id)
		}
		merges = mergesOf(v.tokens, ranks, ids)
	}
	file, err := v.file(object{"type": "BPE", "vocab": ids, "merges": merges, "ignore_merges": pre.ignoreMerges}, pre.bos)
	if err != nil {
		return nil, err
	}
	steps := []object{}
	for _, pattern := range pre.patterns {
		steps = append(steps, object{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": "Isolated", "invert": false})
	}
	steps = append(steps, object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false})
	file["pre_tokenizer"] = object{"type": "Sequence", "pretokenizers": steps}
	file["decoder"] = object{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}
	if pre.nfc {
		file["normalizer"] = object{"type": "NFC"}
	}
	return file, nil
}

// merges reads the pairs of tokens that are merged, best first.
func (v *vocabulary) merges() ([][2]string, error) {
	lines, err := v.meta.Texts(ggml + "merges")
	if err != nil {
		return nil, err
	}
	if lines == nil {
		return nil, &gguf.Error{Key: ggml + "merges", Reason: "the key is missing"}
	}
	merges := make([][2]string, len(lines))
	for i, line := range lines {
		// A token that begins with a space is written as such, so the separator is the one behind it.
		at := strings.IndexByte(line[min(1, len(line)):], ' ') + 1
		if at < 1 || at == len(line)-1 {
			return nil, &gguf.Error{Key: ggml + "merges", Reason: fmt.Sprintf("merge %d is %.60q, want two tokens", i, line)}
		}
		merges[i] = [2]string{line[:at], line[at+1:]}
	}
	return merges, nil
}

// spaced makes a tokenizer like Gemma 4's: merges of a list on texts with ▁ for spaces, which are not cut
// first, and bytes for characters that no token has.
func (v *vocabulary) spaced(pre preTokenizer) (object, error) {
	merges, err := v.merges()
	if err != nil {
		return nil, err
	}
	model := object{"type": "BPE", "vocab": v.ids(), "merges": merges, "fuse_unk": true, "byte_fallback": true}
	if at := slices.Index(v.types, tokenUnknown); at >= 0 {
		model["unk_token"] = v.tokens[at]
	}
	file, err := v.file(model, pre.bos)
	if err != nil {
		return nil, err
	}
	v.unprefixed(file)
	return file, nil
}

// unprefixed completes a tokenizer whose spaces are ▁, and which puts none before a text.
func (v *vocabulary) unprefixed(file object) {
	file["normalizer"] = object{"type": "Replace", "pattern": object{"String": " "}, "content": "▁"}
	file["pre_tokenizer"] = object{"type": "Split", "pattern": object{"String": " "}, "behavior": "MergedWithPrevious", "invert": false}
	file["decoder"] = object{"type": "Sequence", "decoders": spaceDecoders()}
}

// spaceDecoders undo ▁ for spaces, and bytes for characters.
func spaceDecoders() []object {
	return []object{
		{"type": "Replace", "pattern": object{"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
	}
}

// sentencePiece makes a tokenizer like Llama 2's: pairs are merged in the order of the scores of what they
// make, and bytes stand for characters that no token has.
func (v *vocabulary) sentencePiece() (object, error) {
	scores, err := v.meta.Floats(ggml + "scores")
	if err != nil {
		return nil, err
	}
	if len(scores) != len(v.tokens) {
		return nil, &gguf.Error{Key: ggml + "scores", Reason: fmt.Sprintf("got %d scores for %d tokens", len(scores), len(v.tokens))}
	}
	ids := v.ids()
	model := object{"type": "BPE", "vocab": ids, "merges": mergesOf(v.tokens, scores, ids), "fuse_unk": true, "byte_fallback": true}
	if at := slices.Index(v.types, tokenUnknown); at >= 0 {
		model["unk_token"] = v.tokens[at]
	}
	file, err := v.file(model, true)
	if err != nil {
		return nil, err
	}
	prefix, stated, err := v.meta.Bool(ggml + "add_space_prefix")
	if err != nil {
		return nil, err
	}
	v.unprefixed(file)
	if prefix || !stated {
		file["normalizer"] = object{"type": "Sequence", "normalizers": []object{{"type": "Prepend", "prepend": "▁"}, file["normalizer"].(object)}}
		file["decoder"] = object{"type": "Sequence", "decoders": append(spaceDecoders(), object{"type": "Strip", "content": " ", "start": 1, "stop": 0})}
		delete(file, "pre_tokenizer")
	}
	return file, nil
}

// mergesOf lists the pairs of tokens that make a token, best first: in the order of the score of the
// result, as transformers converts such a vocabulary.
func mergesOf(tokens []string, scores []float64, ids map[string]int) [][2]string {
	type merge struct {
		left, right string
		score       float64
	}
	var all []merge
	for id, token := range tokens {
		if ids[token] != id {
			continue
		}
		first := len(all)
		for at := range token {
			if at == 0 {
				continue
			}
			if _, ok := ids[token[:at]]; ok {
				if _, ok := ids[token[at:]]; ok {
					all = append(all, merge{token[:at], token[at:], scores[id]})
				}
			}
		}
		slices.SortStableFunc(all[first:], func(a, b merge) int {
			return cmp.Or(cmp.Compare(ids[a.left], ids[b.left]), cmp.Compare(ids[a.right], ids[b.right]))
		})
	}
	count := func(s string) int { return len([]rune(s)) }
	slices.SortStableFunc(all, func(a, b merge) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(count(b.left), count(a.left)), cmp.Compare(count(b.right), count(a.right)))
	})
	out := make([][2]string, len(all))
	for i, m := range all {
		out[i] = [2]string{m.left, m.right}
	}
	return out
}

// tokenizerConfig makes tokenizer_config.json: chat templates and special tokens.
func tokenizerConfig(v *vocabulary) ([]byte, error) {
	c := object{}
	template, ok, err := v.meta.Text("tokenizer.chat_template")
	if err != nil {
		return nil, err
	}
	if ok {
		c["chat_template"] = template
	}
	named, err := v.meta.Texts("tokenizer.chat_templates")
	if err != nil {
		return nil, err
	}
	if len(named) > 0 {
		list := []object{}
		if ok {
			list = append(list, object{"name": "default", "template": template})
		}
		for _, name := range named {
			if text, ok, _ := v.meta.Text("tokenizer.chat_template." + name); ok {
				list = append(list, object{"name": name, "template": text})
			}
		}
		c["chat_template"] = list
	}
	for field, name := range map[string]string{"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"} {
		_, token, ok, err := v.special(name)
		if err != nil {
			return nil, err
		}
		if ok {
			c[field] = token
		}
	}
	return json.Marshal(c)
}
