package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
)

const (
	patternQwen2 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	byteDecoder  = `{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}`
)

// endOfText are the special tokens of a class for which one token does everything.
func endOfText(names ...string) map[string]string {
	m := map[string]string{}
	for _, role := range names {
		m[role] = "<|endoftext|>"
	}
	return m
}

// splitPattern is the JSON of a pre-tokenizer that cuts texts by a pattern and spells their bytes.
func splitPattern(pattern string, prefixSpace bool) string {
	quoted, _ := json.Marshal(pattern)
	return fmt.Sprintf(`{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":%s},"behavior":"Isolated","invert":false},`+
		`{"type":"ByteLevel","add_prefix_space":%t,"trim_offsets":true,"use_regex":false}]}`, quoted, prefixSpace)
}

// mergesParts returns the parts around a vocabulary of vocab.json and merges.txt, by the tokenizer's class.
func (f *folder) mergesParts() (parts, error) {
	space := f.flag("add_prefix_space", false)
	qwen := parts{normalizer: `{"type":"NFC"}`, decoder: byteDecoder, defaults: endOfText("unk_token", "eos_token", "pad_token")}
	switch name := f.className(); name {
	case "GPT2Tokenizer":
		return parts{pre: fmt.Sprintf(`{"type":"ByteLevel","add_prefix_space":%t,"trim_offsets":true,"use_regex":true}`, space),
			decoder: byteDecoder, defaults: endOfText("unk_token", "bos_token", "eos_token")}, nil
	case "Qwen2Tokenizer":
		qwen.pre = splitPattern(patternQwen2, space)
		return qwen, nil
	case "Qwen3_5Tokenizer":
		qwen.pre = splitPattern(patternQwen3, space)
		return qwen, nil
	default:
		return parts{}, &unknownError{fmt.Sprintf("tokenizers of model type %q and class %q are not supported", f.model, name)}
	}
}

// loadMerges reads vocab.json and merges.txt: a byte-level BPE.
func (f *folder) loadMerges() (*Tokenizer, error) {
	c, err := f.mergesParts()
	if err != nil {
		return nil, err
	}
	data, err := f.read("vocab.json")
	if err != nil {
		return nil, err
	}
	b := &bpe{unk: -1, cache: newWordCache()}
	if b.vocab, err = parseVocab(newScanner(data, 0)); err != nil {
		return nil, fmt.Errorf("vocab.json: %w", err)
	}
	if data, err = f.read("merges.txt"); err != nil {
		return nil, err
	}
	if err := b.readMerges(data); err != nil {
		return nil, fmt.Errorf("merges.txt: %w", err)
	}
	return f.build(b, c, nil)
}

// readMerges reads lines of two tokens with a space between them. Lines that begin with #version are
// skipped.
func (b *bpe) readMerges(text []byte) error {
	r := newMergeReader(b, bytes.Count(text, []byte("\n"))+1, func(w writtenMerge, err error) error {
		return fmt.Errorf("line %d: %w", w.number, err)
	})
	for n := 1; len(text) > 0; n++ {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		text, line = rest, bytes.TrimSuffix(line, []byte("\r"))
		if bytes.HasPrefix(line, []byte("#version")) {
			continue
		}
		left, right, ok := bytes.Cut(line, []byte(" "))
		if !ok || bytes.IndexByte(right, ' ') >= 0 {
			return cmp.Or(r.find(), fmt.Errorf("line %d: got %.60q, want two tokens with a space between them", n, line))
		}
		split := len(r.text) + len(left)
		r.text = append(append(r.text, left...), right...)
		if err := r.add(split, n, 0); err != nil {
			return err
		}
	}
	if err := r.find(); err != nil {
		return err
	}
	b.setMerges(r.list)
	return nil
}
